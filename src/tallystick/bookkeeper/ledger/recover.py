"""Recover a ledger whose writer is gone: the shell around ``RecoveryCore`` (Q10 to Q16).

Every step is an event with its reason. A recovery that fails has closed nothing and stored nothing but the state
IN_RECOVERY; it can be tried again, by anyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.ledger import add, changes
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.password import with_password
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.recovery import (
    Abandon,
    Action,
    CloseLedger,
    Explain,
    FenceSlot,
    Measure,
    ReadEntry,
    RecoveryCore,
    ReplicaResponse,
)
from tallystick.bookkeeper.ledger.replicas import Replicas
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, DigestType, EntryId, LedgerId, Slot
from tallystick.codec.frames import RECOVERY_FLAGS, encode_adds
from tallystick.errors import DigestMismatch, NotEnoughBookies, RecoveryIncomplete, TallyError, Unauthorized, UsageError


async def recover(
    context: LedgerContext,
    placement: Placement,
    ledger: LedgerId,
    versioned: changes.VersionedMetadata,
    password: bytes,
    forfeit: Forfeit | None = None,
    digest: DigestType = DigestType.CRC32,
) -> changes.VersionedMetadata:
    """Fence the ledger, find its end and close it. Returns the closed metadata; unchanged if it is closed already.

    ``forfeit``: what an operator gave up, so that it can be closed at all. ``digest``: of a ledger whose metadata store
    none.

    The password has been checked. Raises RecoveryIncomplete (try again later), Unauthorized, MetadataError,
    NoSuchLedger; UsageError from a client that speaks version 3 alone if an entry fits a frame of version 2 alone.
    """
    base = await changes.begin_recovery(context.driver, ledger, versioned)
    if base.value.is_closed:
        return base
    context.events.emit("recovery began", ledger=ledger, state=base.value.state.name, ensemble=base.value.ensemble)
    recovery = _Recovery(context, placement, ledger, base, password, forfeit, digest)
    try:
        return await recovery.run()
    finally:
        await recovery.stop()


@dataclass(frozen=True)
class Forfeit:
    """Bookies that are gone for good, and are absent still when the ledger is closed, are taken to have nothing, and a
    damaged copy to be none; every other bookie of an entry must say that it lacks it before the ledger ends there.
    ``lac`` was read in an entry."""

    lac: EntryId
    requirement: changes.Requirement


class _Recovery:
    """One attempt to recover a ledger. Reads, changes and the close are tasks; the first error of any ends it."""

    def __init__(
        self,
        context: LedgerContext,
        placement: Placement,
        ledger: LedgerId,
        base: changes.VersionedMetadata,
        password: bytes,
        forfeit: Forfeit | None,
        digest: DigestType,
    ) -> None:
        self._forfeit = forfeit
        self._context, self._placement, self._ledger, self._base = context, placement, ledger, base
        self._core = RecoveryCore(base.value)
        if forfeit is not None:
            self._core = RecoveryCore(base.value, lac=forfeit.lac, no_needed=base.value.write_quorum)
        digest_type = with_password(ledger, base.value, password, digest).digest_type
        self._digest, self._key = Digest.of(digest_type, password), master_key(password)
        self._replicas = Replicas(context.bookies, ledger, self._core.striping, base.value.ensemble, self)
        self._most_payload_bytes = context.bookies.most_payload_bytes(digest_type)
        self._entries: dict[EntryId, tuple[EntryHeader, memoryview]] = {}
        # Bookies that failed a write-back: of two that are listed and out of reach each would replace the other, again
        # and again, in no time. Those that the ledger avoids are given up from the start.
        self._avoided_bookies: dict[BookieId, None] = dict.fromkeys(base.value.avoided)
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcome: asyncio.Future[changes.VersionedMetadata] = asyncio.get_running_loop().create_future()

    async def run(self) -> changes.VersionedMetadata:
        self._perform(self._core.begin())
        return await self._outcome

    async def stop(self) -> None:
        self._replicas.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Actions of the core

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Explain):
                self._emit(action.kind, **action.fields)
            elif isinstance(action, FenceSlot):
                self._start(self._fence(action.slot))
            elif isinstance(action, ReadEntry):
                self._start(self._read(action.slot, action.entry))
            elif isinstance(action, add.Send):
                self._send(action)
            elif isinstance(action, add.Resend):
                self._replicas.resend(action.slot, action.first, action.last)
            elif isinstance(action, add.Confirm):
                self._replicas.confirmed(action.lac)
            elif isinstance(action, add.Suspend):
                self._replicas.suspend(action.slot)
            elif isinstance(action, add.Resume):
                self._replicas.resume(action.slot)
            elif isinstance(action, add.Replace):
                self._start(self._change(action))
            elif isinstance(action, Measure):
                self._start(self._measure(action.entry))
            elif isinstance(action, CloseLedger):
                self._start(self._close(action))
            else:
                self._abandon(action)

    async def _fence(self, slot: Slot) -> None:
        bookie = self._core.ensemble[slot]
        response, reason, header, _ = await self._read_from(bookie, NO_ENTRY, fence=True)
        lac = header.lac if header else NO_ENTRY
        self._emit("bookie asked to fence", bookie=bookie, answer=response.value, reason=reason, lac=lac)
        if header is None:
            self._perform(self._core.fenced(slot, response))
        else:
            self._perform(self._core.fenced(slot, response, lac=lac, entry=header.entry, length=header.length))

    async def _read(self, slot: Slot, entry: EntryId) -> None:
        bookie = self._core.ensemble[slot]
        response, reason, header, payload = await self._read_from(bookie, entry, fence=True, high_priority=True)
        if response in (ReplicaResponse.UNKNOWN, ReplicaResponse.REFUSED):
            self._emit("bookie gave no certain answer", entry=entry, bookie=bookie, reason=reason)
        if header is not None:
            self._entries.setdefault(entry, (header, payload))
        self._perform(self._core.answered(slot, entry, response, header.length if header else 0))

    async def _measure(self, entry: EntryId) -> None:
        """Read the entry from all its bookies at once: those of an older fragment may be long gone, and hang."""
        holders = self._base.value.ensemble_of(entry)
        bookies = [holders[slot] for slot in self._core.striping.slots(entry)]
        reads = [asyncio.ensure_future(self._read_from(bookie, entry)) for bookie in bookies]
        length = None
        try:
            for next_read in asyncio.as_completed(reads):
                _, _, header, _ = await next_read
                if header is not None:
                    length = header.length
                    break
        finally:
            for read in reads:
                read.cancel()
        self._perform(self._core.measured(length))

    async def _change(self, change: add.Replace) -> None:
        for bookie in change.failed_bookies:
            self._placement.quarantine.add(bookie)
            self._avoided_bookies[bookie] = None
        try:
            ensemble = await self._placement.without(
                change.failed_bookies, self._core.write_ensemble, self._core.striping, never=self._avoided_bookies
            )
        except NotEnoughBookies:
            self._emit("recovery goes on degraded", first=change.first, missing=change.failed_bookies)
            return self._perform(self._core.no_replacement())
        self._emit("recovery changed ensemble", first=change.first, failed=change.failed_bookies, ensemble=ensemble)
        self._replicas.replace(ensemble)
        self._perform(self._core.ensemble_changed(ensemble))

    async def _close(self, end: CloseLedger) -> None:
        requirement = changes.ALWAYS if self._forfeit is None else self._forfeit.requirement
        versioned = await changes.close_recovered(
            self._context.driver, self._ledger, self._base, end.last_entry, end.length, end.fragments, requirement
        )
        self._emit("ledger closed", last_entry=versioned.value.last_entry, length=versioned.value.length)
        if not self._outcome.done():
            self._outcome.set_result(versioned)

    def _send(self, run: add.Send) -> None:
        entries = [self._entries.pop(entry) for entry in range(run.first, run.last + 1)]
        header, payload = entries[0]
        largest = max(len(payload) for _, payload in entries)
        if self._context.settings.wire == "v3" and largest > (most := self._most_payload_bytes):
            return self._end(
                UsageError(
                    "an entry is too long to be written back by version 3: recover the ledger with "
                    'wire="auto", or with a higher max_frame_bytes if the bookies take longer frames',
                    ledger=self._ledger,
                    bytes=largest,
                    max_bytes=most,
                )
            )
        frames, _ = encode_adds(
            self._key,
            self._ledger,
            run.first,
            self._core.lac,
            header.length - len(payload),
            [payload for _, payload in entries],
            self._digest.compute,
            self._digest.size,
            RECOVERY_FLAGS,
        )
        self._replicas.send(run.first, frames, sum(len(payload) for _, payload in entries))

    def _abandon(self, end: Abandon) -> None:
        self._emit("recovery abandoned", reason=end.reason, entry=end.entry)
        kind = Unauthorized if end.unauthorized else RecoveryIncomplete
        self._end(kind(end.reason, ledger=self._ledger, entry=end.entry))

    # Events for the core

    async def _read_from(
        self, bookie: BookieId, entry: EntryId, *, fence: bool = False, high_priority: bool = False
    ) -> tuple[ReplicaResponse, str, EntryHeader | None, memoryview]:
        """Read from one bookie. Q15: only an explicit "no such entry" or "no such ledger" is NO."""
        key = self._key if fence else None
        nothing = memoryview(b"")
        if self._forfeit is not None and bookie in self._forfeit.requirement.absent:
            return ReplicaResponse.NO, "given up", None, nothing
        try:
            bookie_response = await self._context.bookies.read(
                bookie, self._ledger, entry, master_key=key, high_priority=high_priority, proven=fence
            )
            if bookie_response.code == Code.OK:
                entry_id = None if entry == NO_ENTRY else entry
                header, payload = self._digest.decode(self._ledger, entry_id, bookie_response.entry)
                if header.lac >= header.entry:
                    raise DigestMismatch("an entry claims to have been confirmed before it was sent")
                return ReplicaResponse.YES, "ok", header, payload
        except TallyError as error:
            if self._forfeit is not None and isinstance(error, DigestMismatch):
                return ReplicaResponse.NO, "a damaged copy", None, nothing
            return ReplicaResponse.UNKNOWN, str(error), None, nothing
        return _response_of(bookie_response.code), f"code {bookie_response.code.name}", None, nothing

    def acked(self, slot: Slot, first: EntryId, last: EntryId) -> None:
        self._perform(self._core.acked(slot, first, last))

    def add_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        code_name = None if code is None else code.name
        self._emit("write-back failed", bookie=self._core.write_ensemble[slot], first=entries[0], code=code_name)
        for entry in entries:
            self._perform(self._core.failed(slot, entry, code))

    def moved(self) -> None:
        """Do nothing: recovery does not wait for room."""

    # Tasks

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._end(error)

    def _end(self, error: BaseException) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)

    def _emit(self, kind: str, **fields: Any) -> None:
        self._context.events.emit(kind, ledger=self._ledger, **fields)


def _response_of(code: Code) -> ReplicaResponse:
    """Return what a code other than OK says about an entry."""
    if code == Code.UNAUTHORIZED:
        return ReplicaResponse.REFUSED
    return ReplicaResponse.NO if code in NO_CODES else ReplicaResponse.UNKNOWN
