"""Numbered appends that fail, or wait: none is lost, and none is stored twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.streams import StoreFaults
from tallystick.bookkeeper.ledger import late_failures
from tallystick.bookkeeper.stream import dedup
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.numbers import read_numbers
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import (
    EarlierAppendFailed,
    MetadataUnavailable,
    NotEnoughBookies,
    StreamClosed,
    StreamFull,
    TallyError,
)

NAME = "t/n/persistent/topic"


async def messages(bk: BookKeeper, name: str = NAME) -> list[bytes]:
    async with bk.read_stream(name) as reader:
        return [bytes(message.data) async for message in reader.read()]


@pytest.mark.parametrize("is_stored", [False, True])
async def test_an_append_in_doubt_is_looked_for_before_its_repeat_is_judged(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """It failed while its ledger could not be closed; that is closed without it, or with it."""
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=10.0))
    await stream.append(b"0", producer="p", sequence=0)
    faults.is_away = True
    for bookie in cluster.bookies.values():
        if is_stored:
            bookie.held = []
        else:
            bookie.misbehave = lambda request: HANG
    with pytest.raises(MetadataUnavailable) as failed:
        await stream.append(b"1", producer="p", sequence=1)
    assert failed.value.ambiguous
    faults.is_away = False
    for bookie in cluster.bookies.values():
        bookie.held = bookie.misbehave = None
    if is_stored:
        await (await cluster.client(50).open_ledger(stream.last_confirmed.ledger, recover=True)).close()
    first = await stream.append(b"1", producer="p", sequence=1)
    assert await stream.append(b"1", producer="p", sequence=1) == first
    await stream.append(b"2", producer="p", sequence=2)
    await stream.close()
    assert await messages(bk) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("max_bytes", [2000, 1 << 20])
async def test_no_higher_number_overtakes_one_that_failed(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """It would make the repeat look stored. Here each of many callers repeats its own, and some waited for room."""
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=10.0, max_pending_bytes=max_bytes))
    await stream.append(b"0", producer="p", sequence=0)
    refused: list[int] = []

    async def append(number: int) -> Position:
        while True:
            try:
                return await stream.append(b"%d" % number, producer="p", sequence=number)
            except EarlierAppendFailed as error:
                assert error.retriable and not error.ambiguous and error.producer == "p" and error.sequence == number
                assert error.earlier is None or error.earlier < number
                refused.append(number)
            except (MetadataUnavailable, StreamFull):
                pass
            await asyncio.sleep(0.1 + 0.01 * (number * 7 % 10))

    faults.is_away = True
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    tasks = [asyncio.create_task(append(number)) for number in range(1, 30)]
    await asyncio.sleep(14)
    faults.is_away = False
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    positions = await asyncio.gather(*tasks)
    await stream.close()
    assert refused and EARLIEST not in positions
    assert await messages(bk) == [b"%d" % number for number in range(30)]


async def test_a_number_above_one_that_fails_in_this_tick_is_refused(cluster: SmallCluster) -> None:
    """The failure is known to the caller before it is known here: of a batch its part would be left out."""
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=1.0))
    await stream.append(b"0", producer="p", sequence=0)
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    refusals: list[TallyError] = []

    def again(_: object) -> None:
        try:
            stream.append_nowait(b"2", producer="p", sequence=2)
        except TallyError as error:
            refusals.append(error)

    before = stream.append_nowait(b"before")
    before.add_done_callback(again)  # in the tick in which number 1 fails, before its owner hears of that
    future = stream.append_nowait(b"1", producer="p", sequence=1)
    with pytest.raises(TallyError):
        await future
    with pytest.raises(TallyError):
        await before
    assert [type(refusal) for refusal in refusals] == [EarlierAppendFailed]
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    await stream.append(b"1", producer="p", sequence=1)
    await stream.append(b"2", producer="p", sequence=2)
    await stream.close()
    assert await messages(bk) == [b"0", b"1", b"2"]


async def test_what_was_accepted_while_numbers_were_read_waits_for_room(cluster: SmallCluster) -> None:
    """Entries are longer than the messages by which they were counted."""
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=StreamSettings(max_pending_bytes=10_000)) as stream:
        futures: list[asyncio.Future[Position]] = []
        with pytest.raises(StreamFull):
            while True:
                number = len(futures)
                futures.append(stream.append_nowait(b"%d" % number, producer="p", sequence=number))
        assert len(futures) > 30
        await asyncio.gather(*futures)
    assert await messages(bk) == [b"%d" % number for number in range(len(futures))]


@pytest.mark.parametrize("is_batch", [False, True])
async def test_append_waits_for_room_while_the_numbers_are_read(cluster: SmallCluster, is_batch: bool) -> None:
    """It raised StreamFull, which is for who does not wait; and whoever waits is served in turn."""
    bk = cluster.client()
    count = 300

    async def append(number: int) -> Position:
        if number % 7 == 6:
            return await stream.append(b"%d" % number)
        if is_batch:
            return (await stream.append_batch([b"%d" % number], producer="p", sequence=number))[0]
        return await stream.append(b"%d" % number, producer="p", sequence=number)

    async with bk.open_stream(NAME, settings=StreamSettings(max_pending_bytes=3_000)) as stream:
        tasks = [asyncio.create_task(append(number)) for number in range(count)]
        await asyncio.sleep(0)
        tasks[40].cancel()
        with pytest.raises(StreamFull):
            stream.append_nowait(b"at once")
        positions = await asyncio.gather(*tasks, return_exceptions=True)
        del positions[40]
        assert positions == sorted(positions, key=lambda position: position if isinstance(position, tuple) else ())
    assert await messages(bk) == [b"%d" % number for number in range(count) if number != 40]


async def test_who_waits_for_room_while_the_numbers_are_read_hears_why_there_is_none(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_bytes=3_000))
    faults.is_away = True
    tasks = [asyncio.create_task(stream.append(b"%d" % n, producer="p", sequence=n)) for n in range(40)]
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60.0)
    assert {type(outcome) for outcome in outcomes} == {MetadataUnavailable}
    faults.is_away = False
    tasks = [asyncio.create_task(stream.append(b"%d" % n, producer="p", sequence=n)) for n in range(40)]
    await asyncio.sleep(0)
    await stream.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60.0)
    assert {type(outcome) for outcome in outcomes[-20:]} == {StreamClosed}
    stored = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Position)]
    assert await messages(bk) == [b"%d" % n for n in stored]


async def test_many_that_waited_for_the_numbers_are_pushed_in_many_turns(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup, "PUSHED_A_TURN", 3)
    bk, turns = cluster.client(), 0
    async with bk.open_stream(NAME) as stream:
        futures = [stream.append_nowait(b"%d" % n, producer="p", sequence=n) for n in range(20)]
        while dedup_of(stream).holds:
            await asyncio.sleep(0)
            turns += len(stream._owner.flow) > 0
            if turns == 2:  # comes behind them
                futures.append(stream.append_nowait(b"20", producer="p", sequence=20))
                futures.append(stream.append_nowait(b"21"))
        assert turns >= 5
        await asyncio.gather(*futures)
    assert await messages(bk) == [b"%d" % number for number in range(22)]


async def test_what_waits_for_the_numbers_fails_when_the_stream_is_closed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_bytes=3_000))
    futures = [stream.append_nowait(b"%d" % n, producer="p", sequence=n) for n in range(10)]
    await asyncio.sleep(0)
    stream.abort()
    results = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 1.0)
    assert all(isinstance(result, StreamClosed) for result in results)


def dedup_of(stream: Stream) -> dedup.Deduplication:
    assert stream._dedup is not None
    return stream._dedup


async def test_numbers_are_refused_while_those_before_fail_and_others_are_not(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many fail in many turns: of a batch nothing is left out as being on its way."""
    monkeypatch.setattr(late_failures, "FAILED_A_TURN", 2)
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=1.0))
    await stream.append(b"0", producer="p", sequence=0)
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    futures = [stream.append_nowait(b"%d" % number, producer="p", sequence=number) for number in range(1, 12)]
    with pytest.raises(TallyError):
        await futures[0]
    assert not futures[-1].done()
    with pytest.raises(EarlierAppendFailed):
        stream.append_nowait(b"12", producer="p", sequence=12)
    with pytest.raises(EarlierAppendFailed):
        await stream.append_batch([b"11", b"12", b"13"], producer="p", sequence=11)
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    other = [stream.append_nowait(b"q%d" % number, producer="q", sequence=number) for number in range(3)]
    repeat = stream.append_nowait(b"3", producer="p", sequence=3)
    results = await asyncio.gather(*futures, repeat, return_exceptions=True)
    assert all(isinstance(result, TallyError) for result in results)
    await asyncio.gather(*other)
    for number in range(1, 14):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await stream.close()
    assert await messages(bk) == [b"0", b"q0", b"q1", b"q2", *(b"%d" % number for number in range(1, 14))]


