"""A bookie's storage on a simulated disk, and entries to put into it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, master_key
from tallystick.codec.frames import AddRun, scan_adds
from tallystick.sim.disk import SimDisk

KEY = master_key(b"")
SMALL = StorageSettings(
    journal_segment_bytes=32 * 1024,
    journal_spare_segments=2,
    journal_bytes=64 * 1024,
    memtable_bytes=32 * 1024,
    chunk_bytes=1024,
    read_cache_bytes=8192,
    open_logs=2,
    merge_logs=4,
    state_spare_bytes=4096,
)


@dataclass
class SteppingClock:
    """Moves only when told to."""

    ms: int = 1_700_000_000_000

    def now(self) -> float:
        return self.ms / 1000

    def cpu(self) -> float:
        return self.ms / 1000

    def wall_ms(self) -> int:
        return self.ms


def entry_bytes(ledger: int, entry: int, payload: bytes | None = None) -> bytes:
    body = random.Random(f"{ledger}:{entry}").randbytes(60 + entry % 7) if payload is None else payload
    return ENTRY_HEADER.pack(ledger, entry, -1, len(body)) + body


def frame(ledger: int, entry: int, payload: bytes | None = None, key: bytes = KEY) -> bytes:
    return v2.AddFrame(ledger, entry, key, entry_bytes(ledger, entry, payload)).encode()


def scanned(frames: Iterable[bytes]) -> tuple[bytes, AddRun]:
    data = b"".join(frames)
    run, stop = scan_adds(data, 0, len(data), 1 << 24)
    assert stop == len(data)
    return data, run


@dataclass
class Store:
    """Opens, crashes and reopens one storage."""

    disk: SimDisk = field(default_factory=lambda: SimDisk(random.Random(1)))
    settings: StorageSettings = SMALL
    clock: SteppingClock = field(default_factory=SteppingClock)
    journal_dir: str = "/bookie/journal"
    ledger_dir: str = "/bookie/ledgers"
    more_journal_dirs: tuple[str, ...] = ()
    more_ledger_dirs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.storage = self.open()

    @property
    def folders(self) -> StorageFolders:
        return StorageFolders((self.journal_dir, *self.more_journal_dirs), (self.ledger_dir, *self.more_ledger_dirs))

    def open(self, *, lost: tuple[str, ...] = (), failed: tuple[str, ...] = ()) -> Storage:
        self.storage = Storage.open(
            self.disk,
            self.folders,
            self.settings,
            clock=self.clock,
            random=random.Random(2),
            lost=lost,
            failed=failed,
        )
        return self.storage

    def add(self, ledger: int, entries: Iterable[int], payload: bytes | None = None) -> list[Code]:
        return self.storage.add_run(*scanned(frame(ledger, entry, payload) for entry in entries))

    def commit(self) -> None:
        self.storage.commit(self.storage.take())

    def fill(self, ledger: int, entries: Iterable[int], payload: bytes | None = None) -> None:
        """Add and commit."""
        assert set(self.add(ledger, entries, payload)) <= {Code.OK}
        self.commit()

    def power_loss(self) -> Storage:
        self.disk.power_loss()
        return self.open()

    def kill(self) -> Storage:
        self.disk.kill()
        return self.open()

    def restart(self) -> Storage:
        self.storage.close()
        return self.open()

    def has(self, ledger: int, entry: int, payload: bytes | None = None) -> bool:
        return self.storage.read(ledger, entry) == (Code.OK, entry_bytes(ledger, entry, payload))
