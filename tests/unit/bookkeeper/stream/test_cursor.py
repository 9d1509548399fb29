"""Cursors: what is read, what is acknowledged, and what is left of it."""

from __future__ import annotations

import asyncio
from typing import TypeGuard

import pytest

from support.cursors import drain, text
from support.listed_streams import NAME, ListedStream, pulsar_entry
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.cursor_places import TURN_PLACES
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata
from tallystick.errors import (
    CorruptEntry,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchPosition,
    PositionTrimmed,
    StreamClosed,
    Unavailable,
    UsageError,
)

# -- reading -----------------------------------------------------------------------------------------------------------


async def test_it_reads_all_in_order_and_then_waits(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        assert text(await cursor.read(2)) == "ab"
        assert await drain(cursor) == "cdefg"
        assert await cursor.read(wait=False) == []
        waiting = asyncio.create_task(cursor.read())
        await asyncio.sleep(1)
        assert not waiting.done()
        await stream.append(b"h")
        assert text(await waiting) == "h"


async def test_what_is_acknowledged_is_not_read_again(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        messages = await cursor.read(7)
        await cursor.ack(messages[1])
        await cursor.ack_batch([messages[0].position, messages[3], str(messages[4].position)])
        assert cursor.mark == messages[1].position and cursor.backlog == 3
        await cursor.rewind()
        assert await drain(cursor) == "cfg"
    async with cursors.open(NAME, "billing") as again:
        assert (again.mark, again.backlog) == (messages[1].position, 3)
        assert await drain(again) == "cfg"
        await again.ack_up_to(messages[6])
        assert again.backlog == 0
        await again.rewind()
        assert await drain(again) == ""


async def test_a_place_in_a_batch_is_in_that_of_its_own_ledger(cluster: SmallCluster, cursors: Cursors) -> None:
    """Each ledger has an entry of that number."""
    owner = await ListedStream(cluster.client()).create(
        [pulsar_entry(b"a", b"b", b"c")], [pulsar_entry(b"d", b"e", b"f")]
    )
    async with cursors.open(NAME, "billing", durable=False) as cursor:
        await cursor.seek(Position(owner.info.ledgers[0].ledger, 0, 2))
        assert await drain(cursor) == "cdef"


async def test_a_read_has_a_bound_in_bytes(stream: Stream, cursors: Cursors) -> None:
    await stream.append(b"x" * 100)
    await asyncio.sleep(0.3)
    async with cursors.open(NAME, "billing", start="beginning") as cursor:
        assert await drain(cursor, max_bytes=3) == "abc"
        assert await drain(cursor, max_bytes=50) == "defg"
        assert len(await cursor.read(max_bytes=50)) == 1


async def test_two_reads_are_served_in_order_and_who_does_not_wait_is_not_held_up(
    stream: Stream, cursors: Cursors
) -> None:
    async with cursors.open(NAME, "billing", start="end") as cursor:
        first, second = (asyncio.create_task(cursor.read(1)) for _ in range(2))
        await asyncio.sleep(0.5)
        assert await cursor.read(wait=False) == []
        await stream.append(b"h")
        assert text(await first) == "h" and not second.done()
        await stream.append(b"i")
        assert text(await second) == "i"


async def test_a_read_that_is_cancelled_delivers_nothing_and_loses_nothing(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing", start="end") as cursor:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await cursor.read()
        await stream.append(b"h")
        assert text(await cursor.read()) == "h"
        await cursor.rewind()
        assert text(await cursor.read()) == "h"


async def test_a_rewind_or_seek_is_seen_by_a_read_that_waits(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        messages = await cursor.read(7)
        for step, seen in ((cursor.rewind(), "abcdefg"), (cursor.seek(messages[5].position), "fg")):
            waiting = asyncio.create_task(cursor.read())
            await asyncio.sleep(0.5)
            await step
            assert text(await waiting) == seen


async def test_it_is_iterated_to_the_end_of_a_terminated_stream(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        seen = ""
        async for message in cursor:
            seen += message.data.decode()
            await cursor.ack(message)
            if seen == "abcdefg":
                await stream.terminate()
        assert seen == "abcdefg" and cursor.backlog == 0
        assert await cursor.read() == []


async def test_messages_of_a_batch_are_acknowledged_one_by_one(stream: Stream, cursors: Cursors) -> None:
    positions = await stream.append_batch([b"1", b"2", b"3"])
    await stream.append(b"h")
    await asyncio.sleep(0.3)
    async with cursors.open(NAME, "billing", start=positions[0]) as cursor:
        assert text(await cursor.read(2)) == "12" and cursor.read_position == positions[2]
        assert await drain(cursor) == "3h"
        await cursor.ack(positions[1])
        await cursor.rewind()
        assert await drain(cursor) == "13h"
    async with cursors.open(NAME, "billing") as cursor:
        assert await drain(cursor) == "13h"
        await cursor.ack_up_to(positions[2])
        assert cursor.backlog == 1
    async with cursors.open(NAME, "reports", start=positions[1]) as cursor:
        assert await drain(cursor) == "23h"
        for index in (3, 9):
            with pytest.raises(NoSuchPosition):
                await cursor.ack(positions[0]._replace(batch_index=index))
            with pytest.raises(NoSuchPosition):
                await cursor.seek(positions[0]._replace(batch_index=index))


class Yields:
    """Counts how often others have a turn, or somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._sleep = 0, asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self)

    async def __call__(self, seconds: float) -> None:
        self.count += 1
        await self._sleep(seconds)


async def test_others_have_turns_while_very_many_are_acknowledged(
    cluster: SmallCluster, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is looked up, judged and acknowledged."""
    async with cluster.client(1).open_stream(NAME) as stream:
        positions = [await future for future in [stream.append_nowait(b"x") for _ in range(4 * TURN_PLACES)]]
        await asyncio.sleep(0.3)
        async with cursors.open(NAME, "billing", durable=False) as cursor:
            await cursor.refresh()
            yields = Yields(monkeypatch)
            await cursor.ack_batch(positions)
            assert yields.count >= 5 * 4 and cursor.mark == positions[-1]


async def test_several_are_acknowledged_by_a_list(stream: Stream, cursors: Cursors) -> None:
    """A Position is a tuple of numbers, of which the error spoke."""
    async with cursors.open(NAME, "billing") as cursor:
        with pytest.raises(UsageError, match=r"give one to ack \(given=0:1\)"):
            await cursor.ack_batch(Position(0, 1))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="a list of messages or positions"):
            await cursor.ack_batch("0:1")


async def test_a_damaged_entry_is_told_until_it_is_acknowledged(cluster: SmallCluster, cursors: Cursors) -> None:
    async with cluster.client(1).open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:
        await owner.append(pulsar_entry(b"a"))
        await owner.append(b"\xff")
        await owner.append(pulsar_entry(b"c"))
        await asyncio.sleep(0.3)
        async with cursors.open(NAME, "billing") as cursor:
            assert await drain(cursor) == "a"
            for _ in range(2):
                with pytest.raises(CorruptEntry) as caught:
                    await cursor.read()
            await cursor.ack(caught.value.position)
            assert await drain(cursor) == "c"


async def test_a_lost_entry_is_told_until_it_is_acknowledged(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        (first,) = await cursor.read(1)
        lost = Position(first.position.ledger + 1, 1)
        for name in cluster.holders(lost.ledger, lost.entry):
            del cluster.bookies[name].entries[lost.ledger, lost.entry]
        assert await drain(cursor) == "bcd"
        for _ in range(2):
            with pytest.raises(NoSuchEntry):
                await cursor.read()
        await cursor.ack(lost)
        assert await drain(cursor) == "fg"
        await cursor.rewind()
        assert await drain(cursor) == "abcdfg"


async def test_a_lost_ledger_is_told_until_it_is_acknowledged(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    """Pulsar's cursors stood still before it, or began again at the start."""
    async with cursors.open(NAME, "billing") as cursor:
        (first,) = await cursor.read(1)
        lost = first.position.ledger + 1
        await cluster.client(3).delete_ledger(lost)
        assert await drain(cursor) == "bc"
        for _ in range(2):
            with pytest.raises(NoSuchLedger) as caught:
                await cursor.read()
            assert caught.value.ledger == lost
        await cursor.ack_up_to(Position(lost, 2))
        assert cursor.mark == Position(lost, 2)
        assert await drain(cursor) == "g"
    async with cursors.open(NAME, "billing") as again:
        assert await drain(again) == "g" and again.backlog == 1


async def test_markers_of_a_broker_hold_up_nothing(cluster: SmallCluster, cursors: Cursors) -> None:
    """They have no messages, so nobody acknowledges them."""
    front = MessageMetadata(producer_name="p", sequence_id=7, publish_time=5, marker_type=21).SerializeToString()
    marker = len(front).to_bytes(4, "big") + front
    async with cluster.client(1).open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:
        for entry in (pulsar_entry(b"a"), marker, pulsar_entry(b"c")):
            await owner.append(entry)
        await asyncio.sleep(0.3)
        async with cursors.open(NAME, "billing") as cursor:
            messages = await cursor.read()
            assert text(messages) == "ac"
            await cursor.ack_batch(messages)
            assert cursor.mark == messages[1].position and cursor.backlog == 0


async def test_raw_entries(cluster: SmallCluster, cursors: Cursors) -> None:
    async with cluster.client(1).open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:
        position = await owner.append(b"\xff")
        await asyncio.sleep(0.3)
        async with cursors.open(NAME, "billing", entry_format="raw") as cursor:
            (message,) = await cursor.read()
            assert message.data == b"\xff"
            with pytest.raises(UsageError):
                await cursor.seek(time=5)
            with pytest.raises(NoSuchPosition):
                await cursor.ack(position._replace(batch_index=1))
            await cursor.ack(position)
            assert cursor.backlog == 0


async def test_messages_are_read_one_by_one_across_roll_overs(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        for expected in "abcdefg":
            assert text(await cursor.read(1)) == expected
        for data in "hijklmnopq":
            await stream.append(data.encode())
            assert text(await cursor.read(1)) == data
        await cursor.ack_up_to(stream.last_confirmed)
        assert cursor.backlog == 0 and cursor.read_position > stream.last_confirmed


async def test_much_that_is_acknowledged_is_not_even_read(cluster: SmallCluster, cursors: Cursors) -> None:
    async with cluster.client(1).open_stream(NAME) as stream:
        last = [await stream.append(b"%d" % number) for number in range(300)][-1]
        await asyncio.sleep(0.3)
        async with cursors.open(NAME, "billing") as cursor:
            (first,) = await cursor.read(1)
            await cursor.ack_batch([Position(last.ledger, entry) for entry in range(5, 295)])
            await cursor.rewind()
            for bookie in cluster.bookies.values():
                bookie.requests.clear()
            assert text(await cursor.read(wait=False)) == "01234295296297298299"
            read = {each.entry for bookie in cluster.bookies.values() for each in bookie.requests if is_read(each)}
            assert len(read) < 150 and cursor.mark < first.position
            assert 200 not in read


def is_read(request: v2.Request) -> TypeGuard[v2.ReadFrame]:
    return isinstance(request, v2.ReadFrame)


async def test_an_error_comes_after_what_was_read_before_it_and_nothing_is_read_twice(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        assert text(await cursor.read(4)) == "abcd"
        await cluster.down(*cluster.bookies)
        with pytest.raises((Unavailable, MetadataError)):
            assert text(await cursor.read(1)) in "ef"  # which may have been read ahead
            await cursor.read(1)
            await cursor.read(1)
        await cluster.up(*cluster.bookies)
        await asyncio.sleep(30)  # until they are asked again
        rest = await drain(cursor)
        assert rest and "efg".endswith(rest)


async def test_a_hundred_cursors_share_the_list(stream: Stream, cursors: Cursors) -> None:
    opened = [await cursors.open(NAME, f"c{number}", durable=number < 5) for number in range(100)]
    assert len({id(cursor._core.counts) for cursor in opened}) == 1
    await stream.append(b"h")
    await stream.append(b"i")
    await stream.append(b"j")
    assert len({await cursor.refresh() for cursor in opened}) == 1
    assert len({id(cursor._core.counts) for cursor in opened}) == 1
    for cursor in opened:
        await cursor.close()


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_a_tuple_of_numbers_is_no_position(stream: Stream, cursors: Cursors) -> None:
    await stream.append(b"0")
    with pytest.raises(UsageError, match='start is "beginning", "end", a Position'):
        await cursors.open(NAME, "billing", start=(0, 0))  # type: ignore[arg-type]
    cursor = await cursors.open(NAME, "billing", start="beginning")
    for call in (cursor.ack((0, 0)), cursor.seek((0, 0)), cursor.seek("start")):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="a Position, or a text"):
            await call
    await cursor.close()


async def test_a_closed_cursor_takes_no_calls(stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing", start="end")
    waiting = asyncio.create_task(cursor.read())
    await asyncio.sleep(0.5)
    await asyncio.gather(cursor.close(), cursor.close())
    with pytest.raises(StreamClosed):
        await waiting
    for call in (cursor.read(), cursor.rewind(), cursor.seek("end"), cursor.ack("0:0"), cursor.refresh()):
        with pytest.raises(StreamClosed):
            await call


async def test_a_client_that_is_closed_stops_its_cursors(stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing", start="end")
    waiting = asyncio.create_task(cursor.read())
    await asyncio.sleep(0.5)
    await cursors.close()
    with pytest.raises(StreamClosed):
        await waiting
    await cursor.close()


async def test_a_cursor_goes_on_behind_what_is_trimmed(cluster: SmallCluster, cursors: Cursors) -> None:
    owner = ListedStream(cluster.client(1))
    await owner.create([pulsar_entry(b"a"), pulsar_entry(b"b")], [pulsar_entry(b"c")], [pulsar_entry(b"d")])
    async with cursors.open(NAME, "billing", durable=False) as cursor:
        (first,) = await cursor.read(1)
        await owner.trim(2)
        await asyncio.sleep(0.2)
        assert await drain(cursor) == "d"
        assert "cursor moved" in cluster.kinds() and cursor.backlog == 1
        await cursor.ack(first)  # it was there
        with pytest.raises(PositionTrimmed) as caught:
            await cursor.seek(first.position)
        assert caught.value.first == Position(owner.info.ledgers[0].ledger, 0)


async def test_of_several_none_is_acknowledged_if_one_does_not_exist(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        good = (await cursor.read(1))[0]
        with pytest.raises(NoSuchPosition):
            await cursor.ack_batch([good, stream.last_confirmed._replace(entry=99)])
        assert cursor.backlog == 7
