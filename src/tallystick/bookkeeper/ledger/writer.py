"""The handle that appends to a ledger (Q1).

A writer ends in one of three ways. ``close`` stores the end in the metadata. After an error that another bookie cannot
mend, every pending and later append fails, and ``close`` still closes the ledger at the last confirmed entry. Once
another client recovers the ledger (LedgerFenced), its end is that client's to find: ``close`` raises and leaves the
metadata alone.

What its entries need on their way is an ``AddSession``, which it has while some are under way, and a while longer.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.ledger.add_session import AddSession
from tallystick.bookkeeper.ledger.explicit_lacs import ExplicitLac
from tallystick.bookkeeper.ledger.forces import force_all
from tallystick.bookkeeper.ledger.read import Entry, check_bounds, read_entries
from tallystick.bookkeeper.ledger.replicas import BookieIdentities
from tallystick.bookkeeper.ledger.unsent import note_unsent
from tallystick.bookkeeper.ledger.writer_state import WriterState
from tallystick.bookkeeper.ledger.writers import Writers
from tallystick.bookkeeper.wire.values import MAX_ID, BookieId, Ensemble, EntryId, LedgerId, LedgerMetadata
from tallystick.codec.frames import Buffer
from tallystick.errors import (
    EntryExists,
    LedgerClosed,
    LedgerFenced,
    MetadataError,
    NotEnoughBookies,
    TallyError,
    UsageError,
)
from tallystick.runtime.arguments import items, payload_bytes, whole
from tallystick.runtime.loops import check_loop


class LedgerWriter:
    """Appends to a ledger that this client created. Use it with ``async with``, or ``close`` it; on one event loop."""

    __slots__ = (
        "__weakref__",
        "_aborted",
        "_closing",
        "_deferred_sync",
        "_packed",
        "_session",
        "_takes_ids",
        "_writers",
        "max_payload_bytes",
    )

    def __init__(
        self,
        writers: Writers,
        ledger: LedgerId,
        versioned: changes.VersionedMetadata,
        identities: BookieIdentities,
        *,
        takes_ids: bool = False,
        deferred_sync: bool = False,
    ) -> None:
        """For a ledger without entries, as it was just stored; ``identities`` are those of its bookies before that.

        ``takes_ids``: the caller gives each entry its id. ``deferred_sync``: entries are durable once ``force`` is
        called.
        """
        self._writers = writers
        self._takes_ids, self._deferred_sync = takes_ids, deferred_sync
        self._packed = WriterState.of(ledger, versioned, identities).packed()
        self._session: AddSession | None = None  # while there is one, it has the newer state
        self._closing: asyncio.Future[None] | None = None
        self._aborted = False
        self.max_payload_bytes = writers.context.bookies.most_payload_bytes(
            versioned.value.digest_type, deferred_sync=deferred_sync
        )

    @property
    def _state(self) -> WriterState:
        session = self._session  # looked at once: the blocking writer asks from other threads
        return session.state if session is not None else WriterState(*self._packed)

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._state.id

    @property
    def lac(self) -> EntryId:
        """The highest entry id with all entries up to it confirmed; -1 when there is none (Q6).

        With deferred sync: the highest that a ``force`` made durable.
        """
        return self._state.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._state.length

    @property
    def missing(self) -> tuple[BookieId, ...]:
        """Bookies of the newest ensemble that failed and could not be replaced: entries are stored without them.

        Each confirmed entry is on an ack quorum all the same. The writer ends with NotEnoughBookies when its quorum
        could not be met for ``no_quorum_s``.
        """
        session = self._session
        return session.missing_bookies if session is not None else ()

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this writer stored or read it last."""
        return self._state.metadata

    async def append(self, data: Buffer, entry: EntryId | None = None) -> EntryId:
        """Append one entry and wait until it is safe. Returns its id.

        Waits first while ``max_inflight_bytes`` are unconfirmed. Raises UsageError (longer than ``max_payload_bytes``:
        it got no id, and the writer goes on); LedgerFenced, NotEnoughBookies, Unauthorized, MetadataError, and
        RequestTimeout with ``add_quorum_timeout_s``, each of which ends the writer; LedgerClosed when it had ended
        before, or was closed.

        Where the ledger was made with ``entry_ids="given"``, ``entry`` is the id, in any order: an entry is safe when
        all before it are. It is appended, held or refused at once; raises EntryExists for an id that was appended
        before, EntriesMissing when ``max_inflight_bytes`` are held behind an entry that is missing (which itself is
        always taken). Those that are held when the writer is closed fail with LedgerClosed.
        """
        if entry is not None:
            return await self.append_nowait(data, entry)
        await self._room()
        try:
            future = self.append_nowait(data)
        finally:
            self._wake()
        return await future

    def append_nowait(self, data: Buffer, entry: EntryId | None = None) -> asyncio.Future[EntryId]:
        """Append one entry without waiting for anything. Returns a future of its id; raises and fails as ``append``.

        Takes entries beyond the bound on bytes in flight too: await ``drain`` before memory runs short.
        """
        check_loop(self._writers.loop)
        payload = _payload_of(data)
        id = self._checked_id(entry)
        self._admit(len(payload))
        if id is None:
            return self._open_session().append((payload,), len(payload))
        if id <= self.lac:
            raise EntryExists(ledger=self.id, entry=id)
        return self._open_session().append_at(id, payload)

    def append_batch_nowait(self, data: Collection[bytes]) -> asyncio.Future[EntryId]:
        """Append entries with consecutive ids, at least one, without waiting for anything. Returns a future of the last
        one's id; raises and fails as ``append_nowait``."""
        check_loop(self._writers.loop)
        self._checked_id(None)
        sizes = [len(payload) for payload in data]
        self._admit(max(sizes))
        return self._open_session().append(data, sum(sizes))

    async def append_batch(self, data: Iterable[Buffer]) -> range:
        """Append entries with consecutive ids and wait until all are safe. Returns the ids; raises as ``append``, and
        UsageError where the caller gives the ids."""
        self._checked_id(None)
        payloads = [_payload_of(one) for one in items(data, "data")]
        if not payloads:
            return range(0)
        sizes = [len(payload) for payload in payloads]
        await self._room()
        try:
            self._admit(max(sizes))
            future = self._open_session().append(payloads, sum(sizes))
        finally:
            self._wake()
        last = await future
        return range(last - len(payloads) + 1, last + 1)

    async def drain(self) -> None:
        """Wait until everything appended so far is confirmed, and there is room for more. What is held behind a missing
        entry is not waited for.

        Raises what keeps them from that; the future of each entry says what became of it.
        """
        check_loop(self._writers.loop)
        if (failure := self._failure) is not None:
            error = self._refusal(failure)
            error.ambiguous = True  # what was appended may be stored
            raise error
        if self._session is not None:
            await self._session.confirmed()
        await self._room()
        self._wake()

    async def force(self) -> EntryId:
        """Make durable what was acknowledged so far, at every bookie of the ensemble. Returns the LAC.

        It matters for a ledger with ``deferred_sync``: its LAC moves by this alone. Entries that are acknowledged
        meanwhile are not part of it. Raises Unavailable or one of its kinds when a bookie does not do it: a later call
        may succeed. Raises LedgerError when a bookie was started anew and has lost entries that it had acknowledged:
        that ends the writer, and the ledger at its LAC. Raises LedgerFenced, which ends the writer, when another client
        recovers, closed or deleted a ledger with ``deferred_sync``, MetadataError when nobody can tell that now,
        LedgerClosed, and UsageError for a client that speaks version 2 alone.
        """
        check_loop(self._writers.loop)
        self._admit(0)
        self._writers.context.bookies.require_v3()
        if self._session is not None:
            await self._session.force()
        elif (state := self._state).lac >= 0:
            await force_all(self._writers.context.bookies, state.id, state.ensemble)
        return self.lac

    def read(self, first: EntryId, last: EntryId) -> AsyncGenerator[Entry, None]:
        """Read the entries ``first`` … ``last`` up to the LAC (Q17). Raises as ``LedgerReader.read``."""
        check_loop(self._writers.loop)
        check_bounds(self.id, first, last, self.lac)
        return read_entries(self._writers.context.bookies, self.metadata, self.id, first, last)

    async def close(self) -> None:
        """Take no more appends, wait for those under way, and store the end of the ledger. Repeated calls are one, but
        for one that could not store the end: a later call tries again.

        Where the caller gives the ids, the ledger ends before the first that is missing; what is held behind it fails.
        With deferred sync it ends with the last entry that was forced.

        Raises LedgerFenced when another client recovers the ledger: its metadata is left alone. Raises LedgerClosed
        after ``abort``, and MetadataError when the end could not be stored; the next ``open_ledger(…, recover=True)``
        finds it.
        """
        check_loop(self._writers.loop)
        if self._closing is None or _is_not_stored(self._closing):
            self._writers.left(self.id)
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    def abort(self) -> None:
        """Stop at once, as if the process died: nothing is stored, pending appends fail and may have taken effect."""
        if self._aborted or (self._closing is not None and self._closing.done()):
            return
        self._aborted = True
        self._writers.left(self.id)
        who = "this writer's client was closed" if self._writers.is_closed else "this writer was stopped"
        failure = LedgerClosed(f"{who} before the entry was confirmed", ledger=self.id)
        if self._session is None:
            state = self._state
            state.failure = failure
            self._packed = state.packed()
        else:
            self._session.fail(failure)
            self._session.cancel_change()
            self._writers.ended(self)

    def give_up(self, failure: TallyError) -> None:
        """Fail what is not confirmed, and take no more. Next: ``close`` it."""
        if self._session is not None:
            self._session.give_up(failure)

    def drop_session(self) -> None:
        """Do without a session, if nothing is under way: many other writers of this client have one."""
        if self._session is not None and self._session.end_if_quiet():
            self._drop_session()

    def has_any(self, bookies: Collection[BookieId]) -> bool:
        """Return whether one of these is in the newest ensemble, and it is to be replaced there if it is gone.

        With deferred sync none is: a change would end the writer. What is degraded is restored by itself.
        """
        if self._deferred_sync or self._closing is not None or self._aborted or self._writers.is_closed:
            return False
        return self._state.failure is None and not self.missing and any(each in bookies for each in self._ensemble)

    @property
    def _ensemble(self) -> Ensemble:
        """The bookies that get the next entries."""
        return self._session.ensemble if self._session is not None else self._state.ensemble

    async def replace_absent(self, bookies: Collection[BookieId]) -> None:
        """Replace these bookies, unless no other can be had. Raises TallyError, and nothing is changed."""
        state, placement = self._state, self._writers.placement
        try:
            await placement.without(bookies, self._ensemble, state.striping, never=state.metadata.avoided)
        except NotEnoughBookies:  # a writer that appends goes on without them, and one that does not needs none
            return
        if self.has_any(bookies):
            await self._open_session().replace_absent(bookies)

    def explicit_lac(self) -> ExplicitLac | None:
        """Return the LAC to tell bookies, None if entries are under way or it is not this writer's any more."""
        session, state = self._session, self._state
        has_ended = self._closing is not None or self._aborted or state.failure is not None
        if has_ended or state.lac < 0 or self._writers.is_closed or (session is not None and session.has_pending):
            return None
        ensemble = state.metadata.ensemble_of(state.lac)
        bookies = tuple(ensemble[slot] for slot in state.striping.slots(state.lac))
        return ExplicitLac(state.id, state.lac, bookies, state.key(), state.digest().encode_lac(state.id, state.lac))

    def _drop_session(self) -> None:
        self._packed, self._session = self._state.packed(), None
        self._writers.ended(self)

    def __repr__(self) -> str:
        if self._state.failure is not None or (self._writers.is_closed and self._closing is None):
            state = "stopped"
        else:
            state = "closed" if self._closing is not None else "open"
        return f"<LedgerWriter ledger={self.id} lac={self.lac} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and (not self._aborted or self._writers.is_closed):  # else it stopped its writer on purpose
            await self.close()
        else:  # which says more than whatever closing might meet
            with suppress(TallyError):
                await self.close()

    @property
    def _failure(self) -> TallyError | None:
        if self._writers.is_closed:  # nobody told a writer that had nothing under way
            self.abort()
        return self._session.state.failure if self._session is not None else self._packed[-1]

    def _checked_id(self, entry: EntryId | None) -> EntryId | None:
        """Raises UsageError for an entry without an id where the caller gives them, and for one with it elsewhere."""
        if self._takes_ids:
            if entry is None:
                raise UsageError(
                    'this ledger was made with entry_ids="given": give each entry its id, append(data, entry=id)',
                    ledger=self.id,
                )
            return whole(entry, "an entry id", most=MAX_ID)
        if entry is not None:
            raise UsageError(
                'this writer gives the ids; make the ledger with entry_ids="given" to give them', ledger=self.id
            )
        return None

    def _admit(self, largest: int) -> None:
        if (failure := self._failure) is not None:
            raise self._refusal(failure)
        if self._closing is not None:
            raise LedgerClosed("this writer is closed", ledger=self.id)
        if largest > self.max_payload_bytes:
            raise UsageError("an entry is too long", bytes=largest, max_bytes=self.max_payload_bytes)

    def _refusal(self, failure: TallyError) -> TallyError:
        """Return why an entry is refused: nothing was done, and no later call does more."""
        if self._writers.is_closed:
            return UsageError("this writer's client is closed", ledger=self.id)
        if self._aborted:
            return LedgerClosed("this writer was stopped", ledger=self.id)
        if failure.retriable:
            return LedgerClosed(f"this writer has ended: {failure}", ledger=self.id)
        error = copy.copy(failure)
        error.ambiguous = False
        return error

    def _open_session(self) -> AddSession:
        """Return the session, a new one if there is none. Next: append to it."""
        if self._session is None:
            state = WriterState(*self._packed)
            self._session = AddSession(self._writers, state, self, deferred_sync=self._deferred_sync)
            self._writers.began(self)
        return self._session

    async def _room(self) -> None:
        """Wait for bytes to be confirmed, and taken by bookies that are behind."""
        check_loop(self._writers.loop)
        if self._session is not None:
            await self._session.room()

    def _wake(self) -> None:
        if self._session is not None:
            self._session.wake()

    async def _close(self) -> None:
        if (session := self._session) is not None:
            session.fail_held()
            with suppress(TallyError):  # it went to the appends that failed; what matters here is whether we may close
                await session.confirmed()
            await session.end()
        failure = self._failure
        if session is self._session is not None:
            self._drop_session()
        if self._aborted:
            raise LedgerClosed("this writer was stopped: the end of its ledger is not stored", ledger=self.id)
        if isinstance(failure, LedgerFenced):
            raise copy.copy(failure)
        state, context = self._state, self._writers.context
        if state.lac >= 0:
            unsent_bookies = session.unsent_bookies if session is not None else state.failed_bookies
            await note_unsent(context, state.id, unsent_bookies)
        state.store(await changes.close_written(context.driver, state.id, state.versioned, state.lac, state.length))
        self._packed = state.packed()
        context.events.emit("ledger closed", ledger=state.id, last_entry=state.lac, length=state.length)


def _is_not_stored(closing: asyncio.Future[None]) -> bool:
    return closing.done() and not closing.cancelled() and isinstance(closing.exception(), MetadataError)


def _payload_of(data: Buffer) -> bytes:
    """Copy a caller's buffer, which may change before the tick that sends it."""
    return payload_bytes(data, "an entry")
