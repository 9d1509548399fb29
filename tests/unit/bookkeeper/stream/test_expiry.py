"""Messages that no cursor has acknowledged in time: cursors pass over them, whoever has them, and never over others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.cursors import text
from support.small_cluster import SmallCluster
from support.streams import NAME, REFUSE, StoreFaults, of_list, once, read_list
from tallystick.bookkeeper.stream.expired import EXPIRED_KEY, expired_in, last_before, with_expired
from tallystick.bookkeeper.stream.expiry import pass_over
from tallystick.bookkeeper.stream.owned_list import OwnedList
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.stream.trim import stored_state
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorInfo, Position, StreamInfo, StreamLedger
from tallystick.errors import StreamFenced

TTL = StreamSettings(max_entries_per_ledger=4, ttl_s=600)
STEP_S = 10.0  # between two messages


async def fill(stream: Stream, messages: str) -> None:
    """Append a message a letter."""
    for letter in messages:
        await stream.append(letter.encode())
        await asyncio.sleep(STEP_S)


async def stored_mark(cluster: SmallCluster, cursor: str) -> Position:
    return (await stored_state(cluster.client(90).stream_context, NAME, cursor)).mark


async def node(cluster: SmallCluster) -> CursorInfo:
    return (await cluster.client(91).stream_context.catalog.read_cursor(NAME, "billing")).value


async def test_a_cursor_that_nobody_has_is_moved_by_the_owner_of_the_stream(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await fill(stream, "abcdef")
        await (await bk.cursor(NAME, "billing")).close()
        await asyncio.sleep(TTL.ttl_s - 60)  # then the first ones are too old, with the next look
        assert await stored_mark(cluster, "billing") == Position(0, -1)
        await asyncio.sleep(100)
        assert await stored_mark(cluster, "billing") == Position(1, 1)
        assert expired_in(await read_list(cluster)) == Position(1, 1)
        await fill(stream, "g")
        async with cluster.client(2).cursor(NAME, "billing") as cursor:
            assert text(await cursor.read()) == "g"
        assert (await node(cluster)).ledger == NO_LEDGER, "no ledger is made for that"
    assert cluster.kinds().count("stream messages expired") >= 1
    assert cluster.kinds().count("cursor messages expired") == cluster.kinds().count("stream messages expired")


@pytest.mark.parametrize("name", ["shop:eu", "a/b", "late ones", "f\u00fcr~*"])
async def test_so_is_one_whose_name_is_written_as_in_a_url(cluster: SmallCluster, name: str) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await (await bk.cursor(NAME, name)).close()
        await fill(stream, "abcdef")
        await asyncio.sleep(TTL.ttl_s)
        await stream.trim()
        assert expired_in(await read_list(cluster)) == Position(1, 1)
        async with bk.cursor(NAME, name, create=False) as cursor:
            assert cursor.mark == Position(1, 1)
    assert cluster.kinds().count("cursor opened") == 3, "to make it, to move it, to look"


async def test_what_is_not_too_old_is_kept(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await (await bk.cursor(NAME, "billing")).close()
        await fill(stream, "abcdefghi")
        await asyncio.sleep(TTL.ttl_s - 5.5 * STEP_S)  # four are too old
        await stream.trim()
        assert expired_in(await read_list(cluster)) == Position(0, 3)
        async with bk.cursor(NAME, "billing") as cursor:
            assert text(await cursor.read()) == "efghi"
        await stream.trim()
        assert expired_in(await read_list(cluster)) == Position(0, 3)


async def test_who_has_a_cursor_moves_it_in_another_process_too(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=TTL) as stream:
        cursor = await cluster.client(2).cursor(NAME, "billing")
        await fill(stream, "abcdefghi")
        assert text(await cursor.read(2)) == "ab"
        await cursor.ack(Position(0, 3))
        await asyncio.sleep(TTL.ttl_s - 5.5 * STEP_S)
        await stream.trim()
        await asyncio.sleep(1)
        assert cursor.mark == await stored_mark(cluster, "billing") == Position(0, 3)
        assert text(await cursor.read(2)) == "ef"
        await cursor.ack_up_to(Position(1, 1))
        await cursor.seek("beginning")  # it may: until more expires
        assert text(await cursor.read(1)) == "a"
        await cursor.close()
    moved = [event for event in cluster.events if event.kind == "cursor messages expired"]
    assert moved[-1].fields["to"] == "0:3"


async def test_nothing_is_written_where_cursors_keep_up_or_there_are_none(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await fill(stream, "abc")
        writes = len([changes for changes in faults.changes if of_list(changes)])
        await asyncio.sleep(2 * TTL.ttl_s)
        async with cluster.client(2).cursor(NAME, "billing", start="end"):
            await asyncio.sleep(300)
            assert len([changes for changes in faults.changes if of_list(changes)]) == writes
    assert "stream messages expired" not in cluster.kinds()


async def test_a_new_cursor_that_reads_nothing_keeps_nothing_that_expired(cluster: SmallCluster) -> None:
    settings = replace(TTL, retention_s=60)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        await (await cluster.client().cursor(NAME, "billing")).close()
        await fill(stream, "abcdef")
        await asyncio.sleep(TTL.ttl_s - 40)
        await stream.trim()
        expired = expired_in(await read_list(cluster))
        assert expired >= Position(0, 0)
        async with cluster.client(2).cursor(NAME, "idle") as idle:
            assert idle.mark == expired == await stored_mark(cluster, "idle")
            await asyncio.sleep(2 * TTL.ttl_s)
            assert (await read_list(cluster)).ledgers[0].ledger == 1


async def test_what_expired_can_be_trimmed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=replace(TTL, retention_s=0)) as stream:
        await (await bk.cursor(NAME, "billing")).close()
        await fill(stream, "abcdef")
        assert await stream.trim() == []
        await asyncio.sleep(2 * TTL.ttl_s)
        assert [each.ledger for each in (await read_list(cluster)).ledgers] == [1]


async def test_an_owner_that_lost_the_stream_lets_nothing_expire(cluster: SmallCluster) -> None:
    old = await cluster.client().open_stream(NAME, settings=TTL)
    await fill(old, "abc")
    async with cluster.client(2).open_stream(NAME, settings=replace(TTL, ttl_s=-1), takeover=True) as stream:
        async with cluster.client(3).cursor(NAME, "billing") as cursor:
            old._owner.lease.lost = None
            await stream.append(b"d")
            await asyncio.sleep(2 * TTL.ttl_s)
            with pytest.raises(StreamFenced):
                await old.trim()
            await asyncio.sleep(1)
            assert text(await cursor.read()) == "abcd"
        assert expired_in(await read_list(cluster)) == EARLIEST
    old.abort()


async def test_metadata_that_is_away_is_asked_again(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await fill(stream, "abc")
        await (await cluster.client(2).cursor(NAME, "billing")).close()
        faults.script = once(REFUSE, of_list)
        await asyncio.sleep(2 * TTL.ttl_s)
        assert "stream not trimmed" in cluster.kinds()
        assert await stored_mark(cluster, "billing") == Position(0, 2)


async def test_a_cursor_whose_move_is_not_stored_stores_it_with_the_next_acknowledgement(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = cluster.client(2)
    async with cluster.client().open_stream(NAME, settings=TTL) as stream:
        cursor = await other.cursor(NAME, "billing")
        faults = StoreFaults(other, monkeypatch)
        await fill(stream, "abc")
        await asyncio.sleep(TTL.ttl_s - 1)
        faults.script = lambda changes: REFUSE
        await stream.trim()
        await asyncio.sleep(1)
        assert "cursor not moved" in cluster.kinds() and cursor.mark == Position(0, 2)
        faults.script = lambda changes: None
        await stream.append(b"d")
        await cursor.ack(Position(0, 3))
        assert await stored_mark(cluster, "billing") == Position(0, 3)
        await cursor.close()


async def test_what_expires_while_a_cursor_is_moved_is_passed_over_too(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list changed, and nobody may ever change it again: a cursor stayed where the change before had moved it."""
    async with cluster.client().open_stream(NAME, settings=TTL) as stream:
        cursor = await cluster.client(2).cursor(NAME, "billing")
        saved, goes_on = cursor._saves.saved, asyncio.Event()

        async def slow() -> None:
            await goes_on.wait()
            await saved()

        monkeypatch.setattr(cursor._saves, "saved", slow)
        await fill(stream, "abc")
        await asyncio.sleep(TTL.ttl_s - 2.5 * STEP_S)
        await stream.trim()
        await asyncio.sleep(2 * STEP_S)
        await stream.trim()
        await asyncio.sleep(1)
        assert expired_in(await read_list(cluster)) == Position(0, 2)
        goes_on.set()
        await asyncio.sleep(1)
        assert cursor.mark == await stored_mark(cluster, "billing") == Position(0, 2)
        await cursor.close()


