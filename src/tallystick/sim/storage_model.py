"""What a bookie's storage promised, as plain dictionaries: its dumb twin, and the checks that compare the two."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.journals import StagedCommit
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import StorageError
from tallystick.sim.disk import SimDisk
from tallystick.sim.invariants import Violation

LEDGER_DIR = "/bookie/ledgers"
FOLDERS = StorageFolders(("/bookie/journal",), (LEDGER_DIR,))
SETTINGS = StorageSettings(
    journal_segment_bytes=16 * 1024,
    journal_spare_segments=2,
    journal_bytes=64 * 1024,
    memtable_bytes=64 * 1024,
    chunk_bytes=512,
    read_cache_bytes=4096,
    open_logs=2,
    merge_logs=2,
    deleted_memory_ledgers=100,
    state_spare_bytes=4096,
)
IDS = (0, 1, 7, 1 << 60)


@dataclass
class Versions:
    """What was sent for one entry, oldest first; from ``durable_version`` on each may be what is read after a crash."""

    payloads: list[bytes] = field(default_factory=list)
    durable_version: int = -1  # the newest version that a commit made durable; -1: none, "no such entry" is right too


@dataclass
class LedgerModel:
    """One ledger as its clients see it."""

    entries: dict[int, Versions] = field(default_factory=dict)
    fenced: bool = False  # as a response said
    fence_promised: bool = False
    exists: bool = False  # here for certain
    deleting: bool = False  # a collection was begun; whether it took effect is seen after a crash
    is_gone: bool = False  # it took effect
    lac: int = -1  # the highest explicit LAC that was taken
    durable_lac: int = -1  # and that of one which a commit made durable

    def add(self, entry: int, data: bytes) -> int:
        """The storage took an entry. Returns the number of this version of it."""
        self.exists = True
        versions = self.entries.setdefault(entry, Versions())
        versions.payloads.append(data)
        return len(versions.payloads) - 1

    @property
    def has_promises(self) -> bool:
        """Returns whether the ledger must survive a crash."""
        return (
            self.fence_promised
            or self.durable_lac >= 0
            or any(versions.durable_version >= 0 for versions in self.entries.values())
        )


@dataclass
class Flight:
    """A commit under way, with the adds, fences and explicit LACs that its sync will promise."""

    commit: StagedCommit
    adds: list[tuple[int, int, int]]
    fences: list[int]
    lacs: list[tuple[int, int]]


class TickingClock:
    """Each look at it is a millisecond later."""

    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> float:
        return self.ms / 1000

    def cpu(self) -> float:
        return self.ms / 1000

    def wall_ms(self) -> int:
        self.ms += 1
        return self.ms


def key_of(ledger: int) -> bytes:
    return master_key(b"%d" % ledger)


def lac_body(ledger: int, lac: int) -> bytes:
    return ledger.to_bytes(8, "big") + lac.to_bytes(8, "big") + key_of(ledger)[: lac % 21]


def check_lac(storage: Storage, ledger: int, book: LedgerModel) -> None:
    """Check that the highest explicit LAC is given as it came, and that no entry takes it back."""
    body = None if book.lac < 0 or book.deleting else lac_body(ledger, book.lac)
    if storage.explicit_lac(ledger) != body:
        raise Violation(f"{ledger}: the explicit LAC is not that of {book.lac}")
    if body is not None and storage.known_lac(ledger) != max(book.lac, max(book.entries, default=0) - 1):
        raise Violation(f"{ledger}: {storage.known_lac(ledger)} is not the LAC that is known")


def expect(code: int, expected_code: int, what: str, *where: int) -> None:
    if code != expected_code:
        raise Violation(f"{what} {where}: {Code(code).name} instead of {Code(expected_code).name}")


def absent(book: LedgerModel) -> Code:
    """Returns the response code for a deleted ledger, which a crash may bring back until the deletion is durable."""
    return Code.NO_LEDGER if book.is_gone else Code.IO_ERROR


def check_reads(storage: Storage, ledger: int, book: LedgerModel, rng: random.Random) -> None:
    """Check that all that was sent can be read at once, in each way, and nothing else."""
    if book.deleting:
        expect(storage.read(ledger, 0)[0], absent(book), "read of a deleted ledger", ledger)
        return
    for entry, versions in book.entries.items():
        code, data = storage.read(ledger, entry)
        if code != Code.OK or data != versions.payloads[-1]:
            raise Violation(f"{ledger}:{entry} reads as {Code(code).name}")
        following = range(entry, entry + rng.randint(1, 30))
        stored = array("q", [each for each in following if each in book.entries])
        for entries in (following, stored, stored[::2]):
            frames, count = storage.read_frames(ledger, entries, 4096)
            if frames != b"".join(_response(ledger, each, book) for each in entries[:count]):
                raise Violation(f"{ledger}:{entry} and {count - 1} more are not what the fast way gives")
    if book.entries and storage.read(ledger, -1)[1] != book.entries[max(book.entries)].payloads[-1]:
        raise Violation(f"{ledger}: the last entry is another")
    no = Code.NO_ENTRY if book.exists else Code.NO_LEDGER
    for entry in (at for at in (3, 4097, 1 << 61) if at not in book.entries):
        expect(storage.read(ledger, entry)[0], no, "read", ledger, entry)


def _response(ledger: int, entry: int, book: LedgerModel) -> bytes:
    versions = book.entries.get(entry)
    return v2.encode_response(v2.ReadFrame(ledger, entry), Code.OK, versions.payloads[-1]) if versions else b"?"


def check_rot(
    books: Mapping[int, LedgerModel], disk: SimDisk, rng: random.Random, reopen: Callable[[], Storage]
) -> None:
    """Flip a bit of a ledgers' file, and check what follows: an error or no harm, never "no" or other bytes."""
    files = [path for name in disk.listdir(LEDGER_DIR) if disk.open(path := f"{LEDGER_DIR}/{name}").size()]
    path = rng.choice(files)
    disk.flip(path, rng.randrange(disk.open(path).size()), rng.randrange(8))
    try:
        storage = reopen()
    except StorageError:
        return
    for ledger, book in books.items():
        for entry, versions in book.entries.items() if not book.deleting else ():
            code, data = storage.read(ledger, entry)
            if code != Code.IO_ERROR and (code != Code.OK or data != versions.payloads[-1]):
                raise Violation(f"{ledger}:{entry} reads as {Code(code).name} after a bit of {path} flipped")
