"""What is damaged of a bookie's folders, while it is down. Nothing is written.

The code of a start reads state, indexes and journal, on a disk that keeps no change, so whatever it refuses is found.
Then each chunk of each entry log is compared with its checksum, and each entry with its index. Damage of a log is told
by the entries in it that no newer log has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.cookies import MARK, START_FILE, Folder, folder_of, journal_of, ledgers_of, look
from tallystick.bookkeeper.bookie.ledgers import Ledger, holds
from tallystick.bookkeeper.bookie.log_index import index_path, log_of, log_path
from tallystick.bookkeeper.bookie.log_scan import LogScan, Place
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.progress import stored_start
from tallystick.bookkeeper.bookie.restart import StorageParts, failed_folders, restart
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import NotFound, StorageError
from tallystick.runtime.disk import Disk
from tallystick.runtime.rng import Random
from tallystick.runtime.unwritten import UnwrittenDisk


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong: ``what``, where, and which entries of a ledger are lost by it, where that is known."""

    what: str
    path: str
    ledger: LedgerId | None = None
    first: EntryId | None = None
    last: EntryId | None = None


@dataclass
class FolderReport:
    """A ledger folder: how much is in it, unless it failed."""

    path: str
    is_failed: bool
    entry_logs: int = 0
    log_bytes: int = 0

    def __str__(self) -> str:
        state = "failed" if self.is_failed else f"{self.entry_logs} entry logs, {self.log_bytes} bytes"
        return f"{self.path}: {state}"


@dataclass
class CheckReport:
    """What was read, and all that is wrong. ``can_start`` says whether a start would take these folders."""

    can_start: bool = False
    ledgers: int = 0
    in_limbo: int = 0
    entry_logs: int = 0
    log_bytes: int = 0
    entries: int = 0  # compared in entry logs
    journal_commits: int = 0  # that a start would replay
    folders: list[FolderReport] = field(default_factory=list)  # of a bookie with several ledger folders
    damages: list[Damage] = field(default_factory=list)


def check_bookie(
    disk: Disk, folders: StorageFolders, random: Random, settings: StorageSettings | None = None
) -> CheckReport:
    """Check the folders under these configured ones; nobody uses them, and they have the bookie's lock.

    Raises NotFound when no bookie was ever started there.
    """
    checking = _Checking(UnwrittenDisk(disk), folders)
    return checking.run(settings or StorageSettings(), random)


