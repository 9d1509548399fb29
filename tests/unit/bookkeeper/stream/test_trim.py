"""Retention: what leaves the list, what cursors keep, and what becomes of the ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, REFUSE, StoreFaults, ledgers, notes, of_list, once, read_all, read_list
from tallystick.bookkeeper.metadata.store import Update, Version
from tallystick.bookkeeper.stream import trim
from tallystick.bookkeeper.stream.catalog import MISSING, ChangeOvertaken
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.owned_list import Edit, ListChange, OwnedList
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.managed_ledgers import encode_cursor_state
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, CursorInfo, CursorState, Position
from tallystick.errors import MetadataUnavailable, NoSuchLedger, PositionTrimmed, StreamClosed, StreamFenced

KEEPS_NOTHING = StreamSettings(entry_format="raw", max_entries_per_ledger=2, retention_s=0)
KEEPS_ALL = replace(KEEPS_NOTHING, retention_s=-1)


async def fill(stream: Stream, count: int = 9) -> None:
    await asyncio.gather(*(stream.append(b"%d" % n) for n in range(count)))


async def listed(cluster: SmallCluster) -> list[int]:
    return [each.ledger for each in (await read_list(cluster)).ledgers]


async def put_cursor(cluster: SmallCluster, name: str, info: CursorInfo) -> None:
    await cluster.client(60).stream_context.catalog.write_cursor(NAME, name, info, MISSING)


async def test_by_default_all_is_kept(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=KEEPS_ALL) as stream:
        await fill(stream)
        await asyncio.sleep(7200)
        assert await stream.trim() == [] and await listed(cluster) == [0, 1, 2, 3, 4]


async def test_what_retention_does_not_keep_is_deleted_by_itself(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=30)) as stream:
        await fill(stream)
        await asyncio.sleep(20)
        assert await listed(cluster) == [0, 1, 2, 3, 4]
        await asyncio.sleep(120)
        assert await listed(cluster) == [4]
        await bk.stream_context.deletions.done()
        assert await ledgers(cluster) == [4] and await notes(cluster) == []


async def test_what_is_not_kept_goes_as_the_next_ledger_begins(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=10)) as stream:
        await stream.append(b"0")
        await stream.roll_over()
        await stream.append(b"1")
        await asyncio.sleep(15)
        assert await listed(cluster) == [0, 1]
        await stream.roll_over()
        await asyncio.sleep(1)
        assert await listed(cluster) == [1, 2]


@pytest.mark.parametrize("where", ["node", "ledger", "open ledger", "empty ledger", "lost ledger"])
async def test_what_a_durable_cursor_needs_is_kept(cluster: SmallCluster, where: str) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=KEEPS_ALL) as stream:
        await fill(stream)
        mark, in_node = CursorState(Position(2, 0)), CursorState(Position(0, 0))
        info = CursorInfo(NO_LEDGER, mark)
        kept = [2, 3, 4]
        if where != "node":
            writer = await bk.create_ledger()
            if where != "empty ledger":
                await writer.append(encode_cursor_state(in_node))
                await writer.append(encode_cursor_state(mark))
            if where == "open ledger":
                await asyncio.sleep(1)  # until the LAC is told
            else:
                await writer.close()
            if where in ("empty ledger", "lost ledger"):
                kept = [0, 1, 2, 3, 4]
            if where == "lost ledger":
                await bk.delete_ledger(writer.id)
            info = CursorInfo(writer.id, in_node)
        await put_cursor(cluster, "slow", info)
        await put_cursor(cluster, "fast", CursorInfo(NO_LEDGER, CursorState(Position(4, 0))))
        await put_cursor(cluster, "pulsar.dedup", CursorInfo(NO_LEDGER, CursorState(Position(0, -1))))
    async with cluster.client(2).open_stream(NAME, settings=KEEPS_NOTHING) as again:
        await again.trim()
        assert [each for each in await listed(cluster) if each < 5] == kept


async def test_a_cursor_is_looked_at_when_it_matters(cluster: SmallCluster) -> None:
    """One that moved back since the last look keeps what it needs now."""
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=5)) as stream:
        await put_cursor(cluster, "c", CursorInfo(NO_LEDGER, CursorState(Position(100, 0))))
        await fill(stream)
        assert await stream.trim() == []
        await bk.stream_context.catalog.write_cursor(NAME, "c", CursorInfo(NO_LEDGER, CursorState(Position(1, 0))), 0)
        await asyncio.sleep(6)
        assert await stream.trim() == [0]


async def test_the_list_goes_first_and_notes_last(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1))
    await fill(stream)
    await asyncio.sleep(3)
    delete = bk.delete_ledger
    seen: list[tuple[int, list[int], list[int]]] = []

    async def watched(ledger: int) -> None:
        seen.append((ledger, await listed(cluster), await notes(cluster)))
        await delete(ledger)

    monkeypatch.setattr(bk, "delete_ledger", watched)
    assert await stream.trim() == [0, 1, 2, 3]
    await bk.stream_context.deletions.done()
    assert seen == [(n, [4], list(range(n, 4))) for n in range(4)] and await notes(cluster) == []


async def test_what_could_not_be_deleted_is_deleted_by_the_next_owner(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1))
    await fill(stream)
    await asyncio.sleep(3)

    async def refused(ledger: int) -> None:
        raise MetadataUnavailable("away")

    monkeypatch.setattr(bk, "delete_ledger", refused)
    assert await stream.trim() == [0, 1, 2, 3]
    await bk.stream_context.deletions.done()
    assert "stream ledgers not deleted" in cluster.kinds() and await notes(cluster) == [0, 1, 2, 3]
    await stream.close()
    other = cluster.client(2)
    async with other.open_stream(NAME, settings=KEEPS_ALL):
        await other.stream_context.deletions.done()
        assert await notes(cluster) == [] and 0 not in await ledgers(cluster)


@pytest.mark.parametrize("fault", [REFUSE, LOSE])
async def test_a_write_of_the_list_that_fails_deletes_nothing_too_early(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1))
    await fill(stream)
    await asyncio.sleep(3)
    faults.script = once(fault, of_list)
    if fault == REFUSE:
        with pytest.raises(MetadataUnavailable):
            await stream.trim()
        await bk.stream_context.deletions.done()
        assert await ledgers(cluster) == [0, 1, 2, 3, 4] == await listed(cluster)
    assert await stream.trim() == [0, 1, 2, 3]
    await bk.stream_context.deletions.done()
    assert await ledgers(cluster) == [4] and await notes(cluster) == []
    await stream.close()


async def test_an_owner_that_was_taken_over_trims_nothing(cluster: SmallCluster) -> None:
    old = await cluster.client().open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1))
    await fill(old)
    async with cluster.client(2).open_stream(NAME, settings=KEEPS_ALL, takeover=True) as new:
        await new.append(b"x")
        await asyncio.sleep(0.5)
        with pytest.raises(StreamFenced):
            await asyncio.sleep(2)
            await old.trim()
        assert await listed(cluster) == [0, 1, 2, 3, 4, 5]
    await old.close()


async def test_a_listed_ledger_is_never_deleted_whatever_has_a_note(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=KEEPS_ALL) as stream:
        await fill(stream, 4)
        bk.stream_context.deletions.add(NAME, [0])
        await bk.stream_context.deletions.done()
        assert (await bk.ledger_metadata(0)).last_entry == 1


async def test_a_ledger_that_has_a_note_already_can_leave_the_list(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1)) as stream:
        await fill(stream)
        await cluster.store.change(bk.stream_context.catalog.note(NAME, 1))
        await asyncio.sleep(3)
        assert await stream.trim() == [0, 1, 2, 3]
        await bk.stream_context.deletions.done()
        with pytest.raises(NoSuchLedger):
            await bk.ledger_metadata(1)
        assert await notes(cluster) == []


async def test_a_broken_cursor_keeps_everything(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=1)) as stream:
        await put_cursor(cluster, "c", CursorInfo(NO_LEDGER, CursorState(Position(100, 0))))
        await cluster.store.change(Update(f"/managed-ledgers/{NAME}/c", b"\xff", 0))
        await fill(stream)
        await asyncio.sleep(200)
        assert await listed(cluster) == [0, 1, 2, 3, 4] and "stream not trimmed" in cluster.kinds()


async def test_a_cursor_that_was_moved_back_just_now_keeps_what_it_needs(cluster: SmallCluster) -> None:
    """Also while nobody has told yet how far its ledger is confirmed."""
    bk, reading = cluster.client(), cluster.client(2)
    async with bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=30)) as stream:
        cursor = await reading.cursor(NAME, "c", entry_format="raw")
        await fill(stream)
        await asyncio.sleep(31)
        for position in ("0:0", "3:1"):
            await cursor.ack_up_to(position)
        await cursor.seek("beginning")
        assert await stream.trim() == []
        assert [message.data for message in await cursor.read(1)] == [b"0"]


def before_the_next_write(
    bk: BookKeeper, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Awaitable[object]]
) -> None:
    """Let others work right before this client writes a list, as if it had been paused there."""
    catalog = bk.stream_context.catalog
    write = catalog.write

    async def write_late(*arguments: Any, **more: Any) -> Version:
        monkeypatch.setattr(catalog, "write", write)
        await work()
        return await write(*arguments, **more)

    monkeypatch.setattr(catalog, "write", write_late)


@pytest.mark.parametrize("what", ["moved back", "made"])
async def test_a_cursor_that_moves_back_or_is_made_while_others_trim(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bk, reading = cluster.client(), cluster.client(2)
    async with bk.open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=30)) as stream:
        cursor = await reading.cursor(NAME, "c", entry_format="raw")
        await fill(stream)
        await asyncio.sleep(31)
        await cursor.ack_up_to("3:1")
        if what == "made":
            before_the_next_write(bk, monkeypatch, lambda: reading.cursor(NAME, "d", entry_format="raw"))
        else:
            before_the_next_write(bk, monkeypatch, lambda: cursor.seek("1:0"))
        assert await stream.trim() == ([] if what == "made" else [0])
        assert 1 in await listed(cluster)
        await cursor.seek("end")
        if what == "made":
            await reading.delete_cursor(NAME, "d", takeover=True)
        assert (await stream.trim())[-1] == 3
        folder = bk.stream_context.catalog.paths.going(NAME)
        await bk.stream_context.deletions.done()
        assert await bk.context.driver.store.children(folder) == [], "nothing of it is left"


@pytest.mark.parametrize("place", ["1:0", "beginning"])
async def test_a_place_that_is_deleted_before_a_seek_is_stored_is_told(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Who asked for the beginning begins with what is left, and meets no gap behind that."""
    async with cluster.client().open_stream(NAME, settings=replace(KEEPS_NOTHING, retention_s=30)) as stream:
        cursor = await cluster.client(2).cursor(NAME, "c", entry_format="raw")
        await fill(stream)
        await asyncio.sleep(31)
        await cursor.ack_up_to("3:1")
        saved = cursor._saves.saved

        async def save_late() -> None:
            await stream.trim()
            await saved()

        monkeypatch.setattr(cursor._saves, "saved", save_late)
        if place == "beginning":
            await cursor.seek(place)
        else:
            with pytest.raises(PositionTrimmed) as trimmed:
                await cursor.seek(place)
            assert trimmed.value.first == Position(4, 0)
        assert cursor.read_position == Position(4, 0)
        await cursor.seek("4:0")


