"""Several ledger folders: where ledgers lie is recorded, a full one takes nothing new, a lost one denies nothing."""

from __future__ import annotations

import pytest

from support.folder_disks import FolderDisk
from support.stores import KEY, Store
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.steps import finished
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import Usage

A, B = "/disk-a", "/disk-b"
LEDGERS = range(20)


def store_of(disk: FolderDisk | None = None) -> Store:
    return Store(disk or FolderDisk(), ledger_dir=A, more_ledger_dirs=(B,))


def filled(disk: FolderDisk | None = None) -> Store:
    """A store whose ledgers have ten entries each in entry logs of both folders."""
    store = store_of(disk)
    for ledger in LEDGERS:
        store.fill(ledger, range(10))
    store.storage.checkpoint()
    assert all(in_folder(store, folder) for folder in (0, 1))
    return store


def in_folder(store: Store, folder: int) -> list[int]:
    return list(store.storage._ledgers.places.in_folder(folder))


def logs_in(store: Store, folder: str) -> list[str]:
    return [name for name in store.disk.listdir(folder) if name.endswith(".log")]


def has_all(store: Store, ledgers: object = LEDGERS) -> bool:
    return all(store.has(ledger, entry) for ledger in ledgers for entry in range(10))  # type: ignore[attr-defined]


@pytest.mark.rule("P1")
def test_ledgers_stay_in_their_folders_over_kills_and_losses_of_power() -> None:
    store = filled()
    before = in_folder(store, 0), in_folder(store, 1)
    store.power_loss()
    assert (in_folder(store, 0), in_folder(store, 1)) == before and has_all(store)
    for ledger in LEDGERS:
        store.fill(ledger, range(10, 15))
    store.kill()
    store.storage.checkpoint()
    store.restart()
    assert (in_folder(store, 0), in_folder(store, 1)) == before
    assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(15))
    assert logs_in(store, A) and logs_in(store, B)


def test_new_ledgers_go_where_there_is_room() -> None:
    disk = FolderDisk()
    disk.free = {A: 900, B: 100}
    store = store_of(disk)
    for ledger in range(300):
        store.add(ledger, range(1))
    store.commit()
    store.storage.checkpoint()
    assert 240 < len(in_folder(store, 0)) < 300


def test_a_checkpoint_asks_each_disk_once_for_the_room_of_all_its_new_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers make ledgers: a system call for each of 10,000 would be a turn of the loop of 0.1 s."""
    store, asked = store_of(), list[str]()
    for ledger in range(500):
        store.add(ledger, range(1))
    store.commit()
    usage = store.disk.usage

    def counted(path: str) -> Usage:
        asked.append(path)
        return usage(path)

    monkeypatch.setattr(store.disk, "usage", counted)
    plan = store.storage.checkpoints.begin()
    assert sorted(asked) == [A, B]
    assert sum(len(ledgers) for ledgers in plan.ledgers.values()) == 500
    store.storage.checkpoints.run(plan)


def test_each_folder_has_the_whole_state() -> None:
    """So no fence is lost with a folder."""
    store = filled()
    assert store.storage.fence(3, KEY) == Code.OK
    store.commit()
    store.storage.checkpoint()
    copies = []
    for folder in (A, B):
        file = store.disk.open(f"{folder}/state")
        copies.append(file.read(file.size(), 0))
    assert copies[0] == copies[1]


def test_a_bookie_with_one_folder_writes_what_it_always_did() -> None:
    store = Store()
    store.fill(1, range(10))
    store.storage.checkpoint()
    file = store.disk.open("/bookie/ledgers/state")
    data = file.read(file.size(), 0)
    kinds, position = [], 48
    while position < len(data) - 4:
        kinds.append(int.from_bytes(data[position : position + 2], "big"))
        position += 12 + int.from_bytes(data[position + 4 : position + 12], "big")
    assert kinds == [1, 2]


def test_a_folder_comes_to_a_bookie_that_had_one() -> None:
    disk = FolderDisk()
    store = Store(disk, ledger_dir=A)
    for ledger in LEDGERS:
        store.fill(ledger, range(10))
    store.storage.close()
    store.more_ledger_dirs = (B,)
    store.open()
    assert in_folder(store, 0) == list(LEDGERS) and has_all(store)
    for ledger in range(100, 140):
        store.fill(ledger, range(10))
    store.storage.checkpoint()
    assert logs_in(store, B)
    store.power_loss()
    assert has_all(store) and has_all(store, range(100, 140))


def test_the_order_of_the_folders_says_nothing() -> None:
    """A ledger's folder is recorded by its path."""
    store = filled()
    before = in_folder(store, 0), in_folder(store, 1)
    store.storage.close()
    store.ledger_dir, store.more_ledger_dirs = B, (A,)
    store.open()
    assert (in_folder(store, 0), in_folder(store, 1)) == before and has_all(store)
    assert store.storage.folders.path(0) == A


def test_a_folder_with_entries_cannot_be_left_out() -> None:
    store = filled()
    store.storage.close()
    store.more_ledger_dirs = ()
    with pytest.raises(StorageError, match="not configured any more"):
        store.open()


