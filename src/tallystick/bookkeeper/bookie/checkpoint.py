"""A checkpoint moves what is in memory to an entry log; then the state file says so, and the journal may forget it.

The order of the durable steps is what keeps a crash harmless at any point::

    new entry logs and their indexes, synced ─► state file (names the logs that count, and the mark) ─► journal segments
    up to the mark are free ─► log files that no longer count are deleted

Deleting ledgers, and logs that nothing else is in, takes these steps without a table: it writes the state alone and
leaves the mark where it was, so a full disk cannot keep the space that deleted ledgers have. So does the last step of a
compaction, which has written its log before (``compaction.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.bookkeeper.bookie.compaction import NewLog
from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.bookkeeper.bookie.ledger_folders import LedgerFolders
from tallystick.bookkeeper.bookie.log_index import EntryLog, remove_log
from tallystick.bookkeeper.bookie.memtable import MemTable, Rows
from tallystick.bookkeeper.bookie.places import Mark
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.bookie.steps import sorted_in_parts
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.stored import StoredRun, responses_of_runs
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk

_BATCH_BYTES = 64 * 1024  # runs below it are joined for the log writer


@dataclass(frozen=True)
class CheckpointPlan:
    """What one checkpoint will do, decided on the loop; nothing in it changes while it is written."""

    table: MemTable | None = field(repr=False)  # None: no entry is written, and the state keeps its mark
    state: State = field(repr=False)  # to be stored; the logs that the checkpoint writes are added to its own
    mark: Mark  # up to this commit all is in the state and the logs
    log_id: int = 0  # of the first log that the table makes, of each folder in use one
    ledgers: Mapping[int, Sequence[LedgerId]] = field(default_factory=dict)  # of the table, by folder
    moved: NewLog | None = field(default=None, repr=False)  # durable already: has what is live in the rewritten logs
    rewritten: tuple[int, ...] = ()
    dead_logs: tuple[int, ...] = ()  # logs that nothing refers to
    deleted: tuple[LedgerId, ...] = ()
    emptied: tuple[LedgerId, ...] = ()  # whose entries were dropped
    forgotten: tuple[LedgerId, ...] = ()  # of the deleted ledgers; the state does not have them


@dataclass(frozen=True)
class CheckpointResult:
    """A durable checkpoint: the logs that it wrote, and those that count no longer."""

    table_logs: tuple[NewLog, ...] = ()
    removed: tuple[int, ...] = ()


@dataclass
class ReclaimedSpace:
    """The bytes that checkpoints gave back."""

    deletion: int = 0  # by logs without a live ledger
    compaction: int = 0  # by logs that were rewritten, less what was written for them
    compactions: int = 0

    def count(self, plan: CheckpointPlan, logs: Mapping[int, EntryLog]) -> None:
        """Count a durable checkpoint; ``logs`` are those before it."""
        self.deletion += sum(logs[log].size for log in plan.dead_logs)
        self.compaction += sum(logs[log].size for log in plan.rewritten)
        if plan.moved is not None:
            self.compaction -= plan.moved[0].size
        self.compactions += bool(plan.rewritten)


class CheckpointWriter:
    """``write`` checkpoints one after another, on a thread."""

    def __init__(self, disk: Disk, settings: StorageSettings, folders: LedgerFolders) -> None:
        self._disk, self._settings, self._folders = disk, settings, folders

    def write(self, plan: CheckpointPlan) -> CheckpointResult:
        """Make a checkpoint durable. After a StorageError the old state holds, and the same table can be written
        again."""
        table_logs = () if plan.table is None else self._write_table(plan.table, plan)
        removed = (*plan.dead_logs, *plan.rewritten)
        new_logs = (*(() if plan.moved is None else (plan.moved,)), *table_logs)
        names = (*(log for log in plan.state.logs if log not in removed), *(log.id for log, _ in new_logs))
        folders = {log: folder for log in names if (folder := self._folders.folder_of(log))}
        # From here on a failure leaves it open which state holds, so the new logs must stay.
        self._folders.write(replace(plan.state, logs=names, log_folders=folders))
        return CheckpointResult(table_logs, removed)

    def _write_table(self, table: MemTable, plan: CheckpointPlan) -> tuple[NewLog, ...]:
        """Write what is in memory to a log in each folder. If one fails none is left."""
        logs = list[NewLog]()
        try:
            for log_id, (folder, ledgers) in enumerate(plan.ledgers.items(), plan.log_id):
                stored = [ledger for ledger in ledgers if ledger in plan.state.ledgers]
                logs += self._write_log(table, stored, log_id, folder)
        except StorageError:
            for log, _ in logs:
                with contextlib.suppress(StorageError):
                    remove_log(self._disk, self._folders.directory(log.id), log.id)
            raise
        return tuple(logs)

    def _write_log(self, table: MemTable, ledgers: Sequence[LedgerId], log_id: int, folder: int) -> list[NewLog]:
        """Write a log in this folder. Returns an empty list if nothing is for it."""
        self._folders.put(log_id, folder)
        with self._folders.watching(folder):
            writer = LogWriter(self._disk, self._folders.path(folder), log_id, self._settings.chunk_bytes)
            try:
                for ledger in sorted_in_parts(ledgers):
                    _write_rows(writer, ledger, table.ledgers[ledger])
                if writer.pieces:
                    return [(writer.finish(), writer.pieces)]
            except StorageError:
                writer.abandon()
                raise
            writer.abandon()
            return []


def _write_rows(writer: LogWriter, ledger: LedgerId, rows: Rows) -> None:
    runs: list[StoredRun] = []
    size = 0
    for run in rows.sorted_runs():
        runs.append((run.entries, run.bounds, run.data))
        size += run.bounds[-1] - run.bounds[0]
        if size >= _BATCH_BYTES:
            writer.add(ledger, *responses_of_runs(runs))
            runs, size = [], 0
    if runs:
        writer.add(ledger, *responses_of_runs(runs))
