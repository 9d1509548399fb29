"""What a bookie does beside responding: it writes checkpoints, deletes ledgers without metadata, watches its disks.

Checkpoints and deletions share one thread and never overlap. ``collection.py`` says what is to be deleted. Entry logs
are rewritten on that thread, too, but a slice at a time, and only begin and end in a turn of their own: no checkpoint
waits for more than one slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from tallystick.bookkeeper.bookie import folder_room
from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.compaction import Compaction, UnreadableLog
from tallystick.bookkeeper.bookie.ledger_folders import FolderFailure
from tallystick.bookkeeper.bookie.limits import CHECK_EVERY_S, DiskGuard, DiskPlaces
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import LedgerIdentity
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import DiskFull
from tallystick.runtime.disk import Disk, Usage
from tallystick.runtime.events import Events
from tallystick.runtime.lasting import LastingTrouble
from tallystick.runtime.pace import Pace
from tallystick.runtime.turn_steps import in_turns
from tallystick.runtime.worker import Worker

_PRESSED_TABLES = 4  # so many full memtables in memory: adds wait for the checkpoint
_RETRY_S = 1.0


class BookieUpkeep:
    """``checkpoints``, ``compactions`` and ``disks`` are endless tasks; what they raise stops the bookie."""

    def __init__(
        self,
        storage: Storage,
        *,
        settings: StorageSettings,
        worker: Worker,
        guard: DiskGuard,
        counts: Counts,
        events: Events,
        press: Callable[[bool], None],
        moded: Callable[[], None],
        deleted: Callable[[Collection[LedgerId]], None],
        folder_lost: Callable[[Sequence[LedgerId]], None],
        places: DiskPlaces,
        compaction_pace: tuple[Pace, Pace],
    ) -> None:
        """``compaction_pace`` is that of bytes and of entries. ``press(True)`` stops the intake of adds until
        ``press(False)``; ``moded()`` hears that the bookie became read-only, or writable again, ``deleted`` which
        ledgers are gone for good, and ``folder_lost`` which are in limbo because their folder failed."""
        self._storage, self._worker, self._guard = storage, worker, guard
        self._counts, self._events, self._press, self._moded = counts, events, press, moded
        self._deleted, self._folder_lost, self._places = deleted, folder_lost, places
        self.usages: Mapping[str, Usage] = {}  # by folder, as measured last
        self._pressed_bytes = settings.memtable_bytes * _PRESSED_TABLES
        self._full_disk = LastingTrouble()
        self._due = asyncio.Event()
        self._turn = asyncio.Lock()  # checkpoint or collection, one at a time
        self._bytes_pace, self._entries_pace = compaction_pace
        self._compaction_due = asyncio.Event()
        self._compacting = asyncio.Lock()  # one at a time

    def committed(self) -> None:
        """Hear that a commit was written: a checkpoint may be due, or may not keep up."""
        if self._due.is_set():
            if self._storage.stats().memtable_bytes > self._pressed_bytes:
                self._press(True)
        elif self._storage.checkpoints.due:
            self._due.set()

    async def checkpoints(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self.checkpoint()
            except DiskFull as error:
                # What it would write stays in memory and journal and is still served.
                self._report_full(error)
                await asyncio.sleep(_RETRY_S)
                continue
            if not self._storage.checkpoints.due:
                self._due.clear()

    async def checkpoint(self) -> None:
        """Move what is in memory to an entry log. Raises StorageError; after a DiskFull it can be tried again."""
        async with self._turn:
            await self._write(self._storage.checkpoints.begin())
        self._counts.checkpoints += 1
        self._full_disk.ended()
        self._press(False)
        if self._guard.written("checkpoint"):
            self._moded()

    def _report_full(self, error: DiskFull) -> None:
        if self._guard.filled("checkpoint"):
            self._moded()
        self._press(False)  # adds are refused now; reads go on
        if self._full_disk.is_due(asyncio.get_running_loop().time()):
            self._events.emit("checkpoint postponed", reason=str(error))

    async def _write(self, plan: CheckpointPlan) -> None:
        while True:
            try:
                await self._worker.run(partial(self._storage.checkpoints.write, plan))
                break
            except FolderFailure as failure:
                await self._lose(failure)
                plan = self._storage.checkpoints.again(plan)
        for _ in self._storage.checkpoints.enter():
            await asyncio.sleep(0)
        await in_turns(self._storage.checkpoints.finish(plan))
        if plan.deleted:
            self._deleted(plan.deleted)
        for reason in await self._worker.run(self._storage.checkpoints.sweep):
            self._events.emit("entry log not deleted", reason=reason)

    async def _lose(self, failure: FolderFailure) -> None:
        """Use a ledger folder no longer: its ledgers are in limbo, durably, before anything else is written."""
        ledgers = self._storage.ledgers_in(failure.number)
        plan = await in_turns(self._storage.checkpoints.losing(failure.number))
        try:
            await self._worker.run(lambda: self._storage.checkpoints.write(plan))
        except FolderFailure as another:
            await self._lose(another)
        reason = f"{failure.cause.message}: these ledgers are in limbo until what it had is fetched"
        self._events.emit("ledger folder failed", folder=failure.fields["folder"], ledgers=len(ledgers), reason=reason)
        self._folder_lost(ledgers)

    async def collect(self, candidates: Callable[[], Iterable[LedgerId]], again: Collection[LedgerId]) -> int:
        """Delete ledgers that are proven gone, and give the space of whole logs back. Returns how many were deleted;
        raises DiskFull. Next logs that are mostly dead are rewritten, by ``compactions``.

        ``candidates`` is called when it is the collection's turn, and gives each ledger when it is that one's;
        ``again`` are ledgers that were deleted here once and that the metadata has, so they are new ones.
        """
        async with self._turn:
            plan = await in_turns(self._storage.checkpoints.collecting(candidates(), again))
            await self._write(plan)
        if plan.deleted:
            self._counts.ledgers_deleted += len(plan.deleted)
            self._events.emit("ledgers deleted", count=len(plan.deleted), reason="their metadata is gone")
        try:  # what the journal has of deleted ledgers is free then, and their ids soon are
            async with self._turn:
                await self._write(self._storage.checkpoints.begin())
            self._compaction_due.set()
        except DiskFull as error:
            self._events.emit("entry logs not rewritten", reason=str(error))
        return len(plan.deleted)

    async def drop_copies(self, candidates: Callable[[], Iterable[LedgerId]]) -> Sequence[LedgerId]:
        """Drop all entries of fenced ledgers; key, fence and creation stay. Returns whose entries are gone: not those
        that have any in memory. Raises DiskFull. ``candidates`` are as ``collect`` has them."""
        async with self._turn:
            plan = await in_turns(self._storage.checkpoints.emptying(candidates()))
            await self._write(plan)
        self._compaction_due.set()
        return plan.emptied

    async def compactions(self) -> None:
        while True:
            await self._compaction_due.wait()
            self._compaction_due.clear()
            await self.compact()

    async def compact(self) -> None:
        """Rewrite the logs that are mostly dead, and merge small ones, as fast as the pace lets it. Raises
        StorageError; a disk without room is told."""
        async with self._compacting:
            try:
                for victims in await in_turns(self._storage.checkpoints.groups_to_rewrite()):
                    await self._rewrite(victims)
            except DiskFull as error:
                self._events.emit("entry logs not rewritten", reason=str(error))

    async def _rewrite(self, victims: Sequence[int]) -> None:
        """Rewrite some logs, without those of them that cannot be read. Raises DiskFull, StorageError."""
        checkpoints = self._storage.checkpoints
        while victims:
            try:
                if reason := await in_turns(checkpoints.lacks_room(victims)):
                    raise DiskFull(reason)
                async with self._turn:
                    compaction = checkpoints.begin_compaction(victims)
                await self._copy(compaction)
            except UnreadableLog as error:
                if checkpoints.unreadable(error):
                    self._events.emit("entry log not rewritten", log=error.log, reason=error.reason)
                victims = [log for log in victims if log != error.log]
                continue
            except FolderFailure as failure:
                async with self._turn:
                    if failure.number in self._storage.folders.in_use:
                        await self._lose(failure)
                return
            async with self._turn:
                await self._write(checkpoints.replacing(compaction))
            return

    async def _copy(self, compaction: Compaction) -> None:
        """Make the new log of a compaction durable. If that fails nothing is left of it."""
        try:
            await self._worker.run(compaction.load)
            await in_turns(self._storage.checkpoints.choosing(compaction))
            while (copied := await self._worker.run(compaction.copy)) is not None:
                await self._bytes_pace.spend(copied.bytes)
                await self._entries_pace.spend(copied.entries)
        except BaseException:
            self._worker.submit(compaction.abandon, lambda _, error: None)  # behind the slice that is under way
            raise

    async def save(self) -> None:
        """Make durable what is known of ledgers, so that no replay of the journal says otherwise. Raises DiskFull."""
        if self._storage.checkpoints.up_to_date:
            async with self._turn:
                await self._delete((), ())
        else:
            await self.checkpoint()

    async def renew(self, ledgers: Mapping[LedgerId, LedgerIdentity]) -> None:
        """Forget all about these ids: other ledgers have them now. After a DiskFull they may be deleted, and remembered
        as that.

        Each step is durable before the next: the ledgers are deleted; a checkpoint frees the journal of them; they
        are remembered as deleted no longer. A ledger with another identity than this when its turn comes is newer: it
        may have a fence that a client knows of, so it stays.
        """
        async with self._turn:
            identity = self._storage.identities.identity
            await self._delete((ledger for ledger, before in ledgers.items() if identity(ledger) == before), ())
        while any(ledger in self._storage.deleted_ids() for ledger in ledgers):
            await self.checkpoint()
            async with self._turn:
                await self._delete((), ledgers)
        self._events.emit(
            "ledgers replaced", ledgers=list(ledgers), reason="others have their ids now, by the metadata"
        )

    async def _delete(self, candidates: Iterable[LedgerId], again: Collection[LedgerId]) -> None:
        plan = await in_turns(self._storage.checkpoints.collecting(candidates, again, ages=False))
        await self._write(plan)
        self._counts.ledgers_deleted += len(plan.deleted)

    async def disks(self, disk: Disk, checked: Callable[[], None]) -> None:
        """Measure the disks for ever; ``checked`` is called after each time."""
        filling: list[str] = []
        while True:
            filling = self._warn(filling)
            checked()
            await asyncio.sleep(CHECK_EVERY_S)
            for failure in self.measure(disk):
                async with self._turn:
                    if failure.number in self._storage.folders.in_use:
                        await self._lose(failure)

    @property
    def shown_room(self) -> str:
        """Return the room of all folders, as the registration shows it."""
        folders, names = self._storage.folders, self._places.ledgers
        full = {names[path] for path, number in folders.numbers().items() if number in folders.full}
        return folder_room.encode(self.usages, full, [names.get(each.path, each.path) for each in folders.failed])

    def measure(self, disk: Disk) -> list[FolderFailure]:
        """Measure the disks once: which ledger folders take nothing new, and whether the bookie is read-only. Returns
        the ledger folders that failed at that; raises StorageError if the bookie cannot go on."""
        folders, failures = self._storage.folders, list[FolderFailure]()
        journals = {folder: disk.usage(folder) for folder in self._places.journals}
        ledgers = dict[str, Usage]()
        for path, number in folders.numbers().items():
            folder = self._places.ledgers[path]
            try:
                with folders.watching(number):
                    ledgers[folder] = usage = disk.usage(folder)
                    folders.set_full(number, self._guard.is_over(usage))
            except FolderFailure as failure:
                failures.append(failure)
        self.usages = {**journals, **ledgers}
        if self._guard.measured(list(journals.values()), list(ledgers.values())):
            self._moded()
        return failures

    def _warn(self, before: Sequence[str]) -> list[str]:
        """Tell of disks that fill up, once until they have room again. Returns the folders on them."""
        filling = [folder for folder, usage in self.usages.items() if self._guard.is_filling(usage)]
        for folder in filling:
            if folder not in before:
                usage = self.usages[folder]
                percent = round(100 * (usage.total - usage.free) / usage.total, 1)
                reason = "at diskUsageThreshold the bookie takes no new entries: make room, or add a bookie"
                if len(self._places.ledgers) > 1 and folder not in self._places.journals:
                    reason = "at diskUsageThreshold this folder takes nothing new, and the others go on: make room"
                self._events.emit("disk fills up", folder=folder, used_percent=percent, reason=reason)
        for folder in before:
            if folder not in filling:
                self._events.emit("disk has room again", folder=folder)
        return filling

    async def finish(self) -> None:
        """Wait for the checkpoint or collection that is under way, and let no other begin."""
        await self._turn.acquire()
