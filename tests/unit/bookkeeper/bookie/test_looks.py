"""Before the first ordinary add in its life a bookie looks whether anybody may still write the ledger."""

from __future__ import annotations

import asyncio

import pytest

from support.bookies import Home, Peer, adds, read, talking
from support.looks import looks_at
from support.waiting import until
from support.watched import METADATA, Watched, answers
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.look import (
    BATCH_LEDGERS,
    MAX_TRIES,
    Judgement,
    LookCore,
    Verdict,
    judge,
)
from tallystick.bookkeeper.bookie.looks import REPORT_S
from tallystick.bookkeeper.bookie.session import ADD_RESPONSE_BYTES, WAITING_BYTES, WRITE_HIGH_BYTES
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.bookie.wires import WAITING_LEDGERS
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.runtime.events import Event

HERE, LATER, ELSEWHERE = Moment("ours", 1), Moment("ours", 2), Moment("theirs", 1)
OPEN = Record(LedgerState.OPEN, 1)

# -- what is decided --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, Verdict.GONE),
        (Record(LedgerState.IN_RECOVERY, 1), Verdict.REFUSE),
        (Record(LedgerState.CLOSED, 1), Verdict.REFUSE),
        (OPEN, Verdict.ADMIT),
        (Record(None, 1), Verdict.UNKNOWN),
    ],
)
def test_only_an_open_ledger_is_written(record: Record | None, said: Verdict) -> None:
    assert judge(record, None).verdict is said


@pytest.mark.parametrize(
    ("identity", "verdict", "renew"),
    [
        (LedgerIdentity(5, False), Verdict.ADMIT, False),
        (LedgerIdentity(UNKNOWN, False), Verdict.ADMIT, False),
        (LedgerIdentity(4, False), Verdict.ADMIT, True),
        (LedgerIdentity(6, False), Verdict.AMISS, False),
        (LedgerIdentity(5, True), Verdict.AMISS, False),
        (LedgerIdentity(4, True), Verdict.ADMIT, True),
        (LedgerIdentity(UNKNOWN, True), Verdict.ADMIT, True),
        (LedgerIdentity(6, True), Verdict.AMISS, False),
        (LedgerIdentity(5, True, True), Verdict.AMISS, False),
        (LedgerIdentity(6, True, True), Verdict.ADMIT, True),
        (LedgerIdentity(4, True, True), Verdict.ADMIT, True),
    ],
)
def test_which_ledger_of_that_id_it_is(identity: LedgerIdentity, verdict: Verdict, renew: bool) -> None:
    old = identity if renew else None
    assert judge(Record(LedgerState.OPEN, 5), identity) == Judgement(verdict, 5, old)
    closed = judge(Record(LedgerState.CLOSED, 5), identity)
    assert closed == Judgement(Verdict.REFUSE if verdict is Verdict.ADMIT else verdict, 5, old)
    assert judge(None, identity) == Judgement(Verdict.GONE)


def new_core() -> LookCore:
    return LookCore("ours", lambda ledger: None, lambda ledger: ())


ADMIT, NOTHING = Judgement(Verdict.ADMIT, OPEN.creation), Judgement(Verdict.UNKNOWN)


def test_ledgers_are_read_in_bounded_batches_and_each_once() -> None:
    core = new_core()
    for ledger in [*range(BATCH_LEDGERS + 1), 0, 1]:
        core.requested(ledger)
    first = core.next_batch()
    assert first == tuple(range(BATCH_LEDGERS))
    core.requested(0)  # it is being read
    assert core.next_batch() == first
    assert core.read(HERE, HERE, dict.fromkeys(first, OPEN)) == dict.fromkeys(first, ADMIT)
    assert core.next_batch() == (BATCH_LEDGERS,)


def test_a_connection_that_broke_makes_it_read_again_and_not_for_ever() -> None:
    core = new_core()
    core.requested(7)
    for _ in range(MAX_TRIES - 1):
        assert core.next_batch() == (7,)
        assert core.read(HERE, LATER, {7: None}) == {}
    assert core.next_batch() == (7,)
    assert core.read(HERE, LATER, {7: None}) == {7: NOTHING}
    assert core.next_batch() == ()


