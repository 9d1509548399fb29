"""A checkpoint: what is in memory goes to an entry log, then the state file says so, then the journal may forget it.

The order of the durable steps is what keeps a crash harmless at any point::

    new entry logs and their indexes, synced ─► state file (names the logs that count, and the mark) ─► journal segments
    up to the mark are free ─► log files that no longer count are deleted

Deleting ledgers and rewriting logs that are mostly dead takes the same steps with more logs (``collector.py``).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tallystick.bookkeeper.bookie.collector import compact
from tallystick.bookkeeper.bookie.entry_log import EntryLog, LogWriter, Piece
from tallystick.bookkeeper.bookie.ledgers import Ledger, State
from tallystick.bookkeeper.bookie.memtable import MemTable, Rows
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk, write_atomic

STATE_FILE = "state"
_BATCH_BYTES = 64 * 1024  # runs below it are joined for the log writer


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint will do, decided on the loop; nothing in it changes while it is written."""

    table: MemTable = field(repr=False)
    state: State = field(repr=False)  # to be stored; the logs that the checkpoint writes are added to its own
    log_id: int  # and the one after it are for the logs of this checkpoint
    rewrite: tuple[int, ...] = ()  # logs whose live entries move to a new log
    gone: tuple[int, ...] = ()  # logs that nothing refers to
    deleted: tuple[LedgerId, ...] = ()


@dataclass(frozen=True)
class Written:
    """What became of a checkpoint that is durable."""

    logs: tuple[tuple[EntryLog, list[Piece]], ...]
    removed: tuple[int, ...]


def write_checkpoint(
    disk: Disk, directory: str, settings: StorageSettings, plan: Checkpoint, alive: Mapping[LedgerId, Ledger]
) -> Written:
    """Make a checkpoint durable. After a StorageError the old state holds, and the same table can be written again."""
    writers = [LogWriter(disk, directory, plan.log_id + at, settings.chunk_bytes) for at in range(2)]
    try:
        # The higher id is the newer log: where both have an entry, the one from memory is the newer version.
        rewritten = compact(disk, directory, plan.rewrite, alive, writers[0])
        _write_table(writers[1], plan)
        logs = tuple((writer.finish(), writer.pieces) for writer in writers if writer.pieces)
    except StorageError:
        for writer in writers:
            writer.abandon()
        raise
    for writer in writers:
        if not writer.pieces:
            writer.abandon()
    removed = (*plan.gone, *rewritten)
    kept = (log for log in plan.state.logs if log not in removed)
    state = replace(plan.state, logs=(*kept, *(log.id for log, _ in logs)))
    # From here on a failure leaves it open which state holds, so the new logs must stay.
    write_atomic(disk, os.path.join(directory, STATE_FILE), state.encode())
    return Written(logs, removed)


def _write_table(writer: LogWriter, plan: Checkpoint) -> None:
    for ledger in sorted(plan.table.ledgers):
        if ledger in plan.state.ledgers:
            _write_rows(writer, ledger, plan.table.ledgers[ledger])


def _write_rows(writer: LogWriter, ledger: LedgerId, rows: Rows) -> None:
    entries, starts = array("q"), array("Q")
    frames: list[bytes] = []
    size = 0
    for run in rows.sorted_runs():
        base = run.bounds[0] - size
        entries.extend(run.entries)
        starts.extend([bound - base for bound in run.bounds[:-1]])
        frames.append(run.answers(0, len(run.entries)))
        size += len(frames[-1])
        if size >= _BATCH_BYTES:
            writer.add(ledger, entries, starts, _joined(frames))
            entries, starts, frames, size = array("q"), array("Q"), [], 0
    if frames:
        writer.add(ledger, entries, starts, _joined(frames))


def _joined(frames: list[bytes]) -> bytes:
    return frames[0] if len(frames) == 1 else b"".join(frames)
