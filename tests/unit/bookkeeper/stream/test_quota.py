"""A backlog quota: appends wait or fail beyond it, or the slowest cursors pass over the oldest messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, REFUSE, StoreFaults, payloads, read_list
from tallystick.bookkeeper.stream.backlog import backlog_bytes, last_beyond
from tallystick.bookkeeper.stream.expired import expired_in
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.errors import BacklogFull, StreamClosed, StreamFull

SIZE = 100  # bytes of an entry
HOLD = replace(RAW, max_entries_per_ledger=10, backlog_quota_bytes=20 * SIZE)
REFUSES = replace(HOLD, backlog_policy="producer_exception")
EVICTS = replace(HOLD, backlog_policy="consumer_backlog_eviction")


async def fill(stream: Stream, count: int) -> None:
    for _ in range(count):
        await stream.append(bytes(SIZE))


async def over(cluster: SmallCluster, stream: Stream) -> None:
    """Make a cursor that nobody has, and append more than the quota behind it."""
    await (await cluster.client(7).cursor(NAME, "billing", entry_format="raw")).close()
    await fill(stream, 21)
    await asyncio.sleep(1.5)  # then it is measured


async def ack(cluster: SmallCluster, position: Position) -> None:
    async with cluster.client(8).cursor(NAME, "billing", entry_format="raw") as cursor:
        await cursor.ack_up_to(position)


async def test_appends_wait_until_the_slowest_cursor_is_nearer(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=HOLD) as stream:
        await over(cluster, stream)
        waiting = [asyncio.ensure_future(stream.append(b"%d" % number)) for number in range(3)]
        with pytest.raises(BacklogFull) as full:
            stream.append_nowait(b"x")
        assert full.value.retriable and full.value.cursor == "billing" and full.value.quota_bytes == 20 * SIZE
        await asyncio.sleep(30)
        assert not any(one.done() for one in waiting)
        await ack(cluster, Position(0, 4))
        await asyncio.sleep(2)
        assert [str(one.result()) for one in waiting] == ["2:1", "2:2", "2:3"]
        stream.append_nowait(b"x")
    kinds = [kind for kind in cluster.kinds() if kind.startswith("backlog")]
    assert kinds == ["backlog exceeds its quota", "backlog within its quota"]


async def test_a_backlog_of_just_the_quota_is_within_it(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=REFUSES) as stream:
        await over(cluster, stream)
        await ack(cluster, Position(0, 0))  # of 21 entries 20 are left
        await asyncio.sleep(2)
        assert await stream.append(b"y") == Position(2, 1)


async def test_the_cursor_is_named_that_is_slowest_now(cluster: SmallCluster) -> None:
    """Not the one that was when appends began to fail: that may be at the end by now."""
    async with cluster.client().open_stream(NAME, settings=REFUSES) as stream:
        await (await cluster.client(7).cursor(NAME, "audit", entry_format="raw")).close()
        await (await cluster.client(7).cursor(NAME, "billing", entry_format="raw")).close()
        await fill(stream, 25)
        await ack(cluster, Position(0, 0))
        for named, behind in (("audit", 25), ("billing", 24)):
            await asyncio.sleep(2)
            with pytest.raises(BacklogFull) as full:
                stream.append_nowait(b"x")
            assert (full.value.cursor, full.value.fields["bytes"]) == (named, behind * SIZE)
            async with cluster.client(8).cursor(NAME, "audit", entry_format="raw") as audit:
                await audit.ack_up_to(stream.last_confirmed)
    assert cluster.kinds().count("backlog exceeds its quota") == 1


async def test_the_cursor_is_named_as_programs_name_it(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=REFUSES) as stream:
        await (await cluster.client(7).cursor(NAME, "shop:eu", entry_format="raw")).close()
        await fill(stream, 25)
        await asyncio.sleep(2)
        with pytest.raises(BacklogFull) as full:
            stream.append_nowait(b"x")
        assert full.value.cursor == "shop:eu"


async def test_or_they_fail_at_once(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=REFUSES) as stream:
        await over(cluster, stream)
        with pytest.raises(StreamFull, match="backlog"):
            await stream.append(b"x")
        await ack(cluster, Position(1, 9))
        await asyncio.sleep(2)
        assert await stream.append(b"y") == Position(2, 1)
    assert b"x" not in await payloads(cluster)


async def test_or_cursors_pass_over_the_oldest_messages(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=EVICTS) as stream:
        await over(cluster, stream)
        await fill(stream, 9)
        await asyncio.sleep(1.5)
        await stream.trim()
        held = await cluster.client(8).cursor(NAME, "billing", entry_format="raw")
        assert held.mark == expired_in(await read_list(cluster)) == Position(1, 1), "18 of 30 are left"
        await fill(stream, 20)
        await asyncio.sleep(3)
        assert held.mark == expired_in(await read_list(cluster)) == Position(3, 1), "who has it moves it"
        await held.close()
    assert "backlog exceeds its quota" not in cluster.kinds() and "cursor fenced" not in cluster.kinds()


async def test_a_trim_lets_them_pass_over_at_once(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=EVICTS) as stream:
        await over(cluster, stream)
        before = expired_in(await read_list(cluster))
        await fill(stream, 30)
        await stream.trim()
        assert before < expired_in(await read_list(cluster)) == Position(3, 2), "18 of 51 are left"


async def test_nothing_happens_within_the_quota_or_without_cursors(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=EVICTS) as stream:
        await fill(stream, 50)
        await asyncio.sleep(2)
        async with cluster.client(2).cursor(NAME, "billing", entry_format="raw", start=Position(3, 0)) as cursor:
            await fill(stream, 1)
            await asyncio.sleep(2)
            assert cursor.mark == Position(3, -1) and expired_in(await read_list(cluster)) == EARLIEST


async def test_what_waits_for_the_quota_ends_with_the_stream(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=HOLD)
    await over(cluster, stream)
    waiting = asyncio.ensure_future(stream.append(b"x"))
    await asyncio.sleep(5)
    await stream.close()
    with pytest.raises(StreamClosed):
        await waiting


async def test_metadata_that_is_away_holds_nobody_who_is_within_the_quota_and_frees_nobody_else(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    async with bk.open_stream(NAME, settings=replace(HOLD, max_entries_per_ledger=100)) as stream:
        await over(cluster, stream)
        waiting = asyncio.ensure_future(stream.append(b"x"))
        faults.is_away = True
        await ack(cluster, Position(0, 19))
        await asyncio.sleep(10)
        assert not waiting.done() and "backlog not measured" in cluster.kinds()
        faults.is_away = False
        await asyncio.sleep(2)
        assert waiting.done()
        faults.is_away = True
        await fill(stream, 30)
        faults.is_away = False


async def test_a_ledger_that_failed_meanwhile_keeps_nobody_waiting(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No append comes that would bring up the next one."""
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    async with bk.open_stream(NAME, settings=replace(HOLD, max_pending_s=5.0)) as stream:
        await over(cluster, stream)
        faults.script = lambda changes: REFUSE
        rolling = asyncio.ensure_future(stream.roll_over())
        await asyncio.sleep(30)
        faults.script = lambda changes: None
        waiting = asyncio.ensure_future(stream.append(b"x"))
        await ack(cluster, Position(1, 9))
        await asyncio.sleep(5)
        assert waiting.done() and not waiting.exception()
        await asyncio.wait([rolling])
        rolling.exception()


def test_the_bytes_behind_a_cursor() -> None:
    info = StreamInfo((StreamLedger(3, 4, 400, 1), StreamLedger(5, 10, 2000, 1), StreamLedger(8, 0, 0)))
    assert backlog_bytes(info, EARLIEST) == backlog_bytes(info, Position(3, -1)) == 2400
    assert backlog_bytes(info, Position(3, 0)) == 2300
    assert backlog_bytes(info, Position(3, 3)) == backlog_bytes(info, Position(4, 7)) == 2000
    assert backlog_bytes(info, Position(5, 4)) == 1000
    assert backlog_bytes(info, Position(5, 9)) == backlog_bytes(info, Position(8, -1)) == 0
    assert backlog_bytes(info, Position(5, 12)) == 0
    assert last_beyond(info, 2400) == EARLIEST
    assert last_beyond(info, 2399) == Position(3, 0)
    assert last_beyond(info, 2000) == Position(3, 3)
    assert last_beyond(info, 1999) == Position(5, 0)
    assert last_beyond(info, 1000) == Position(5, 4)
    assert last_beyond(info, 0) == Position(5, 9)
    for most in range(0, 2500, 7):
        assert backlog_bytes(info, last_beyond(info, most)) <= most
