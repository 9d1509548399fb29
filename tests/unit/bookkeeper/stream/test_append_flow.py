"""The way of appends, with writers that a test plays."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from support.clocks import ManualClock
from support.workers import WorkerAtOnce
from tallystick.bookkeeper.stream.append_flow import APPEND_COST_BYTES, MOST_TOGETHER, AppendFlow
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.rollover import Action, EndLedger, Failure, Limits, RollOverCore
from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import (
    LedgerClosed,
    NotEnoughBookies,
    StreamClosed,
    StreamFenced,
    StreamFull,
    TallyError,
    UsageError,
)


class Writer:
    """Confirms what it got when it is told."""

    def __init__(self, ledger: int) -> None:
        self.id, self.max_payload_bytes = ledger, 100
        self.batches: list[list[bytes]] = []
        self.futures: list[asyncio.Future[int]] = []
        self.is_aborted = False
        self.failure: TallyError | None = None

    def append_batch_nowait(self, data: list[bytes]) -> asyncio.Future[int]:
        if self.failure is not None:
            raise self.failure
        self.batches.append(data)
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def abort(self) -> None:
        self.is_aborted = True


class Play:
    def __init__(self, *, max_entries: int = 1_000_000, max_pending_bytes: int = 1_000_000) -> None:
        self.core = RollOverCore(Limits(max_entries, 1 << 40, 1e9, 60.0), 7, 0.0)
        self.writer = cast(Any, Writer(7))
        self.actions: list[Action] = []
        self.failures: list[TallyError] = []
        self.flow = AppendFlow(
            "s",
            self.core,
            self.writer,
            EARLIEST,
            max_pending_bytes=max_pending_bytes,
            loop=asyncio.get_running_loop(),
            clock=ManualClock(),
            began=self.actions.extend,
            failed=self.failures.append,
            waiting_began=lambda: None,
        )


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_what_is_appended_in_one_tick_is_sent_together() -> None:
    play = Play()
    futures = [play.flow.append(b"%d" % n) for n in range(3)]
    await turns()
    futures.append(play.flow.append(b"3"))
    await turns()
    assert play.writer.batches == [[b"0", b"1", b"2"], [b"3"]] and len(play.flow) == 4
    for future in play.writer.futures:
        future.set_result(0)
    assert await asyncio.gather(*futures) == [Position(7, n) for n in range(4)]
    assert (play.flow.added, len(play.flow), play.flow.last_confirmed) == (4, 0, Position(7, 3))


async def test_what_is_left_behind_an_entry_that_is_stored_waits_from_then_on() -> None:
    """As long as that is known, somebody looks whether it waits for too long."""
    play = Play()
    for entry in (b"0", b"1"):
        play.flow.append(entry)
        await turns()
    assert play.flow.waits_since is not None
    play.writer.futures[0].set_result(0)
    await turns()
    assert len(play.flow) == 1 and play.flow.waits_since is not None
    play.writer.futures[1].set_result(1)
    await turns()
    assert len(play.flow) == 0 and play.flow.waits_since is None


async def test_what_is_in_doubt_stays_so_when_more_fails() -> None:
    """Nobody has read the entries behind the first of them yet."""
    play = Play()
    play.flow.append(b"0")
    await turns()
    play.flow.fail_all(StreamClosed())
    assert play.flow.doubtful_from == EARLIEST
    stored = play.flow.append(b"1")
    await turns()
    play.writer.futures[1].set_result(0)
    await stored
    play.flow.append(b"2")
    await turns()
    play.flow.fail_all(StreamClosed())
    assert play.flow.doubtful_from == EARLIEST


async def test_many_are_sent_in_parts() -> None:
    play = Play()
    for _ in range(MOST_TOGETHER + 5):
        play.flow.append(b"")
    await turns()
    assert [len(batch) for batch in play.writer.batches] == [MOST_TOGETHER, 5]


async def test_appends_are_refused_from_the_bound_on() -> None:
    play = Play(max_pending_bytes=50 + APPEND_COST_BYTES)
    play.flow.append(bytes(50))
    with pytest.raises(StreamFull):
        play.flow.append(b"")


async def test_a_ledger_that_ends_empty_does_not_change_what_is_the_last_entry() -> None:
    play = Play()
    future = play.flow.append(b"0")
    await turns()
    play.writer.futures[0].set_result(0)
    await future
    play.core.asked(0.0)
    play.core.ended(0, 1, 0.0)
    play.flow.settle(0)
    for ledger in (8, 9):
        play.core.made(ledger, 0.0)
        play.core.listed(0.0)
        play.flow.go_on(cast(Any, Writer(ledger)))
        play.core.failed(Failure.AWAY, 0.0)
        play.core.ended(-1, 0, 0.0)
        play.flow.settle(-1)
        assert play.flow.last_confirmed == Position(7, 0)


async def test_what_a_full_ledger_does_not_take_waits_for_the_next() -> None:
    play = Play(max_entries=2)
    futures = [play.flow.append(b"%d" % n) for n in range(3)]
    await turns()
    assert play.writer.batches == [[b"0", b"1"]] and play.actions == [EndLedger(7)]
    play.writer.futures[0].set_result(1)
    await turns()
    play.core.ended(1, 2, 0.0)
    play.flow.settle(1)
    play.core.made(8, 0.0)
    play.core.listed(0.0)
    assert play.flow.ledger_end == Position(8, -1) and play.flow.last_confirmed == Position(7, 1)
    following: Any = Writer(8)
    play.flow.go_on(following)
    following.futures[0].set_result(0)
    assert await asyncio.gather(*futures) == [Position(7, 0), Position(7, 1), Position(8, 0)]


@pytest.mark.parametrize("is_failure", [False, True])
async def test_what_an_ended_ledgers_writer_says_later_counts_no_more(is_failure: bool) -> None:
    """pulsar#2573: the second callback of a failed ledger closed the next one."""
    play = Play()
    futures = [play.flow.append(b"%d" % n) for n in range(3)]
    await turns()
    play.flow.settle(0)
    assert play.writer.is_aborted and futures[0].result() == Position(7, 0)
    if is_failure:
        play.writer.futures[0].set_exception(LedgerClosed())
    else:
        play.writer.futures[0].set_result(2)
    await turns()
    assert play.failures == [] and not futures[1].done() and len(play.flow) == 2