@pytest.mark.parametrize("what", ["trim", "terminate", "delete"])
async def test_who_was_paused_changes_nothing_of_another_stream_of_the_name(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its list has the same version."""
    bk, other = cluster.client(), cluster.client(2)
    stream = await bk.open_stream(NAME, settings=replace(KEEPS_ALL, retention_s=30))
    await fill(stream)
    await asyncio.sleep(20)
    made: list[Stream] = []

    async def make_anew() -> None:
        version = (await bk.stream_context.catalog.read(NAME)).version
        await other.delete_stream(NAME, takeover=True)
        made.append(await other.open_stream(NAME, settings=KEEPS_ALL))
        while (await bk.stream_context.catalog.read(NAME)).version < version:
            await made[0].append(b"new")
            await made[0].roll_over()
        assert (await bk.stream_context.catalog.read(NAME)).version == version

    with pytest.raises(StreamFenced):
        if what == "trim":
            await asyncio.sleep(11)
            before_the_next_write(bk, monkeypatch, make_anew)
            await stream.trim()
        elif what == "terminate":
            await stream._owner.alone(stream._owner.end)
            before_the_next_write(bk, monkeypatch, make_anew)
            await stream.terminate()
        else:
            await stream.close()
            before_the_next_write(bk, monkeypatch, make_anew)
            await bk.delete_stream(NAME)
    before = await listed(cluster)
    last = await made[0].append(b"newest")
    assert before and last.ledger == before[-1]
    await made[0].close()
    assert (await read_all(cluster))[-1][1] == b"newest"
    stream.abort()


@pytest.mark.parametrize("work", ["trim", "expire", "measure"])
async def test_a_roll_over_waits_for_one_cursor_at_most_and_not_for_all(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """A stream may have 10,000 cursors, whose ledgers may be on a bookie that hangs: nothing is appended meanwhile."""
    looks, looked = 0, trim.stored_state

    async def slow(context: StreamContext, stream: str, cursor: str) -> CursorState:
        nonlocal looks
        looks += 1
        await asyncio.sleep(10)
        return await looked(context, stream, cursor)

    monkeypatch.setattr(trim, "stored_state", slow)
    few = replace(KEEPS_ALL, max_entries_per_ledger=2)
    settings = {
        "trim": replace(few, retention_s=0),
        "expire": replace(few, entry_format="pulsar", ttl_s=1),
        "measure": replace(few, backlog_quota_bytes=1 << 40),
    }[work]
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        await fill(stream, 3)
        for number in range(20):
            await put_cursor(cluster, f"c{number}", CursorInfo(NO_LEDGER, CursorState(Position(0, -1))))
        upkeep = asyncio.create_task(stream.trim())
        await asyncio.sleep(5)
        before = looks
        await fill(stream, 5)
        assert looks - before <= 4
        await upkeep
    assert looks >= 20


async def test_a_stream_is_closed_without_waiting_for_all_cursors(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await cluster.client().open_stream(NAME, settings=KEEPS_NOTHING)
    await fill(stream, 3)
    looked = []

    async def slow(context: StreamContext, stream: str, cursor: str) -> CursorState:
        looked.append(cursor)
        await asyncio.sleep(10)
        return CursorState(Position(0, -1))

    monkeypatch.setattr(trim, "stored_state", slow)
    for number in range(20):
        await put_cursor(cluster, f"c{number}", CursorInfo(NO_LEDGER, CursorState(Position(0, -1))))
    upkeep = asyncio.create_task(stream.trim())
    await asyncio.sleep(5)
    await stream.close()
    assert len(looked) == 1
    with pytest.raises(StreamClosed):
        await upkeep


async def test_a_trim_that_is_overtaken_again_and_again_ends(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes and moves cursors all the time keeps nobody from anything else."""
    attempts = []

    async def overtaken(stored_list: OwnedList, edit: Edit, begun: str | None = None) -> ListChange:
        attempts.append(begun)
        assert len(attempts) <= trim.ATTEMPTS
        raise ChangeOvertaken

    async with cluster.client().open_stream(NAME, settings=KEEPS_ALL) as stream:
        await fill(stream)
    async with cluster.client().open_stream(NAME, settings=KEEPS_NOTHING) as stream:
        with monkeypatch.context() as patch:
            patch.setattr(OwnedList, "change", overtaken)
            assert await stream.trim() == []
        assert len(attempts) == trim.ATTEMPTS
        assert await stream.trim()


async def test_upkeep_that_took_longer_than_its_time_is_not_begun_again_at_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    async def slow(context: StreamContext, stream: str, cursor: str) -> CursorState:
        looked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        return CursorState(Position(0, -1))

    async with cluster.client().open_stream(NAME, settings=KEEPS_NOTHING) as stream:
        await fill(stream, 3)
        await asyncio.sleep(1)
        monkeypatch.setattr(trim, "stored_state", slow)
        for number in range(20):
            await put_cursor(cluster, f"c{number}", CursorInfo(NO_LEDGER, CursorState(Position(0, -1))))
        await asyncio.sleep(1000)
        pauses = [later - earlier for earlier, later in pairwise(looked)]
        assert max(pauses) > 60
        await stream.close()
