"""Several journals: each ledger's records are in one of them, and each is written, marked and replayed by itself."""

from __future__ import annotations

import pytest

from support.folder_disks import FolderDisk
from support.stores import KEY, Store
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import CorruptRecord, DiskFull, StorageError

FIRST, SECOND = "/disk-a", "/disk-b"
LEDGERS = range(10)


def store_of(seed: int = 1) -> Store:
    return Store(FolderDisk(seed), journal_dir=FIRST, more_journal_dirs=(SECOND,))


def in_journal(store: Store, journal: int) -> list[int]:
    return list(store.storage._ledgers.places.in_journal(journal))


def added(store: Store) -> None:
    for ledger in LEDGERS:
        assert set(store.add(ledger, range(10))) == {Code.OK}
    store.commit()


def disk_of(store: Store) -> FolderDisk:
    assert isinstance(store.disk, FolderDisk)
    return store.disk


@pytest.mark.rule("P1")
def test_a_ledger_stays_in_its_journal_over_kills_and_losses_of_power() -> None:
    store = store_of()
    added(store)
    before = in_journal(store, 0), in_journal(store, 1)
    assert sorted(map(len, before)) == [5, 5]
    for again in (store.power_loss, store.kill, store.restart, store.power_loss):
        again()
        assert (in_journal(store, 0), in_journal(store, 1)) == before
        assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(10))
        store.fill(before[0][0], range(10, 12))
        store.fill(before[1][0], range(10, 12))


def test_each_journal_has_a_mark_of_its_own() -> None:
    store = store_of()
    added(store)
    store.storage.checkpoint()
    first = in_journal(store, 0)[0]
    for entry in range(10, 15):
        store.fill(first, [entry])
    assert store.storage.positions == (6, 1)
    store.kill()
    assert (store.storage.replay_stats.commits, store.storage.positions) == (5, (6, 1))
    store.storage.checkpoint()
    assert store.storage.checkpoints.up_to_date
    store.kill()
    assert store.storage.replay_stats.commits == 0


def test_a_journal_that_nothing_is_staged_for_is_not_written() -> None:
    store = store_of()
    added(store)
    writes = list[str]()
    store.disk.fault = lambda operation, path: writes.append(path) if operation in ("write", "sync") else None
    store.fill(in_journal(store, 1)[0], range(10, 12))
    assert writes and all(path.startswith(SECOND) for path in writes)


@pytest.mark.parametrize("full", [FIRST, SECOND])
def test_a_commit_of_which_one_part_finds_its_disk_full_is_tried_again(full: str) -> None:
    """The other part is not written twice."""
    store = store_of()
    added(store)
    for ledger in LEDGERS:
        store.add(ledger, range(10, 20))
    commit = store.storage.take()
    disk_of(store).full.add(full)
    with pytest.raises(DiskFull):
        store.storage.commit(commit)
    with pytest.raises(DiskFull):
        store.storage.write(commit)
    disk_of(store).full.clear()
    store.storage.commit(commit)
    assert store.storage.positions == (2, 2)
    store.power_loss()
    assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(20))


@pytest.mark.rule("P9")
def test_a_journal_that_fails_while_another_is_full_stops_the_bookie() -> None:
    store = store_of()
    added(store)
    for ledger in LEDGERS:
        store.add(ledger, range(10, 20))
    disk_of(store).full.add(FIRST)
    disk_of(store).broken.add(SECOND)
    with pytest.raises(StorageError) as raised:
        store.storage.commit(store.storage.take())
    assert not isinstance(raised.value, DiskFull)


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("lost", [0, 1])
def test_without_a_journal_all_its_ledgers_are_in_limbo(lost: int) -> None:
    store = store_of()
    added(store)
    store.storage.checkpoint()
    theirs, others = in_journal(store, lost), in_journal(store, 1 - lost)
    store.fill(theirs[0], range(10, 12))
    store.fill(others[0], range(10, 12))
    journal = (FIRST, SECOND)[lost]
    disk_of(store).empty(journal)
    store.disk.kill()
    with pytest.raises(CorruptRecord, match="journal is missing"):
        store.open()
    store.disk.kill()
    store.open(lost=(journal,))
    assert sorted(store.storage.limbo) == sorted(theirs)
    assert store.has(others[0], 11) and store.storage.may_lack(77), "a ledger of which nothing is recorded"
    assert not any(store.storage.may_lack(ledger) for ledger in others)
    store.storage.checkpoint()
    for again in (store.power_loss, store.kill, store.restart):
        again()
        assert sorted(store.storage.limbo) == sorted(theirs)
        assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(10))
        assert store.storage.fence(theirs[1], KEY) == Code.OK
        store.fill(others[0], range(12, 14))


def test_deferred_adds_are_synced_in_all_journals() -> None:
    store = store_of()
    added(store)
    for ledger in LEDGERS:
        store.add(ledger, range(10, 12))
        store.storage.write(store.storage.take())
    store.storage.sync()
    store.power_loss()
    assert all(store.has(ledger, entry) for ledger in LEDGERS for entry in range(12))
