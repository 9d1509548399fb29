"""The start of a storage from its files: the state, the index of all entry logs, then the journal after the mark.

Whatever is missing or damaged is refused (CorruptRecord), because a bookie that forgot an entry would say "no such
entry" and be believed (Q15). Only files that no complete checkpoint names are deleted, and not before all is read: a
start that is refused has deleted nothing. Only an incomplete last commit is cut. A file of a newer version of this
program is not damaged; it is refused as newer, before anything is changed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.entry_log import EntryLogs
from tallystick.bookkeeper.bookie.journal import Journal, JournalEnd
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.log_index import index_path, log_of, log_path
from tallystick.bookkeeper.bookie.memtable import MemTables
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.bookie.state_file import StateFile
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import Disk
from tallystick.runtime.folders import make_folder
from tallystick.runtime.rng import Random


@dataclass
class ReplayStats:
    """How much a start replayed of the journal: nothing after an orderly stop."""

    commits: int = 0
    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class StorageParts:
    """The parts of a storage."""

    journal: Journal
    state_file: StateFile
    ledgers: Ledgers
    logs: EntryLogs
    tables: MemTables
    mark: int  # of the state
    number: int  # of the last commit
    replay_stats: ReplayStats


def restart(disk: Disk, journal_dir: str, ledger_dir: str, settings: StorageSettings, random: Random) -> StorageParts:
    """Read everything, or begin anew in empty folders. Raises CorruptRecord, and StorageError for files of a newer
    version."""
    make_folder(disk, journal_dir)
    make_folder(disk, ledger_dir)
    state_file = StateFile(disk, ledger_dir, settings.state_spare_bytes)
    stored, path = state_file.read(), state_file.path
    state = stored or State()
    journal = Journal(disk, journal_dir, settings, random)
    if stored is not None and not journal.reaches(stored.generation):
        raise CorruptRecord("the journal is missing, or older than the state of the ledgers", journal=journal_dir)
    if stored is None and any(name.endswith(".log") for name in disk.listdir(ledger_dir)):
        raise CorruptRecord("the state file is missing beside entry logs", path=path)
    ledgers, logs, tables = Ledgers(state), EntryLogs(disk, ledger_dir, settings), MemTables()
    for log in sorted(state.logs):
        ledgers.enter(log, logs.load(log))
    number, replay_stats = _replay(journal, state, ledgers, tables)
    if stored is None and number:
        raise CorruptRecord("the state file is missing beside a journal", path=path)
    # Only now: a state that is older than its folder does not name the newest logs, and its journal shows that.
    _delete_leftovers(disk, ledger_dir, state)
    if stored is None:
        journal.prepare()
        state_file.write(State(generation=journal.end.generation))
    state_file.reserve()
    with contextlib.suppress(DiskFull):  # reading works without; the first commit will say so
        journal.prepare()
    return StorageParts(journal, state_file, ledgers, logs, tables, state.mark, number, replay_stats)


def _delete_leftovers(disk: Disk, directory: str, state: State) -> None:
    """Delete files of a checkpoint that did not reach the state file, and those that a later checkpoint replaced."""
    names_in_use = {os.path.basename(path(directory, log)) for log in state.logs for path in (log_path, index_path)}
    for name in disk.listdir(directory):
        if name.endswith((".log", ".index", ".new")) and name not in names_in_use:
            try:
                disk.unlink(os.path.join(directory, name))
            except StorageError:
                # It takes space and does no harm, unless a log that is to be written has its name.
                if log_of(name) not in range(state.next_log):
                    raise


def _replay(journal: Journal, state: State, ledgers: Ledgers, tables: MemTables) -> tuple[int, ReplayStats]:
    """Replay the journal after the mark. Returns the number of its last commit, and how much was replayed."""
    last, replay_stats = state.mark, ReplayStats()
    for commit in journal.replay(state.mark, JournalEnd(state.generation, state.journal_number)):
        for record in records.decode(bytes(commit.payload), commit.path, commit.offset):
            if not ledgers.skipped(record.ledger, commit.number):
                record.replay(ledgers, tables)
        last = commit.number
        replay_stats.commits += 1
        replay_stats.bytes += len(commit.payload)
    ledgers.missed_looks()
    replay_stats.entries = tables.entries
    return last, replay_stats
