"""What becomes of a cursor when its ledger, its node or another owner comes in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from support.cursors import cursors_of, filled_stream
from support.listed_streams import NAME
from support.small_cluster import SmallCluster
from support.stored_cursors import acked, ledgers, node, notes, position
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import Update, Version
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, CursorInfo, CursorState, Position, StreamInfo
from tallystick.errors import (
    MetadataError,
    MetadataUnavailable,
    MetadataUncertain,
    NoSuchLedger,
    NoSuchStream,
    RecoveryIncomplete,
    StreamFenced,
)

SMALL = StreamSettings(max_entries_per_ledger=10)


@pytest.fixture
async def stream(cluster: SmallCluster) -> AsyncIterator[Stream]:
    """Of 25 messages in three ledgers."""
    async with filled_stream(cluster, SMALL, [b"%d" % number for number in range(25)]) as opened:
        yield opened


class Faults:
    """The next changes of the metadata fail, or their responses are lost."""

    def __init__(self, cursors: Cursors, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = cursors._context.catalog.store
        self._change, self._sync = self.store.change, self.store.sync
        self.plan: list[str] = []
        self.is_away = self.is_unread = False
        monkeypatch.setattr(self.store, "change", self.change)
        monkeypatch.setattr(self.store, "sync", self.sync)

    async def change(self, *changes: Any) -> None:
        if self.is_away:
            raise MetadataUnavailable("away")
        fault = self.plan.pop(0) if self.plan and any(isinstance(each, Update) for each in changes) else "none"
        if fault.startswith("lost"):
            self.is_away = fault == "lost, then away"
            raise MetadataUncertain("lost")
        await self._change(*changes)
        if fault.startswith("made"):
            self.is_away = fault == "made, then away"
            self.is_unread = fault == "made, unread"
            raise MetadataUncertain("lost response")

    async def sync(self) -> Any:
        is_unread, self.is_unread = self.is_unread, False
        if self.is_away or is_unread:
            raise MetadataUnavailable("away")
        return await self._sync()


@pytest.fixture
def faults(cursors: Cursors, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(cursors, monkeypatch)


# -- bookies that fail -------------------------------------------------------------------------------------------------


def refuse_adds(cluster: SmallCluster, ledger: int) -> None:
    def misbehave(request: v2.Request) -> int | None:
        return Code.READ_ONLY if isinstance(request, v2.AddFrame) and request.ledger == ledger else None

    for bookie in cluster.bookies.values():
        bookie.misbehave = misbehave


async def test_a_ledger_that_fails_leaves_the_state_in_the_node(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 0)
        first = (await node(cursors)).ledger
        refuse_adds(cluster, first)
        await acked(cursor, 1, 3)
        info = await node(cursors)
        assert info.ledger == NO_LEDGER and info.state is not None
        assert (info.state.mark, len(info.state.acked)) == (position(cursor, 1), 1)
        assert "cursor ledger failed" in cluster.kinds()
        await acked(cursor, 2)
        second = (await node(cursors)).ledger
        assert second not in (first, NO_LEDGER)
        assert await ledgers(cursors) == {second} and await notes(cursors) == []


async def test_without_bookies_the_node_is_enough(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing")
    messages = await cursor.read(5)
    await cluster.down("b0", "b1")
    await cursor.ack(messages[0])
    assert (await node(cursors)).ledger == NO_LEDGER
    await cluster.up("b0", "b1")
    await cursor.ack(messages[1])
    await cursor.close()
    async with cursors.open(NAME, "billing") as again:
        assert again.mark == messages[1].position


async def test_a_repairer_that_recovers_the_cursor_ledger_does_no_harm(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    async with cursors.open(NAME, "billing") as cursor:
        await acked(cursor, 0)
        ledger = (await node(cursors)).ledger
        await (await cluster.client(5).open_ledger(ledger, recover=True)).close()
        await acked(cursor, 1)
        await acked(cursor, 2)
        assert cursor.mark == position(cursor, 2)


async def test_a_broker_that_took_the_stream_has_the_cursor(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    """It knows nothing of leases: it recovers ledgers and lists one of its own."""
    cursor = await cursors.open(NAME, "billing")
    await acked(cursor, 0)
    broker = cluster.client(5)
    await (await broker.open_ledger((await node(cursors)).ledger, recover=True)).close()
    catalog = cursors._context.catalog
    stored = await catalog.read(NAME, synced=True)
    made = await broker.create_ledger()
    ended = stored.value.ledgers[-1]._replace(entries=5, timestamp_ms=5, has_counts=True)
    listed = (*stored.value.ledgers[:-1], ended, stored.value.ledgers[-1]._replace(ledger=made.id))
    await catalog.write(NAME, replace(stored.value, ledgers=listed), stored.version)
    before = await catalog.read_cursor(NAME, "billing")
    with pytest.raises(StreamFenced):
        await acked(cursor, 1)
    assert await catalog.read_cursor(NAME, "billing") == before
    await cursor.close()


# -- a cursor ledger that is lost --------------------------------------------------------------------------------------


async def test_a_lost_cursor_ledger_is_rebuilt_from_the_node(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    for is_deleted in (True, False):
        cursor = await cursors.open(NAME, "billing", takeover=True)
        mark = cursor.mark
        await cursor.ack(cursor._core.after(mark))
        await cursor.ack(cursor._core.after(cursor.mark))
        info, snapshot = await node(cursors), cursor.mark
        assert info.state is not None and info.state.mark < snapshot
        cursor.abort()
        if is_deleted:
            await cluster.client(5).delete_ledger(info.ledger)
        else:  # another that is empty is in its place
            empty = await cluster.client(5).create_ledger()
            catalog = cursors._context.catalog
            stored = await catalog.read_cursor(NAME, "billing")
            await catalog.write_cursor(
                NAME, "billing", replace(info, ledger=empty.id), stored.version, noted=[info.ledger]
            )
        other = cursors_of(cluster.client(6))
        async with other.open(NAME, "billing", takeover=True) as again:
            assert again.mark == info.state.mark and (await node(cursors)).ledger == NO_LEDGER
        await other._context.deletions.done()
        left = set() if is_deleted else {info.ledger}  # which the stream notes: its next owner deletes it
        assert await ledgers(cursors) == left, "one that cannot be read is of no use to anybody"
        (lost,) = [event for event in cluster.events if event.kind == "cursor ledger lost"]
        assert lost.fields["mark"] == str(info.state.mark)
        cluster.events.clear()
    assert (await node(cursors)).ledger == NO_LEDGER


async def test_a_seek_back_needs_no_cursor_ledger(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    """Else a lost one would pass over what was not acknowledged any more."""
    cursor = await cursors.open(NAME, "billing")
    await cursor.ack_up_to(position(cursor, 14))
    ledger = (await node(cursors)).ledger
    await cursor.seek("beginning")
    mark = cursor.mark
    assert mark < position(cursor, 0)
    cursor.abort()
    await cursors._context.deletions.done()
    with contextlib.suppress(NoSuchLedger):
        await cluster.client(5).delete_ledger(ledger)
    async with cursors_of(cluster.client(6)).open(NAME, "billing", takeover=True) as again:
        assert again.mark == mark
        await acked(again, 0)
        assert (await node(cursors)).ledger not in (ledger, NO_LEDGER), "what follows goes to a ledger as ever"


async def test_bookies_that_are_away_are_no_loss(cluster: SmallCluster, stream: Stream, cursors: Cursors) -> None:
    cursor = await cursors.open(NAME, "billing")
    await acked(cursor, 0)
    await acked(cursor, 1)
    mark = cursor.mark
    cursor.abort()
    await cluster.down("b0", "b1", "b2")
    other = cursors_of(cluster.client(3))
    with pytest.raises(RecoveryIncomplete):
        await other.open(NAME, "billing", takeover=True)
    await cluster.up("b0", "b1", "b2")
    await asyncio.sleep(30)  # until they are asked again
    async with other.open(NAME, "billing", takeover=True) as again:
        assert again.mark == mark


async def test_bytes_of_others_in_the_ledger_are_told_and_left(
    cluster: SmallCluster, stream: Stream, cursors: Cursors
) -> None:
    await (await cursors.open(NAME, "billing")).close()
    foreign = await cluster.client(5).create_ledger()
    await foreign.append(b"\xff\xff")
    catalog = cursors._context.catalog
    stored = await catalog.read_cursor(NAME, "billing")
    await catalog.write_cursor(NAME, "billing", replace(stored.value, ledger=foreign.id), stored.version)
    before = await catalog.read_cursor(NAME, "billing")
    with pytest.raises(MetadataError, match=f"ledger {foreign.id}"):
        await cursors.open(NAME, "billing")
    assert await catalog.read_cursor(NAME, "billing") == before


# -- metadata that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lost", "made"])
async def test_a_write_of_the_node_whose_response_is_lost_is_looked_for(
    stream: Stream, cursors: Cursors, faults: Faults, fault: str
) -> None:
    for _ in range(2):
        faults.plan = [fault]
        async with cursors.open(NAME, "billing") as cursor:
            faults.plan = [fault, fault] if fault == "lost" else [fault]
            await cursor.ack(cursor._core.after(cursor.mark))
            assert await ledgers(cursors) == {(await node(cursors)).ledger}
            faults.plan = [fault]
    assert (await node(cursors)).ledger == NO_LEDGER
    assert await ledgers(cursors) == set() and await notes(cursors) == []


async def test_nobody_knows_whether_the_node_names_the_new_ledger(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, faults: Faults
) -> None:
    cursor = await cursors.open(NAME, "billing")
    faults.plan = ["made, then away"]
    with pytest.raises(MetadataUnavailable):
        await acked(cursor, 0)
    faults.is_away = False
    other = cursors_of(cluster.client(3))
    named = await node(other)
    assert named.ledger in await ledgers(other)
    await acked(cursor, 1)
    assert (await node(cursors)).ledger not in (named.ledger, NO_LEDGER)
    await cursor.close()
    assert await ledgers(cursors) == set() and await notes(cursors) == []


async def test_what_the_next_owner_wrote_is_not_taken_for_a_write_whose_response_was_lost(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, faults: Faults
) -> None:
    cursor = await cursors.open(NAME, "billing")
    faults.plan = ["lost, then away"]
    with pytest.raises(MetadataUnavailable):
        await acked(cursor, 0)
    faults.is_away = False
    async with cursors_of(cluster.client(3)).open(NAME, "billing", takeover=True) as other:
        before = await node(cursors)
        with pytest.raises(StreamFenced):
            await acked(cursor, 1)
        assert await node(cursors) == before
        await acked(other, 0)


async def test_nor_is_what_another_cursor_of_the_name_has(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though that is the same, in the same version."""
    cursor, catalog = await cursors.open(NAME, "billing"), cursors._context.catalog
    write = catalog.write_cursor

    async def write_lost(stream: str, name: str, info: CursorInfo, version: Version, **more: Any) -> Version:
        monkeypatch.setattr(catalog, "write_cursor", write)
        await catalog.delete_cursor(stream, name, version, noted=())
        for before in range(MISSING, version + 1):
            await write(stream, name, info, before)
        raise MetadataUncertain("lost")

    monkeypatch.setattr(catalog, "write_cursor", write_lost)
    with pytest.raises(StreamFenced):
        await acked(cursor, 0)


