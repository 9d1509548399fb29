"""A bookie's storage engine: journal, memtable, entry logs, index, fences.

::

    add, fence ─┬─► memtable, readable at once ─► begin_checkpoint ─► write ─► finish ─► sweep     entry logs
                └─► staged ─► take ─► commit                                                       journal

"Loop" methods never wait for a sync and must all be called from one thread. "Thread" methods do I/O: ``commit`` on one
thread in the order of ``take``; ``write`` and ``sweep`` on that or another one, never two of them at once. What an
answer promises is durable only after the ``commit`` of what was staged with it has returned.

A StorageError from ``commit`` other than DiskFull means that the bookie must stop (a failed sync leaves it unknown what
is on the disk). After DiskFull the same commit may be tried again.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.checkpoint import Checkpoint, CheckpointWriter, Reclaimed, Written
from tallystick.bookkeeper.bookie.collector import Damaged, logs_to_rewrite, logs_without_a_ledger
from tallystick.bookkeeper.bookie.identities import Identities
from tallystick.bookkeeper.bookie.journal import Commit
from tallystick.bookkeeper.bookie.log_index import remove_log
from tallystick.bookkeeper.bookie.memtable import Run, stored_frame
from tallystick.bookkeeper.bookie.reads import Reads
from tallystick.bookkeeper.bookie.restart import Restarted, restart
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import Deletion, State
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import MASTER_KEY_BYTES
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import AddRun
from tallystick.errors import StorageError
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.disk import Buffer, Disk
from tallystick.runtime.rng import Random, system_random

_MIN_ENTRY = 32  # its header
_PART_PIECES = 1000  # into the index at once: a millisecond or two


@dataclass(frozen=True)
class StorageStats:
    """What the metrics show."""

    ledgers: int
    entries: int  # stored copies: an overwritten one counts until its entry log is rewritten
    memtable_bytes: int
    journal_bytes: int  # what a restart would replay
    entry_logs: int
    entry_log_bytes: int
    damaged_logs: int  # entry logs that could not be read when they were to be rewritten
    fences_without_entries: int = 0  # ledgers that are fenced and of which no entry is stored
    deletion_bytes: int = 0  # given back since the start: by logs without a live ledger
    compaction_bytes: int = 0  # and by rewriting
    compactions: int = 0  # checkpoints that rewrote logs


class Storage:
    """See the module. Made by ``open``."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings, clock: Clock, parts: Restarted) -> None:
        self._disk, self._directory, self._settings, self._clock = disk, directory, settings, clock
        self._journal, self._ledgers, self._logs, self._tables = parts.journal, parts.ledgers, parts.logs, parts.tables
        self._state_file = parts.state_file
        self._checkpoints = CheckpointWriter(disk, directory, settings, parts.state_file)
        self._reads = Reads(self._ledgers, self._tables, self._logs, clock)
        self.identities = Identities(self._ledgers, self._stage)
        self._staged: list[Buffer] = []
        self.staged_bytes = 0
        self._number = parts.number  # of the last commit taken
        self._durable = parts.number  # and of the last one that is on the disk
        self.replayed = parts.replayed
        self._mark = parts.mark  # of the state that is on the disk
        self._written = Written()  # by the checkpoint that is between ``write`` and ``finish``
        self._entering: Iterator[None] = iter(())  # its pieces into the index
        self._garbage: list[int] = []  # logs whose files can be deleted
        self._reclaimed = Reclaimed()
        self._damaged: list[int] = []  # logs that could not be read: they are not rewritten before the next start

    @classmethod
    def open(
        cls, disk: Disk, journal_dir: str, ledger_dir: str, settings: StorageSettings, *,
        clock: Clock | None = None, random: Random | None = None,
    ) -> Storage:  # fmt: skip
        """Open or create. Replays the journal and cuts a torn tail; raises CorruptRecord for any other damage, and
        StorageError for what only a newer version knows."""
        parts = restart(disk, journal_dir, ledger_dir, settings, random or system_random())
        return cls(disk, ledger_dir, settings, clock or SystemClock(), parts)

    # Loop: adds.

    def add_run(self, data: bytes, run: AddRun) -> list[Code]:
        """Add a run of stored frames, ``data[run.bounds[i]:run.bounds[i + 1]]``; a ``Code`` each. ``data`` is kept."""
        count, now = len(run), self._clock.wall_ms()
        if not count:
            return []
        ledger, key = run.ledgers[0], run.keys[0]
        if run.ledgers.count(ledger) == count and run.keys.count(key) == count and min(run.entries) >= 0:
            code = self._ledgers.admit(ledger, key, now)
            if code == Code.OK:
                self._take_in(ledger, Run(array("q", run.entries), array("Q", run.bounds), data))
            return [code] * count
        codes: list[Code] = []
        for ledger, entry, key in zip(run.ledgers, run.entries, run.keys, strict=True):
            codes.append(Code.BAD_REQUEST if entry < 0 else self._ledgers.admit(ledger, key, now))
        good = [place for place, code in enumerate(codes) if code == Code.OK]
        for adds in records.by_ledger(data, run, good):
            self._take_in(adds.ledger, adds.run)
        return codes

    def add(self, ledger: LedgerId, entry: EntryId, master_key: bytes, body: Buffer, *, recovery: bool = False) -> Code:
        """Add one entry, ``body`` with its header and digest. With ``recovery`` it passes a fence (Q14)."""
        if entry < 0 or len(body) < _MIN_ENTRY or len(master_key) != MASTER_KEY_BYTES:
            return Code.BAD_REQUEST
        code = self._ledgers.admit(ledger, master_key, self._clock.wall_ms(), recovery=recovery)
        if code == Code.OK:
            # The journal has recovery adds as plain ones: who passed the fence then passes it in a replay.
            frame = stored_frame(master_key, body)
            self._take_in(ledger, Run(array("q", (entry,)), array("Q", (0, len(frame))), frame))
        return code

    def _take_in(self, ledger: LedgerId, run: Run) -> None:
        found = self._ledgers.alive[ledger]
        self._ledgers.extend(found, self._tables.active.add(ledger, run))
        start, stop = run.bounds[0], run.bounds[-1]
        self._stage(run.data if stop - start == len(run.data) else memoryview(run.data)[start:stop])

    def _stage(self, buffer: Buffer) -> None:
        self._staged.append(buffer)
        self.staged_bytes += len(buffer)

    def fence(self, ledger: LedgerId, master_key: bytes) -> Code:
        """Refuse ordinary adds from now on (Q11): OK, UNAUTHORIZED, BAD_REQUEST, NO_LEDGER for a deleted ledger.

        After OK: durable with the ``newest_commit``.
        """
        if len(master_key) != MASTER_KEY_BYTES:
            return Code.BAD_REQUEST
        fenced = self.is_fenced(ledger)
        code = self._ledgers.fence(ledger, master_key, self._clock.wall_ms())
        if code == Code.OK:
            found = self._ledgers.alive[ledger]
            if not fenced or found.fence_commit > self._durable:
                found.fence_commit = self._number + 1
                self._stage(records.Fence(ledger, master_key).encode())
        return code

    def is_fenced(self, ledger: LedgerId) -> bool:
        """Return whether ordinary adds are refused because of a fence."""
        found = self._ledgers.alive.get(ledger)
        return found is not None and found.fenced

    # Loop: reads.

    def read(self, ledger: LedgerId, entry: EntryId) -> tuple[Code, bytes]:
        """A code and the entry bytes; entry -1 is the highest one stored."""
        return self._reads.read(ledger, entry)

    def read_frames(self, ledger: LedgerId, first: EntryId, count: int, max_bytes: int) -> tuple[bytes, int]:
        """Stored frames of ``first``, ``first + 1``, …, as for readers, in one piece; how many of the ``count`` it has.

        (b"", 0) means nothing but that the fast way does not have them: ``read`` decides.
        """
        return self._reads.read_frames(ledger, first, count, max_bytes)

    def batch(self, ledger: LedgerId, first: EntryId, max_count: int, max_bytes: int) -> tuple[Code, list[bytes]]:
        """Entries from ``first`` on without a gap, as many as fit into an answer of ``max_bytes``, at least one.

        Only the code of the first one counts; ``max_count`` 0 or less sets no limit. ``first`` -1 gives the last entry,
        then 0, 1, …, as the original does.
        """
        return self._reads.batch(ledger, first, max_count, max_bytes)

    def ledger_ids(self) -> list[LedgerId]:
        """The ledgers stored here."""
        return list(self._ledgers.alive)

    def deleted_ids(self) -> Container[LedgerId]:
        """The ledgers that are remembered as deleted."""
        return self._ledgers.deleted

    def touch(self, ledger: LedgerId) -> None:
        """A deleted ledger is remembered for longer."""
        self._ledgers.touch(ledger, self._clock.wall_ms())

    @property
    def fences_without_entries(self) -> int:
        """The number of ledgers that are fenced here and of which no entry is stored."""
        return self._ledgers.without_entries

    def last_entry(self, ledger: LedgerId) -> EntryId:
        """The highest entry stored of a ledger, NO_ENTRY when there is none."""
        found = self._ledgers.alive.get(ledger)
        return NO_ENTRY if found is None else found.last

    def stats(self) -> StorageStats:
        tables, logs = list(self._tables.newest_first()), self._logs.logs.values()
        return StorageStats(
            ledgers=len(self._ledgers.alive),
            entries=sum(table.entries for table in tables) + sum(log.entries for log in logs),
            memtable_bytes=sum(table.bytes for table in tables),
            journal_bytes=self._journal.used_bytes,
            entry_logs=len(logs),
            entry_log_bytes=sum(log.size for log in logs),
            damaged_logs=len(self._damaged),
            fences_without_entries=self.fences_without_entries,
            deletion_bytes=self._reclaimed.deletion,
            compaction_bytes=self._reclaimed.compaction,
            compactions=self._reclaimed.compactions,
        )

    # Loop: commits and checkpoints begin and end.

    @property
    def staged(self) -> bool:
        """Whether something waits for a commit."""
        return bool(self._staged)

    @property
    def newest_commit(self) -> int:
        """The number of the commit with which all that was staged until now is durable."""
        return self._number + bool(self._staged)

    def take(self) -> Commit:
        """All that is staged, as one commit."""
        self._number += 1
        commit = Commit(self._number, tuple(self._staged), self.staged_bytes)
        self._staged, self.staged_bytes = [], 0
        return commit

    @property
    def checkpointed(self) -> bool:
        """Whether the journal has nothing that a restart would replay."""
        return self._number == self._mark and not self._staged

    @property
    def checkpoint_due(self) -> bool:
        settings = self._settings
        if self._tables.active.bytes >= settings.memtable_bytes:
            return True
        # The segment that is written now may be longer than that alone; no checkpoint makes it shorter.
        return self._journal.used_bytes >= settings.journal_bytes and not self.checkpointed

    def begin_checkpoint(self) -> Checkpoint:
        """Set apart what is in memory; then ``write`` on a thread, then ``finish``. Begin anew after a failed one."""
        log = self._ledgers.next_log
        self._ledgers.next_log += 2
        frozen = self._tables.freeze(self._number)
        return Checkpoint(frozen, self._state(self._tables.mark, self._ledgers.deleted), log)

    def begin_compaction(self) -> Checkpoint:
        """A checkpoint that also rewrites the logs that are mostly dead, and merges small ones."""
        logs = [log for log in self._logs.logs.values() if log.id not in self._damaged]
        return replace(self.begin_checkpoint(), rewrite=logs_to_rewrite(logs, self._ledgers.alive, self._settings))

    def begin_collect(self, known: Collection[LedgerId], live: Container[LedgerId]) -> Checkpoint:
        """Delete the ledgers of ``known`` that are not in ``live``, and the logs that nothing else is in.

        ``live`` also says which deleted ledgers need not be remembered: they exist again. Only the state is written,
        for which room is kept: a full disk does not hinder it.
        """
        now, settings = self._clock.wall_ms(), self._settings
        deleted = tuple(ledger for ledger in known if ledger in self._ledgers.alive and ledger not in live)
        for ledger in deleted:
            self._ledgers.delete(ledger, now, self._number + self.staged)
        remembered = self._ledgers.remembered(
            live, now - settings.deleted_memory_ms, settings.deleted_memory_ledgers, self._mark
        )
        gone = logs_without_a_ledger(self._logs.logs.values(), self._ledgers.alive)
        return Checkpoint(None, self._state(self._mark, remembered), gone=gone, deleted=deleted)

    def _state(self, mark: int, deleted: Mapping[LedgerId, Deletion]) -> State:
        generation, number = self._journal.reached
        return State(
            mark, generation, self._ledgers.next_log, tuple(self._logs.logs), self._ledgers.records(), dict(deleted),
            self._ledgers.anchor, number,
        )  # fmt: skip

    def enter(self) -> Iterator[None]:
        """``write`` returned: each step puts a part of what it wrote into the index. ``finish`` does the rest, but a
        loop should have turns in between: there may be a piece of each of very many ledgers."""
        return self._entering

    def _parts(self, written: Written) -> Iterator[None]:
        """Until ``finish`` what is read comes from memory all the same."""
        for log, _ in written.logs:
            self._logs.logs[log.id] = log
        for log, pieces in written.logs:
            for start in range(0, len(pieces), _PART_PIECES):
                self._ledgers.enter(log.id, pieces[start : start + _PART_PIECES])
                yield

    def finish(self, plan: Checkpoint) -> tuple[Damaged, ...]:
        """``write`` returned: read from what it wrote from now on. Then ``sweep`` on a thread.

        Returns the logs that should have been rewritten and could not be read: they stay as they are.
        """
        for _ in self._entering:
            pass
        written, self._written = self._written, Written()
        self._reclaimed.count(plan, written, self._logs.logs)
        if plan.table is not None:
            self._tables.drop_frozen()
        self._mark = plan.state.mark
        for log_id in written.removed:
            self._logs.remove(log_id)
        self._garbage += written.removed
        self._damaged = [log for log in self._damaged if log not in written.removed]
        self._damaged += [damaged.log for damaged in written.damaged]
        # Only now: an add to a ledger that is no longer remembered as deleted must not be dropped by a replay.
        self._ledgers.remember_deleted(plan.state.deleted)
        return written.damaged

    # Thread.

    def commit(self, commit: Commit) -> None:
        """Make a commit durable with one write and one sync; commits come in the order in which they were taken."""
        self._journal.write(commit)
        self._durable = commit.number

    def write(self, plan: Checkpoint) -> None:
        """Make a checkpoint durable, then give its part of the journal free."""
        self._written = self._checkpoints.write(plan, self._ledgers.alive)
        self._entering = self._parts(self._written)
        self._journal.release(plan.state.mark)

    def sweep(self) -> tuple[str, ...]:
        """Delete the entry logs that nothing refers to any more, and keep room for the next state.

        Returns what could not be deleted and why; it is tried again at the next sweep.
        """
        kept, reasons = list[int](), list[str]()
        while self._garbage:
            log = self._garbage.pop()
            try:
                remove_log(self._disk, self._directory, log)
            except StorageError as error:
                kept.append(log)
                reasons.append(str(error))
        self._garbage = kept
        self._state_file.reserve()
        return tuple(reasons)

    # Blocking, for when nothing else runs.

    def checkpoint(self) -> None:
        """All steps of a checkpoint at once."""
        self._run(self.begin_checkpoint())

    def collect(self, known: Collection[LedgerId], live: Container[LedgerId]) -> int:
        """All steps of a collection at once; how many ledgers were deleted."""
        plan = self.begin_collect(known, live)
        self._run(plan)
        self._run(self.begin_compaction())
        return len(plan.deleted)

    def _run(self, plan: Checkpoint) -> None:
        self.write(plan)
        self.finish(plan)
        self.sweep()

    def close(self, *, clean: bool = True) -> None:
        """Close the files; ``clean``: commit and checkpoint first, so that the next start has nothing to replay."""
        if clean:
            if self.staged:
                self.commit(self.take())
            if not self.checkpointed:
                self.checkpoint()
        self._journal.close()
        self._logs.close()
