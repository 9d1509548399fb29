"""Who may add, and what is known of each ledger."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tallystick.bookkeeper.bookie import ledgers as module
from tallystick.bookkeeper.bookie.identities import LedgerIdentities
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.look import Judgement, Verdict, judge
from tallystick.bookkeeper.bookie.state import UNKNOWN, DeletedLedger, LedgerIdentity, LedgerRecord, State
from tallystick.bookkeeper.metadata.driver import Record
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.codec.steps import finished

KEY, OTHER = master_key(b"mine"), master_key(b"other")
STATE = State(
    7,
    3,
    12,
    (4, 9),
    {1: LedgerRecord(KEY, 2, True).packed(1), 1 << 60: LedgerRecord(OTHER, 11, False, 99).packed(1 << 60)},
    {5: DeletedLedger(1_700_000_000_000), 6: DeletedLedger(8, 1 << 62)},
    77,
    6,
)


def forgettable(ledgers: Ledgers, oldest_ms: int, most: int, mark: int = 0, others: tuple[int, ...] = ()) -> list[int]:
    steps = ledgers.forgettable(others, oldest_ms, most, mark)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    held_ledger: list[int] = end.value.value
    return held_ledger


def test_creations_of_metadata_that_was_copied_say_nothing() -> None:
    ledgers = Ledgers(STATE)
    ledgers.ahead = {1 << 60}
    assert finished(ledgers.anchored(77)) and ledgers.identity(1 << 60) == LedgerIdentity(99, False, True)
    assert not finished(ledgers.anchored(78)) and finished(ledgers.anchored(78))
    assert ledgers.identity(1 << 60) == LedgerIdentity(UNKNOWN, False) and ledgers.identity(6) == LedgerIdentity(
        UNKNOWN, True
    )
    assert ledgers.records()[1 << 60] == LedgerRecord(OTHER, 11, False).packed(1 << 60)


def test_creations_are_forgotten_in_steps_and_count_as_old_ones_until_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 ledgers took 86 ms of one turn. A crash in between finds the old anchor, and forgets all again."""
    monkeypatch.setattr(module, "STEP_LEDGERS", 10)
    stored = {number: LedgerRecord(KEY, 2, False, number + 1).packed(number) for number in range(95)}
    deleted = {number: DeletedLedger(number, number + 1, was_ahead=True) for number in range(100, 125)}
    ledgers = Ledgers(State(ledgers=stored, deleted=deleted, anchor=77))
    ledgers.ahead = {1}
    steps, count = ledgers.anchored(78), 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
            count += 1
            assert (ledgers.anchor, ledgers.ahead) == (77, {1}) and len(ledgers.given_up.of(100)) == 1
            if count == 2:
                ledgers.delete(90, 9, 0)
                ledgers.create(200, KEY)
    assert (end.value.value, count) == (False, 9 + 2)
    identities = [ledgers.identity(number) for number in (*range(95), *range(100, 125), 200)]
    assert all(identity is not None and identity.creation == UNKNOWN for identity in identities)
    assert not any(identity.was_given_up or identity.ahead for identity in identities if identity)
    assert list(ledgers.deleted) == [*range(100, 125), 90] and ledgers.given_up.copy() == {}


