"""The streams of a cluster: whose they are, and what is in them. Nothing is fenced, and nobody is disturbed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.leases import Owning
from tallystick.bookkeeper.stream.marks import before_in, owner_in
from tallystick.bookkeeper.stream.names import decoded, stream_name
from tallystick.bookkeeper.stream.splice.record import applications, is_sink
from tallystick.bookkeeper.stream.state import (
    CursorCounts,
    Stored,
    StreamCounts,
    StreamState,
    entries_between,
    internal_info,
    stream_state,
)
from tallystick.bookkeeper.stream.trim import stored_state
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.stream_values import EARLIEST, CursorState, Position, StreamInfo
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.errors import CorruptEntry, NoSuchCursor, NoSuchLedger, NoSuchStream, Unavailable
from tallystick.runtime.tasks import together

CURSORS_AT_ONCE = 32  # that are looked at


@dataclass(frozen=True)
class StreamOwnership:
    """Whose a stream is. ``lease`` is that of the owner, None while it has none; ``newest`` is the metadata of its
    newest ledger, None where that does not exist."""

    info: StreamInfo
    lease: Owning | None
    newest: LedgerMetadata | None

    @property
    def owner(self) -> str:
        if self.lease is not None:
            return self.lease.owner or "somebody who does not say who"
        return "perhaps a Pulsar broker" if self._may_be_a_broker else "nobody"

    @property
    def why(self) -> str:
        """Says why it is so: who owned it last, and how that ended."""
        if self.lease is not None:
            is_its = self.newest is not None and owner_in(self.newest) == self.lease.owner
            loss = before_in(self.newest) if self.newest is not None and is_its else ""
            return "its lease is alive" + (f"; before, {loss}" if loss else "")
        if self.info.terminated is not None:
            return f"the stream was terminated at {self.info.terminated}: it takes no more messages"
        if is_sink(self.info):
            names = ", ".join(applications(self.info))
            return f"sinks write it, batch by batch, of these applications: {names}. So it needs no owner"
        if not self.info.ledgers:
            return "nothing was ever appended"
        ledger = self.info.ledgers[-1].ledger
        if self.newest is None:
            return f"its newest ledger, {ledger}, does not exist: the next owner drops it"
        before = owner_in(self.newest)
        if self._may_be_a_broker:
            return f"ledger {ledger} is open, and no owner of ours made it"
        if not self.newest.is_closed:
            return f"{before} ended, or lost its session, before it closed ledger {ledger}: the next owner recovers it"
        if before is None:
            return f"ledger {ledger} is closed, and no owner of ours made it: whoever wrote it has ended"
        return f"{before} closed ledger {ledger} and gave the stream back, or another client recovered that ledger"

    @property
    def _may_be_a_broker(self) -> bool:
        return self.newest is not None and not self.newest.is_closed and owner_in(self.newest) is None


@dataclass(frozen=True)
class CursorStatus:
    """A durable cursor as it is stored; its owner may be further by a moment. ``backlog``: entries that it has not
    acknowledged, None where too few bookies answer."""

    name: str
    state: CursorState
    lease: Owning | None
    backlog: int | None

    @property
    def owner(self) -> str:
        if self.lease is None:
            return "nobody"
        return self.lease.owner or "somebody who does not say who"


@dataclass(frozen=True)
class StreamStatus:
    """A stream as anybody sees it. ``first`` and ``last`` are None where too few bookies answer."""

    name: str
    ownership: StreamOwnership
    first: Position | None
    last: Position | None
    cursors: Sequence[CursorStatus]
    marked: Collection[LedgerId] = ()  # those of its ledgers that are known to lack copies

    @property
    def entries(self) -> int | None:
        """How many entries can be read."""
        if self.last is None:
            return None
        info, end = self.ownership.info, self.last._replace(entry=self.last.entry + 1)
        return sum(_count(info, at, end) for at in range(len(info.ledgers)))

    def state(self) -> dict[str, Any]:
        """Returns it as the JSON of its owner's ``state``, as far as others can know that."""
        info, newest = self.ownership.info, self.ownership.newest
        is_open = newest is not None and not newest.is_closed
        state = StreamState.LEDGER_OPENED if is_open else StreamState.CLOSED_LEDGER
        if info.terminated is not None:
            state = StreamState.TERMINATED
        last, in_newest = self.last or EARLIEST, 0
        if info.ledgers and not info.ledgers[-1].is_closed and last.ledger == info.ledgers[-1].ledger:
            in_newest = last.entry + 1  # which the list does not count yet
        created_ms = 0 if newest is None else newest.ctime_ms or 0
        cursors = {
            each.name: CursorCounts(each.state.mark, _after(each.state.mark), each.state.acked) for each in self.cursors
        }
        counts = StreamCounts(
            info,
            state,
            last,
            created_ms,
            current_entries=in_newest if is_open else 0,
            confirmed_entries=in_newest,
            cursors=cursors,
        )
        marks = {each.ledger: each.ledger in self.marked for each in info.ledgers}
        return stream_state(counts, under_replicated=marks)


