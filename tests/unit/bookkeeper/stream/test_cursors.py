"""Cursors: where they begin and are moved to, who owns them, and how they are deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.cursors import cursors_of, drain
from support.listed_streams import NAME, ListedStream, pulsar_entry
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream import cursor_places
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.stream.trim import cursor_marks
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    NoSuchCursor,
    NoSuchPosition,
    NoSuchStream,
    StreamClosed,
    StreamFenced,
    StreamOwned,
    UsageError,
)

# -- places ------------------------------------------------------------------------------------------------------------


async def test_where_a_cursor_begins(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "a") as first:
        positions = [message.position for message in await first.read(7)]
    expected: dict[Position | str, str] = {
        "beginning": "abcdefg",
        "end": "",
        positions[4]: "efg",
        str(positions[4]): "efg",
        positions[2]._replace(entry=3): "defg",  # behind the last entry of its ledger
        positions[3]._replace(entry=-1): "defg",
    }
    for durable in (True, False):
        for index, (start, seen) in enumerate(expected.items()):
            async with cursors.open(NAME, f"b{index}", start=start, durable=durable) as cursor:
                assert await drain(cursor) == seen and cursor.backlog == len(seen)
    for start in (positions[6]._replace(entry=2), Position(positions[6].ledger + 50, 0)):
        with pytest.raises(NoSuchPosition):
            await cursors.open(NAME, "c", start=start)
    with pytest.raises(NoSuchCursor):
        await cursors.open(NAME, "c", create=False)


async def test_who_cannot_open_a_cursor_follows_no_list(stream: Stream, cursors: Cursors) -> None:
    for more in ({"create": False}, {"start": Position(99, 0)}, {"start": Position(99, 0), "durable": False}):
        with pytest.raises((NoSuchCursor, NoSuchPosition)):
            await cursors.open(NAME, "billing", **more)
    assert cursors._readers.lists._lists == {}


async def test_seeking(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        messages = await cursor.read(7)
        await cursor.ack_up_to(messages[6])
        await cursor.seek(messages[2].position)
        assert cursor.backlog == 5 and await drain(cursor) == "cdefg"
        await cursor.seek("beginning")
        assert await drain(cursor) == "abcdefg"
        await cursor.seek("end")
        assert await drain(cursor) == "" and cursor.backlog == 0
        published = messages[0].publish_time
        assert published is not None
        await cursor.seek(time=published + 1_000_000)
        assert await drain(cursor) == ""
        await cursor.seek(time=published)
        assert await drain(cursor) == "abcdefg"
        for bad in ({}, {"position": "1:1", "time": 5}, {"position": "x"}):
            with pytest.raises(UsageError):
                await cursor.seek(**bad)
    async with cursors.open(NAME, "billing") as cursor:
        assert cursor.backlog == 7


@pytest.mark.parametrize("wrong", ["middle", "", 5, None, (1, 2), "\u0663:0"])
async def test_a_wrong_start_is_told_what_it_may_be(cursors: Cursors, wrong: Any) -> None:
    with pytest.raises(UsageError, match='start is "beginning", "end", a Position, or'):
        cursors.open(NAME, "billing", start=wrong)


async def test_a_position_that_does_not_exist_is_no_ack(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        (first, second) = await cursor.read(2)
        for bad in (Position(first.position.ledger, 3), Position(999, 0)):
            for call in (cursor.ack, cursor.ack_up_to):
                with pytest.raises(NoSuchPosition) as caught:
                    await call(bad)
                assert caught.value.fields["stream"] == NAME and caught.value.fields["cursor"] == "billing"
        with pytest.raises(NoSuchPosition):
            await cursor.ack_batch([second, Position(999, 0)])
        assert cursor.backlog == 7
        for wrong in (5, (1,), ("a", 1)):
            with pytest.raises(UsageError):
                await cursor.ack(wrong)  # type: ignore[arg-type]


async def test_what_was_appended_can_be_acknowledged_once_it_is_known(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing", start="end") as cursor:
        position = await stream.append(b"h")
        await asyncio.sleep(0.3)
        await cursor.ack(position)
        assert cursor.mark == position and await cursor.refresh() == 0


# -- owners ------------------------------------------------------------------------------------------------------------


async def test_a_cursor_has_one_owner(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    other = cursors_of(cluster.client(3))
    async with cursors.open(NAME, "billing") as cursor:
        messages = await cursor.read(3)
        await cursor.ack(messages[0])
        with pytest.raises(StreamOwned) as caught:
            await other.open(NAME, "billing")
        assert caught.value.owner is not None and caught.value.cursor == "billing"
        async with other.open(NAME, "billing", takeover=True) as taken:
            assert taken.mark == messages[0].position
            with pytest.raises(StreamFenced):
                await cursor.ack(messages[1])
            with pytest.raises(StreamFenced):
                await cursor.read()
            await taken.ack(messages[1])
        assert "cursor fenced" in cluster.kinds()
    async with other.open(NAME, "billing") as again:
        assert again.mark == messages[1].position


async def test_who_waits_hears_that_the_cursor_was_taken_over(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    cursor = await cursors.open(NAME, "billing", start="end")
    waiting = asyncio.create_task(cursor.read())
    await asyncio.sleep(0.5)
    async with cursors_of(cluster.client(3)).open(NAME, "billing", takeover=True):
        await asyncio.sleep(20)  # two leases
        with pytest.raises(StreamFenced):
            await waiting
    await cursor.close()


async def test_a_list_that_lags_behind_moves_no_mark_back(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list was read, and then another owner had the cursor for a while."""
    leases, other = cursors._context.leases, cursors_of(cluster.client(3))
    take, marks = leases.take, []
    monkeypatch.setattr(StreamList, "_read_later", lambda self: None)

    async def take_late(path: str, **options: Any) -> Lease:
        for data in "hijk":
            await stream.append(data.encode())
        await asyncio.sleep(0.3)
        async with other.open(NAME, "billing") as cursor:
            await cursor.ack_up_to(stream.last_confirmed)
            marks.append(cursor.mark)
        return await take(path, **options)

    await (await cursors.open(NAME, "billing")).close()
    monkeypatch.setattr(leases, "take", take_late)
    async with cursors.open(NAME, "billing") as cursor:
        assert [cursor.mark] == marks == [stream.last_confirmed]