def test_who_comes_to_the_end_of_forgetting_later_undoes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look and a collection find the other metadata at once; what is noted or ahead since then is of it."""
    monkeypatch.setattr(module, "STEP_LEDGERS", 10)
    stored = {number: LedgerRecord(KEY, 2, False, number + 1).packed(number) for number in range(50)}
    ledgers = Ledgers(State(ledgers=stored, deleted={60: DeletedLedger(9, 5)}, anchor=77))
    later = ledgers.anchored(78)
    next(later)
    assert not finished(ledgers.anchored(78)) and ledgers.anchor == 78
    ledgers.set_creation(45, 1 << 60)
    ledgers.ahead = {45}
    assert not finished(later)
    assert ledgers.identity(45) == LedgerIdentity(1 << 60, False, True) and finished(ledgers.anchored(78))


def test_who_forgets_deleted_ledgers_behind_the_end_of_forgetting_undoes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STEP_LEDGERS", 10)
    deleted = {number: DeletedLedger(number, number + 1) for number in range(25)}
    ledgers = Ledgers(State(deleted=deleted, anchor=77))
    later = ledgers.anchored(78)
    next(later)
    assert not finished(ledgers.anchored(78))
    ledgers.ahead = {45}
    ledgers.given_up.add(5, 99)
    assert not finished(later)
    assert ledgers.ahead == {45} and list(ledgers.given_up.of(5)) == [99]


def test_no_look_at_other_metadata_counts() -> None:
    ledgers = Ledgers(STATE)
    held_ledger = ledgers.alive[1 << 60]
    held_ledger.is_written = held_ledger.is_compared = held_ledger.was_compared = True
    assert finished(ledgers.anchored(77)) and ledgers.were_looked_at([1 << 60])
    assert not finished(ledgers.anchored(78))
    assert not (held_ledger.is_written or held_ledger.is_compared or held_ledger.was_compared)


def test_all_looks_count_no_longer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million ledgers that was a turn of 59 ms."""
    ledger, ledgers = 1 << 60, Ledgers(STATE)
    identities = LedgerIdentities(ledgers, lambda ledger, record: None)
    checks: list[Callable[[], bool]] = [
        lambda: identities.were_looked_at([ledger]),
        lambda: not identities.needs_look(ledger, 5, OTHER),
        lambda: not identities.needs_comparison(ledger),
        lambda: not identities.is_in_doubt(ledger),
        lambda: not identities.may_hold_anothers(ledger),
        lambda: ledger not in finished(identities.doubtful()),
    ]
    for check in checks:  # each alone, as the first one that asks
        identities.looked(ledger, 99, written=True)
        assert check()
        with monkeypatch.context() as untouched:
            untouched.setattr(ledgers, "alive", None)
            identities.look_again()
        assert not check()
    identities.looked(ledger, 99, written=True)
    identities.look_again()
    identities.note(ledger, 99)
    assert [check() for check in checks] == [False, False, False, True, True, True]
    ledgers.create(7, KEY)
    identities.looked(7, UNKNOWN, written=True)
    assert not identities.needs_note(7)
    identities.look_again()
    assert identities.needs_note(7)


def test_a_deleted_ledger_that_is_forgotten_between_steps_stays_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_LEDGERS", 10)
    ledgers = Ledgers(State(deleted={number: DeletedLedger(number, number + 1) for number in range(25)}, anchor=77))
    steps = ledgers.anchored(78)
    next(steps)
    finished(ledgers.forget_deleted([20]))
    assert not finished(steps) and list(ledgers.deleted) == [*range(20), *range(21, 25)]


def test_ledgers_that_came_before_the_metadata_was_replaced_are_not_invented_ones() -> None:
    """A look in other metadata does not find honest ledgers either."""
    ledgers = Ledgers(State(anchor=77))
    ledgers.create(1, KEY)
    assert not finished(ledgers.anchored(78))
    ledgers.create(2, KEY)
    assert (ledgers.lacks(1), ledgers.lacks(2)) == (False, True)


@pytest.mark.rule("Q15")
def test_q15_which_ledger_was_given_up_is_known_for_the_day_it_comes_back() -> None:
    """An operator gave it up as newer than the metadata, and found newer metadata then: a "no" cut off its entries."""
    ledgers = Ledgers(STATE)
    ledgers.ahead = {1 << 60}
    ledgers.delete(1 << 60, 9, 0)
    assert ledgers.identity(1 << 60) == LedgerIdentity(99, True, True)
    for creation in (0, 99, 1 << 62):
        state = State(deleted={7: DeletedLedger(9, creation, True), 8: DeletedLedger(9, creation)})
        assert State.decode(state.encode(), "") == state
    record = Record(LedgerState.OPEN, creation=99)
    assert judge(record, ledgers.identity(1 << 60)) == Judgement(Verdict.AMISS, 99)
    assert judge(replace(record, creation=98), ledgers.identity(1 << 60)).verdict is Verdict.ADMIT, (
        "another one's id now"
    )


def test_an_id_is_looked_at_where_it_may_be_another_ledgers() -> None:
    ledgers = Ledgers(State())
    assert (ledgers.needs_look(1, 0, KEY), ledgers.needs_look(1, 1, KEY), ledgers.needs_comparison(1)) == (
        False,
        True,
        False,
    )
    held_ledger = ledgers.create(1, KEY)
    assert (ledgers.needs_look(1, 0, KEY), ledgers.needs_comparison(1)) == (True, False)
    held_ledger.last, held_ledger.is_written, held_ledger.creation, held_ledger.is_compared = 5, True, 7, True
    assert not ledgers.needs_look(1, 6, KEY) and not ledgers.needs_comparison(1)
    assert ledgers.needs_look(1, 0, KEY), "it may be the first entry of a new ledger"
    assert ledgers.needs_look(1, 1, KEY) and ledgers.needs_comparison(1), "and what follows, and who recovers it"
    held_ledger.is_written = held_ledger.is_compared = held_ledger.fenced = True
    assert not ledgers.needs_look(1, 6, KEY)
    ledgers.look_again()
    assert ledgers.needs_look(1, 6, KEY), "it is fenced, and perhaps not the ledger that is meant"
    assert ledgers.identity(1) == LedgerIdentity(7, False) and ledgers.identity(2) is None
    ledgers.delete(1, 0, 0)
    assert (
        ledgers.needs_look(1, 0, KEY) and ledgers.needs_comparison(1) and ledgers.identity(1) == LedgerIdentity(7, True)
    )