async def create_stream(bk: BookKeeper, name: str) -> bool:
    """Make an empty stream. Returns False if there is one of this name. Raises UsageError, MetadataError."""
    stream, catalog = stream_name(name), bk.stream_context.catalog
    try:
        await catalog.read(stream, synced=True)
    except NoSuchStream:
        await catalog.create(stream)
        return True
    return False


async def stream_ownership(bk: BookKeeper, name: str) -> StreamOwnership:
    """Look whose a stream is. Raises UsageError, NoSuchStream, MetadataError."""
    stream, catalog = stream_name(name), bk.stream_context.catalog
    info = (await catalog.read(stream, synced=True)).value
    node = await catalog.store.get(catalog.paths.owner(stream))
    newest = None
    with contextlib.suppress(NoSuchLedger):
        newest = await bk.ledger_metadata(info.ledgers[-1].ledger) if info.ledgers else None
    return StreamOwnership(info, None if node is None else Owning.of(node.data), newest)


async def stream_status(bk: BookKeeper, name: str) -> StreamStatus:
    """Look at a stream. Raises as ``stream_ownership``."""
    ownership = await stream_ownership(bk, name)
    first = last = None
    with contextlib.suppress(Unavailable):
        async with bk.read_stream(name) as reader:
            first, last = await reader.first(), await reader.last_confirmed()
    ledgers = [each.ledger for each in ownership.info.ledgers]
    marked = await Underreplication(bk.context.driver).marked_of(ledgers)
    cursors = await _cursors(bk, name, ownership.info, last)
    return StreamStatus(stream_name(name), ownership, first, last, cursors, marked)


async def stream_metadata(bk: BookKeeper, name: str) -> dict[str, Any]:
    """Returns what is stored of a stream and its cursors, as a Pulsar broker's ``internal-info`` has it. Raises
    NoSuchStream, MetadataError."""
    stream, catalog = stream_name(name), bk.stream_context.catalog
    listed = await catalog.read(stream, synced=True)
    nodes = {cursor: await catalog.read_cursor(stream, cursor) for cursor in await catalog.cursors(stream)}
    cursors = {cursor: (node.value, Stored(node.version)) for cursor, node in nodes.items()}
    return internal_info(listed.value, Stored(listed.version), cursors, now_ms=bk.context.clock.wall_ms())


async def cursor_statuses(bk: BookKeeper, name: str) -> list[CursorStatus]:
    """Look at the durable cursors of a stream, by name. Raises as ``stream_ownership``."""
    return list((await stream_status(bk, name)).cursors)


async def _cursors(bk: BookKeeper, name: str, info: StreamInfo, last: Position | None) -> list[CursorStatus]:
    stream, context = stream_name(name), bk.stream_context
    catalog = context.catalog

    async def look(cursor: str) -> CursorStatus | None:
        try:
            state = await stored_state(context, stream, cursor)
        except NoSuchCursor:
            return None  # it was deleted meanwhile
        node = await catalog.store.get(catalog.paths.owner(stream, cursor))
        lease = None if node is None else Owning.of(node.data)
        return CursorStatus(decoded(cursor), state, lease, None if last is None else _backlog(info, state, last))

    looks = await together((look(cursor) for cursor in sorted(await catalog.cursors(stream))), CURSORS_AT_ONCE)
    return [look for look in looks if look is not None]


def _backlog(info: StreamInfo, state: CursorState, last: Position) -> int:
    acked = sum(entries_between(info, each.after, min(each.to, last)) for each in state.acked)
    return entries_between(info, state.mark, last) - acked


def _after(position: Position) -> Position:
    return Position(position.ledger, position.entry + 1)


async def list_streams(bk: BookKeeper, prefix: str) -> AsyncIterator[tuple[str, StreamOwnership]]:
    """Yields all streams whose names begin so; one that is deleted meanwhile is left out. Raises MetadataError."""
    async for name in bk.streams(prefix):
        with contextlib.suppress(NoSuchStream):
            yield name, await stream_ownership(bk, name)


async def newest_is_raw(bk: BookKeeper, name: str) -> bool | None:
    """Whether the newest entry that can be read is no message of Pulsar's. Returns None if there is no entry, or no
    stream."""
    try:
        async with bk.read_stream(name, entry_format="raw") as reader:
            last = await reader.last_confirmed()
            if last.entry < 0:
                return None
            async for message in reader.read(last):
                open_entry(message.data, position=message.position)
                return False
    except NoSuchStream:
        return None
    except CorruptEntry:
        return True
    return None  # it was trimmed just now


def entries_back(info: StreamInfo, end: Position, count: int) -> Position:
    """Returns the position of the entry that is ``count`` entries before ``end``; of the first one if there are not so
    many."""
    for at in reversed(range(len(info.ledgers))):
        entries = _count(info, at, end)
        if count <= entries:
            return Position(info.ledgers[at].ledger, entries - count)
        count -= entries
    return Position(info.ledgers[0].ledger, 0) if info.ledgers else EARLIEST


def _count(info: StreamInfo, at: int, end: Position) -> int:
    """Returns how many entries a ledger of the list has before ``end``."""
    ledger = info.ledgers[at]
    if ledger.ledger == end.ledger:
        return end.entry
    return ledger.entries if ledger.ledger < end.ledger else 0
