"""The handle that appends to a ledger: the shell around ``AddCore`` (Q1, Q5 to Q9).

Appends of one loop tick are encoded once, for all replicas, and sent together. Nothing here decides: what the core says
is done, and what comes of it is told to the core. Futures are resolved in id order.

A writer ends in one of three ways. ``close`` stores the end in the metadata. After an error that another bookie cannot
mend, every pending and later append fails, and ``close`` still closes the ledger at the last confirmed entry. Once
another client recovers the ledger (LedgerFenced), its end is that client's to find: ``close`` raises and leaves the
metadata alone.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.ledger.add import (
    Action,
    AddCore,
    Confirm,
    Fail,
    Reason,
    Replace,
    Resend,
    Resume,
    Send,
    Suspend,
)
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.read import Entry, check_bounds, read_entries
from tallystick.bookkeeper.ledger.replicas import Identities, Replicas
from tallystick.bookkeeper.ledger.restorer import Restorer
from tallystick.bookkeeper.ledger.shortage import Shortage, changed_nothing
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, LedgerId, LedgerMetadata, Slot
from tallystick.codec.frames import Buffer, encode_adds
from tallystick.codec.payload import payload_bytes
from tallystick.errors import (
    BookieUnavailable,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    TallyError,
    Unauthorized,
    UsageError,
)

# Of an ADD body: header, master key, and the entry's own header; the digest comes on top.
ADD_OVERHEAD = 24 + 32


# The future gets the entry id when that is confirmed; so many payload bytes then leave the flight. A plain tuple: there
# is one for each append.
_Waiting = tuple[EntryId, asyncio.Future[EntryId], int]


class LedgerWriter:
    """Appends to a ledger that this client created. Use it with ``async with``, or ``close`` it; on one event loop."""

    def __init__(
        self, context: LedgerContext, placement: Placement, restorer: Restorer, ledger: LedgerId,
        stored: changes.Stored, identities: Identities,
    ) -> None:  # fmt: skip
        """For a ledger without entries, as it was just stored; ``identities``: of its bookies, before it was."""
        metadata = stored.value
        self.id = ledger
        self.max_payload_bytes = context.settings.max_frame_bytes - ADD_OVERHEAD - _digest(metadata).size
        self._context, self._placement, self._stored = context, placement, stored
        self._digest, self._key = _digest(metadata), master_key(metadata.password)
        self._core = AddCore(Striping.of(metadata), metadata.ensemble)
        self._replicas = Replicas(
            context.bookies, ledger, self._core.striping, metadata.ensemble, self._acked, self._add_failed, self._wake,
            identities,
        )  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self._queue: list[bytes] = []  # appended in this tick
        self._flush_scheduled = False
        self._next: EntryId = 0
        self._pending: deque[_Waiting] = deque()
        self._inflight_bytes = 0
        self._sent_length = 0  # of the ledger with all entries that were sent
        self._length = 0  # of the ledger up to the LAC
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._changing: asyncio.Task[None] | None = None
        self._restorer = restorer
        self._shortage: Shortage | None = None  # once bookies are missing
        self._closing: asyncio.Future[None] | None = None
        self._failure: TallyError | None = None
        self._aborted = False

    @property
    def lac(self) -> EntryId:
        """The highest entry id with all entries up to it confirmed; -1 when there is none (Q6)."""
        return self._core.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._length

    @property
    def missing(self) -> tuple[BookieId, ...]:
        """Bookies of the newest ensemble that failed and could not be replaced: entries are stored without them.

        Each confirmed entry is on an ack quorum all the same. The writer ends with NotEnoughBookies when its quorum
        could not be met for ``no_quorum_s``.
        """
        return self._core.missing

    @property
    def metadata(self) -> LedgerMetadata:
        """As this writer stored or read it last."""
        return self._stored.value

    async def append(self, data: Buffer) -> EntryId:
        """Append one entry and wait until it is safe; its id.

        Waits first while ``max_inflight_bytes`` are unconfirmed. Raises UsageError (longer than ``max_payload_bytes``:
        it got no id), LedgerClosed, LedgerFenced, NotEnoughBookies, Unauthorized, MetadataError.
        """
        await self._room()
        try:
            future = self.append_nowait(data)
        finally:
            self._wake()
        return await future

    def append_nowait(self, data: Buffer) -> asyncio.Future[EntryId]:
        """Append one entry without waiting for anything; a future of its id. Raises and fails as ``append``.

        Takes entries beyond the bound on bytes in flight too: await ``drain`` before memory runs short.
        """
        payload = _frozen(data)
        self._admit(len(payload))
        self._queue.append(payload)
        return self._queued(1, len(payload))

    async def append_batch(self, data: Sequence[Buffer]) -> range:
        """Append entries with consecutive ids and wait until all are safe; the ids. Raises as ``append``."""
        if not data:
            return range(0)
        payloads = [_frozen(one) for one in data]
        sizes = [len(payload) for payload in payloads]
        await self._room()
        try:
            self._admit(max(sizes))
            self._queue += payloads
            future = self._queued(len(payloads), sum(sizes))
        finally:
            self._wake()
        last = await future
        return range(last - len(payloads) + 1, last + 1)

    async def drain(self) -> None:
        """Wait until everything appended so far is confirmed, and there is room for more. Raises why not."""
        await self._confirmed()
        await self._room()
        self._wake()

    async def _confirmed(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._pending:
            await self._wait_for(self._next - 1, 0)

    def read(self, first: EntryId, last: EntryId) -> AsyncGenerator[Entry, None]:
        """The entries ``first`` … ``last`` of this ledger, up to the LAC (Q17). Raises as ``LedgerReader.read``."""
        check_bounds(self.id, first, last, self.lac)
        return read_entries(self._context.bookies, self.metadata, self.id, first, last)

    async def close(self) -> None:
        """Take no more appends, wait for those under way, and store the end of the ledger. Repeated calls are one.

        Raises LedgerFenced when another client recovers the ledger: its metadata is left alone. Raises MetadataError
        when the end could not be stored; the next ``open_ledger(…, recover=True)`` finds it.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    def abort(self) -> None:
        """Stop at once, as if the process died: nothing is stored, pending appends fail and may have taken effect."""
        if self._closing is not None and self._closing.done():
            return
        self._aborted = True
        self._give_up(BookieUnavailable("this writer was stopped before the entry was confirmed", ledger=self.id))
        if self._changing is not None:
            self._changing.cancel()

    def __repr__(self) -> str:
        state = "stopped" if self._failure is not None else "closed" if self._closing is not None else "open"
        return f"<LedgerWriter ledger={self.id} lac={self.lac} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # which says more than whatever closing might meet
            with suppress(TallyError):
                await self.close()

    # Taking entries

    def _admit(self, largest: int) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._closing is not None:
            raise LedgerClosed("this writer is closed", ledger=self.id)
        if largest > self.max_payload_bytes:
            raise UsageError("an entry is too long", bytes=largest, max_bytes=self.max_payload_bytes)

    def _queued(self, count: int, size: int) -> asyncio.Future[EntryId]:
        """So many entries, of ``size`` bytes together, were put into the queue."""
        self._next += count
        self._inflight_bytes += size
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return self._wait_for(self._next - 1, size)

    def _wait_for(self, last: EntryId, size: int) -> asyncio.Future[EntryId]:
        future: asyncio.Future[EntryId] = self._loop.create_future()
        self._pending.append((last, future, size))
        return future

    async def _room(self) -> None:
        """Wait for bytes to be confirmed, and taken by bookies that are behind. One waiter is woken at a time, and
        wakes the next."""
        while self._is_full:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting_for_room.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()
                raise

    @property
    def _is_full(self) -> bool:
        held = self._inflight_bytes + self._replicas.lagging_bytes
        return held >= self._context.settings.max_inflight_bytes and self._failure is None

    def _wake(self) -> None:
        while self._waiting_for_room and not self._is_full:
            waiter = self._waiting_for_room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._failure is None:
            self._perform(self._core.append(len(self._queue)))

    # What the core is told

    def _acked(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        self._perform(self._core.acked(slot, first, last))

    def _add_failed(self, slot: Slot, entries: list[EntryId], code: int | None) -> None:
        for entry in entries:
            self._perform(self._core.failed(slot, entry, code))

    async def _change(self, wanted: Replace) -> None:
        for bookie in wanted.failed:
            self._placement.quarantine.add(bookie)
        identities: Identities = {}

        async def replace(failed: Collection[BookieId], ensemble: Ensemble) -> Ensemble:
            nonlocal identities
            chosen = await self._placement.without(failed, ensemble)
            identities = await self._placement.identities(chosen)
            return chosen

        try:
            async with self._placement.changes:
                self._stored = await changes.change_ensemble(
                    self._context.driver, self.id, self._stored, wanted.failed, wanted.first, replace
                )
        except Exception as error:  # whatever it is, nobody may wait for ever
            if self._context.settings.degraded_writes and changed_nothing(error):
                self._lacking().began(error)
            else:
                self._perform(self._core.change_failed(), error)
            return
        ensemble = self._stored.value.ensemble
        self._emit("ensemble changed", first=wanted.first, failed=wanted.failed, ensemble=ensemble)
        self._replicas.replace(ensemble, identities)
        self._perform(self._core.ensemble_changed(ensemble))

    def _lacking(self) -> Shortage:
        if self._shortage is None:
            self._shortage = Shortage(
                self.id, self._core, self._perform, self._emit, self._placement, self._restorer, self._context.clock,
                self._context.settings.no_quorum_s, self._replicas.believes,
            )  # fmt: skip
        return self._shortage

    # What the core wants done

    def _perform(self, actions: list[Action], cause: Exception | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Confirm):
                self._confirm(action.lac)
            elif isinstance(action, Resend):
                self._replicas.resend(action.slot, action.first, action.last)
            elif isinstance(action, Replace):
                self._emit("bookie failed", first=action.first, failed=action.failed)
                self._changing = asyncio.create_task(self._change(action))
            elif isinstance(action, Suspend):
                self._replicas.suspend(action.slot)
            elif isinstance(action, Resume):
                self._replicas.resume(action.slot)
            else:
                self._fail(action, cause)
        if self._shortage is not None:
            self._shortage.checked()
        if self._waiting_for_room:  # a bookie that is behind may have been replaced
            self._wake()

    def _send(self, run: Send) -> None:
        payloads, self._queue, before = self._queue, [], self._sent_length
        assert len(payloads) == run.last - run.first + 1
        frames, self._sent_length = encode_adds(
            self._key, self.id, run.first, self._core.lac, self._sent_length, payloads,
            self._digest.compute, self._digest.size,
        )  # fmt: skip
        self._replicas.send(run.first, frames, self._sent_length - before)

    def _confirm(self, lac: EntryId) -> None:
        self._replicas.confirmed(lac)
        pending, confirmed_bytes = self._pending, 0
        while pending and pending[0][0] <= lac:
            last, future, size = pending.popleft()
            confirmed_bytes += size
            if not future.done():  # its caller may have been cancelled
                future.set_result(last)
        self._inflight_bytes -= confirmed_bytes
        self._length += confirmed_bytes
        self._wake()

    def _fail(self, action: Fail, cause: Exception | None) -> None:
        fields: dict[str, Any] = {"ledger": self.id, "first_unconfirmed": action.first}
        if action.reason is Reason.FENCED:
            failure: TallyError = LedgerFenced(**fields)
        elif action.reason is Reason.UNAUTHORIZED:
            failure = Unauthorized("a bookie knows this ledger with another password", **fields)
        elif isinstance(cause, TallyError):
            failure = cause
        else:
            failure = LedgerError("the ensemble change failed", **fields, cause=repr(cause))
        self._emit("writer stopped", first_unconfirmed=action.first, reason=str(failure))
        self._give_up(failure)

    def _give_up(self, failure: TallyError) -> None:
        self._failure = failure
        self._replicas.close()
        if self._shortage is not None:
            self._shortage.ended()
        unsent = self._next - len(self._queue)
        self._queue.clear()
        pending, self._pending, self._inflight_bytes = self._pending, deque(), 0
        for last, future, _ in pending:
            if not future.done():
                error = copy.copy(failure)
                if last < unsent:
                    error.ambiguous = True  # a bookie may have it, and then recovery may keep it
                future.set_exception(error)
        while self._waiting_for_room:
            self._wake()

    async def _close(self) -> None:
        with suppress(TallyError):  # it went to the appends that failed; what matters here is whether we may close
            await self._confirmed()
        if self._changing is not None:
            await asyncio.wait([self._changing])
        self._replicas.close()
        if self._shortage is not None:
            self._shortage.ended()
        self._wake()
        if self._failure is not None and (self._aborted or isinstance(self._failure, LedgerFenced)):
            raise copy.copy(self._failure)
        self._stored = await changes.close_written(self._context.driver, self.id, self._stored, self.lac, self._length)
        self._emit("ledger closed", last_entry=self.lac, length=self._length)

    def _emit(self, kind: str, **fields: Any) -> None:
        self._context.events.emit(kind, ledger=self.id, **fields)


def _frozen(data: Buffer) -> bytes:
    """A caller's buffer may change before the tick that sends it."""
    return payload_bytes(data, "an entry")


def _digest(metadata: LedgerMetadata) -> Digest:
    return Digest.of(metadata.digest_type, metadata.password)
