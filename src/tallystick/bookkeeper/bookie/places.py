"""Where a bookie keeps each ledger: its journal, and the folder of its entry logs, as the state file records them.

A ledger gets its journal with its first record, and its folder when entries of it are first written to an entry log.
Both are recorded, and never computed from how many there are. When its folder takes nothing new it gets another one;
``folders`` has all that may have entries of it. A bookie that only ever had one of each records nothing.

The sections of the state, integers big-endian::

    FOLDERS      number of the state 8 | limbo era 8 | each: number 2 | flags 1 (1: failed) | path
    JOURNALS     each: mark 8 | generation 8 | number of its last commit 8 | path
    LOG_FOLDERS  each: log 8 | folder 2
    PLACES       each: ledger 8 | journal 2 | folder 2 | folders, a bit each, 8
    path         bytes of what follows 2 | path

``number``: each ledger folder has a copy of the state, and the one with the highest number holds. ``limbo era`` counts
the folders that failed: a ledger that left limbo before is in limbo again, whatever the journal says (FILLED).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tallystick.bookkeeper.wire.values import LedgerId

MOST_FOLDERS = 64
NO_FOLDER = 0xFFFF  # no entry of it was written to an entry log yet

_LAYOUT = struct.Struct(">QQ")
_FOLDER = struct.Struct(">HBH")
_JOURNAL = struct.Struct(">QQQH")
_LOG_FOLDER = struct.Struct(">QH")
_PLACE = struct.Struct(">qHHQ")
_FAILED = 1


class StorageFolders(NamedTuple):
    """The folders that a storage is opened with."""

    journals: tuple[str, ...]
    ledgers: tuple[str, ...]


class LedgerFolder(NamedTuple):
    """A folder of entry logs; ``path`` is that of the logs."""

    number: int
    path: str
    is_failed: bool = False


class Layout(NamedTuple):
    """The ledger folders that a bookie has or had; none: one, of which nothing is recorded."""

    number: int = 0
    limbo_era: int = 0
    folders: tuple[LedgerFolder, ...] = ()

    def encode(self) -> bytes:
        if not self.folders:
            return b""
        parts = [_LAYOUT.pack(self.number, self.limbo_era)]
        for folder in self.folders:
            path = folder.path.encode()
            parts += (_FOLDER.pack(folder.number, _FAILED * folder.is_failed, len(path)), path)
        return b"".join(parts)


NO_LAYOUT = Layout()


class JournalMark(NamedTuple):
    """How far the state is in one journal: see ``State``, whose head has it of the first one."""

    mark: int = 0
    generation: int = 0
    number: int = 0
    path: str = ""


class Mark(NamedTuple):
    """A commit, and the last one of each journal that it has, or that came before."""

    number: int
    journals: tuple[int, ...]


class Place(NamedTuple):
    """Where a ledger is: the numbers of its journal and folder, and a bit for each folder that may have its entries."""

    journal: int = 0
    folder: int = NO_FOLDER
    folders: int = 0

    def moved(self, folder: int) -> Place:
        return Place(self.journal, folder, self.folders | 1 << folder)

    def left(self, folder: int) -> Place:
        """Return the place without a folder that failed."""
        current = NO_FOLDER if self.folder == folder else self.folder
        return Place(self.journal, current, self.folders & ~(1 << folder))

    def has(self, folder: int) -> bool:
        return bool(self.folders >> folder & 1)


ONLY = Place(0, 0, 1)


class Places:
    """The places of all ledgers of a bookie. ``journals``: how many there are."""

    def __init__(self, places: Mapping[LedgerId, Place], *, journals: int, is_single: bool) -> None:
        """``is_single``: the bookie only ever had one journal and one ledger folder."""
        self._places, self._journals, self.is_single = dict(places), journals, is_single
        self._next_journal = 0
        self.replayed_journal: int | None = None  # while one is: what is new is of it

    def of(self, ledger: LedgerId) -> Place:
        """Return where a ledger that is stored is. One that was there when the first folder was the only one is in
        it."""
        return ONLY if self.is_single else self._places.get(ledger, ONLY)

    def journal(self, ledger: LedgerId) -> int:
        """Return the journal of records about a ledger, be it stored or not."""
        return 0 if self.is_single else self.of(ledger).journal

    def find(self, ledger: LedgerId) -> Place | None:
        """Return the recorded place of a ledger, None if nothing is recorded."""
        return self._places.get(ledger)

    def create(self, ledger: LedgerId) -> None:
        """Give a new ledger its journal."""
        if self.is_single:
            return
        journal = self.replayed_journal
        if journal is None:
            journal = self._next_journal
            self._next_journal = (journal + 1) % self._journals
        self._places[ledger] = Place(journal)

    def put(self, ledger: LedgerId, place: Place) -> None:
        if not self.is_single:
            self._places[ledger] = place

    def forget(self, ledger: LedgerId) -> None:
        self._places.pop(ledger, None)

    def in_folder(self, folder: int) -> Iterator[LedgerId]:
        """Yield the ledgers that may have entries in a folder."""
        return (ledger for ledger, place in self._places.items() if place.has(folder))

    def in_journal(self, journal: int) -> Iterator[LedgerId]:
        return (ledger for ledger, place in self._places.items() if place.journal == journal)

    def copy(self) -> dict[LedgerId, Place]:
        """Copy the places for the state file."""
        return self._places.copy()


def read_layout(body: bytes) -> Layout:
    number, era = _LAYOUT.unpack_from(body)
    folders, position = list[LedgerFolder](), _LAYOUT.size
    while position < len(body):
        folder, flags, size = _FOLDER.unpack_from(body, position)
        path, position = _path(body, position + _FOLDER.size, size)
        folders.append(LedgerFolder(folder, path, bool(flags & _FAILED)))
    return Layout(number, era, tuple(folders))


def read_journals(body: bytes) -> tuple[JournalMark, ...]:
    journals, position = list[JournalMark](), 0
    while position < len(body):
        mark, generation, number, size = _JOURNAL.unpack_from(body, position)
        path, position = _path(body, position + _JOURNAL.size, size)
        journals.append(JournalMark(mark, generation, number, path))
    return tuple(journals)


def write_journals(journals: tuple[JournalMark, ...]) -> bytes:
    parts = list[bytes]()
    for journal in journals:
        path = journal.path.encode()
        parts += (_JOURNAL.pack(journal.mark, journal.generation, journal.number, len(path)), path)
    return b"".join(parts)


def _path(body: bytes, start: int, size: int) -> tuple[str, int]:
    """Return a path in a section, and where it ends."""
    if start + size > len(body):
        raise struct.error("a path is cut short")
    return body[start : start + size].decode(errors="surrogateescape"), start + size


def read_log_folders(body: bytes) -> dict[int, int]:
    return dict(_LOG_FOLDER.iter_unpack(body))


def write_log_folders(folders: Mapping[int, int]) -> bytes:
    return b"".join([_LOG_FOLDER.pack(log, folder) for log, folder in folders.items()])


def read_places(body: bytes) -> dict[LedgerId, Place]:
    return {ledger: Place(*place) for ledger, *place in _PLACE.iter_unpack(body)}


def write_places(places: Mapping[LedgerId, Place]) -> bytes:
    return b"".join([_PLACE.pack(ledger, *place) for ledger, place in places.items()])
