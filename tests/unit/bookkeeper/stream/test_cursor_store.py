"""Where a cursor is kept, as Pulsar keeps it, and what is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.cursors import cursors_of, filled_stream
from support.listed_streams import NAME
from support.small_cluster import SmallCluster
from support.stored_cursors import acked, in_ledger, ledgers, node, notes, position
from tallystick.bookkeeper.stream import cursor_core, cursor_store
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorInfo, CursorState, Position
from tallystick.bookkeeper.wire.v3 import WriteLacRequest
from tallystick.errors import (
    StreamFenced,
)

SMALL = StreamSettings(max_entries_per_ledger=10)


@pytest.fixture
async def stream(cluster: SmallCluster) -> AsyncIterator[Stream]:
    """Of 25 messages in three ledgers."""
    async with filled_stream(cluster, SMALL, [b"%d" % number for number in range(25)]) as opened:
        yield opened


# -- as Pulsar keeps it ------------------------------------------------------------------------------------------------


async def test_the_first_acknowledgement_makes_the_cursor_ledger(stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing")
    first = position(cursor, 0)
    before = await node(cursors)
    assert (before.ledger, before.state) == (NO_LEDGER, CursorState(Position(first.ledger, -1)))
    await acked(cursor, 0)
    await acked(cursor, 2, 3)
    info = await node(cursors)
    assert info.state is not None and info.state.mark == first
    assert [state.mark for state in await in_ledger(cursors, info.ledger)] == [first]  # its LAC lags behind
    metadata = await cursors._context.ledgers.ledger_metadata(info.ledger)
    assert metadata.custom == {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": NAME.encode(),
        "pulsar/cursor": b"billing",
    }
    assert await ledgers(cursors) == {info.ledger} and await notes(cursors) == []
    await cursor.close()
    closed = await node(cursors)
    assert closed.ledger == NO_LEDGER and closed.state is not None
    assert (closed.state.mark, len(closed.state.acked)) == (first, 1)
    assert await ledgers(cursors) == set() and await notes(cursors) == []


async def test_a_cursor_that_was_not_closed_is_recovered_from_its_ledger(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    cursor = await cursors.open(NAME, "billing")
    await acked(cursor, 0, 5)
    await acked(cursor, 7)
    await cursors.close()
    other = cursors_of(cluster.client(3))
    again = await other.open(NAME, "billing", takeover=True)
    assert again.mark == position(again, 0) and again.backlog == 22
    await acked(again, 1)
    await again.close()
    assert await ledgers(other) == set() and await notes(cursors) == []


async def test_many_ranges_stay_in_the_ledger(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_store, "MOST_NODE_RANGES", 2)
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 2, 4, 6, 8)
    info = await node(cursors)
    assert await ledgers(cursors) == {info.ledger}
    assert len((await in_ledger(cursors, info.ledger))[-1].acked) == 4
    async with cursors.open(NAME, "billing") as cursor:
        assert cursor.backlog == 21
    assert await node(cursors) == replace(info, last_active_ms=(await node(cursors)).last_active_ms)
    async with cursors.open(NAME, "billing") as cursor:
        await cursor.ack_up_to(position(cursor, 6))
    assert (await node(cursors)).ledger == NO_LEDGER and await ledgers(cursors) == set()


async def test_a_long_or_an_old_cursor_ledger_is_replaced(stream: Stream, cluster: SmallCluster) -> None:
    cursors = cursors_of(cluster.client(2, StreamClientSettings(max_entries_per_cursor_ledger=3)))
    async with cursors.open(NAME, "billing") as cursor:
        made = []
        for number in range(7):
            await acked(cursor, number)
            made.append((await node(cursors)).ledger)
        assert [made.index(each) for each in made] == [0, 0, 0, 3, 3, 3, 6]
        await asyncio.sleep(cursor_store.LEDGER_AGE_S)
        await acked(cursor, 7)
        newest = (await node(cursors)).ledger
        await acked(cursor, 8)
        assert (await node(cursors)).ledger == newest, "it is not old yet"
        assert newest not in made and await ledgers(cursors) == {newest} and await notes(cursors) == []
    await cursors.close()


async def test_of_a_cursor_ledger_that_was_replaced_no_bookie_hears_any_more(
    stream: Stream, cluster: SmallCluster
) -> None:
    cursors = cursors_of(cluster.client(2, StreamClientSettings(max_entries_per_cursor_ledger=1)))
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 0)
        first = (await node(cursors)).ledger
        await acked(cursor, 1)
        assert (await node(cursors)).ledger not in (first, NO_LEDGER)
        for bookie in cluster.bookies.values():
            bookie.requests_v3.clear()
        await asyncio.sleep(5)
        told = {
            each.ledger
            for bookie in cluster.bookies.values()
            for each in bookie.requests_v3
            if isinstance(each, WriteLacRequest)
        }
        assert told == {(await node(cursors)).ledger}
    await cursors.close()


async def test_acknowledgements_at_one_time_are_stored_together(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 0)
        await asyncio.gather(*(acked(cursor, number) for number in range(1, 21)))
        assert cursor.mark == position(cursor, 20)
        await asyncio.sleep(0.3)
        states = await in_ledger(cursors, (await node(cursors)).ledger)
        assert len(states) <= 3 and states[-1].mark == cursor.mark


async def test_what_is_acknowledged_during_a_save_is_saved_by_the_next(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    cursor = await cursors.open(NAME, "billing")
    await acked(cursor, 0)
    for bookie in cluster.bookies.values():
        bookie.held = []
    first = asyncio.create_task(acked(cursor, 1))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(acked(cursor, 2))
    await asyncio.sleep(0.1)
    for bookie in cluster.bookies.values():
        bookie.release()
    await asyncio.gather(first, second)
    await cursors.close()
    again = await cursors_of(cluster.client(3)).open(NAME, "billing", takeover=True)
    assert again.mark == position(again, 2)


async def test_a_seek_while_another_one_is_stored_is_stored_as_one(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trimmer may have read where the cursor was between them, and would not be overtaken."""
    cursor = await cursors.open(NAME, "billing")
    await cursor.ack_up_to(position(cursor, 24))
    catalog, seeking = cursors._context.catalog, list[asyncio.Task[None]]()
    overtake, overtaken = catalog.overtake, 0

    async def overtake_late(name: str) -> None:
        nonlocal overtaken
        overtaken += 1
        if not seeking:
            seeking.append(asyncio.create_task(cursor.seek("beginning")))
            await asyncio.sleep(1)
        await overtake(name)

    monkeypatch.setattr(catalog, "overtake", overtake_late)
    await cursor.seek(position(cursor, 14))
    await seeking[0]
    assert overtaken == 2
    info = await node(cursors)
    assert info.ledger == NO_LEDGER and info.state == CursorState(Position(position(cursor, 0).ledger, -1))
    await cursor.close()


