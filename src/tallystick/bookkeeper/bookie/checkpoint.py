"""A checkpoint moves what is in memory to an entry log; then the state file says so, and the journal may forget it.

The order of the durable steps is what keeps a crash harmless at any point::

    new entry logs and their indexes, synced ─► state file (names the logs that count, and the mark) ─► journal segments
    up to the mark are free ─► log files that no longer count are deleted

Rewriting logs that are mostly dead takes the same steps with more logs (``collector.py``). Deleting ledgers, and logs
that nothing else is in, takes them without a table: it writes the state alone and leaves the mark where it was, so a
full disk cannot keep the space that deleted ledgers have.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tallystick.bookkeeper.bookie.collector import DamagedLog, UnreadableLog, compact
from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.bookkeeper.bookie.ledgers import Ledger
from tallystick.bookkeeper.bookie.log_index import EntryLog, Piece, remove_log
from tallystick.bookkeeper.bookie.memtable import MemTable, Rows
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.bookie.state_file import StateFile
from tallystick.bookkeeper.bookie.steps import sorted_in_parts
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk

_BATCH_BYTES = 64 * 1024  # runs below it are joined for the log writer


@dataclass(frozen=True)
class CheckpointPlan:
    """What one checkpoint will do, decided on the loop; nothing in it changes while it is written."""

    table: MemTable | None = field(repr=False)  # None: no entry is written, and the state keeps its mark
    state: State = field(repr=False)  # to be stored; the logs that the checkpoint writes are added to its own
    log_id: int = 0  # and the one after it are for the logs of this checkpoint
    rewrite: tuple[int, ...] = ()  # logs whose live entries move to a new log
    dead_logs: tuple[int, ...] = ()  # logs that nothing refers to
    deleted: tuple[LedgerId, ...] = ()
    forgotten: tuple[LedgerId, ...] = ()  # of the deleted ledgers; the state does not have them


NewLog = tuple[EntryLog, list[Piece]]


@dataclass(frozen=True)
class CheckpointResult:
    """A durable checkpoint: the logs that it wrote, replaced and could not read."""

    logs: tuple[NewLog, ...] = ()
    removed: tuple[int, ...] = ()
    damaged: tuple[DamagedLog, ...] = ()  # logs that should have been rewritten and stay as they are


@dataclass
class ReclaimedSpace:
    """The bytes that checkpoints gave back."""

    deletion: int = 0  # by logs without a live ledger
    compaction: int = 0  # by logs that were rewritten, less what was written for them
    compactions: int = 0

    def count(self, plan: CheckpointPlan, result: CheckpointResult, logs: Mapping[int, EntryLog]) -> None:
        """Count a durable checkpoint; ``logs`` are those before it."""
        rewritten = [log for log in result.removed if log not in plan.dead_logs]
        self.deletion += sum(logs[log].size for log in plan.dead_logs)
        self.compaction += sum(logs[log].size for log in rewritten)
        self.compaction -= sum(log.size for log, _ in result.logs if log.id == plan.log_id)
        self.compactions += bool(rewritten)


class CheckpointWriter:
    """``write`` checkpoints one after another, on a thread."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings, state_file: StateFile) -> None:
        self._disk, self._directory, self._settings, self._state_file = disk, directory, settings, state_file

    def write(self, plan: CheckpointPlan, alive: Mapping[LedgerId, Ledger]) -> CheckpointResult:
        """Make a checkpoint durable. After a StorageError the old state holds, and the same table can be written
        again."""
        # The higher id is the newer log: where both have an entry, the one from memory is the newer version.
        logs, rewritten, damaged = self._rewrite(plan, alive)
        try:
            if plan.table is not None:
                logs += self._write_table(plan.table, plan)
        except StorageError:
            for log, _ in logs:
                with contextlib.suppress(StorageError):
                    remove_log(self._disk, self._directory, log.id)
            raise
        removed = (*plan.dead_logs, *rewritten)
        other_logs = (log for log in plan.state.logs if log not in removed)
        # From here on a failure leaves it open which state holds, so the new logs must stay.
        self._state_file.write(replace(plan.state, logs=(*other_logs, *(log.id for log, _ in logs))))
        return CheckpointResult(logs, removed, damaged)

    def _rewrite(
        self, plan: CheckpointPlan, alive: Mapping[LedgerId, Ledger]
    ) -> tuple[tuple[NewLog, ...], tuple[int, ...], tuple[DamagedLog, ...]]:
        """Return the new log, the logs that it replaces, and those that could not be read, which it was begun anew
        without."""
        damaged = list[DamagedLog]()
        while victims := tuple(log for log in plan.rewrite if log not in [each.log for each in damaged]):
            fill = partial(compact, self._disk, self._directory, victims, alive)
            try:
                return self._new_log(plan.log_id, fill), victims, tuple(damaged)
            except UnreadableLog as error:
                damaged.append(error.damaged)
        return (), (), tuple(damaged)

    def _write_table(self, table: MemTable, plan: CheckpointPlan) -> tuple[NewLog, ...]:
        def fill(writer: LogWriter) -> None:
            for ledger in sorted_in_parts([*table.ledgers]):
                if ledger in plan.state.ledgers:
                    _write_rows(writer, ledger, table.ledgers[ledger])

        return self._new_log(plan.log_id + 1, fill)

    def _new_log(self, log_id: int, fill: Callable[[LogWriter], None]) -> tuple[NewLog, ...]:
        """Write a log with what ``fill`` adds. Returns () if that is nothing."""
        writer = LogWriter(self._disk, self._directory, log_id, self._settings.chunk_bytes)
        try:
            fill(writer)
            if writer.pieces:
                return ((writer.finish(), writer.pieces),)
        except (StorageError, UnreadableLog):
            writer.abandon()
            raise
        writer.abandon()
        return ()


def _write_rows(writer: LogWriter, ledger: LedgerId, rows: Rows) -> None:
    entries, starts = array("q"), array("Q")
    frames: list[bytes] = []
    size = 0
    for run in rows.sorted_runs():
        base = run.bounds[0] - size
        entries.extend(run.entries)
        starts.extend([bound - base for bound in run.bounds[:-1]])
        frames.append(run.responses(0, len(run.entries)))
        size += len(frames[-1])
        if size >= _BATCH_BYTES:
            writer.add(ledger, entries, starts, _joined(frames))
            entries, starts, frames, size = array("q"), array("Q"), [], 0
    if frames:
        writer.add(ledger, entries, starts, _joined(frames))


def _joined(frames: list[bytes]) -> bytes:
    return frames[0] if len(frames) == 1 else b"".join(frames)
