"""What looks at the metadata say of the ledgers that a bookie stores."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.bookie.identities import LedgerIdentities
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.records import CreationRecord
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerRecord, State
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.codec.steps import finished

KEY, OTHER = master_key(b"mine"), master_key(b"other")


@pytest.fixture
def ledgers() -> Ledgers:
    """1 has a creation, 2 has none, 3 has none and was unmade."""
    records = (
        (1, LedgerRecord(KEY, 2, False, 10)),
        (2, LedgerRecord(KEY, 2, False)),
        (3, LedgerRecord(KEY, 2, False, UNKNOWN, True)),
    )
    return Ledgers(State(ledgers={ledger: record.packed(ledger) for ledger, record in records}))


@pytest.fixture
def identities(ledgers: Ledgers) -> LedgerIdentities:
    return LedgerIdentities(ledgers, lambda ledger, record: None)


def test_those_without_a_creation_and_those_that_were_not_compared_are_doubtful(
    ledgers: Ledgers, identities: LedgerIdentities
) -> None:
    assert finished(identities.doubtful()) == [1, 2, 3]
    identities.looked(1, 10, written=True)
    ledgers.alive[2].was_compared = True
    assert finished(identities.doubtful()) == [2, 3]


def test_all_looks_are_made_again_when_other_ledgers_are_ahead(ledgers: Ledgers, identities: LedgerIdentities) -> None:
    identities.looked(1, 10, written=True)
    finished(identities.set_ahead([]))
    assert identities.were_looked_at([1]), "none is, as before"
    steps = identities.set_ahead([1, 2])
    assert ledgers.ahead == set()
    finished(steps)
    assert ledgers.ahead == {1, 2} and not identities.were_looked_at([1])


def test_a_look_that_finds_no_creation_lets_nobody_write_what_is_in_doubt(identities: LedgerIdentities) -> None:
    identities.looked(1, UNKNOWN, written=True)
    assert not identities.were_looked_at([1]) and identities.is_in_doubt(1)
    identities.looked(2, UNKNOWN, written=True)
    assert identities.were_looked_at([2])


def test_a_look_ends_the_claim_of_another_key(ledgers: Ledgers, identities: LedgerIdentities) -> None:
    identities.looked(1, 10, written=True)
    ledgers.extend(ledgers.alive[1], 5)
    assert identities.needs_look(1, 0, OTHER) and identities.needs_comparison(1, OTHER)
    identities.looked(1, 10, written=True)
    assert not identities.needs_comparison(1, OTHER)


def test_ledgers_of_an_earlier_process_count_until_a_look_finds_them_and_unmade_ones_once(
    ledgers: Ledgers, identities: LedgerIdentities
) -> None:
    for bound, is_full in ((2, True), (3, False)):
        identities.bound_unmade(bound)
        assert identities.is_one_too_many(99) is is_full
    identities.bound_unmade(1)
    identities.note(2, 11)
    assert identities.is_one_too_many(99)
    identities.note(3, 12)
    assert not identities.is_one_too_many(99)


def test_what_looks_that_count_no_longer_were_behind_is_not_unmade_by_later_ones(
    ledgers: Ledgers, identities: LedgerIdentities
) -> None:
    ledgers.create(4, KEY)
    identities.look_again()
    assert not ledgers.lacks(4)


def test_only_a_ledger_that_was_ahead_is_given_up_with_its_deletion(ledgers: Ledgers) -> None:
    ledgers.delete(1, 9, 0)
    assert 1 not in ledgers.given_up


def test_a_replay_that_skips_a_deleted_ledger_keeps_it_as_long_as_its_commits(ledgers: Ledgers) -> None:
    ledgers.delete(1, 9, 3)
    assert ledgers.is_forgettable(1, 3)
    assert ledgers.skipped(1, 7) and not ledgers.skipped(2, 7)
    assert not ledgers.is_forgettable(1, 6) and ledgers.is_forgettable(1, 7)


def test_what_a_look_finds_is_recorded_once(ledgers: Ledgers) -> None:
    staged: list[bytes] = []
    identities = LedgerIdentities(ledgers, lambda ledger, record: staged.append(bytes(record)))
    identities.looked(2, 11, written=True)
    identities.note(2, 11)
    ledgers.create(4, KEY)
    identities.looked(4, UNKNOWN, written=True)  # it is there, and has no creation yet
    assert staged == [CreationRecord(2, 11).encode()] and not ledgers.alive[4].unmade
    identities.looked(4, UNKNOWN, written=False)
    assert staged == [CreationRecord(2, 11).encode(), CreationRecord(4, UNKNOWN).encode()] and ledgers.alive[4].unmade


def test_a_creation_is_compared_when_it_is_noted_and_never_one_that_was_given_up(
    ledgers: Ledgers, identities: LedgerIdentities
) -> None:
    ledgers.given_up.add(2, 11)
    identities.note(2, 11)
    assert ledgers.alive[2].creation == UNKNOWN and identities.is_in_doubt(2)
    identities.note(2, 12)
    assert ledgers.alive[2].creation == 12 and not identities.needs_comparison(2) and not identities.is_in_doubt(2)


def test_metadata_misses_ledgers_with_entries_that_somebody_may_have_made(
    ledgers: Ledgers, identities: LedgerIdentities
) -> None:
    for ledger in (1, 3):
        ledgers.extend(ledgers.alive[ledger], 0)
    assert [identities.is_missed(ledger) for ledger in (1, 2, 3, 4)] == [True, False, False, False]