def test_an_entry_0_with_another_key_lets_nobody_wait_but_those_with_that_key() -> None:
    """A stranger sent one, and 2,000 reads of the ledger's end waited for a look."""
    ledgers = Ledgers(State())
    held_ledger = ledgers.create(1, KEY)
    held_ledger.last, held_ledger.creation = 5, 7
    held_ledger.is_written = held_ledger.is_compared = held_ledger.was_compared = True
    assert not ledgers.needs_comparison(1, OTHER)
    assert ledgers.needs_look(1, 0, OTHER) and ledgers.needs_look(1, 1, OTHER), "the ledger is the next one of its id"
    assert not ledgers.needs_comparison(1) and not ledgers.needs_comparison(1, KEY)
    assert ledgers.needs_comparison(1, OTHER), "nor does a fence overtake those adds"
    held_ledger.fenced = True
    assert ledgers.needs_look(1, 0, OTHER) and not ledgers.needs_look(1, 6, KEY)


def test_what_a_checkpoint_stores_of_each_ledger_follows_all_changes() -> None:
    for seed in range(20):
        rng, ledgers = random.Random(seed), Ledgers(STATE)
        for step in range(60):
            ledger = rng.randrange(8)
            change = rng.randrange(5)
            if change == 0:
                ledgers.admit(ledger, KEY, 0)
            elif change == 1:
                ledgers.fence(ledger, KEY, 0)
            elif ledger in ledgers.alive and change == 2:
                ledgers.set_creation(ledger, step)
            elif ledger in ledgers.alive and change == 3:
                ledgers.delete(ledger, 0, step)
            elif ledger in ledgers.alive:
                ledgers.extend(ledgers.alive[ledger], rng.randrange(3))
            ledgers.next_log += change
            assert ledgers.without_entries == sum(held_ledger.last < 0 for held_ledger in ledgers.alive.values()), seed
            assert ledgers.records() == {
                number: LedgerRecord(
                    held_ledger.key, held_ledger.born, held_ledger.fenced, held_ledger.creation, held_ledger.unmade
                ).packed(number)
                for number, held_ledger in ledgers.alive.items()
            }, seed
        assert Ledgers(replace(State(), ledgers=ledgers.records())).alive.keys() == ledgers.alive.keys()
    before = ledgers.records()
    ledgers.create(99, KEY)
    assert 99 not in before


def test_the_first_key_is_the_key() -> None:
    ledgers = Ledgers(State())
    assert ledgers.admit(1, KEY, 0) == Code.OK
    assert ledgers.admit(1, OTHER, 0) == Code.UNAUTHORIZED
    assert ledgers.fence(1, OTHER, 0) == Code.UNAUTHORIZED
    assert ledgers.admit(1, KEY, 0) == Code.OK, "the refused fence did nothing"


def test_negative_ledgers_are_bad_requests() -> None:
    ledgers = Ledgers(State())
    assert ledgers.admit(-1, KEY, 0) == ledgers.fence(-1, KEY, 0) == Code.BAD_REQUEST
    assert not ledgers.alive


@pytest.mark.rule("Q11", "Q14")
def test_q11_a_fence_stops_writers_and_q14_not_recovery() -> None:
    ledgers = Ledgers(State())
    assert ledgers.fence(1, KEY, 0) == Code.OK, "of a ledger that this bookie never heard of"
    assert ledgers.admit(1, KEY, 0) == Code.FENCED
    assert ledgers.admit(1, KEY, 0, recovery=True) == Code.OK
    assert ledgers.fence(1, KEY, 0) == Code.OK, "again"


def test_a_deleted_ledger_is_remembered_from_its_last_access() -> None:
    ledgers = Ledgers(State())
    for ledger in (1, 2, 3):
        ledgers.admit(ledger, KEY, 0)
        ledgers.delete(ledger, 1000 + ledger, 0)
    assert ledgers.admit(1, KEY, 5000) == ledgers.admit(1, KEY, 5000, recovery=True) == Code.FENCED
    assert ledgers.fence(2, KEY, 5000) == Code.IO_ERROR, "its deletion is not durable"
    finished(ledgers.forget_deleted([]))
    assert ledgers.fence(2, KEY, 5000) == Code.NO_LEDGER
    assert forgettable(ledgers, 2000, 10) == [3]
    assert forgettable(ledgers, 0, 2) == [3], "not the ones asked for last"
    assert forgettable(ledgers, 0, 0) == [3, 1, 2]


