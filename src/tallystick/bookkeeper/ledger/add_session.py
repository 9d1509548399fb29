"""The shell around ``AddCore`` for a writer that has entries under way (Q1, Q5 to Q9).

Appends of one loop tick are encoded once, for all replicas, and sent together. Nothing here decides: the core's actions
are performed, and what comes of them are its next events. Futures are resolved in id order.

A session holds nothing that lasts: what the ledger's next session needs is in ``WriterState``. So one that is quiet can
be ended, and another one begun at the next append.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Collection
from contextlib import suppress
from typing import Any

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
from tallystick.bookkeeper.ledger.add_timing import AddTiming
from tallystick.bookkeeper.ledger.degraded import FailedBookies
from tallystick.bookkeeper.ledger.forces import Forces, force_all
from tallystick.bookkeeper.ledger.held_appends import HeldAppends
from tallystick.bookkeeper.ledger.pending import PendingAppends, Room
from tallystick.bookkeeper.ledger.replicas import BookieIdentities, Replicas
from tallystick.bookkeeper.ledger.shortage import Shortage, changed_nothing
from tallystick.bookkeeper.ledger.writer_state import WriterState
from tallystick.bookkeeper.ledger.writers import SessionOwner, Writers
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, LedgerMetadata, Slot
from tallystick.codec.frames import DEFERRED_FLAG, encode_adds
from tallystick.errors import LedgerClosed, LedgerError, LedgerFenced, RequestTimeout, TallyError, Unauthorized

SENT_A_TURN = 4096  # entries; some ms
LATE_ACKS_S = 0.05  # that the end of a ledger waits for bookies beyond the ack quorum


class AddSession:
    """Appends to the ledger of ``state``, and keeps that up to date, for ``owner``. ``end`` it."""

    # Thousands may have one entry each under way: what only a failure needs is made when one is there.
    __slots__ = (
        "_changing",
        "_confirmed",
        "_confirmed_length",
        "_context",
        "_core",
        "_digest",
        "_failures",
        "_flush_scheduled",
        "_forces",
        "_heard_all",
        "_held",
        "_key",
        "_next",
        "_owner",
        "_pending",
        "_queue",
        "_replicas",
        "_room",
        "_sent_length",
        "_shortage",
        "_timing",
        "_writers",
        "state",
        "unsent_bookies",
    )

    def __init__(
        self, writers: Writers, state: WriterState, owner: SessionOwner, *, deferred_sync: bool = False
    ) -> None:
        self._writers, self._context, self.state, self._owner = writers, writers.context, state, owner
        self._digest, self._key, striping = state.digest(), state.key(), state.striping
        self._core = AddCore(striping, state.ensemble, state.lac, state.failed_bookies)
        bookies, ensemble = self._context.bookies, state.ensemble
        self._replicas = Replicas(
            bookies, state.id, striping, ensemble, self, state.identities, deferred_sync=deferred_sync
        )
        self._forces: Forces | None = None
        if deferred_sync:
            self._forces = Forces(self._context, state.id, striping, ensemble, state.lac, state.length)
        self._queue: list[bytes] = []  # appended in this tick
        self._flush_scheduled = False
        self._next: EntryId = state.lac + 1
        self._confirmed, self._confirmed_length = state.lac, state.length
        self._sent_length = state.length  # of the ledger with all entries that were sent
        self._pending = PendingAppends(writers.loop)
        self._held: HeldAppends | None = None  # once the caller gave an id
        self._room: Room | None = None  # once somebody waited
        self._changing: asyncio.Task[None] | None = None
        self._failures: FailedBookies | None = None  # once a bookie failed
        self._shortage: Shortage | None = None  # once bookies are missing
        self._heard_all: asyncio.Future[None] | None = None  # while it ends
        self.unsent_bookies: tuple[BookieId, ...] = ()  # those that may lack entries: all of them once it has ended
        counts, settings = self._context.bookies.counts, self._context.settings
        self._timing = AddTiming(state.lac, self._context.clock, counts, settings.add_quorum_timeout_s, self._timed_out)

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        """Bookies of the ensemble that failed and could not be replaced."""
        return self._core.missing_bookies

    @property
    def ensemble(self) -> Ensemble:
        """The bookies that get the next entries."""
        return self._core.ensemble

    def append(
        self, payloads: Collection[bytes], size: int, future: asyncio.Future[EntryId] | None = None
    ) -> asyncio.Future[EntryId]:
        """Queue entries of ``size`` bytes together, at least one. Returns a future, or ``future``, of the last one's
        id."""
        if not self._pending:
            self._writers.busy(self._owner)
        self._queue += payloads
        self._next += len(payloads)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._writers.flush_soon(self)
        return self._pending.add(self._next - 1, size, future)

    def append_at(self, entry: EntryId, payload: bytes) -> asyncio.Future[EntryId]:
        """Queue an entry under the caller's id once all before it are. Raises EntryExists, EntriesMissing."""
        if self._held is None:
            max_bytes = self._context.settings.max_inflight_bytes
            self._held = HeldAppends(self.state.id, self._next, max_bytes, self._writers.loop)
        return self._held.append(entry, payload, self._append_next)

    def _append_next(self, payload: bytes, future: asyncio.Future[EntryId] | None) -> asyncio.Future[EntryId]:
        return self.append((payload,), len(payload), future)

    def fail_held(self) -> None:
        """The gaps stay: what is behind the first of them fails."""
        if self._held:
            missing = self._held.lowest_missing
            text = "the writer was closed before an entry with a lower id was appended"
            self._held.fail(LedgerClosed(text, ledger=self.state.id, missing=missing))

    async def confirmed(self) -> None:
        """Wait until everything appended so far is confirmed. Raises what keeps it from that."""
        if self.state.failure is not None:
            raise copy.copy(self.state.failure)
        if self._pending:
            await self._pending.add(self._next - 1, 0)

    async def room(self) -> None:
        """Wait for bytes to be confirmed, and taken by bookies that are behind. Then append, and ``wake`` the next."""
        if self._room or self._is_full():
            if self._room is None:
                self._room = Room(self._writers.loop, self._is_full)
            await self._room.wait()

    def wake(self) -> None:
        """Wake a caller that waits for room, if there is some now."""
        if self._room:
            self._room.wake()

    def _wake_all(self) -> None:
        if self._room:
            self._room.wake_all()

    async def force(self) -> None:
        """Make durable what bookies have acknowledged. Raises Unavailable, MetadataError; LedgerError, which ends the
        session: what is lost, no later force makes durable; and what ended it."""
        if self._forces is None:
            if self.state.lac < 0:
                return
            return await force_all(self._context.bookies, self.state.id, self._core.ensemble)
        try:
            lac, length = await self._forces.force()
        except LedgerError as error:
            if self.state.failure is None:
                self._perform(self._core.change_failed(Reason.NOT_FORCED), error)
            raise
        if self.state.failure is not None:
            raise copy.copy(self.state.failure)
        if lac > self.state.lac:
            self.state.lac, self.state.length = lac, length
            if not self._pending:
                self._writers.lacs.confirmed(self._owner)

    @property
    def has_pending(self) -> bool:
        """Whether appends wait for their acks."""
        return bool(self._pending)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way and no bookie is missing: a new session would go on exactly as this one."""
        if self._pending or self._room or self._held or self._forces is not None:
            return False
        return self._core.is_quiet and self._replicas.is_quiet

    def fail(self, failure: TallyError) -> None:
        """Take no more entries; those that are not confirmed fail."""
        self.state.failure = failure
        self._writers.left(self.state.id)
        unsent = self._next - len(self._queue)
        self._queue.clear()
        self._stop()
        self._pending.fail(failure, unsent)
        if self._held:
            self._held.fail(failure)
        self._wake_all()

    def give_up(self, failure: TallyError) -> None:
        """The same for who waits no longer for acks, unless it failed before."""
        self._perform(self._core.change_failed(Reason.TOO_LATE), failure)

    def cancel_change(self) -> None:
        """Leave an ensemble change that is under way as it is: the process might have died."""
        if self._changing is not None:
            self._changing.cancel()

    async def end(self) -> None:
        """Hear nothing more of the bookies, once an ensemble change that is under way is done."""
        if self._changing is not None:
            await asyncio.wait([self._changing])
        if self._forces is not None:
            await self._forces.end()
        if self._replicas.silent:
            await self._hear_all()
        # Past its ack quorum an entry waits for nobody: who failed then, or has not answered yet, may lack it.
        lacking = *self.unsent_bookies, *self._core.failed_bookies, *self._replicas.silent
        self.unsent_bookies = tuple(dict.fromkeys(lacking))
        self._stop()
        self._wake_all()

    async def _hear_all(self) -> None:
        """Wait a moment for the bookies that have not answered yet: each that has not then is a write more."""
        self._heard_all = self._writers.loop.create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE_ACKS_S):
                await self._heard_all

    def end_if_quiet(self) -> bool:
        """End at once if it is quiet, and keep the state for the next session. Returns whether it ended."""
        if not self.is_quiet:
            return False
        self.state.meet(self._core.ensemble, self._replicas.identities)
        self.state.failed_bookies = self._core.failed_bookies
        self._stop()
        return True

    def _stop(self) -> None:
        self._timing.end()
        self._replicas.close()
        if self._shortage is not None:
            self._shortage.ended()

    @property
    def _failed_bookies(self) -> FailedBookies:
        if self._failures is None:
            self._failures = FailedBookies()
        return self._failures

    def _is_full(self) -> bool:
        held_bytes = self._pending.inflight_bytes + self._replicas.lagging_bytes
        return held_bytes >= self._context.settings.max_inflight_bytes and self.state.failure is None

    def flush(self) -> None:
        """For the writers: the tick in which ``append`` queued is over. Send, as much as there is time for; the rest in
        the next turn. What is raised here ends the session, too."""
        self._flush_scheduled = False
        try:
            if self._queue and self.state.failure is None:
                self._perform(self._core.append(min(len(self._queue), SENT_A_TURN)))
            if self._queue:
                self._flush_scheduled = True
                self._writers.flush_soon(self)
        except Exception as error:  # whatever it is, nobody may wait for ever
            text = "what was appended could not be sent"
            failure = LedgerError(text, ledger=self.state.id, cause=repr(error))
            self._perform(self._core.change_failed(Reason.NOT_SENT), failure)
            raise

    # Events for the core

    async def replace_absent(self, bookies: Collection[BookieId]) -> None:
        """Replace these bookies of the ensemble, though nothing is appended, and wait for that."""
        self._perform(self._core.absent(bookies))
        if self._changing is not None:
            await asyncio.wait([self._changing])

    def acked(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        if self._forces is not None:
            self._forces.acked(slot, self._replicas.connection(slot), first, last)
        actions = self._core.acked(slot, first, last)
        if self._shortage is not None:
            self._shortage.acked(slot)
        if actions or self._shortage is not None or not self._pending:
            self._perform(actions)

    def add_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        self._context.bookies.counts.add_failed(code, len(entries))
        self._failed_bookies.failed(self._core.ensemble[slot], code, self._replicas.failure(slot))
        for entry in entries:
            self._perform(self._core.failed(slot, entry, code))

    def _quarantine(self, action: Replace) -> None:
        """Report a bookie once: it may have failed in thousands of ledgers, each of which reports its own change."""
        for bookie in action.failed_bookies:
            if self._writers.placement.quarantine.add(bookie):
                response = self._failed_bookies.last_responses().get(bookie)
                self._emit("bookie failed", bookie=bookie, first=action.first, answer=response)

    async def _change(self, action: Replace) -> None:
        placement, state = self._writers.placement, self.state
        identities: BookieIdentities = {}

        async def replace(failed_bookies: Collection[BookieId], metadata: LedgerMetadata) -> Ensemble:
            nonlocal identities
            never = {*metadata.avoided, *self._failed_bookies.tried_bookies}
            ensemble = await placement.without(failed_bookies, metadata.ensemble, self._core.striping, never=never)
            identities = await placement.identities(ensemble)
            return ensemble

        try:
            async with placement.changes:
                versioned = await changes.change_ensemble(
                    self._context.driver, state.id, state.versioned, action.failed_bookies, action.first, replace
                )
                state.store(versioned)
        except Exception as error:  # whatever it is, nobody may wait for ever
            if self._context.settings.degraded_writes and changed_nothing(error):
                self._begin_shortage().began(error)
            else:
                self._perform(self._core.change_failed(), error)
            return
        ensemble = versioned.value.ensemble
        self._context.bookies.counts.ensemble_changes += 1
        self._emit("ensemble changed", first=action.first, failed=action.failed_bookies, ensemble=ensemble)
        self._replicas.replace(ensemble, identities)
        self._perform(self._core.ensemble_changed(ensemble))

    def _begin_shortage(self) -> Shortage:
        if self._shortage is None:
            self._shortage = Shortage(
                self.state.id, core=self._core, perform=self._perform, emit=self._emit,
                placement=self._writers.placement, restorer=self._writers.restorer, clock=self._context.clock,
                limit_s=self._context.settings.no_quorum_s, believes=self._replicas.believes,
                avoided=self.state.metadata.avoided, failed_bookies=self._failed_bookies,
            )  # fmt: skip
        return self._shortage

    # Actions of the core

    def _perform(self, actions: list[Action], cause: Exception | None = None) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Confirm):
                self._confirm(action.lac)
            elif isinstance(action, Resend):
                self._replicas.resend(action.slot, action.first, action.last)
            elif isinstance(action, Replace):
                self._quarantine(action)
                if self._forces is not None:
                    return self._keep_ensemble(action)
                self._changing = asyncio.create_task(self._change(action))
            elif isinstance(action, Suspend):
                self.unsent_bookies = tuple(dict.fromkeys((*self.unsent_bookies, self._core.ensemble[action.slot])))
                self._replicas.suspend(action.slot)
            elif isinstance(action, Resume):
                self._replicas.resume(action.slot)
            else:
                self._fail(action, cause)
        if self._shortage is not None:
            self._shortage.checked()
        self.wake()  # a bookie that is behind may have been replaced
        if not self._pending:
            self._rest()

    def _keep_ensemble(self, action: Replace) -> None:
        """End: what the other bookies have is not all durable, so that none can take the place of one that failed."""
        fields = {"ledger": self.state.id, "bookies": action.failed_bookies}
        text = "a bookie failed, and a ledger with deferred sync keeps its bookies: close it, and go on in a new one"
        answers = self._failed_bookies.last_responses()
        self._perform(self._core.change_failed(), LedgerError(text, **fields, answers=answers))

    def moved(self) -> None:
        """A bookie that was behind has taken something."""
        self.wake()
        self._rest()

    def _rest(self) -> None:
        if self._heard_all is not None and not (self._heard_all.done() or self._replicas.silent):
            self._heard_all.set_result(None)
        if self.is_quiet and self.state.failure is None:
            self._writers.idle(self._owner)

    def _send(self, run: Send) -> None:
        before = self._sent_length
        count = run.last - run.first + 1
        payloads = self._queue if count == len(self._queue) else self._queue[:count]
        compute, size, lac = self._digest.compute, self._digest.size, self.state.lac
        ledger, flags = self.state.id, DEFERRED_FLAG if self._forces is not None else 0
        frames, self._sent_length = encode_adds(
            self._key, ledger, run.first, lac, before, payloads, compute, size, flags
        )
        del self._queue[:count]
        self._replicas.send(run.first, frames, self._sent_length - before)
        self._timing.sent(run.last)

    def _confirm(self, lac: EntryId) -> None:
        if self._failures is not None:
            self._failures.confirmed()
        length = self._replicas.confirmed(lac)
        self._timing.confirmed(lac, lac - self._confirmed, length - self._confirmed_length)
        self._confirmed, self._confirmed_length = lac, length
        if self._forces is not None:  # only a force moves the LAC
            self._forces.has_quorum(lac, length)
            return self._pending.confirmed(lac)
        self.state.lac, self.state.length = lac, length
        self._pending.confirmed(lac)
        if not self._pending:
            self._writers.lacs.confirmed(self._owner)

    def _fail(self, action: Fail, cause: Exception | None) -> None:
        fields: dict[str, Any] = {"ledger": self.state.id, "first_unconfirmed": action.first}
        if action.reason is Reason.FENCED:
            failure: TallyError = LedgerFenced(**fields)
        elif action.reason is Reason.UNAUTHORIZED:
            failure = Unauthorized(action.reason.value, **fields)
        elif isinstance(cause, TallyError):
            failure = cause
        else:
            failure = LedgerError("the ensemble change failed", **fields, cause=repr(cause))
        self._emit("writer stopped", first_unconfirmed=action.first, reason=str(failure))
        self.fail(failure)

    def _timed_out(self) -> None:
        fields = {"ledger": self.state.id, "first_unconfirmed": self._core.lac + 1}
        waited_s = self._context.settings.add_quorum_timeout_s
        error = RequestTimeout("an entry had no ack quorum in time", **fields, waited_s=waited_s)
        self._perform(self._core.change_failed(Reason.TOO_LATE), error)

    def _emit(self, kind: str, **fields: Any) -> None:
        self._context.events.emit(kind, ledger=self.state.id, **fields)
