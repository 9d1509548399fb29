"""The start of a storage from its files: the state, the index of all entry logs, then the journal after the mark.

Whatever is missing or damaged is refused (CorruptRecord), because a bookie that forgot an entry would say "no such
entry" and be believed (Q15); but the index of a log, which is rebuilt (``index_rebuild.py``). Only files that no
complete checkpoint names are deleted, and not before all is read: a start that is refused has deleted nothing. Only an
incomplete last commit is cut. A file of a newer version of this program is not damaged; it is refused as newer, before
anything is changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.entry_log import EntryLogs
from tallystick.bookkeeper.bookie.journal import Journal, JournalEnd
from tallystick.bookkeeper.bookie.journals import Journals
from tallystick.bookkeeper.bookie.ledger_folders import LedgerFolders
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.log_index import index_path, log_of, log_path
from tallystick.bookkeeper.bookie.memtable import MemTables
from tallystick.bookkeeper.bookie.places import JournalMark, LedgerFolder, Mark, Places, StorageFolders
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.bookie.state_file import STATE_FILE, StateFile
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

    journals: Journals
    folders: LedgerFolders
    ledgers: Ledgers
    logs: EntryLogs
    tables: MemTables
    mark: Mark  # of the state
    number: int  # of the last commit
    replay_stats: ReplayStats
    lost_journals: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Start:
    """What the folders say before a journal is replayed."""

    stored: State | None
    folders: LedgerFolders
    marks: tuple[JournalMark, ...]  # by journal
    journal_dirs: tuple[str, ...]  # the same
    lost_folders: tuple[int, ...]
    lost_journals: frozenset[int]
    lags: bool  # a folder has an older copy of the state

    @property
    def is_single(self) -> bool:
        """Whether the bookie only ever had one journal and one ledger folder."""
        return not self.folders.layout.folders


def restart(
    disk: Disk,
    folders: StorageFolders,
    settings: StorageSettings,
    random: Random,
    *,
    lost: Collection[str] = (),
    failed: Collection[str] = (),
) -> StorageParts:
    """Read everything, or begin anew in empty folders. Raises CorruptRecord, and StorageError for files of a newer
    version.

    ``lost`` are folders that came back empty, and ``failed`` ledger folders that are used no more. The ledgers recorded
    as theirs are in limbo, durably with the next checkpoint; with ``lost_journals`` others may have to be, too.
    """
    start = _read_folders(disk, folders, settings, lost, failed, random)
    state = start.stored or State()
    path = start.folders.path(start.folders.in_use[0])
    journals = Journals(
        [Journal(disk, each, settings, random) for each in start.journal_dirs], disk, start.journal_dirs
    )
    for number, (journal, mark) in enumerate(zip(journals, start.marks, strict=True)):
        if start.stored is not None and number not in start.lost_journals and not journal.reaches(mark.generation):
            reason = "the journal is missing, or older than the state of the ledgers"
            raise CorruptRecord(reason, journal=start.journal_dirs[number])
    places = Places(state.places, journals=len(journals), is_single=start.is_single)
    ledgers, logs, tables = Ledgers(state, places), EntryLogs(disk, start.folders.directory, settings), MemTables()
    for log in sorted(state.logs):
        if state.log_folders.get(log, 0) not in start.lost_folders:
            ledgers.enter(log, logs.load(log))
    numbers, replay_stats = _replay(journals, start.marks, ledgers, tables)
    ledgers.lose(start.lost_folders, start.lost_journals)
    for rebuilt in logs.rebuilt:  # only now: the journal may say that some left limbo, before this damage
        ledgers.limbo.enter(ledger for ledger in state.ledgers if ledger in ledgers.alive and rebuilt.may_lack(ledger))
    if start.stored is None and any(numbers):
        raise CorruptRecord("the state file is missing beside a journal", path=f"{path}/{STATE_FILE}")
    if start.lags:
        start.folders.catch_up(state, start.lost_folders)
    marked = tuple(each.mark for each in start.marks)
    journals.release(Mark(sum(marked), marked))
    # Only now: a state that is older than its folder does not name the newest logs, and its journal shows that.
    for number in start.folders.in_use:
        _delete_leftovers(disk, start.folders, number, state)
    if start.stored is None:
        _begin(start, journals)
    start.folders.reserve()
    with contextlib.suppress(DiskFull):  # reading works without; the first commit will say so
        for journal in journals:
            journal.prepare()
    parts = journals, start.folders, ledgers, logs, tables, Mark(sum(marked), marked), sum(numbers), replay_stats
    return StorageParts(*parts, start.lost_journals)


def _begin(start: _Start, journals: Journals) -> None:
    """Write the first state of a new bookie."""
    for journal in journals:
        journal.prepare()
    marks = journals.marks(Mark(0, (0,) * len(journals)))
    state = State(generation=marks[0].generation)
    start.folders.write(state if start.is_single else replace(state, layout=start.folders.layout, journals=marks))


def _read_folders(
    disk: Disk,
    folders: StorageFolders,
    settings: StorageSettings,
    lost: Collection[str],
    failed: Collection[str],
    random: Random,
) -> _Start:
    """Find the newest state, and what it says of the folders. Raises CorruptRecord, StorageError."""
    stored, at, errors, numbers = None, 0, dict[str, StorageError](), dict[str, int]()
    for place, path in enumerate(folders.ledgers):
        if path in lost or path in failed:
            continue
        try:
            state = _read_state(disk, path, settings)
        except StorageError as error:
            errors[path] = error
            continue
        if state is not None:
            numbers[path] = state.layout.number
            if stored is None or state.layout.number > stored.layout.number:
                stored, at = state, place
    state = stored or State()
    is_single = not state.layout.folders and len(folders.ledgers) == len(folders.journals) == 1
    recorded = state.layout.folders or (LedgerFolder(0, folders.ledgers[at]),)
    ledger_folders = list(_folders_of(recorded, folders.ledgers, lost, failed))
    for folder in ledger_folders:
        if not folder.is_failed:
            if folder.path in errors:
                raise errors[folder.path]
            make_folder(disk, folder.path)
    lost_folders = tuple(
        folder.number for folder in recorded if folder.path in (*lost, *failed) and not folder.is_failed
    )
    marks = {mark.path: mark for mark in state.journals} or {folders.journals[0]: state.journal_marks[0]}
    journal_dirs = (*marks, *(path for path in folders.journals if path not in marks))
    for path in journal_dirs:
        make_folder(disk, path)
    log_folders = {log: number for log, number in state.log_folders.items() if number not in lost_folders}
    # A folder that cannot be read may have had one state more than the others.
    layout = state.layout._replace(number=state.layout.number + bool(lost or failed))
    return _Start(
        stored,
        LedgerFolders(
            disk, ledger_folders, settings, log_folders=log_folders, layout=layout, record=not is_single, random=random
        ),
        tuple(marks.get(path, JournalMark()) if path not in lost else JournalMark() for path in journal_dirs),
        journal_dirs,
        lost_folders,
        frozenset(number for number, path in enumerate(journal_dirs) if path in lost),
        any(
            numbers.get(folder.path) != state.layout.number
            for folder in state.layout.folders
            if not (folder.is_failed or folder.path in lost or folder.path in failed)
        ),
    )


def failed_folders(disk: Disk, paths: Sequence[str], settings: StorageSettings) -> set[str]:
    """Return the ledger folders that failed before, as the newest state says that can be read."""
    states = list[State]()
    for path in paths:
        with contextlib.suppress(StorageError):
            if (state := StateFile(disk, path, settings.state_spare_bytes).read()) is not None:
                states.append(state)
    newest = max(states, key=lambda state: state.layout.number, default=State())
    return {folder.path for folder in newest.layout.folders if folder.is_failed}


def _read_state(disk: Disk, path: str, settings: StorageSettings) -> State | None:
    """Return the copy of the state in a ledger folder, None if there is none."""
    state = StateFile(disk, path, settings.state_spare_bytes).read()
    if state is None and disk.exists(path) and any(name.endswith(".log") for name in disk.listdir(path)):
        raise CorruptRecord("the state file is missing beside entry logs", path=os.path.join(path, STATE_FILE))
    return state


def _folders_of(
    recorded: Sequence[LedgerFolder], paths: Sequence[str], lost: Collection[str], failed: Collection[str]
) -> Iterator[LedgerFolder]:
    """Return the recorded folders and new ones. Raises StorageError when one is not there that did not fail."""
    known_paths = [folder.path for folder in recorded]
    for folder in recorded:
        if folder.path not in paths:
            raise StorageError("this ledger folder has entries and is not configured any more", path=folder.path)
        # One that failed is in use again when it comes back empty, which is when the bookie rejoins.
        is_failed = folder.path in failed or (folder.is_failed and folder.path not in lost)
        yield folder._replace(is_failed=is_failed)
    new_paths = [path for path in paths if path not in known_paths]
    for number, path in enumerate(new_paths, 1 + max(folder.number for folder in recorded)):
        yield LedgerFolder(number, path)


def _delete_leftovers(disk: Disk, folders: LedgerFolders, number: int, state: State) -> None:
    """Delete files of a checkpoint that did not reach the state file, and those that a later checkpoint replaced."""
    directory, logs = folders.path(number), [log for log in state.logs if folders.folder_of(log) == number]
    names_in_use = {os.path.basename(path(directory, log)) for log in logs for path in (log_path, index_path)}
    for name in disk.listdir(directory):
        if name.endswith((".log", ".index", ".new")) and name not in names_in_use:
            try:
                disk.unlink(os.path.join(directory, name))
            except StorageError:
                # It takes space and does no harm, unless a log that is to be written has its name.
                if log_of(name) not in range(state.next_log):
                    raise


def _replay(
    journals: Journals, marks: Sequence[JournalMark], ledgers: Ledgers, tables: MemTables
) -> tuple[list[int], ReplayStats]:
    """Replay each journal after its mark. Returns the numbers of their last commits, and how much was replayed."""
    replay_stats, numbers = ReplayStats(), list[int]()
    for place, (journal, mark) in enumerate(zip(journals, marks, strict=True)):
        ledgers.places.replayed_journal, last = place, mark.mark
        for commit in journal.replay(mark.mark, JournalEnd(mark.generation, mark.number)):
            for record in records.decode(bytes(commit.payload), commit.path, commit.offset):
                if not ledgers.skipped(record.ledger, commit.number):
                    record.replay(ledgers, tables)
            last = commit.number
            replay_stats.commits += 1
            replay_stats.bytes += len(commit.payload)
        numbers.append(last)
    ledgers.replayed(sum(numbers))
    journals.replayed(numbers)
    replay_stats.entries = tables.entries
    return numbers, replay_stats
