"""Where a cursor is kept: its node, and a cursor ledger with a state in each entry (``ManagedCursorImpl``).

The node has the whole state while there is no cursor ledger: the first acknowledgement makes it. A cursor ledger is
replaced as it has grown long or old: the new one gets the newest state, then the node names it, then the old one is
deleted. When it takes nothing more the node gets the state, and the next save makes another. Closing leaves the state
in the node if that is small.

From the node to the first state in its ledger, and from each of those to the next, only more is acknowledged: who gets
an older one, as a reader that fences nobody may, takes the cursor to need too much, never too little. So a seek, after
which less may be acknowledged, is stored in the node, and the next state begins another ledger.

Every write of the node is a compare-and-set. Opening a cursor writes it, too, so that whoever owned it before changes
nothing from then on: its cursor ledger is fenced, and the node has another version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.opening import require_ours
from tallystick.bookkeeper.wire.managed_ledgers import cursor_encoding, cursor_state_decoding
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorInfo, CursorState
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import (
    DigestMismatch,
    EntryLost,
    LedgerError,
    LedgerFenced,
    MetadataError,
    MetadataUncertain,
    NoSuchCursor,
    NoSuchEntry,
    NoSuchLedger,
    StreamFenced,
    StreamOwned,
    TallyError,
    Unavailable,
)
from tallystick.runtime.turn_steps import in_turns

LEDGER_AGE_S = 4 * 3600.0  # after which it is replaced (ledgerRolloverTimeout)
MOST_NODE_RANGES = 1_000  # with more a cursor is closed into its ledger (maxUnackedRangesToPersistInMetadataStore)


class CursorImage(Protocol):
    """What is to be stored of a cursor, as it is at the moment."""

    @property
    def ranges(self) -> int: ...

    @property
    def resets(self) -> int:
        """Returns how often less was acknowledged than before."""
        ...

    def state(self) -> CursorState: ...

    def snapshot(self, most_ranges: int) -> CursorState:
        """Returns the mark, and some of what is acknowledged behind it."""
        ...

    def prepare(self) -> Iterator[None]:
        """Do what ``encoded`` needs, for a while between any two steps."""
        ...

    def encoded(self) -> bytes:
        """Returns the state as an entry of a cursor ledger."""
        ...


class CursorStore:
    """What is stored of one cursor that this client owns. One call at a time."""

    def __init__(
        self, context: StreamContext, stream: str, cursor: str, lease: Lease, stored: Versioned[CursorInfo]
    ) -> None:
        self._context, self._stream, self._cursor, self._lease = context, stream, cursor, lease
        self._info, self._version, self._creation = stored.value, stored.version, stored.creation
        self._change_name = context.catalog.change_name()
        self._doubtful: CursorInfo | None = None  # a write of the node whose response was lost
        self._writer: LedgerWriter | None = None  # of the cursor ledger, which is the one that the node names
        self._made_at = 0.0
        self._resets = 0  # as many as all states in the cursor ledger have

    @property
    def ledger(self) -> LedgerId:
        """Returns the cursor ledger, -1 if there is none."""
        return self._info.ledger

    # -- opening ------------------------------------------------------------------------------------------------------

    async def recover(self) -> CursorState:
        """Returns what is stored, and makes sure that nobody else changes it from now on.

        Raises StreamFenced when another owner was faster; RecoveryIncomplete, Unavailable, MetadataError.
        """
        info = self._info
        unused = await self._context.catalog.going(self._stream, self._cursor)
        dead = list(unused)
        state = await self._recover_ledger()
        if state is None:
            state = info.state or CursorState(EARLIEST)
            if info.ledger != NO_LEDGER:
                self._emit("cursor ledger lost", ledger=info.ledger, mark=str(state.mark))
                dead.append(info.ledger)
                info = replace(info, ledger=NO_LEDGER, state=state)
        await self._write(info, noted=dead, settled=unused)
        self._context.deletions.add(self._stream, dead)
        return state

    async def _recover_ledger(self) -> CursorState | None:
        """Returns the last state in the cursor ledger, None if there is none."""
        ledger = self._info.ledger
        if ledger == NO_LEDGER:
            return None
        try:
            async with self._context.ledgers.open_ledger(ledger, recover=True) as reader:
                if (last := reader.last_entry) >= 0:
                    async for entry in reader.read(last, last):
                        where = f"entry {last} of ledger {ledger} of cursor {self._cursor} of {self._stream}"
                        return await in_turns(cursor_state_decoding(bytes(entry.data), where=where))
        except (NoSuchLedger, NoSuchEntry, EntryLost, DigestMismatch):
            pass
        return None

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(self, core: CursorImage) -> None:
        """Store what there is now. Raises StreamFenced when another owner has the cursor; MetadataError, Unavailable:
        then it may be stored, and the next save tries again."""
        for _ in core.prepare():
            await asyncio.sleep(0)
        if core.resets != self._resets:
            return await self.save_in_node(core)
        if self._writer is not None and not self._is_worn(self._writer):
            try:
                await self._writer.append(core.encoded())
                return
            except TallyError as error:
                await self._give_up_ledger(error)
        else:
            try:
                await self._replace_ledger(core)
                return
            except (LedgerError, Unavailable) as error:
                self._emit("cursor ledger failed", reason=error)
        await self.save_in_node(core)

    def _is_worn(self, writer: LedgerWriter) -> bool:
        age_s = self._context.context.clock.now() - self._made_at
        return writer.lac + 1 >= self._context.settings.max_entries_per_cursor_ledger or age_s >= LEDGER_AGE_S

    async def _replace_ledger(self, core: CursorImage) -> None:
        """Go on in a new cursor ledger."""
        catalog, settings = self._context.catalog, self._context.settings.stream
        writer = await self._context.ledgers.create_ledger(
            settings.ensemble,
            write_quorum=settings.write_quorum,
            ack_quorum=settings.ack_quorum,
            custom_metadata=_custom_metadata(self._stream, self._cursor),
            beside=lambda ledger: [catalog.note(self._stream, ledger, self._cursor)],
        )
        try:
            await writer.append(core.encoded())
        except BaseException:
            writer.abort()
            await self._delete_unused(writer.id)
            raise
        try:
            await self._replace_node(writer.id, core.snapshot(MOST_NODE_RANGES), settled=[writer.id])
        except StreamFenced:
            writer.abort()
            await self._delete_if_noted(writer.id)
            raise
        except BaseException:  # the node may name it all the same; else its note tells whoever opens the cursor next
            writer.abort()
            raise
        if self._writer is not None:
            self._writer.abort()
        self._writer, self._made_at = writer, self._context.context.clock.now()

    async def _delete_if_noted(self, ledger: LedgerId) -> None:
        """Delete a ledger that the node cannot name any more, unless it does: its note went in one with that."""
        catalog = self._context.catalog
        with contextlib.suppress(MetadataError):
            await catalog.store.sync()
            if ledger in await catalog.going(self._stream, self._cursor):
                await self._delete_unused(ledger)

    async def _delete_unused(self, ledger: LedgerId) -> None:
        """Delete a ledger that never was the cursor's. An error leaves its note, for whoever opens the cursor next."""
        try:
            await self._context.ledgers.delete_ledger(ledger)
            await self._context.catalog.gone(self._stream, [ledger], self._cursor)
        except TallyError as error:
            self._emit("cursor ledger failed", ledger=ledger, reason=error)

    async def _give_up_ledger(self, error: TallyError) -> None:
        """The cursor ledger takes nothing more. Raises StreamFenced if that is so as the cursor is another's."""
        assert self._writer is not None
        self._emit("cursor ledger failed", ledger=self._writer.id, reason=error)
        if isinstance(error, LedgerFenced):  # by another owner, or by a repairer
            await self._require_owned()
        self.abort()

    async def _require_owned(self) -> None:
        """Raises StreamFenced unless this client owns the cursor, as of now."""
        if not await self._context.leases.is_held(self._lease):
            raise StreamFenced("another owner has this cursor", stream=self._stream, cursor=self._cursor)
        try:
            listed = await self._context.catalog.read(self._stream, synced=True)
            await require_ours(self._context, self._stream, listed.value)
        except StreamOwned as error:
            text = "a Pulsar broker has the stream, and its cursors"
            raise StreamFenced(text, stream=self._stream, cursor=self._cursor) from error

    async def save_in_node(self, core: CursorImage) -> None:
        """Store what there is now without a cursor ledger. Raises as ``save``."""
        resets = core.resets
        await self._replace_node(NO_LEDGER, core.state())
        if resets != self._resets:
            await self._context.catalog.overtake(self._stream)  # a trimmer may have read where it was before
            self._resets = resets
        self.abort()

    async def is_unchanged(self) -> bool:
        """Whether no other owner wrote the node, as of now; also while there is another call. Raises MetadataError."""
        version = self._version
        try:
            stored = await self._context.catalog.read_cursor(self._stream, self._cursor)
        except NoSuchCursor:
            return False
        if stored.creation != self._creation:
            return False
        return stored.version == version or self._version != version or self._doubtful is not None

    # -- closing ------------------------------------------------------------------------------------------------------

    async def close(self, core: CursorImage, *, is_saved: bool) -> None:
        """Store what there is now: in the node, unless that is too much. Then ``abort`` it. Raises as ``save``."""
        if core.ranges > MOST_NODE_RANGES:
            if not is_saved:
                await self.save(core)
            if self._writer is not None:
                await self._writer.close()
        elif not is_saved or self._info.ledger != NO_LEDGER:
            await self.save_in_node(core)

    def abort(self) -> None:
        """Store nothing more."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    # -- the node -----------------------------------------------------------------------------------------------------

    async def _replace_node(self, ledger: LedgerId, state: CursorState, settled: Collection[LedgerId] = ()) -> None:
        """Let the node name this ledger, and have this state. The ledger that it named is deleted."""
        if self._doubtful is not None:
            await self._read_back(self._doubtful)
        before = self._info.ledger
        noted = [] if before in (NO_LEDGER, ledger) else [before]
        await self._write(replace(self._info, ledger=ledger, state=state), noted=noted, settled=settled)
        self._context.deletions.add(self._stream, noted)

    async def _write(
        self, info: CursorInfo, *, noted: Collection[LedgerId] = (), settled: Collection[LedgerId] = ()
    ) -> None:
        """Raises StreamFenced when another owner wrote the node. After a MetadataError nobody knows whether it was
        written: the next write looks."""
        info = replace(info, last_active_ms=self._context.context.clock.wall_ms())
        while True:
            if self._doubtful is not None:
                await self._read_back(self._doubtful)
                if self._info is info:
                    return
            # A note that is to go says as well whether there is another cursor by now.
            begun = (
                None if settled else await self._context.catalog.begin(self._stream, self._change_name, self._cursor)
            )
            await self._require_same()
            try:
                self._version = await self._context.catalog.write_cursor(
                    self._stream, self._cursor, info, self._version, noted=noted, settled=settled, begun=begun
                )
            except MetadataUncertain:
                self._doubtful = info
            else:
                self._info = info
                return

    async def _require_same(self) -> None:
        """Raises StreamFenced if this cursor was deleted. Another one of its name may have the same version.

        Who makes the cursor anew after this overtakes the change.
        """
        if await self._context.catalog.creation(self._stream, self._cursor) != self._creation:
            raise StreamFenced("this cursor was deleted", stream=self._stream, cursor=self._cursor)

    async def _read_back(self, doubtful: CursorInfo) -> None:
        """See whether the node is what was written last, or what it was before. Raises StreamFenced."""
        fenced = StreamFenced("another owner changed this cursor", stream=self._stream, cursor=self._cursor)
        try:
            stored = await self._context.catalog.read_cursor(self._stream, self._cursor)
        except NoSuchCursor:
            raise fenced from None
        if stored.creation != self._creation:
            raise fenced
        if stored.version == self._version + 1 and await _is_same(stored.value, doubtful):
            self._info, self._version = doubtful, stored.version
        elif stored.version != self._version:
            raise fenced
        self._doubtful = None

    def _emit(self, kind: str, **fields: object) -> None:
        self._context.context.events.emit(kind, stream=self._stream, cursor=self._cursor, **fields)


async def _is_same(stored: CursorInfo, written: CursorInfo) -> bool:
    return await in_turns(cursor_encoding(stored)) == await in_turns(cursor_encoding(written))


def _custom_metadata(stream: str, cursor: str) -> Mapping[str, bytes]:
    return {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": stream.encode(),
        "pulsar/cursor": cursor.encode(),
    }