async def test_what_is_beyond_the_bounds_is_said_once(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_core, "MOST_RANGES", 2)
    async with cursors.open(NAME, "billing") as cursor:
        for number in (2, 4, 6, 8, 12):
            await acked(cursor, number)
        assert cluster.kinds().count("cursor beyond bounds") == 1 and cursor.backlog == 20
    async with cursors.open(NAME, "billing") as cursor:
        assert cursor.backlog == 23


async def test_properties_of_others_are_kept(stream: Stream, cursors: Cursors) -> None:
    await (await cursors.open(NAME, "billing")).close()
    catalog = cursors._context.catalog
    stored = await catalog.read_cursor(NAME, "billing")
    assert stored.value.state is not None
    state = replace(stored.value.state, properties={"p": 7})
    theirs = replace(stored.value, state=state, properties={"q": "r"}, unknown=b"\xd2\x0f\x01x")
    await catalog.write_cursor(NAME, "billing", theirs, stored.version)
    cursor = await cursors.open(NAME, "billing")
    await acked(cursor, 0)
    await asyncio.sleep(0.3)
    assert (await in_ledger(cursors, (await node(cursors)).ledger))[-1].properties == {"p": 7}
    await cursor.close()
    after = await node(cursors)
    assert after.state is not None
    assert (after.state.properties, after.properties, after.unknown) == ({"p": 7}, theirs.properties, theirs.unknown)


# -- ledgers of attempts that died -------------------------------------------------------------------------------------


