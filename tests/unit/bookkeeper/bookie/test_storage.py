"""The storage engine: what it answers, what it keeps, what it gives back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from support.stores import KEY, SMALL, Store, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.codec.steps import finished
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import OsDisk
from tallystick.sim.disk import SimDisk

OTHER = master_key(b"other")


def recovery_add(storage: Storage, ledger: int, entry: int, payload: bytes | None = None) -> Code:
    return storage.add(ledger, entry, KEY, entry_bytes(ledger, entry, payload), recovery=True)


# Adds and reads.


@pytest.mark.rule("Q1")
def test_entries_are_read_from_memory_and_from_the_log_alike() -> None:
    store = Store()
    store.fill(5, range(300))
    for _ in range(3):
        assert all(store.has(5, entry) for entry in range(300))
        assert store.storage.read(5, 300)[0] == Code.NO_ENTRY
        assert store.storage.read(6, 0)[0] == Code.NO_LEDGER
        assert store.storage.read(5, -1) == (Code.OK, entry_bytes(5, 299))
        store.storage.checkpoint()
    assert store.storage.stats().entry_logs == 1, "an empty checkpoint writes no log"


def test_an_entry_is_readable_at_once_and_durable_with_its_commit() -> None:
    store = Store()
    store.fill(5, [0])
    store.add(5, [1])
    assert store.has(5, 1) and store.storage.staged
    store.power_loss()
    assert store.has(5, 0)
    assert store.storage.read(5, 1)[0] == Code.NO_ENTRY


@pytest.mark.rule("P1")
def test_p1_what_was_committed_survives_a_power_loss() -> None:
    store = Store()
    store.fill(5, range(50))
    store.storage.checkpoint()
    store.fill(5, range(50, 90))
    store.power_loss()
    assert all(store.has(5, entry) for entry in range(90))


@pytest.mark.rule("Q4")
def test_q4_striped_and_huge_ids() -> None:
    store = Store()
    ids = [*(entry for entry in range(9000) if entry % 3), 1 << 60, (1 << 63) - 1]
    store.fill(5, ids)
    store.restart()
    assert all(store.has(5, entry) for entry in ids[:: len(ids) // 50]) and store.has(5, ids[-1])
    assert store.storage.read(5, 3)[0] == Code.NO_ENTRY
    assert store.storage.read(5, -1)[1] == entry_bytes(5, ids[-1])


def test_negative_ids_are_bad_requests_and_leave_nothing_behind() -> None:
    """In the original one such frame kills a bookie for good."""
    store = Store()
    for ledger, entry in ((5, -1), (5, -0x1000), (-1, 0), (-1, -1)):
        assert store.add(ledger, [entry]) == [Code.BAD_REQUEST]
        assert recovery_add(store.storage, ledger, entry) == Code.BAD_REQUEST
    assert store.storage.fence(-5, KEY) == Code.BAD_REQUEST
    assert store.storage.read(5, -2)[0] == store.storage.read(-1, 0)[0] == Code.BAD_REQUEST
    assert store.storage.batch(5, -2, 1, 100)[0] == Code.BAD_REQUEST
    assert not store.storage.staged
    assert store.add(5, [0, -7, 1]) == [Code.OK, Code.BAD_REQUEST, Code.OK]
    store.commit()
    store.power_loss()
    assert store.has(5, 0) and store.has(5, 1)


def test_entries_without_a_header_are_bad_requests() -> None:
    store = Store()
    assert store.storage.add(5, 0, KEY, b"x" * 31) == Code.BAD_REQUEST


def test_a_wrong_key_is_refused_before_and_after_a_restart() -> None:
    store = Store()
    store.fill(5, [0])
    for reopen in (store.power_loss, store.restart, store.power_loss):
        assert store.storage.add_run(*scanned([frame(5, 1, key=OTHER)])) == [Code.UNAUTHORIZED]
        assert store.storage.fence(5, OTHER) == Code.UNAUTHORIZED
        assert recovery_add(store.storage, 5, 1) == Code.OK
        reopen()


def test_a_run_of_many_ledgers_gets_a_code_for_each_frame() -> None:
    store = Store()
    store.storage.fence(2, KEY)
    frames = [frame(1, 0), frame(2, 0), frame(1, 1, key=OTHER), frame(3, 5), frame(1, 1), frame(3, 4)]
    assert store.storage.add_run(*scanned(frames)) == [
        Code.OK, Code.FENCED, Code.UNAUTHORIZED, Code.OK, Code.OK, Code.OK
    ]  # fmt: skip
    store.commit()
    store.power_loss()
    assert all(store.has(ledger, entry) for ledger, entry in ((1, 0), (1, 1), (3, 4), (3, 5)))
    assert store.storage.read(2, 0)[0] == Code.NO_ENTRY


@pytest.mark.rule("Q14")
def test_q14_an_overwrite_replaces_the_entry_everywhere() -> None:
    store = Store()
    store.fill(5, range(20), b"old")
    store.storage.checkpoint()
    assert recovery_add(store.storage, 5, 7, b"new") == Code.OK
    store.commit()
    for reopen in (store.power_loss, store.restart, store.power_loss):
        assert store.has(5, 7, b"new") and store.has(5, 6, b"old") and store.has(5, 8, b"old")
        frames, count = store.storage.read_frames(5, range(6, 16), 1 << 20)
        assert frames.startswith(v2.encode_response(v2.ReadFrame(5, 6), Code.OK, entry_bytes(5, 6, b"old")))
        assert count < 2 or entry_bytes(5, 7, b"new") in frames
        reopen()


def test_batches_follow_the_original() -> None:
    store = Store()
    store.fill(5, [0, 1, 2, 4], b"x" * 18)  # entries of 50 bytes
    read = store.storage.batch
    assert read(5, 0, 0, 1 << 20) == (Code.OK, [entry_bytes(5, entry, b"x" * 18) for entry in range(3)])
    assert len(read(5, 0, 2, 1 << 20)[1]) == 2
    assert [len(read(5, 0, 0, size)[1]) for size in (-1, 0, 1, 143, 144, 197, 198)] == [1, 1, 1, 1, 2, 2, 3]
    assert read(5, 3, 5, 1 << 20)[0] == Code.NO_ENTRY
    assert read(9, 0, 5, 1 << 20)[0] == Code.NO_LEDGER
    assert read(5, -1, 2, 1 << 20)[1] == [entry_bytes(5, entry, b"x" * 18) for entry in (4, 0)]


# Fences.


@pytest.mark.rule("Q11", "P6")
def test_q11_a_fence_survives_every_kind_of_restart() -> None:
    store = Store()
    store.fill(5, range(3))
    assert store.storage.fence(5, KEY) == store.storage.fence(6, KEY) == Code.OK
    store.commit()
    for reopen in (store.power_loss, store.kill, store.restart, store.power_loss):
        reopen()
        assert store.add(5, [3]) == store.add(6, [0]) == [Code.FENCED]
        assert recovery_add(store.storage, 5, 3) == Code.OK
        assert store.storage.read(6, 0)[0] == Code.NO_ENTRY, "fencing made the ledger known"


def test_a_fence_that_is_durable_costs_no_further_commit() -> None:
    store = Store()
    store.storage.fence(5, KEY)
    assert store.storage.staged
    commit = store.storage.take()
    store.storage.fence(5, KEY)
    assert store.storage.staged, "the first is not durable yet, so this answer waits as well"
    store.storage.commit(commit)
    store.commit()
    store.storage.fence(5, KEY)
    assert not store.storage.staged
    store.power_loss()
    store.storage.fence(5, KEY)
    assert not store.storage.staged


def test_an_entry_accepted_before_the_fence_is_not_lost_by_it() -> None:
    store = Store()
    store.add(5, [0, 1])
    store.storage.fence(5, KEY)
    recovery_add(store.storage, 5, 2)
    store.commit()
    store.power_loss()
    assert all(store.has(5, entry) for entry in range(3))
    assert store.add(5, [3]) == [Code.FENCED]


# What is damaged is never "no".


@pytest.mark.rule("Q15")
def test_q15_unknown_is_never_a_no() -> None:
    store = Store()
    store.fill(5, range(40))
    store.restart()
    log = next(name for name in store.disk.listdir(store.ledger_dir) if name.endswith(".log"))
    store.disk.flip(f"{store.ledger_dir}/{log}", 3000)
    codes = {store.storage.read(5, entry)[0] for entry in range(40)}
    assert codes == {Code.OK, Code.IO_ERROR}
    for entry in range(40):
        if store.storage.read(5, entry)[0] == Code.IO_ERROR:
            assert store.storage.read_frames(5, [entry], 1 << 20) == (b"", 0)
            assert store.storage.batch(5, entry, 1, 1 << 20)[0] == Code.IO_ERROR


@pytest.mark.rule("Q15")
def test_q15_a_disk_that_fails_is_never_a_no() -> None:
    store = Store()
    store.fill(5, range(40))
    store.restart()
    store.disk.fault = lambda operation, path: StorageError("simulated")
    assert {store.storage.read(5, entry)[0] for entry in range(40)} == {Code.IO_ERROR}
    assert store.storage.read(5, -1)[0] == Code.IO_ERROR


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("ending", [".log", "state", ".segment"])
def test_q15_a_storage_that_lost_a_file_does_not_start(ending: str) -> None:
    store = Store()
    store.fill(5, range(40))
    store.storage.close()
    folder = store.journal_dir if ending == ".segment" else store.ledger_dir
    for name in store.disk.listdir(folder):
        if name.endswith(ending):
            store.disk.unlink(f"{folder}/{name}")
    with pytest.raises(CorruptRecord):
        store.open()


def test_a_state_file_that_never_came_to_be_is_a_new_storage() -> None:
    disk = SimDisk(random.Random(5))
    for _ in range(200):
        disk.crash_at = disk.operations + disk.random.randint(1, 20)
        try:
            Store(disk)
        except BaseException as crash:
            assert type(crash).__name__ == "Crashed"
        disk.power_loss()
    Store(disk).fill(5, [0])


# Checkpoints.


def test_adds_and_reads_go_on_while_a_checkpoint_is_written() -> None:
    store = Store()
    store.fill(5, range(30), b"old")
    plan = store.storage.checkpoints.begin()
    store.fill(5, range(20, 40), b"new")
    assert store.has(5, 19, b"old") and store.has(5, 25, b"new")
    store.storage.checkpoints.write(plan)
    assert store.has(5, 19, b"old") and store.has(5, 25, b"new")
    finished(store.storage.checkpoints.finish(plan))
    assert store.has(5, 19, b"old") and store.has(5, 25, b"new") and store.has(5, 39, b"new")
    store.power_loss()
    assert store.has(5, 19, b"old") and store.has(5, 25, b"new") and store.has(5, 39, b"new")


def test_a_checkpoint_is_due_by_memory_or_journal_and_frees_both() -> None:
    store = Store()
    entry = 0
    for payload in (b"x" * 4000, b""):  # the one fills memory, the other the journal's sectors
        assert not store.storage.checkpoints.due
        while not store.storage.checkpoints.due:
            store.fill(5, [entry], payload)
            entry += 1
        store.storage.checkpoint()
    stats = store.storage.stats()
    assert stats.memtable_bytes == 0 and stats.journal_bytes <= SMALL.journal_segment_bytes
    assert stats.entries == entry and stats.ledgers == 1 and stats.entry_logs == 2


def test_a_checkpoint_that_found_the_disk_full_is_tried_again() -> None:
    store = Store()
    store.fill(5, range(100))
    before = store.disk.listdir(store.ledger_dir)
    store.disk.capacity = store.disk.capacity - store.disk.usage("/").free + 2000
    with pytest.raises(DiskFull):
        store.storage.checkpoint()
    assert store.disk.listdir(store.ledger_dir) == before, "the half log was deleted"
    store.fill(5, range(100, 110))
    store.disk.capacity = 1 << 40
    store.storage.checkpoint()
    store.storage.checkpoint()
    assert store.storage.stats().memtable_bytes == 0
    store.power_loss()
    assert all(store.has(5, entry) for entry in range(110))


def test_a_full_disk_does_not_keep_a_bookie_from_starting() -> None:
    store = Store()
    store.fill(5, range(10))
    store.disk.power_loss()
    store.disk.capacity = 0
    store.open()
    assert store.has(5, 9)
    store.add(5, [10])
    commit = store.storage.take()
    with pytest.raises(DiskFull):
        store.storage.commit(commit)
    store.disk.capacity = 1 << 40
    store.storage.commit(commit)
    store.power_loss()
    assert store.has(5, 10)


# Deleted ledgers.


def test_deleted_ledgers_give_their_space_back() -> None:
    store = Store()
    for ledger in range(10):
        store.fill(ledger, range(100))
        store.storage.checkpoint()
    used = store.storage.stats().entry_log_bytes
    assert store.storage.collect(store.storage.ledger_ids(), {3}) == 9
    assert store.storage.stats().entry_log_bytes < used / 8
    files = [name for name in store.disk.listdir(store.ledger_dir) if name.endswith(".log")]
    assert len(files) == 1
    for reopen in (store.power_loss, store.restart):
        assert all(store.has(3, entry) for entry in range(100))
        assert store.storage.read(4, 0)[0] == Code.NO_LEDGER
        reopen()


def test_a_mostly_dead_log_is_rewritten_and_only_live_entries_move() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for ledger in range(10):
        store.fill(ledger, range(50), b"old")
    store.storage.checkpoint()
    store.fill(3, range(10), b"new")
    store.storage.checkpoint()
    store.storage.collect(store.storage.ledger_ids(), {3})
    assert store.storage.stats().entries == 50, "10 new and 40 old ones"
    for _ in range(2):
        assert all(store.has(3, entry, b"new" if entry < 10 else b"old") for entry in range(50))
        store.power_loss()


def test_small_logs_are_merged() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for start in range(0, 40, 10):
        store.fill(5, range(start, start + 10))
        store.storage.checkpoint()
    store.storage.collect([], {5})
    assert store.storage.stats().entry_logs == 1
    assert store.storage.read_frames(5, range(40), 1 << 20)[1] > 8
    store.power_loss()
    assert all(store.has(5, entry) for entry in range(40))


def test_a_damaged_log_is_kept_as_it_is() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for start in range(0, 80, 20):
        store.fill(5, range(start, start + 20))
        store.storage.checkpoint()
    first = next(name for name in store.disk.listdir(store.ledger_dir) if name.endswith(".log"))
    store.disk.flip(f"{store.ledger_dir}/{first}", 500)
    store.storage.collect([], {5})
    assert store.storage.stats().entry_logs == 2
    codes = [store.storage.read(5, entry)[0] for entry in range(80)]
    assert set(codes[20:]) == {Code.OK} and set(codes[:20]) == {Code.OK, Code.IO_ERROR}


def test_a_ledger_made_after_the_listing_began_is_not_deleted() -> None:
    """A skipped or late answer of a listing once deleted live ledgers (bk#870)."""
    store = Store()
    store.fill(5, [0])
    known = store.storage.ledger_ids()
    store.fill(6, [0])
    store.storage.collect(known, {5})
    assert store.has(6, 0)


def test_an_add_to_a_deleted_ledger_is_not_acknowledged_into_nothing() -> None:
    """bk#4462; a recovery add likewise."""
    store = Store()
    store.fill(5, range(5))
    store.storage.collect([5], ())
    for reopen in (store.power_loss, store.restart, store.power_loss):
        assert store.add(5, [5]) == [Code.FENCED]
        assert recovery_add(store.storage, 5, 5) == Code.FENCED
        assert store.storage.fence(5, KEY) == Code.NO_LEDGER
        assert store.storage.read(5, 0)[0] == store.storage.read(5, -1)[0] == Code.NO_LEDGER
        reopen()


def test_what_was_staged_when_its_ledger_was_deleted_does_not_come_back() -> None:
    store = Store()
    store.fill(5, range(5))
    store.fill(6, range(5))
    store.add(5, [5])
    plan = store.storage.checkpoints.begin_collect([5, 6], {6})
    assert plan.deleted == (5,)
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    store.commit()
    store.power_loss()
    assert store.storage.read(5, 5)[0] == Code.NO_LEDGER


def test_a_new_ledger_with_the_id_of_a_deleted_one_has_none_of_its_entries() -> None:
    store = Store()
    store.fill(5, range(10), b"old")
    store.fill(6, range(100))
    store.storage.checkpoint()  # into one log, which stays
    store.storage.collect([5, 6], {6})
    store.storage.collect([6], {5, 6})  # 5 is in the metadata again
    store.fill(5, [0, 3], b"new")
    for reopen in (store.power_loss, store.restart, store.power_loss):
        assert store.has(5, 0, b"new") and store.has(5, 3, b"new")
        assert store.storage.read(5, 1)[0] == store.storage.read(5, 9)[0] == Code.NO_ENTRY
        assert store.storage.read(5, -1)[1] == entry_bytes(5, 3, b"new")
        reopen()


def test_deleted_ledgers_are_forgotten_a_week_after_the_last_access() -> None:
    store = Store()
    for ledger in (5, 6):
        store.fill(ledger, [0])
    store.storage.collect([5, 6], ())
    store.clock.ms += 6 * 24 * 3600 * 1000
    assert store.add(5, [1]) == [Code.FENCED]
    store.clock.ms += 2 * 24 * 3600 * 1000
    store.storage.collect([], ())
    assert store.add(5, [1]) == [Code.FENCED]
    assert store.add(6, [1]) == [Code.OK]


def test_on_the_real_disk(tmp_path: object) -> None:
    disk, settings = OsDisk(), replace(SMALL, journal_segment_bytes=64 * 1024)
    folders = StorageFolders((f"{tmp_path}/a/journal",), (f"{tmp_path}/b/ledgers",))
    storage = Storage.open(disk, folders, settings)
    rng = random.Random(7)
    expected: dict[int, bytes] = {}
    for start in range(0, 2000, 100):
        payloads = {entry: rng.randbytes(rng.randrange(200)) for entry in range(start, start + 100)}
        assert not any(storage.add_run(*scanned(frame(5, entry, payload) for entry, payload in payloads.items())))
        storage.commit(storage.take())
        expected |= payloads
        if storage.checkpoints.due:
            storage.checkpoint()
    for clean in (False, True, True):
        storage.close(clean=clean)
        storage = Storage.open(disk, folders, settings)
        assert all(storage.read(5, entry)[1] == entry_bytes(5, entry, payload) for entry, payload in expected.items())
    storage.close()
