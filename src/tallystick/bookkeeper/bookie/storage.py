"""A bookie's storage engine: journal, memtable, entry logs, index, fences.

::

    add, fence ─┬─► memtable, readable at once ─► checkpoints (``checkpoints.py``)     entry logs
                └─► staged ─► take ─► commit                                           journal

"Loop" methods never wait for a sync and must all be called from one thread. ``commit``, ``write`` and ``sync`` do I/O,
on one thread in the order of ``take``; what a checkpoint writes is for that thread or another one. What an answer
promises is durable only after the ``commit`` of what was staged with it has returned, or a ``sync`` after its
``write``.

A StorageError from one of them other than DiskFull means that the bookie must stop (a failed sync leaves it unknown
what is on the disk). After DiskFull the same commit may be tried again.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.checkpoints import Checkpoints
from tallystick.bookkeeper.bookie.damages import Damages
from tallystick.bookkeeper.bookie.identities import LedgerIdentities
from tallystick.bookkeeper.bookie.index import Location
from tallystick.bookkeeper.bookie.index_rebuild import RebuiltIndex
from tallystick.bookkeeper.bookie.journals import StagedCommit
from tallystick.bookkeeper.bookie.memtable import Run, stored_frame
from tallystick.bookkeeper.bookie.places import Mark, StorageFolders
from tallystick.bookkeeper.bookie.reads import EntryReads
from tallystick.bookkeeper.bookie.restart import StorageParts, restart
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import MASTER_KEY_BYTES
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import AddRun
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.disk import Buffer, Disk
from tallystick.runtime.rng import Random, system_random

_MIN_ENTRY = 32  # its header


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
    ledgers_in_limbo: int = 0
    entries_damaged: int = 0  # stored, and unreadable as far as somebody noticed
    deletion_bytes: int = 0  # given back since the start: by logs without a live ledger
    compaction_bytes: int = 0  # and by rewriting
    compactions: int = 0  # new logs in the place of others
    ledger_folders: int = 1
    ledger_folders_full: int = 0  # they take nothing new
    ledger_folders_failed: int = 0


class Storage:
    """A bookie's storage, made by ``open``."""

    def __init__(self, disk: Disk, settings: StorageSettings, clock: Clock, parts: StorageParts) -> None:
        self._clock = clock
        self._journals, self._ledgers, self._logs = parts.journals, parts.ledgers, parts.logs
        self._tables, self.folders = parts.tables, parts.folders
        self.checkpoints = Checkpoints(
            disk,
            settings,
            clock,
            parts,
            taken_commit=lambda: Mark(self._number, self._journals.positions),
            newest_commit=lambda: self.newest_commit,
        )
        self.damages = Damages()
        self._reads = EntryReads(self._ledgers, self._tables, self._logs, clock, self.damages)
        self.identities = LedgerIdentities(self._ledgers, self._stage)
        self.limbo = self._ledgers.limbo  # what has left it is ``filled``
        self._staged: list[list[Buffer]] = [[] for _ in self._journals]
        self.staged_bytes = 0
        self.lost_journals = parts.lost_journals
        self._number = parts.number  # of the last commit taken
        self._written = parts.number  # of the last one that the operating system has
        self._durable = parts.number  # and of the last one that is on the disk
        self._durable_positions = self._journals.written
        self.replay_stats = parts.replay_stats

    @classmethod
    def open(
        cls,
        disk: Disk,
        folders: StorageFolders,
        settings: StorageSettings,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        lost: Collection[str] = (),
        failed: Collection[str] = (),
    ) -> Storage:
        """Open or create. Replays the journals and cuts torn tails; raises CorruptRecord for any other damage, and
        StorageError for what only a newer version knows. ``lost`` and ``failed``: as ``restart`` has them."""
        parts = restart(disk, folders, settings, random or system_random(), lost=lost, failed=failed)
        return cls(disk, settings, clock or SystemClock(), parts)

    # Loop: adds.

    def add_run(self, data: bytes, run: AddRun) -> list[Code]:
        """Add a run of stored frames, ``data[run.bounds[i]:run.bounds[i + 1]]``; holds ``data``. Returns the codes."""
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
        if entry < 0 or len(body) < _MIN_ENTRY:
            return Code.BAD_REQUEST
        if len(master_key) != MASTER_KEY_BYTES:
            return Code.UNAUTHORIZED
        code = self._ledgers.admit(ledger, master_key, self._clock.wall_ms(), recovery=recovery)
        if code == Code.OK:
            # The journal has recovery adds as plain ones: who passed the fence then passes it in a replay.
            frame = stored_frame(master_key, body)
            self._take_in(ledger, Run(array("q", (entry,)), array("Q", (0, len(frame))), frame))
        return code

    def _take_in(self, ledger: LedgerId, run: Run) -> None:
        held_ledger = self._ledgers.alive[ledger]
        self._ledgers.extend(held_ledger, self._tables.active.add(ledger, run))
        start, stop = run.bounds[0], run.bounds[-1]
        self._stage(ledger, run.data if stop - start == len(run.data) else memoryview(run.data)[start:stop])

    def _stage(self, ledger: LedgerId, buffer: Buffer) -> None:
        self._staged[self._ledgers.places.journal(ledger)].append(buffer)
        self.staged_bytes += len(buffer)

    def fence(self, ledger: LedgerId, master_key: bytes) -> Code:
        """Refuse ordinary adds from now on (Q11): OK, UNAUTHORIZED, BAD_REQUEST, NO_LEDGER for a deleted ledger.

        After OK: durable with the ``newest_commit``.
        """
        if len(master_key) != MASTER_KEY_BYTES:
            return Code.UNAUTHORIZED
        fenced = self.is_fenced(ledger)
        code = self._ledgers.fence(ledger, master_key, self._clock.wall_ms())
        if code == Code.OK:
            held_ledger = self._ledgers.alive[ledger]
            if not fenced or held_ledger.fence_commit > self._durable:
                held_ledger.fence_commit = self._number + 1
                self._stage(ledger, records.Fence(ledger, master_key).encode())
        return code

    def write_lac(self, ledger: LedgerId, master_key: bytes, body: bytes) -> Code:
        """Keep an explicit LAC (``explicit_lacs.py``), also of a fenced ledger: OK, UNAUTHORIZED, NO_LEDGER.

        After OK: durable with the ``newest_commit``. A ledger that is not stored here does not become so by this.
        """
        code = self._ledgers.knows(ledger, master_key)
        if code == Code.OK and self._ledgers.explicit_lacs.note(ledger, body):
            self._stage(ledger, records.ExplicitLac(body).encode())
        return code

    def enter_limbo(self, ledger: LedgerId, key: bytes | None, creation: Creation) -> None:
        """Put a ledger in limbo, fenced if its ``key`` is known; durable with the next checkpoint."""
        self.limbo.enter((ledger,))
        if key is not None and self.fence(ledger, key) == Code.OK and creation != UNKNOWN:
            self.identities.note(ledger, creation)

    def filled(self, ledgers: Collection[LedgerId]) -> None:
        """Let ledgers leave limbo; durable with the next commit. All that is placed here of them is durable already, or
        nothing is placed here."""
        leaving = tuple(ledger for ledger in ledgers if ledger in self.limbo)
        if leaving:
            self.limbo.leave(leaving)
            self._stage(leaving[0], records.Filled(leaving, self.folders.limbo_era).encode())

    def may_lack(self, ledger: LedgerId) -> bool:
        """Return whether what came back empty at this start may have had something of a ledger: it is in limbo, or it
        was new in a lost journal, so that nothing is recorded of it."""
        return ledger in self.limbo or (bool(self.lost_journals) and ledger not in self._ledgers.alive)

    def is_fenced(self, ledger: LedgerId) -> bool:
        """Return whether ordinary adds are refused because of a fence."""
        held_ledger = self._ledgers.alive.get(ledger)
        return held_ledger is not None and held_ledger.fenced

    # Loop: reads.

    def read(self, ledger: LedgerId, entry: EntryId) -> tuple[Code, bytes]:
        """Return a code and the entry bytes; entry -1 is the highest one stored."""
        return self._reads.read(ledger, entry)

    def read_frames(self, ledger: LedgerId, entries: Sequence[EntryId], max_bytes: int) -> tuple[bytes, int]:
        """Return stored frames of the first of some ascending entries, of the second, … for readers, in one piece, and
        how many it has.

        Returns (b"", 0) if the fast way does not have them: ``read`` decides.
        """
        return self._reads.read_frames(ledger, entries, max_bytes)

    def batch(self, ledger: LedgerId, first: EntryId, max_count: int, max_bytes: int) -> tuple[Code, list[bytes]]:
        """Return entries from ``first`` on without a gap, as many as fit into ``max_bytes`` of response, at least one.

        Only the code of the first one counts; ``max_count`` 0 or less sets no limit. ``first`` -1 gives the last entry,
        then 0, 1, …, as the original does.
        """
        return self._reads.batch(ledger, first, max_count, max_bytes)

    def explicit_lac(self, ledger: LedgerId) -> bytes | None:
        """Return the body of a ledger's explicit LAC, None if there is none."""
        return self._ledgers.explicit_lacs.body(ledger)

    def known_lac(self, ledger: LedgerId) -> EntryId:
        """Return how far a ledger is confirmed by what is stored here: its explicit LAC, or that in the header of its
        last entry. NO_ENTRY if nothing says so."""
        return self._reads.known_lac(ledger)

    def last_code(self, ledger: LedgerId) -> Code:
        """Return whether ``known_lac`` is all that can be known here: IO_ERROR if the last entry cannot be read, and
        the code of a ledger that is not stored. No more of the entry is read than its header."""
        return self._reads.last_code(ledger)

    def stored_ids(self, ledger: LedgerId) -> StoredIds | None:
        """Return a snapshot of a ledger's entry ids, None if it is not stored here."""
        return self._reads.stored_ids(ledger)

    def absent(self, ledger: LedgerId) -> Code:
        """Return the code for a ledger that is not stored here; who names a deleted one has it remembered for
        longer."""
        self.touch(ledger)
        return self._ledgers.absent(ledger)

    @property
    def rebuilt_indexes(self) -> tuple[RebuiltIndex, ...]:
        """Return the indexes of logs that the start made anew, until a checkpoint has put them in their places."""
        return tuple(self._logs.rebuilt)

    def ledger_ids(self) -> list[LedgerId]:
        """Return the ledgers stored here."""
        return list(self._ledgers.alive)

    def ledgers_in(self, folder: int) -> list[LedgerId]:
        """Return the ledgers that may have entries in a ledger folder."""
        return list(self._ledgers.places.in_folder(folder))

    def journal_of(self, ledger: LedgerId) -> int:
        """Return the number of the journal of a stored ledger."""
        return self._ledgers.places.journal(ledger)

    def deleted_ids(self) -> Container[LedgerId]:
        """Return the ledgers that are remembered as deleted."""
        return self._ledgers.deleted

    def touch(self, ledger: LedgerId) -> None:
        """Remember a deleted ledger for longer."""
        self._ledgers.touch(ledger, self._clock.wall_ms())

    def close_to_writers(self, ledger: LedgerId) -> bool:
        """Fence a ledger by its own key; durable with the ``newest_commit``. Returns False if it is not stored."""
        held_ledger = self._ledgers.alive.get(ledger)
        return held_ledger is not None and self.fence(ledger, held_ledger.key) == Code.OK

    @property
    def fences_without_entries(self) -> int:
        """The number of ledgers that are fenced here and of which no entry is stored."""
        return self._ledgers.without_entries

    def last_entry(self, ledger: LedgerId) -> EntryId:
        """Return the highest entry stored of a ledger, NO_ENTRY if there is none."""
        held_ledger = self._ledgers.alive.get(ledger)
        return NO_ENTRY if held_ledger is None else held_ledger.last

    # Loop: what a scrub asks.

    def log_ids(self) -> Collection[int]:
        """Return the entry logs that count."""
        return self._logs.logs.keys()

    def is_at(self, ledger: LedgerId, entry: EntryId, location: Location) -> bool:
        """Return whether an entry is read from this place, and from nowhere newer."""
        return self._reads.location(ledger, entry) == location

    def read_from_disk(self, ledger: LedgerId, entry: EntryId) -> tuple[Code, bytes]:
        """Read an entry as ``read`` does, but not what was read of its entry log before."""
        if location := self._reads.location(ledger, entry):
            self._logs.forget_chunk(location)
        return self.read(ledger, entry)

    def has_creation(self, ledger: LedgerId, creation: Creation) -> bool:
        """Return whether this is the ledger that is stored here, as far as that is known."""
        identity = self.identities.identity(ledger)
        return identity is not None and not identity.deleted and identity.creation in (UNKNOWN, creation)

    def settle(self, ledger: LedgerId, entries: Iterable[EntryId]) -> None:
        """Entries that were damaged can be read again, or nobody needs them: what could not be rewritten may be now."""
        self.damages.settle(ledger, entries)
        self.checkpoints.damaged.clear()

    def stats(self) -> StorageStats:
        tables, logs = list(self._tables.newest_first()), self._logs.logs.values()
        return StorageStats(
            ledgers=len(self._ledgers.alive),
            entries=sum(table.entries for table in tables) + sum(log.entries for log in logs),
            memtable_bytes=sum(table.bytes for table in tables),
            journal_bytes=self._journals.used_bytes,
            entry_logs=len(logs),
            entry_log_bytes=sum(log.size for log in logs),
            damaged_logs=len(self.checkpoints.damaged),
            fences_without_entries=self.fences_without_entries,
            ledgers_in_limbo=len(self.limbo),
            entries_damaged=len(self.damages),
            deletion_bytes=self.checkpoints.reclaimed_space.deletion,
            compaction_bytes=self.checkpoints.reclaimed_space.compaction,
            compactions=self.checkpoints.reclaimed_space.compactions,
            ledger_folders=len(self.folders.in_use),
            ledger_folders_full=len(self.folders.full),
            ledger_folders_failed=len(self.folders.failed),
        )

    # Loop: commits begin.

    @property
    def staged(self) -> bool:
        """Whether something waits for a commit."""
        return any(self._staged)

    @property
    def positions(self) -> tuple[int, ...]:
        """The number of the last commit of each journal, of those that are on the disk."""
        return self._durable_positions

    @property
    def newest_commit(self) -> int:
        """The number of the commit with which all that was staged until now is durable."""
        return self._number + any(self._staged)

    def take(self) -> StagedCommit:
        """Take all that is staged, as one commit."""
        self._number += 1
        commit = self._journals.take(self._number, self._staged)
        self._staged, self.staged_bytes = [[] for _ in self._journals], 0
        return commit

    # Thread.

    def commit(self, commit: StagedCommit) -> None:
        """Make a commit durable with one write and one sync; commits come in the order in which they were taken."""
        self._journals.commit(commit)
        self._written = commit.number
        self._synced()

    def write(self, commit: StagedCommit) -> None:
        """Write a commit, so that the end of this process does not lose it; a ``sync`` makes it durable."""
        self._journals.write(commit)
        self._written = commit.number

    def sync(self) -> None:
        """Make durable what was written."""
        self._journals.sync()
        self._synced()

    def _synced(self) -> None:
        self._durable, self._durable_positions = self._written, self._journals.written

    # Blocking, for when nothing else runs.

    def checkpoint(self) -> None:
        """Do all steps of a checkpoint at once."""
        self.checkpoints.run(self.checkpoints.begin())

    def collect(self, candidates: Collection[LedgerId], live: Collection[LedgerId]) -> int:
        """Do all steps of a collection at once. Returns how many ledgers were deleted."""
        plan = self.checkpoints.begin_collect(candidates, live)
        self.checkpoints.run(plan)
        self.checkpoint()
        self.checkpoints.compact()
        return len(plan.deleted)

    def close(self, *, clean: bool = True) -> None:
        """Close the files; ``clean``: commit and checkpoint first, so that the next start has nothing to replay."""
        if clean:
            if self.staged:
                self.commit(self.take())
            if not self.checkpoints.up_to_date:
                self.checkpoint()
        self._journals.close()
        self._logs.close()