class _Checking:
    """One check."""

    def __init__(self, disk: Disk, configured: StorageFolders) -> None:
        self._disk, self._configured = disk, configured
        self._folders = StorageFolders(
            tuple(map(journal_of, configured.journals)), tuple(map(ledgers_of, configured.ledgers))
        )
        self._report = CheckReport()
        self._sizes: dict[str, tuple[int, int]] = {}  # logs and bytes, by folder

    def run(self, settings: StorageSettings, random: Random) -> CheckReport:
        failed = failed_folders(self._disk, self._folders.ledgers, settings)
        unused = [each for each in self._configured.ledgers if ledgers_of(each) in failed]
        folders = [folder for folder in dict.fromkeys(self._configured.journals + self._configured.ledgers)]
        folders = [folder for folder in folders if folder not in unused]
        for folder in folders:
            if not self._disk.exists(folder_of(folder)):
                below = os.path.join(folder, "data")  # as of a development cluster's bookies
                hint = f"; one was on {below}" if self._disk.exists(folder_of(below)) else ""
                raise NotFound(f"no bookie was ever started on {folder}{hint}")
        self._cookies(folders)
        parts = self._start(settings, random)
        alive = parts.ledgers.alive if parts is not None else None
        for directory in self._folders.ledgers:
            if directory not in failed:
                for log_id in self._log_ids(parts, directory):
                    self._log(directory, log_id, alive)
        if len(self._folders.ledgers) > 1:
            self._report.folders = [self._folder(directory, directory in failed) for directory in self._folders.ledgers]
        if parts is not None:
            parts.logs.close()
            parts.journals.close()
        return self._report

    def _folder(self, directory: str, is_failed: bool) -> FolderReport:
        logs, size = self._sizes.get(directory, (0, 0))
        return FolderReport(directory, is_failed, logs, size)

    def _damaged(self, what: str, path: str) -> None:
        self._report.damages.append(Damage(what, path))

    def _cookies(self, folders: Iterable[str]) -> None:
        bookie_folders = list[Folder]()
        for folder in folders:
            try:
                bookie_folders.append(look(self._disk, folder))
                stored_start(self._disk, os.path.join(folder_of(folder), START_FILE))
            except StorageError as error:
                self._damaged(str(error), folder_of(folder))
        for each in bookie_folders:
            if self._disk.exists(os.path.join(each.path, MARK)):
                self._damaged("a rejoin was cut short: rejoin again", each.path)
            elif each.cookie is None:
                self._damaged("there is no cookie", each.path)
            elif each.cookie != (bookie_folders[0].cookie or each.cookie):
                self._damaged("its cookie is another one than that of the journal's folder", each.path)

    def _start(self, settings: StorageSettings, random: Random) -> StorageParts | None:
        try:
            parts = restart(self._disk, self._folders, settings, random)
        except StorageError as error:
            path = str(error.fields.get("path", self._folders.journals[0]))
            self._damaged(f"a start would be refused: {error.message}", path)
            return None
        self._report.can_start = not self._report.damages
        self._report.ledgers, self._report.in_limbo = len(parts.ledgers.alive), len(parts.ledgers.limbo)
        self._report.journal_commits = parts.replay_stats.commits
        return parts

    def _log_ids(self, parts: StorageParts | None, directory: str) -> list[int]:
        """Return the logs of a folder that count; where nobody knows which do, all that have an index."""
        if parts is not None:
            return sorted(log for log in parts.logs.logs if parts.folders.directory(log) == directory)
        names = self._disk.listdir(directory) if self._disk.exists(directory) else []
        return [log for name in names if name.endswith(".index") and (log := log_of(name)) is not None]

    def _log(self, directory: str, log_id: int, alive: dict[LedgerId, Ledger] | None) -> None:
        try:
            scan = LogScan(self._disk, directory, log_id)
        except StorageError as error:
            self._damaged(error.message, index_path(directory, log_id))
            return
        logs, size = self._sizes.get(directory, (0, 0))
        self._sizes[directory] = logs + 1, size + scan.log.size
        self._report.entry_logs += 1
        self._report.log_bytes += scan.log.size
        bad: dict[str, list[tuple[LedgerId, EntryId]]] = {}
        try:
            for chunk in scan.chunks():
                self._report.entries += sum(_counts(place, log_id, alive) for place, _ in chunk.bodies)
                for each in chunk.bad:
                    if _counts(each.place, log_id, alive):
                        self._report.entries += 1
                        bad.setdefault(each.reason, []).append((each.place.ledger, each.place.entry))
        finally:
            scan.close()
        for reason, entries in bad.items():
            self._lost(reason, log_path(directory, log_id), entries)

    def _lost(self, what: str, path: str, entries: Iterable[tuple[LedgerId, EntryId]]) -> None:
        for ledger, first, last in _ranges(sorted(entries)):
            self._report.damages.append(Damage(what, path, ledger, first, last))


def _counts(place: Place, log_id: int, alive: dict[LedgerId, Ledger] | None) -> bool:
    """Return whether this log has the newest version of an entry; where nobody knows, it has."""
    if alive is None:
        return True
    return holds(alive, place.ledger, log_id) and index.get(alive[place.ledger].pages, place.entry) == place.location


def _ranges(entries: list[tuple[LedgerId, EntryId]]) -> Iterator[tuple[LedgerId, EntryId, EntryId]]:
    """Yield runs of consecutive entries: ledger, first, last."""
    run: list[tuple[LedgerId, EntryId]] = []
    for ledger, entry in entries:
        if run and (ledger, entry) != (run[-1][0], run[-1][1] + 1):
            yield run[0][0], run[0][1], run[-1][1]
            run = []
        run.append((ledger, entry))
    if run:
        yield run[0][0], run[0][1], run[-1][1]
