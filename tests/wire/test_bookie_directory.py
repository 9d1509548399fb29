"""A bookie's directories as versions of this program left them, without a clean stop, open with all that was promised.

``golden/bookie_directory*.json`` have their files by path, deflated. Before the checkpoint: ledgers 1 to 3, creations
of 1 and 3, a fence of 2; then 3 was deleted. After it, in the journal alone: more of 1, a fence of 9, which has no
entry, what recovery wrote to 2, and ledger 4 with its creation. One of them has explicit LACs, too: of 1 and 2 in its
state, a higher one of 1 and one of 9 in the journal alone.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from pathlib import Path

import pytest

from support.stores import KEY, SMALL, SteppingClock, Store, entry_bytes
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.state import LedgerIdentity
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.disk import OsDisk, read_file
from tallystick.sim.disk import Crashed, SimDisk

GOLDEN = Path(__file__).parent / "golden"
RECORDED = {b"TALLYST3": "bookie_directory.json", b"TALLYST4": "bookie_directory_4.json"}  # by the magic of the state
NEWEST, WITH_LACS = b"TALLYST4", "bookie_directory_lacs.json"
LACS = {1: 13, 2: 6, 9: 0}
STORED = {1: range(15), 2: (0, 3, 6, 9), 4: (0, 1)}


def files(name: str) -> dict[str, bytes]:
    recorded: dict[str, str] = json.loads((GOLDEN / name).read_text())
    return {path: zlib.decompress(base64.b64decode(data)) for path, data in recorded.items()}


def lac_body(ledger: int, lac: int) -> bytes:
    digest = {1: b"crc!", 2: b"", 9: b"hmac of twenty bytes"}[ledger]
    return ledger.to_bytes(8, "big") + lac.to_bytes(8, "big") + digest


def check(storage: Storage) -> None:
    for ledger, entries in STORED.items():
        for entry in entries:
            assert storage.read(ledger, entry) == (Code.OK, entry_bytes(ledger, entry))
        assert storage.last_entry(ledger) == max(entries)
    assert [ledger for ledger in (1, 2, 4, 9) if storage.is_fenced(ledger)] == [2, 9]
    assert storage.read(3, 0)[0] == Code.NO_LEDGER and storage.read(9, 0)[0] == Code.NO_ENTRY
    identities = {ledger: storage.identities.identity(ledger) for ledger in (1, 3, 4)}
    assert identities == {1: LedgerIdentity(77, False), 3: LedgerIdentity(99, True), 4: LedgerIdentity(123, False)}
    assert storage.add(2, 10, KEY, entry_bytes(2, 10)) == Code.FENCED


@pytest.mark.parametrize("name", [*RECORDED.values(), WITH_LACS])
def test_all_of_it_is_there(tmp_path: Path, name: str) -> None:
    for path, data in files(name).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    folders = StorageFolders((str(tmp_path / "journal"),), (str(tmp_path / "ledgers"),))
    for clean in (False, True, True):  # by replay, by what a replay left, and by a checkpoint of today
        storage = Storage.open(OsDisk(), folders, SMALL, clock=SteppingClock())
        check(storage)
        for ledger, lac in LACS.items():
            expected = (lac_body(ledger, lac), lac) if name == WITH_LACS else (None, -1)
            assert (storage.explicit_lac(ledger), storage.known_lac(ledger)) == expected
        storage.close(clean=clean)
    assert (tmp_path / "ledgers/state").read_bytes().startswith(NEWEST)


def test_explicit_lacs_come_into_a_directory_of_before(tmp_path: Path) -> None:
    """The first checkpoint makes it one of today."""
    for path, data in files(RECORDED[NEWEST]).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    folders = StorageFolders((str(tmp_path / "journal"),), (str(tmp_path / "ledgers"),))
    for clean in (False, True, False):
        storage = Storage.open(OsDisk(), folders, SMALL, clock=SteppingClock())
        check(storage)
        for ledger, lac in LACS.items():
            assert storage.write_lac(ledger, KEY, lac_body(ledger, lac)) == Code.OK
        if storage.staged:
            storage.commit(storage.take())
        storage.close(clean=clean)
    assert not storage.staged, "all of it was there"
    assert lac_body(1, 13) in (tmp_path / "ledgers/state").read_bytes()


def simulated(magic: bytes) -> SimDisk:
    """A disk that has the recorded files."""
    disk = SimDisk(random.Random(1))
    for name, data in files(RECORDED[magic]).items():
        path = f"/bookie/{name}"
        disk.makedirs(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        file.write([data], 0)
        file.close()
    disk.sync_all("/")
    disk.operations = 0
    return disk


def first_life(disk: SimDisk) -> None:
    """It opens, commits, makes its first checkpoint, commits again, and stops in order."""
    store = Store(disk)
    store.fill(8, [0])
    store.storage.checkpoint()
    store.fill(8, [1])
    store.restart()


@pytest.mark.parametrize("crash", ["kill", "power_loss"])
def test_a_crash_at_any_step_until_it_is_of_the_new_version_leaves_a_directory_that_opens(crash: str) -> None:
    disk = simulated(b"TALLYST3")
    first_life(disk)
    steps, magics = disk.operations, set[bytes]()
    for step in range(1, steps + 1):
        disk = simulated(b"TALLYST3")
        disk.random.seed(step)
        disk.crash_at = step
        with pytest.raises(Crashed):
            first_life(disk)
        getattr(disk, crash)()
        magics.add(read_file(disk, "/bookie/ledgers/state")[:8])
        store = Store(disk)
        check(store.storage)
        store.fill(1, [15])
        store.storage.checkpoint()
        assert store.restart().read(1, 15) == (Code.OK, entry_bytes(1, 15))
        assert read_file(disk, "/bookie/ledgers/state").startswith(NEWEST)
    assert magics == set(RECORDED), "crashes before and after the first new state"
