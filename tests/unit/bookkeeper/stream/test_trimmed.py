"""Retention of a stream whose first ledgers are old: what leaves in which change, and what those hear who read it."""

from __future__ import annotations

import asyncio

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, read_list
from tallystick.bookkeeper.stream import trim
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, CursorInfo, CursorState, Position
from tallystick.errors import PositionTrimmed

KEEPS_LITTLE = StreamSettings(entry_format="raw", max_entries_per_ledger=2, retention_s=100)


async def old(stream: Stream) -> None:
    """Four ledgers that nobody keeps any more, and the newest."""
    await asyncio.gather(*(stream.append(b"%d" % n) for n in range(9)))
    await asyncio.sleep(101)


async def listed(cluster: SmallCluster) -> list[int]:
    return [each.ledger for each in (await read_list(cluster)).ledgers]


async def test_a_cursor_that_is_made_before_the_list_changes_keeps_what_it_needs(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=KEEPS_LITTLE) as stream:
        await old(stream)

        async def keep(up_to: Position) -> None:
            assert up_to == Position(3, 1)
            info = CursorInfo(NO_LEDGER, CursorState(Position(1, 1)))
            await cluster.client(2).stream_context.catalog.write_cursor(NAME, "late", info, MISSING)

        stream._owner.keep = keep
        assert await stream.trim() == [0, 1] and await listed(cluster) == [2, 3, 4]


async def test_very_many_ledgers_leave_in_more_than_one_change(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim, "MOST_DROPPED", 3)
    async with cluster.client().open_stream(NAME, settings=KEEPS_LITTLE) as stream:
        await old(stream)
        assert await stream.trim() == [0, 1, 2, 3] and await listed(cluster) == [4]


async def test_who_had_read_all_that_was_trimmed_goes_on(cluster: SmallCluster) -> None:
    """Its place is one behind the last entry of a ledger that is gone: nothing that it has not read was deleted."""
    async with cluster.client().open_stream(NAME, settings=KEEPS_LITTLE) as stream:
        await old(stream)
        await stream.trim()
        bk = cluster.client(2)
        async with (
            bk.read_stream(NAME, entry_format="raw") as reader,
            bk.cursor(NAME, "c", entry_format="raw") as cursor,
        ):
            for place in ("3:2", "3:2:0"):
                assert [bytes(message.data) async for message in reader.read(start=place)] == [b"8"]
                await cursor.seek(place)
                assert [bytes(message.data) for message in await cursor.read(9)] == [b"8"]
            for place in ("3:1", "2:2", "3:2:1", "3:3", "0:0"):
                with pytest.raises(PositionTrimmed):
                    await anext(reader.read(start=place))
                with pytest.raises(PositionTrimmed):
                    await cursor.seek(place)