def test_up_to_where_messages_expired() -> None:
    info = StreamInfo((StreamLedger(3, 4, timestamp_ms=1), StreamLedger(5, has_counts=False)))
    assert expired_in(info) == EARLIEST
    later = with_expired(info, Position(3, 2))
    assert expired_in(later) == Position(3, 2) and with_expired(later, Position(3, 1)) is later
    assert expired_in(replace(info, properties={EXPIRED_KEY: "soon"})) == EARLIEST
    assert last_before(info, Position(5, 0)) == last_before(info, Position(4, 0)) == Position(3, 3)
    assert last_before(info, Position(5, 7)) == Position(5, 6)
    assert last_before(info, Position(3, 0)) == EARLIEST
    with_empty = StreamInfo((StreamLedger(3, 4, timestamp_ms=1), StreamLedger(4, timestamp_ms=1), StreamLedger(5)))
    assert last_before(with_empty, Position(5, 0)) == Position(3, 3), "a ledger without entries has no last one"


def test_what_expires_leaves_the_other_properties_of_a_stream() -> None:
    info = StreamInfo(properties={"team": "billing", EXPIRED_KEY: "3:0"})
    assert with_expired(info, Position(3, 2)).properties == {"team": "billing", EXPIRED_KEY: "3:2"}


async def test_a_cursor_that_is_deleted_before_it_is_moved_is_not_made_again(cluster: SmallCluster) -> None:
    """Nobody would read by it, and it would keep all ledgers."""
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=TTL) as stream:
        await fill(stream, "ab")
        for cursor in ("gone", "there"):
            await (await bk.cursor(NAME, cursor)).close()
        catalog, looks = bk.stream_context.catalog, 0

        async def give_way() -> None:
            nonlocal looks
            looks += 1
            if looks == 3:  # both are known to be behind
                await bk.delete_cursor(NAME, "gone")

        stored_list = OwnedList(catalog, NAME, await catalog.read(NAME, synced=True))
        await pass_over(bk.stream_context, NAME, stored_list, Position(0, 1), TTL, reason="ttl", give_way=give_way)
        assert await catalog.cursors(NAME) == ["there"] and await stored_mark(cluster, "there") == Position(0, 1)