def test_each_batch_has_all_its_tries() -> None:
    core = new_core()
    for ledger in (7, 8):
        core.requested(ledger)
        for _ in range(MAX_TRIES - 1):
            assert core.next_batch() == (ledger,)
            assert core.read(HERE, LATER, {ledger: None}) == {}
        assert core.next_batch() == (ledger,)
        assert core.read(HERE, HERE, {ledger: OPEN}) == {ledger: ADMIT}


@pytest.mark.parametrize("moments", [(ELSEWHERE, ELSEWHERE), (HERE, ELSEWHERE), (ELSEWHERE, HERE)])
def test_metadata_of_another_cluster_says_nothing(moments: tuple[Moment, Moment]) -> None:
    core = new_core()
    core.requested(7)
    core.next_batch()
    assert core.read(*moments, {7: None}) == {7: NOTHING}


# -- a bookie ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def looks() -> bool:
    return True


async def test_an_add_that_is_refused_in_any_case_waits_for_no_look(peer: Peer, driver: Watched) -> None:
    driver.gate.clear()
    assert await peer.code(adds(-7, [3])) == Code.BAD_REQUEST
    assert driver.looked_up == []


async def test_entry_0_of_a_new_ledger_waits_for_no_look_and_the_rest_for_one(peer: Peer, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    driver.gate.clear()
    assert await peer.code(adds(7, [0])) == Code.OK
    peer.writer.write(adds(7, [1]))
    await until(lambda: driver.looked_up)
    driver.gate.set()
    assert await answers(peer, 1) == [(Code.OK, 7, 1)]
    for entry in range(2, 4):
        assert await peer.code(adds(7, [entry])) == Code.OK
    assert driver.looked_up == [(7,)]


async def test_what_came_with_entry_0_waits_for_the_look(peer: Peer, driver: Watched) -> None:
    peer.writer.write(adds(7, range(5)))  # its ledger is gone
    assert await answers(peer, 5) == [(Code.OK, 7, 0), *((Code.FENCED, 7, entry) for entry in range(1, 5))]
    assert driver.looked_up == [(7,)]


@pytest.mark.parametrize("state", [None, LedgerState.IN_RECOVERY, LedgerState.CLOSED])
async def test_an_empty_bookie_does_not_take_entries_of_a_ledger_that_nobody_writes(
    bookie: Bookie, peer: Peer, driver: Watched, state: LedgerState | None
) -> None:
    if state is not None:
        metadata = METADATA.in_recovery() if state is LedgerState.IN_RECOVERY else METADATA.closed(9, 90)
        await driver.create_ledger(metadata, 7)
    peer.writer.write(adds(7, [10, 11, 12]))
    assert await answers(peer, 3) == [(Code.FENCED, 7, entry) for entry in (10, 11, 12)]
    assert await peer.code(read(7, 10)) == Code.NO_LEDGER
    assert (bookie.counts.looks_refused, bookie.counts.adds_failed) == (1, 3)
    assert bookie.committer.staged_bytes == 0


async def test_a_restarted_bookie_looks_again_at_what_it_has(home: Home, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    await driver.create_ledger(METADATA, 8)
    async with home.running() as bookie, talking(bookie) as peer:
        for ledger in (7, 8):
            for entry in range(3):
                assert await peer.code(adds(ledger, [entry])) == Code.OK
    await driver.write_ledger(7, METADATA.closed(2, 9), 0)
    async with home.running() as bookie, talking(bookie) as peer:
        bookie.looks._metadata = driver
        assert await peer.code(adds(7, [3])) == Code.FENCED
        assert await peer.code(adds(7, [0])) == Code.FENCED, "entry 0 of a ledger that is not new here"
        assert await peer.code(adds(8, [3])) == Code.OK
        assert await peer.code(adds(8, [4])) == Code.OK
        assert await peer.code(read(7, 2)) == Code.OK
        assert driver.looked_up == [(7,), (7,), (8,)]


async def test_recovery_adds_to_what_is_new_here_do_not_wait(peer: Peer, driver: Watched) -> None:
    await driver.create_ledger(METADATA.closed(9, 90), 7)
    for entry in (3, 4):
        assert await peer.code(adds(7, [entry], flags=RequestFlag.RECOVERY_ADD | RequestFlag.HIGH_PRIORITY)) == Code.OK
    assert driver.looked_up in ([], [(7,)]), "behind them, for its creation"


@pytest.mark.rule("Q14")
@pytest.mark.parametrize("at_once", [False, True])
async def test_q14_what_recovery_writes_back_does_not_overtake_an_add_that_waits(
    peer: Peer, driver: Watched, at_once: bool
) -> None:
    """By version 2 the two have one name: the refusal of the first was taken for that of the second."""
    await driver.create_ledger(METADATA.in_recovery(), 7)
    driver.gate.clear()
    ordinary, write_back = adds(7, [3]), adds(7, [3], flags=RequestFlag.RECOVERY_ADD)
    if at_once:
        peer.writer.write(ordinary + write_back)
    else:
        peer.writer.write(ordinary)
        await until(lambda: driver.looked_up)
        peer.writer.write(write_back + adds(8, [0]))
        assert await answers(peer, 1) == [(Code.OK, 8, 0)]
    driver.gate.set()
    assert [await answers(peer, 1) for _ in range(2)] == [[(Code.FENCED, 7, 3)], [(Code.OK, 7, 3)]]


async def test_an_ordinary_add_with_flags_looks_too(peer: Peer, driver: Watched) -> None:
    assert await peer.code(adds(7, [3], flags=RequestFlag.HIGH_PRIORITY)) == Code.FENCED
    await driver.create_ledger(METADATA, 8)
    assert await peer.code(adds(8, [3], flags=RequestFlag.HIGH_PRIORITY)) == Code.OK


async def test_many_ledgers_share_a_look_and_settled_ones_do_not_wait(peer: Peer, driver: Watched) -> None:
    for ledger in range(100, 140):
        await driver.create_ledger(METADATA, ledger)
    await peer.code(adds(100, [0]))
    assert await peer.code(adds(100, [1])) == Code.OK
    driver.looked_up.clear()
    driver.gate.clear()
    peer.writer.write(b"".join(adds(ledger, [5]) for ledger in range(101, 140)))
    peer.writer.write(adds(100, [2]) + adds(101, [6]))
    assert await answers(peer, 1) == [(Code.OK, 100, 2)]
    await until(lambda: driver.looked_up)
    driver.gate.set()
    expected = sorted([*((0, ledger, 5) for ledger in range(101, 140)), (0, 101, 6)])
    assert await answers(peer, 40) == expected
    assert sum(map(len, driver.looked_up)) == 39
    assert len(driver.looked_up) <= 2  # the writes may arrive apart


async def test_answers_that_wait_for_a_look_count_as_held_until_they_are_given(
    bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """By what is held a peer that sends without end is read no more."""
    await driver.create_ledger(METADATA, 7)
    driver.gate.clear()
    peer.writer.write(adds(7, range(5, 15)))
    await until(lambda: driver.looked_up)
    (session,) = bookie._server._sessions
    await until(lambda: session._held_bytes == WAITING_BYTES + 10 * ADD_RESPONSE_BYTES)
    driver.gate.set()
    assert len(await answers(peer, 10)) == 10
    assert session._held_bytes == 0


async def test_a_connection_is_read_no_more_while_very_many_ledgers_wait_for_it(
    bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """60 connections with 37,000 ledgers each had 1.75 GB: a request counted as the 28 bytes of its response."""
    driver.gate.clear()
    ledgers = range(12 * BATCH_LEDGERS)
    peer.writer.write(b"".join(adds(ledger, [5]) for ledger in ledgers))
    await until(lambda: driver.looked_up)
    (session,) = bookie._server._sessions
    await until(lambda: not session._reading and session._held_bytes >= WRITE_HIGH_BYTES)
    assert len(bookie.looks._requests) < WRITE_HIGH_BYTES // WAITING_BYTES + 2 * WAITING_LEDGERS
    driver.gate.set()
    expected = [(Code.FENCED, ledger, 5) for ledger in ledgers]
    assert await answers(peer, len(ledgers)) == expected
    assert session._held_bytes == 0


async def test_several_connections_hear_of_their_own(bookie: Bookie, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    driver.gate.clear()
    async with talking(bookie) as one, talking(bookie) as other, talking(bookie) as third:
        for entry, peer in enumerate((one, other, third), 5):
            peer.writer.write(adds(7, [entry]))
        await until(lambda: bookie.committer.staged_bytes > 2 * len(adds(7, [5])))
        await third.close()  # nobody is there to hear
        driver.gate.set()
        assert await answers(one, 1) == [(Code.OK, 7, 5)]
        assert await answers(other, 1) == [(Code.OK, 7, 6)]
    await until(lambda: bookie.committer.staged_bytes == 0)


async def test_refused_adds_are_all_counted_and_told_once_in_a_while(home: Home, bookie: Bookie, peer: Peer) -> None:
    assert [await peer.code(adds(ledger, [3])) for ledger in range(5)] == [Code.FENCED] * 5
    assert bookie.counts.looks_refused == 5
    assert len(home.heard("adds refused")) == 1
    bookie.looks._report_at = 0.0
    assert await peer.code(adds(5, [3])) == Code.FENCED
    assert [event.fields["ledgers"] for event in home.heard("adds refused")] == [1, 5]


async def test_a_ledger_of_which_all_is_refused_is_told_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request of it is a look: who asked for one without end filled the log."""
    monkeypatch.setattr("tallystick.bookkeeper.bookie.looks.MOST_REPORTED", 3)
    heard = list[Event]()
    looks = looks_at(Watched("cluster"), heard)
    for ledger in (1, 1, 2, 1, 3, 4, 5, 1):
        looks._count(ledger, Verdict.AMISS, adds=False)
    assert [event.fields["ledger"] for event in heard] == [1, 2, 3] and looks._counts.looks_amiss == 8
    looks._amiss_since -= REPORT_S
    looks._count(4, Verdict.AMISS, adds=False)
    assert heard[-1].fields["ledger"] == 4


async def test_what_cannot_be_read_is_taken_counted_and_looked_at_later(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    driver.fails = True
    assert await peer.code(adds(7, [3])) == Code.OK
    assert not bookie.looks.active
    assert await peer.code(adds(7, [4])) == Code.OK
    assert await peer.code(adds(8, [4])) == Code.OK
    assert (bookie.counts.looks_failed, bookie.counts.adds_not_looked_at, len(driver.looked_up)) == (1, 2, 1)
    assert len(home.heard("ledgers not looked at")) == 1
    driver.fails = False
    bookie.looks._look_again()
    assert await peer.code(adds(7, [5])) == Code.FENCED  # it is gone


async def test_metadata_that_hangs_holds_no_writer_up_for_long(
    bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.bookkeeper.bookie.looks.ANSWER_S", 0.05)
    driver.gate.clear()
    assert await peer.code(adds(7, [3])) == Code.OK
    assert bookie.counts.looks_failed == 1


async def test_a_look_has_turns_of_the_loop_however_long_they_are(
    bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of busy connections made each turn as long as the look may take, and the metadata was not to blame."""
    monkeypatch.setattr("tallystick.bookkeeper.bookie.looks.ANSWER_S", 0.0)
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [3])) == Code.OK
    assert (bookie.counts.looks_failed, len(driver.looked_up), bookie.looks.active) == (0, 1, True)


async def test_a_fence_that_comes_during_the_look_counts(peer: Peer, bookie: Bookie, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    driver.gate.clear()
    peer.writer.write(adds(7, [3]))
    await until(lambda: driver.looked_up)
    async with talking(bookie) as recovery:
        assert (await recovery.answer(read(7, -1, key=b"\0" * 20))).code in (Code.OK, Code.NO_ENTRY, Code.NO_LEDGER)
    driver.gate.set()
    assert (await answers(peer, 1))[0][0] in (Code.FENCED, Code.UNAUTHORIZED)


async def test_a_bookie_stops_with_adds_held(home: Home, driver: Watched) -> None:
    driver.gate.clear()
    async with home.running() as bookie, talking(bookie) as peer:
        bookie.looks._metadata = driver
        peer.writer.write(adds(7, [3]))
        await until(lambda: driver.looked_up)
    async with home.running() as bookie:
        assert 7 not in bookie.storage.ledger_ids()


# -- without a bookie -------------------------------------------------------------------------------------------------


async def test_a_bug_in_a_look_is_a_failure_of_the_bookie(driver: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held would wait for ever, and no later add would be looked at."""

    async def bug(ledgers: object) -> None:
        raise ZeroDivisionError("a bug")

    failures = list[Exception]()
    looks = looks_at(driver, [], failures)
    monkeypatch.setattr(driver, "look_up", bug)
    looks.hold(7, 1, lambda admitted: None)
    await until(lambda: bool(failures))
    assert isinstance(failures[0], ZeroDivisionError)
    await looks.close()


async def test_what_was_read_while_the_connection_broke_is_read_again(
    driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it may be from before the break, and of a server that lagged."""
    moments, answered = [HERE, LATER, LATER, LATER], list[Verdict]()

    async def sync() -> Moment:
        return moments.pop(0)

    monkeypatch.setattr(driver, "sync", sync)
    looks = looks_at(driver, [])
    looks.hold(7, 1, answered.append)
    await until(lambda: answered)
    assert (answered, driver.looked_up) == ([Verdict.GONE], [(7,), (7,)])


async def test_what_a_look_found_is_made_durable_though_nobody_waits_for_it(driver: Watched) -> None:
    looks, flushed = looks_at(driver, []), list[None]()
    looks._flush = lambda: flushed.append(None)
    looks.look_at(7)
    await until(lambda: looks._looking is None)
    assert flushed and driver.looked_up == [(7,)]
    await looks.close()


async def test_several_batches_that_cannot_be_read_make_one_pause(driver: Watched) -> None:
    heard, answered = list[Event](), list[Verdict]()
    looks = looks_at(driver, heard)
    driver.fails = True
    for ledger in range(BATCH_LEDGERS + 1):
        looks.hold(ledger, 1, answered.append)
    await until(lambda: len(answered) == BATCH_LEDGERS + 1)
    assert set(answered) == {Verdict.UNKNOWN}
    assert [event.kind for event in heard] == ["ledgers not looked at"]
    await looks.close()


async def test_what_is_held_when_it_closes_is_never_answered(driver: Watched) -> None:
    """It would be taken into a storage that is being closed."""
    heard, answered = list[Event](), list[Verdict]()
    looks = looks_at(driver, heard)
    driver.gate.clear()
    looks.hold(7, 1, answered.append)
    await until(lambda: driver.looked_up)
    await looks.close()
    driver.gate.set()
    await asyncio.sleep(0)
    assert (answered, heard) == ([], [])


async def test_connections_of_one_host_have_their_turns_as_one(bookie: Bookie, peer: Peer, driver: Watched) -> None:
    driver.gate.clear()
    peer.writer.write(adds(1, [1]))
    await until(lambda: driver.looked_up)
    async with talking(bookie) as another:
        peer.writer.write(adds(10, [1]) + adds(11, [1]))
        await until(lambda: len(bookie.looks._requests) == 3)
        another.writer.write(adds(20, [1]) + adds(21, [1]))
        await until(lambda: len(bookie.looks._requests) == 5)
        bookie.looks.hold(30, 0, lambda said: None, who="writer", host="another host")
        driver.gate.set()
        await until(lambda: len(driver.looked_up) == 2)
    assert driver.looked_up[1] == (10, 30, 20, 11, 21)