async def test_the_ledger_is_enough_while_the_metadata_is_away(
    stream: Stream, cursors: Cursors, faults: Faults
) -> None:
    cursor = await cursors.open(NAME, "billing")
    faults.is_away = True
    with pytest.raises(MetadataUnavailable):
        await acked(cursor, 0)
    faults.is_away = False
    await acked(cursor, 1)
    assert cursor.mark == position(cursor, 1)  # the first was in memory
    for number in (2, 3, 4):
        await acked(cursor, number)  # all bookies of the ledger are known by now
    faults.is_away = True
    await acked(cursor, 5)
    with pytest.raises(MetadataUnavailable):
        await cursor.close()
    faults.is_away = False
    async with cursors.open(NAME, "billing", takeover=True) as again:
        assert again.mark == position(again, 5)


async def test_a_cursor_that_was_made_though_the_response_was_lost(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, attempts = cursors._context.catalog, []
    write_cursor = catalog.write_cursor

    async def lossy(*values: Any, **notes: Any) -> int:
        if values[-1] != MISSING:
            return await write_cursor(*values, **notes)
        attempts.append(values)
        if len(attempts) == 2:
            await write_cursor(*values)
        raise MetadataUncertain("lost response")

    monkeypatch.setattr(catalog, "write_cursor", lossy)
    async with cursors.open(NAME, "billing", start="end") as cursor:
        assert (len(attempts), cursor.backlog) == (2, 0)


async def test_a_cursor_is_not_made_below_a_stream_that_is_deleted(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stream.close()
    catalog = cursors._context.catalog
    read, client = catalog.read, cluster.client(4)

    async def read_before(name: str, **options: Any) -> Versioned[StreamInfo]:
        """The stream is deleted after it was read."""
        stored = await read(name, **options)
        await client.delete_stream(NAME)
        return stored

    monkeypatch.setattr(catalog, "read", read_before)
    with pytest.raises(NoSuchStream):
        await catalog.write_cursor(NAME, "billing", CursorInfo(NO_LEDGER, CursorState(Position(0, -1))), MISSING)
    assert await catalog.store.get(catalog.paths.stream(NAME)) is None


async def test_a_ledger_that_the_node_may_name_is_not_deleted(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, faults: Faults
) -> None:
    """The response of the write is lost, and nobody can look, just then."""
    cursor = await cursors.open(NAME, "billing")
    faults.plan = ["made, unread"]
    with pytest.raises(MetadataUnavailable):
        await acked(cursor, 0)
    await cursors.close()
    async with cursors_of(cluster.client(3)).open(NAME, "billing", takeover=True) as again:
        assert again.mark == position(again, 0) and "cursor ledger lost" not in cluster.kinds()


@pytest.mark.parametrize("what", ["open", "close"])
async def test_who_was_paused_changes_nothing_of_another_cursor_of_the_name(
    cluster: SmallCluster, stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its node has the same version."""
    cursor = await cursors.open(NAME, "billing")
    await cursor.ack_up_to(position(cursor, 14))
    if what == "open":
        await cursor.close()
    catalog, others = cursors._context.catalog, cursors_of(cluster.client(5))
    write = catalog.write_cursor
    made: list[Cursor] = []

    async def write_late(*arguments: Any, **more: Any) -> Version:
        monkeypatch.setattr(catalog, "write_cursor", write)
        version = (await catalog.read_cursor(NAME, "billing")).version
        await others.delete(NAME, "billing", takeover=True)
        made.append(await others.open(NAME, "billing"))
        while (await catalog.read_cursor(NAME, "billing")).version < version:
            await made[0].seek("beginning")
        assert (await catalog.read_cursor(NAME, "billing")).version == version
        return await write(*arguments, **more)

    monkeypatch.setattr(catalog, "write_cursor", write_late)
    with pytest.raises(StreamFenced):
        await (cursors.open(NAME, "billing") if what == "open" else cursor.close())
    await acked(made[0], 0)
    await made[0].close()
    async with others.open(NAME, "billing") as again:
        assert again.mark == position(again, 0)
        await others.delete(NAME, "billing", takeover=True)
    folder = catalog.paths.going(NAME, cursor="billing")
    assert await catalog.store.children(folder) is None, "nothing of it is left"