def test_a_full_folder_takes_nothing_new() -> None:
    """Ledgers that it has go on in another one, and new ones begin there."""
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    store.storage.folders.full.add(1)
    before = logs_in(store, B)
    for ledger in range(40):
        store.fill(ledger, range(10, 20))
    store.storage.checkpoint()
    assert logs_in(store, B) == before
    store.power_loss()
    assert has_all(store) and all(store.has(ledger, entry) for ledger in range(40) for entry in range(10, 20))


def test_a_folder_that_a_checkpoint_finds_full_is_gone_round() -> None:
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    for ledger in LEDGERS:
        store.fill(ledger, range(10, 20))
    store.disk.full.add(f"{B}/0")
    with pytest.raises(DiskFull):
        store.storage.checkpoint()
    store.storage.checkpoint()
    assert store.storage.checkpoints.up_to_date
    store.disk.full.clear()
    store.power_loss()
    assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(20))


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("broken", [0, 1])
def test_ledgers_of_a_failed_folder_are_in_limbo_over_restarts(broken: int) -> None:
    """That it failed is in the other folders before anything is answered by it."""
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    failed, sound = ((A, B), (B, A))[broken]
    theirs, others = in_folder(store, broken), in_folder(store, 1 - broken)
    store.fill(theirs[0], range(10, 12))  # in the journal alone: nothing of this is lost
    store.disk.broken.add(failed)
    store.storage.checkpoint()
    for _ in range(2):
        assert sorted(store.storage.limbo) == sorted(theirs)
        assert has_all(store, others)
        assert all(store.storage.read(ledger, 5)[0] != Code.OK for ledger in theirs)
        assert store.has(theirs[0], 11) and store.storage.last_entry(theirs[1]) == -1
        store.power_loss()
    assert logs_in(store, sound)
    assert [folder.path for folder in store.storage.folders.failed] == [failed]


def test_a_folder_that_failed_is_not_used_again_though_it_comes_back() -> None:
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    theirs = in_folder(store, 1)
    store.disk.broken.add(B)
    store.fill(0, range(10, 12))
    store.storage.checkpoint()
    store.storage.close()
    store.disk.broken.clear()
    store.open()
    assert sorted(store.storage.limbo) == sorted(theirs)
    assert all(store.storage.read(ledger, 5)[0] == Code.NO_ENTRY for ledger in theirs), "they are in limbo: unknown"


def test_what_left_limbo_before_a_folder_failed_is_in_limbo_again() -> None:
    """The journal still says that it left."""
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    ledger = in_folder(store, 1)[0]
    store.storage.limbo.enter((ledger,))
    store.storage.checkpoint()
    store.storage.filled((ledger,))
    store.commit()
    assert ledger not in store.storage.limbo
    store.disk.broken.add(B)
    store.storage.checkpoints.run(finished(store.storage.checkpoints.losing(1)))
    store.kill()
    assert ledger in store.storage.limbo


def test_what_leaves_limbo_while_a_folder_is_given_up_is_in_limbo_again() -> None:
    """It was looked whether all of it is there, and so it was."""
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    theirs = in_folder(store, 1)
    store.disk.broken.add(B)
    losing = store.storage.checkpoints.losing(1)
    next(losing)  # the entries of the first one are gone
    store.storage.filled((theirs[-1],))
    store.commit()
    store.storage.checkpoints.run(finished(losing))
    assert sorted(store.storage.limbo) == sorted(theirs)
    store.kill()
    assert sorted(store.storage.limbo) == sorted(theirs)


def test_an_empty_folder_is_taken_in_when_the_bookie_rejoins() -> None:
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    theirs = in_folder(store, 1)
    store.storage.close()
    store.disk.empty(B)
    with pytest.raises(CorruptRecord):
        store.open()
    store.disk.kill()
    store.open(lost=(B,))
    assert sorted(store.storage.limbo) == sorted(theirs)
    store.storage.filled(theirs)
    for ledger in theirs:
        store.fill(ledger, range(10))
    store.storage.checkpoint()
    assert not store.storage.folders.failed
    store.power_loss()
    assert has_all(store) and not store.storage.limbo


@pytest.mark.parametrize("at", ["state", "state.spare"])
def test_a_copy_that_is_older_than_another_does_not_hold(at: str) -> None:
    """A crash came between the copies."""
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    store.fill(0, range(10, 15))
    store.disk.broken.add(f"{B}/state")
    with pytest.raises(StorageError):
        store.storage.checkpoints.write(store.storage.checkpoints.begin())
    store.disk.broken.clear()
    store.power_loss()
    assert has_all(store) and all(store.has(0, entry) for entry in range(15))


@pytest.mark.parametrize("folder", [A, B])
def test_a_folder_that_cannot_be_read_at_the_start_is_refused(folder: str) -> None:
    store = filled()
    assert isinstance(store.disk, FolderDisk)
    theirs = in_folder(store, [A, B].index(folder))
    store.storage.close()
    store.disk.broken.add(folder)
    with pytest.raises(StorageError):
        store.open()
    store.disk.kill()
    store.open(failed=(folder,))
    assert sorted(store.storage.limbo) == sorted(theirs)
    store.storage.checkpoint()
    store.power_loss()
    assert [each.path for each in store.storage.folders.failed] == [folder] and store.storage.limbo