async def test_a_ledger_that_ends_without_an_entry_while_the_numbers_are_read(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the list, and another takes its place: the stream is its owner's as before."""
    bk = cluster.client()
    stream = await bk.open_stream(NAME)

    async def read_slowly(context: Any, *arguments: Any) -> None:
        stream._owner._writer_failed(NotEnoughBookies())
        await asyncio.sleep(1)
        await read_numbers(context, *arguments)

    monkeypatch.setattr(dedup, "read_numbers", read_slowly)
    assert await stream.append(b"x", producer="p", sequence=0) == Position(1, 0)
    await stream.close()


async def test_what_fails_late_is_looked_for_though_the_next_ledger_is_open_by_then(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored twice: only entries behind those of its own ledger were read."""
    turn, fail_rest = asyncio.Event(), late_failures.LateFailures._fail_rest

    async def fail_rest_later(failures: late_failures.LateFailures) -> None:
        await turn.wait()
        await fail_rest(failures)

    monkeypatch.setattr(late_failures, "FAILED_A_TURN", 1)
    monkeypatch.setattr(late_failures.LateFailures, "_fail_rest", fail_rest_later)
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=2.0))
    await stream.append(b"0", producer="p", sequence=0)
    faults.is_away = True
    for bookie in cluster.bookies.values():
        bookie.held = []
    before = stream.append_nowait(b"-")
    numbered = stream.append_nowait(b"1", producer="p", sequence=1)
    with pytest.raises(MetadataUnavailable):
        await before
    faults.is_away = False
    for bookie in cluster.bookies.values():
        bookie.held = None
    await (await cluster.client(50).open_ledger(stream.last_confirmed.ledger, recover=True)).close()
    await stream.append(b"next")
    assert not numbered.done()
    turn.set()
    with pytest.raises(MetadataUnavailable):
        await numbered
    await stream.append(b"1", producer="p", sequence=1)
    await stream.close()
    assert await messages(bk) == [b"0", b"-", b"1", b"next"]