async def test_a_writer_that_fails_or_refuses_says_why() -> None:
    for is_late in (False, True):
        play = Play()
        future = play.flow.append(b"0")
        error = NotEnoughBookies()
        if is_late:
            await turns()
            play.writer.futures[0].set_exception(error)
        else:
            play.writer.failure = error
        await turns()
        assert play.failures == [error] and not future.done()


async def test_appends_that_fail_say_whether_they_were_sent() -> None:
    play = Play(max_entries=1)
    sent, waits = play.flow.append(b"0"), play.flow.append(b"1")
    cancelled = play.flow.append(b"2")
    cancelled.cancel()
    await turns()
    play.flow.refuse(StreamClosed())
    play.flow.fail_all(NotEnoughBookies(needed=3))
    for future, is_ambiguous in ((sent, True), (waits, False)):
        error = future.exception()
        assert isinstance(error, NotEnoughBookies) and error.ambiguous is is_ambiguous and error.needed == 3
    with pytest.raises(StreamClosed):
        play.flow.append(b"3")
    play.flow.refuse(StreamFenced())
    play.flow.refuse(StreamClosed())
    with pytest.raises(StreamFenced):
        play.flow.append(b"3")


async def test_an_entry_that_no_ledger_takes_is_refused() -> None:
    play = Play()
    with pytest.raises(UsageError):
        play.flow.append(bytes(101))
    play.flow.append(bytes(100))
    thread = SideThread(lambda name: WorkerAtOnce(), "encode")
    play.flow.append(LateEntry(1000, lambda: bytes(100), thread))
    refused = play.flow.append(LateEntry(1, lambda: bytes(101), thread))
    assert isinstance(refused.exception(), UsageError)
    await turns()
    assert [len(entry) for entry in play.writer.batches[0]] == [100, 100]


async def test_who_waits_for_room_goes_on_in_turn_and_hears_of_the_end() -> None:
    play = Play(max_pending_bytes=10)
    play.flow.append(bytes(10))
    order: list[int] = []

    async def append(n: int) -> Position:
        await play.flow.room()
        order.append(n)
        try:
            future = play.flow.append(bytes(10))
        finally:
            play.flow.wake()
        return await future

    tasks = [asyncio.ensure_future(append(n)) for n in range(3)]
    await turns()
    assert order == []
    play.writer.futures[0].set_result(0)
    await turns()
    assert order == [0] and len(play.writer.futures) == 2
    play.flow.refuse(StreamClosed())
    play.flow.fail_all(StreamClosed())
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 2] and all(isinstance(outcome, StreamClosed) for outcome in outcomes)


async def test_many_appends_fail_in_many_turns_and_what_comes_meanwhile_goes_on() -> None:
    play = Play(max_pending_bytes=1 << 30)
    futures = [play.flow.append(b"%d" % n) for n in range(2000)]
    await turns()
    futures += [play.flow.append(b"%d" % n) for n in range(2000, 4000)]
    for future in futures[5:4000:7]:
        future.cancel()
    play.flow.fail_all(NotEnoughBookies(needed=3))
    assert not futures[-1].done() and len(play.flow) == 0
    later = play.flow.append(b"later")
    await turns()
    assert play.writer.batches[-1] == [b"later"]
    results = await asyncio.gather(*futures, return_exceptions=True)
    failures = [result for result in results if isinstance(result, NotEnoughBookies)]
    assert len(failures) == 4000 - len(range(5, 4000, 7))
    doubts = [failure.ambiguous for failure in failures]
    assert doubts == sorted(doubts, reverse=True) and set(doubts) == {True, False}, "first those that were sent"
    assert not later.done()