async def test_who_was_taken_over_stores_nothing_even_if_nobody_told_it(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a cursor ledger, or none yet."""
    other = cursors_of(cluster.client(3))
    for name, acks in (("a", 1), ("b", 0)):
        cursor = await cursors.open(NAME, name)
        messages = await cursor.read(3)
        await cursor.ack_batch(messages[:acks])
        taken = await other.open(NAME, name, takeover=True)
        with pytest.raises(StreamFenced):
            await cursor.ack(messages[1])
        await taken.ack(messages[2])
        assert taken.backlog == 6 - acks
        await taken.close()
        await cursor.close()


async def test_non_durable_cursors_leave_nothing(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    before = await cursors._context.catalog.cursors(NAME)
    async with (
        cursors.open(NAME, "x", durable=False) as one,
        cursors.open(NAME, "x", durable=False, start="end") as two,
    ):
        await one.ack_up_to((await one.read(7))[6])
        assert (one.backlog, two.backlog) == (0, 0)
        await two.seek("beginning")
        assert two.backlog == 7
    assert await cursors._context.catalog.cursors(NAME) == before == []


async def test_a_stream_of_a_pulsar_broker_has_only_cursors_that_are_not_durable(
    cluster: SmallCluster, cursors: Cursors
) -> None:
    owner = ListedStream(cluster.client(1))
    await owner.create([pulsar_entry(b"a")])
    for takeover in (False, True):
        with pytest.raises(StreamOwned, match="durable=False"):
            await cursors.open(NAME, "billing", takeover=takeover)
    async with cursors.open(NAME, "billing", durable=False) as cursor:
        assert await drain(cursor) == "a"


async def test_deleting(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        await cursor.ack((await cursor.read(1))[0])
        ledgers = [ledger async for ledger in cursors._context.ledgers.ledgers()]
        with pytest.raises(StreamOwned):
            await cursors.delete(NAME, "billing")
        await cursors.delete(NAME, "billing", takeover=True)
        with pytest.raises(StreamFenced):
            await cursor.ack_up_to((await cursor.read(1))[0])
    await cursors._context.deletions.done()
    assert len([ledger async for ledger in cursors._context.ledgers.ledgers()]) == len(ledgers) - 1
    with pytest.raises(NoSuchCursor):
        await cursors.delete(NAME, "billing")
    with pytest.raises(NoSuchStream):
        await cursors.delete("tenant/ns/persistent/other", "billing")
    with pytest.raises(NoSuchStream):
        await cursors.open("tenant/ns/persistent/other", "billing")


@pytest.mark.parametrize("turns", range(14, 28))
async def test_what_is_acknowledged_while_it_is_closed_is_stored_or_refused(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Very many are acknowledged in several turns of the loop, and the state that a close stores may lie between."""
    monkeypatch.setattr(cursor_places, "TURN_PLACES", 2)
    bk = cluster.client(2)
    async with bk.open_stream(NAME) as stream:
        positions = [await future for future in [stream.append_nowait(b"x") for _ in range(16)]]
        cursor = await bk.cursor(NAME, "billing")
        await cursor.read(len(positions))
        await cursor.ack(positions[1])  # which makes the cursor ledger
        store = bk.stream_context.catalog.store
        change = store.change

        async def slow_change(*changes: Any) -> None:
            await asyncio.sleep(0.01)
            await change(*changes)

        monkeypatch.setattr(store, "change", slow_change)
        acks = asyncio.create_task(cursor.ack_batch(positions[4:]))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cursor.close()
        (outcome,) = await asyncio.gather(acks, return_exceptions=True)
        async with bk.cursor(NAME, "billing") as again:
            left = {message.position for message in await again.read(len(positions), wait=False)}
        assert isinstance(outcome, StreamClosed) or left == {positions[0], *positions[2:4]}


async def test_a_cursor_that_was_changed_by_another_reads_no_more(cluster: SmallCluster, stream: Stream) -> None:
    """Who changed it reads the same messages."""
    bk = cluster.client(3)
    catalog = bk.stream_context.catalog
    cursor = await bk.cursor(NAME, "billing")
    (message,) = await cursor.read(1)
    node = await catalog.read_cursor(NAME, "billing")
    await catalog.write_cursor(NAME, "billing", node.value, node.version)
    for _ in range(2):
        with pytest.raises(StreamFenced):
            await cursor.ack(message)
        with pytest.raises(StreamFenced):
            await cursor.read(1)


async def test_a_cursor_that_is_aborted_follows_no_list(stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing")
    await cursor.read(1)
    cursor.abort()
    await asyncio.sleep(1)
    assert cursors._readers.lists._lists == {}


async def test_a_cursor_that_is_deleted_while_all_are_looked_at_holds_nothing_up(
    cluster: SmallCluster, stream: Stream
) -> None:
    bk = cluster.client(3)
    for name in ("a", "b"):
        await (await bk.cursor(NAME, name)).close()
    looks = 0

    async def give_way() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            await bk.delete_cursor(NAME, "b")

    assert [*await cursor_marks(bk.stream_context, NAME, give_way)] == ["a"]


async def test_no_cursor_is_made_of_a_stream_that_is_deleted_meanwhile(
    cluster: SmallCluster, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes above a new one are made where they are missing: it would be a stream without a list."""
    bk = cluster.client(1)
    await (await bk.open_stream(NAME)).close()
    catalog = cursors._context.catalog
    overtake = catalog.overtake

    async def overtake_deleted(stream: str, cursor: str | None = None) -> None:
        await overtake(stream, cursor)
        if cursor is not None:
            await bk.delete_stream(NAME)

    monkeypatch.setattr(catalog, "overtake", overtake_deleted)
    with pytest.raises(NoSuchStream):
        await cursors.open(NAME, "billing")
    assert await catalog.creation(NAME) is None