@pytest.mark.rule("Q15")
def test_q15_an_id_that_is_remembered_no_more_is_no_ledger_when_its_deletion_is_durable() -> None:
    ledgers = Ledgers(State())
    for ledger in (1, 2):
        ledgers.admit(ledger, KEY, 0)
        ledgers.delete(ledger, 0, 0)
    finished(ledgers.forget_deleted([1]))
    assert ledgers.absent(1) == ledgers.absent(2) == Code.NO_LEDGER


def test_a_deleted_ledger_is_remembered_while_the_journal_has_adds_to_it() -> None:
    ledgers = Ledgers(State())
    ledgers.admit(1, KEY, 0)
    ledgers.delete(1, 0, 8)
    assert forgettable(ledgers, 1 << 60, 0, 7) == [] and not ledgers.is_forgettable(1, 7)
    assert forgettable(ledgers, 1 << 60, 0, 8) == [1] and ledgers.is_forgettable(1, 8)
    assert not ledgers.is_forgettable(2, 8)


def test_who_is_forgotten_while_others_are_looked_for_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_LEDGERS", 10)
    ledgers = Ledgers(State(deleted={number: DeletedLedger(number, 7) for number in range(25)}))
    steps = ledgers.forgettable((), 100, 100, 0)
    next(steps)
    finished(ledgers.forget_deleted([20]))
    assert finished(steps) == [*range(20), *range(21, 25)]


def test_invented_ledgers_do_not_crowd_out_the_memory_of_deleted_ones() -> None:
    """Of them no metadata was ever seen."""
    ledgers = Ledgers(State())
    ledgers.create(1, KEY)
    ledgers.set_creation(1, 5)
    ledgers.delete(1, 1000, 0)
    for ledger in range(2, 10):
        ledgers.fence(ledger, KEY, 0)
        ledgers.delete(ledger, 2000 + ledger, 0)
    assert forgettable(ledgers, 0, 3) == [2, 3, 4, 5, 6, 7]
    assert forgettable(ledgers, 0, 3, others=(3, 8)) == [2, 4, 5, 6], "which go anyway"


def test_keys_are_not_shown() -> None:
    ledgers = Ledgers(STATE)
    for shown in (repr(ledgers.alive), repr(STATE)):
        assert repr(KEY) not in shown and KEY.hex() not in shown


def test_ledgers_that_the_metadata_does_not_have_are_counted() -> None:
    """Whoever reaches the port can invent them: 200,000 took 300 MB, and 10 s of the next start."""
    ledgers = Ledgers(State())
    ledgers.most_unmade = 3
    for ledger in (1, 2, 3):
        assert not ledgers.needs_look(ledger, 0, KEY)
        ledgers.admit(ledger, KEY, 0)
    assert ledgers.needs_look(4, 0, KEY) and ledgers.is_one_too_many(4), "nobody has looked yet"
    assert not ledgers.is_one_too_many(1)
    for ledger in (1, 2, 3):
        ledgers.lacks(ledger)
    assert ledgers.is_one_too_many(4)
    again = Ledgers(replace(State(), ledgers=ledgers.records()))
    again.most_unmade = 3
    assert again.is_one_too_many(4), "after a restart, too"
    ledgers.admit(1, KEY, 0)
    assert ledgers.is_one_too_many(4)
    ledgers.set_creation(1, 5)
    assert not ledgers.is_one_too_many(4), "it was made meanwhile"
    ledgers.admit(4, KEY, 0)
    assert ledgers.is_one_too_many(5)
    ledgers.delete(2, 0, 0)
    assert not ledgers.is_one_too_many(5) and not ledgers.needs_look(5, 0, KEY)


def test_what_nobody_could_look_at_counts_until_a_look_finds_it() -> None:
    """Each pause, and each crash, would give who invents ledgers the next lot."""
    ledgers = Ledgers(State())
    ledgers.most_unmade = 2
    ledgers.admit(1, KEY, 0)
    ledgers.create(2, KEY)
    ledgers.missed_looks()
    assert ledgers.is_one_too_many(3)
    ledgers.lacks(1)
    assert not ledgers.alive[1].unmade and ledgers.is_one_too_many(3), "metadata may have been restored since"
    again = Ledgers(replace(State(), ledgers=ledgers.records()))
    again.most_unmade = 2
    assert again.is_one_too_many(3), "after a restart, too"
    ledgers.set_creation(1, 5)
    assert not ledgers.is_one_too_many(3)
    ledgers.create(3, KEY)
    assert ledgers.is_one_too_many(4)
    ledgers.missed_looks()
    assert ledgers.is_one_too_many(4), "the second pause forgets nothing of the first one"
    ledgers.delete(2, 0, 0)
    assert not ledgers.is_one_too_many(4)