async def dead_attempt(cluster: SmallCluster, cursors: Cursors) -> int:
    """An owner that made a cursor ledger, and died before the node named it."""
    catalog = cursors._context.catalog
    writer = await cluster.client(7).create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger, "billing")])
    return writer.id


async def test_a_ledger_that_is_being_made_for_a_cursor_is_not_the_owner_of_the_streams(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    made = await dead_attempt(cluster, cursors)
    await stream.close()
    client = cluster.client(8)
    async with client.open_stream(NAME):
        await client.stream_context.deletions.done()
        assert made in await ledgers(cursors)


async def test_it_is_deleted_by_who_opens_the_cursor_next(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    await (await cursors.open(NAME, "billing")).close()
    made = await dead_attempt(cluster, cursors)
    assert made in await ledgers(cursors)
    async with cursors.open(NAME, "billing"):
        assert await ledgers(cursors) == set() and await notes(cursors) == []


@pytest.mark.parametrize("what", ["cursor", "stream"])
async def test_or_with_the_cursor_or_the_stream(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, what: str
) -> None:
    await (await cursors.open(NAME, "billing")).close()
    made = await dead_attempt(cluster, cursors)
    store = cursors._context.catalog.store
    if what == "cursor":
        catalog = cursors._context.catalog
        other = await cluster.client(7).create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])
        await cursors.delete(NAME, "billing")
        await cursors._context.deletions.done()
        assert await catalog.going(NAME) == [other.id]  # the stream's owner makes it just now
        await catalog.gone(NAME, [other.id])
    else:
        await stream.close()
        await cluster.client(4).delete_stream(NAME)
    assert made not in {ledger async for ledger in cursors._context.ledgers.ledgers()} and await notes(cursors) == []
    assert await store.get(cursors._context.catalog.paths.going(NAME, cursor="billing")) is None


async def test_an_owner_that_lost_the_node_leaves_no_ledger(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    cursor = await cursors.open(NAME, "billing")
    async with cursors_of(cluster.client(3)).open(NAME, "billing", takeover=True):
        with pytest.raises(StreamFenced):
            await acked(cursor, 1)
    assert await ledgers(cursors) == set() and await notes(cursors) == []


async def test_a_cursor_that_is_made_anew_is_not_written_by_an_owner_of_the_one_before(
    stream: Stream, cursors: Cursors
) -> None:
    cursor, catalog = await cursors.open(NAME, "billing"), cursors._context.catalog
    before = await catalog.read_cursor(NAME, "billing")
    await catalog.delete_cursor(NAME, "billing", before.version, noted=())
    beginning = CursorInfo(NO_LEDGER, CursorState(EARLIEST))
    for version in range(MISSING, before.version):
        await catalog.write_cursor(NAME, "billing", beginning, version)
    with pytest.raises(StreamFenced):
        await acked(cursor, 1)
    stored = await catalog.read_cursor(NAME, "billing")
    assert (stored.value, stored.version) == (beginning, before.version)
    assert await ledgers(cursors) == set() and await notes(cursors) == []


async def test_a_cursor_says_when_it_was_stored_last(stream: Stream, cursors: Cursors) -> None:
    async with cursors.open(NAME, "billing"):
        opened_ms = (await node(cursors)).last_active_ms
        await asyncio.sleep(60)
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 0)
    assert (await node(cursors)).last_active_ms >= opened_ms + 60_000


async def test_a_close_waits_for_the_save_that_is_under_way(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    """The first one makes a ledger, and lets the node name it when that has its state: an older one than closing
    stores."""
    cursor = await cursors.open(NAME, "billing")
    messages = await cursor.read()
    for bookie in cluster.bookies.values():
        bookie.held = []
    acks = [asyncio.ensure_future(cursor.ack(messages[0]))]
    await asyncio.sleep(0.1)
    acks.append(asyncio.ensure_future(cursor.ack(messages[1])))
    closing = asyncio.ensure_future(cursor.close())
    await asyncio.sleep(0.1)
    for bookie in cluster.bookies.values():
        bookie.release()
    await asyncio.gather(closing, *acks)
    async with cursors.open(NAME, "billing") as cursor:
        assert cursor.mark == messages[1].position
