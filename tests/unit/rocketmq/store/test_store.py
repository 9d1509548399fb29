"""The store as a whole: upkeep, retention, a disk that fills."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire.record import decode_messages
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.disk import Usage
from tallystick.sim.disk import Crashed

DAY_MS = 24 * 3_600_000


def fill(shelf: Shelf, count: int = 80) -> None:
    for number in range(count):
        shelf.send(b"%d" % number * 60, KEYS=f"k{number}")
    shelf.settle()


@pytest.mark.rule("H11")
def test_h11_old_files_go_by_age_with_their_units_and_entries() -> None:
    shelf = Shelf(dataclasses.replace(SMALL, disk_delete_ratio=1, disk_clean_ratio=99, disk_refuse_ratio=99))
    fill(shelf)
    shelf.disk.capacity = 20 * sum(
        shelf.disk.open(f"{ROOT}/commitlog/{n}").size() for n in shelf.disk.listdir(f"{ROOT}/commitlog")
    )
    view, first_body = shelf.store.slice(0, 100), bytes(shelf.store.slice(0, 100))
    shelf.store.maintain(shelf.clock.ms + 71 * 3_600_000)
    assert shelf.store.first == 0
    shelf.clock.ms += 73 * 3_600_000
    shelf.send(b"new")
    shelf.settle()
    first = shelf.store.first
    assert first > 0
    assert bytes(view) == first_body  # what a reader holds stays good
    low, high = shelf.store.queue_range("Topic", 0)
    assert 0 < low < high == 81
    assert shelf.store.get("Topic", 0, 0, 1, 1).next_offset == low
    assert shelf.read()[0].physical_offset == first
    assert shelf.store.query("Topic", "k1", 9, 0, 1 << 60) == []
    assert bytes(shelf.store.slice(0, 100)) == b""
    shelf.disk.power_loss()
    shelf.open()
    assert (shelf.store.first, shelf.store.queue_range("Topic", 0)) == (first, (low, high))


def test_a_disk_with_reserved_blocks_keeps_messages_that_are_seconds_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """57 % in use as ``df`` says; (blocks - available) / blocks is 86 %, above which files went whatever their age."""
    shelf = Shelf()
    monkeypatch.setattr(shelf.disk, "usage", lambda _: Usage(total=300_000, free=42_000, reserved=202_000))
    fill(shelf)
    shelf.settle()
    assert shelf.store.first == 0
    assert len(shelf.bodies()) == 80
    assert shelf.store.writeable
    assert round(shelf.store.disk_used_percent) == 57


def deleting_at_three_days(shelf: Shelf) -> None:
    """Only messages that come now stay."""
    shelf.disk.capacity = 1 << 20
    shelf.clock.ms += 73 * 3_600_000


KEEPING = dataclasses.replace(SMALL, disk_delete_ratio=1, disk_clean_ratio=99, disk_refuse_ratio=99)


@pytest.mark.parametrize("seed", range(6))
def test_queue_offsets_go_on_though_all_messages_are_gone_or_lost(seed: int) -> None:
    """Found by the simulator: the file with the last unit that was durable was deleted before the next ones were."""
    shelf = Shelf(KEEPING, seed)
    shelf.send(*(b"old" for _ in range(32)), queue_id=1)  # two files of units
    fill(shelf)
    deleting_at_three_days(shelf)
    shelf.send(*(b"new" * 20 for _ in range(40)))
    shelf.store.flush()
    shelf.send(b"not synced", queue_id=1)
    shelf.store.reput()
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.store.queue_range("Topic", 1) == (32, 33)
    shelf.disk.power_loss()
    shelf.open()
    (put,) = shelf.send(b"next", queue_id=1)
    assert put.queue_offset in (32, 33)


def test_no_message_is_deleted_while_its_unit_is_not_durable() -> None:
    shelf = Shelf(KEEPING)
    shelf.send(*(b"old" for _ in range(5)), queue_id=1)
    shelf.disk.fault = lambda operation, path: (
        DiskFull("no") if operation == "sync_dir" and "consumequeue" in path else None
    )
    fill(shelf)
    deleting_at_three_days(shelf)
    fill(shelf)
    assert shelf.store.first == 0
    shelf.disk.fault = None
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.store.first > 0
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.send(b"next", queue_id=1)[0].queue_offset == 5


@pytest.mark.parametrize("room", ["consumequeue", "index"])
def test_a_sync_that_finds_no_space_is_not_tried_again(room: str) -> None:
    shelf = Shelf()
    shelf.send(b"a", KEYS="k")
    shelf.store.reput()
    shelf.disk.fault = lambda operation, path: DiskFull("no") if operation == "sync" and room in path else None
    with pytest.raises(StorageError, match="nobody knows"):
        shelf.store.maintain(shelf.clock.ms)


def test_a_full_disk_refuses_messages_and_serves_reads() -> None:
    shelf = Shelf()
    fill(shelf, 5)
    shelf.disk.capacity = 1
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.store.disk_full
    assert shelf.send(b"no")[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "% full" in (shelf.store.refusal or "")
    assert len(shelf.bodies()) == 5
    shelf.disk.capacity = 1 << 40
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.send(b"yes")[0].status is PutStatus.PUT_OK
    assert [event.kind for event in shelf.events].count("disk below its limit") == 1


def test_a_full_disk_is_a_line_when_it_fills_up_and_one_in_ten_minutes() -> None:
    """It was one each second."""
    shelf = Shelf()

    def full(operation: str, path: str) -> StorageError | None:
        return DiskFull("no") if operation != "sync" and "commitlog" in path else None

    def full_lines(seconds: int) -> int:
        before = len(shelf.events)
        for _ in range(seconds):
            shelf.clock.ms += 1000
            shelf.store.maintain(shelf.clock.ms)
        return [event.kind for event in shelf.events[before:]].count("disk full")

    shelf.disk.fault = full
    assert (full_lines(599), full_lines(9)) == (1, 1)
    shelf.disk.fault = None
    assert full_lines(2) == 0
    shelf.send(*[b"x" * 60] * 30)  # the next file is in use
    shelf.disk.fault = full
    assert full_lines(60) == 1


def test_upkeep_has_the_next_file_ready() -> None:
    shelf = Shelf()
    shelf.send(b"x")
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.disk.listdir(f"{ROOT}/commitlog") == [f"{0:020}", f"{4096:020}"]


def test_a_store_that_could_not_sync_was_not_stopped_in_order() -> None:
    shelf = Shelf()
    shelf.send(b"x")
    shelf.disk.fault = lambda operation, path: StorageError("no") if operation == "sync" else None
    shelf.store.close()
    shelf.disk.fault = None
    assert "abort" in shelf.disk.listdir(ROOT)
    assert "store not closed in order" in [event.kind for event in shelf.events]


@pytest.mark.parametrize(
    "fields", [{"commit_log_file_bytes": 0}, {"delete_hour": 24}, {"store_host": b""}, {"disk_delete_ratio": 95}]
)
def test_bad_settings(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        StoreSettings(**fields)  # type: ignore[arg-type]


def test_no_file_is_deleted_while_what_follows_is_not_durable() -> None:
    shelf = Shelf()
    shelf.send(*[b"a" * 100] * 10)
    shelf.settle()
    shelf.send(*[b"b" * 100] * 60)
    shelf.store.reput()
    usage = shelf.disk.usage(ROOT)
    shelf.disk.capacity = int((usage.total - usage.free) / 0.87)  # between clean and refuse
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.store.first == 0
    shelf.settle()
    assert shelf.store.first > 0


def test_what_a_full_disk_kept_from_the_index_is_written_later() -> None:
    shelf = Shelf()
    shelf.send(b"a", KEYS="k")
    shelf.store.flush()
    shelf.store.reput()
    shelf.disk.fault = lambda operation, path: (
        DiskFull("simulated") if operation == "write" and "/index/" in path else None
    )
    shelf.store.maintain(shelf.clock.ms)
    shelf.disk.fault = None
    shelf.store.maintain(shelf.clock.ms)
    shelf.disk.power_loss()
    shelf.open()
    assert len(shelf.store.query("Topic", "k", 9, 0, 1 << 60)) == 1


def test_a_full_disk_at_a_new_index_file_doubles_no_entries() -> None:
    shelf = Shelf()
    shelf.send(*[b"a"] * 60, KEYS="k")
    shelf.store.reput()
    shelf.send(*[b"b"] * 10, KEYS="new")
    (first,) = shelf.disk.listdir(f"{ROOT}/index")
    shelf.disk.fault = lambda operation, path: (
        DiskFull("simulated") if operation == "write" and "/index/" in path and first not in path else None
    )
    shelf.store.reput()
    assert shelf.store.refusal == "the disk is full"
    shelf.disk.fault = None
    shelf.settle()
    assert len(shelf.store.query("Topic", "new", 64, 0, 1 << 60)) == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_amid_deletions_leaves_no_gap(seed: int) -> None:
    shelf = Shelf(seed=seed)
    shelf.send(*[b"a" * 100] * 100)
    shelf.settle()
    usage = shelf.disk.usage(ROOT)
    shelf.disk.capacity = int((usage.total - usage.free) / 0.87)  # between clean and refuse
    deleted = []

    def crash(operation: str, path: str) -> None:
        deleted.append(operation == "unlink" and "commitlog" in path)
        if sum(deleted) == 2:
            shelf.disk.crash_at = shelf.disk.operations + 1

    shelf.disk.fault = crash
    with pytest.raises(Crashed):
        shelf.store.maintain(shelf.clock.ms)
    shelf.disk.fault = None
    shelf.disk.power_loss()
    shelf.disk.capacity = 1 << 40
    shelf.open()
    assert shelf.store.queue_range("Topic", 0)[1] == 100


def test_a_slaves_first_append_and_the_file_in_reserve_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upkeep made a file at 0 while the log began elsewhere: "a gap between two files", at each append from then on."""
    shelf, making, begun = Shelf(), threading.Event(), threading.Event()
    shelf.store.take_role(slave=True)
    make = FileQueue._make

    def slow(files: FileQueue, start: int) -> object:
        if threading.current_thread() is upkeep:
            making.set()
            begun.wait(0.2)  # long enough for an append that does not wait for upkeep
        return make(files, start)

    monkeypatch.setattr(FileQueue, "_make", slow)
    upkeep = threading.Thread(target=shelf.store.maintain, args=(shelf.clock.ms,))
    upkeep.start()
    assert making.wait(10)
    master = Shelf()
    master.send(*[b"m" * 100] * 100)
    for start in (8192, 12288):
        assert shelf.store.append_raw(start, bytes(master.store.slice(start, 4096))) == start + 4096
    begun.set()
    upkeep.join()
    shelf.settle()
    assert shelf.store.first == 8192
    assert shelf.bodies()


def test_a_slave_whose_first_bytes_found_no_room_dispatches_what_comes_later() -> None:
    shelf, master = Shelf(), Shelf()
    master.send(*[b"m" * 100] * 100)
    shelf.store.take_role(slave=True)
    shelf.disk.fault = lambda operation, path: (
        DiskFull("full", path=path) if operation in ("write", "allocate") and "commitlog" in path else None
    )
    with pytest.raises(DiskFull):
        shelf.store.append_raw(8192, bytes(master.store.slice(8192, 4096)))
    shelf.disk.fault = None
    shelf.store.append_raw(8192, bytes(master.store.slice(8192, 4096)))
    shelf.settle()
    assert shelf.bodies()


def test_an_index_may_be_given_up_and_taken_up_again() -> None:
    shelf = Shelf()
    fill(shelf, 3)
    for keeps in (False, True):
        shelf.store.close()
        shelf.settings = dataclasses.replace(shelf.settings, index=keeps)
        shelf.open()
        shelf.send(b"kept" if keeps else b"not kept", KEYS="late")
        shelf.settle()
    assert [bytes(body) for body in shelf.bodies()][-2:] == [b"not kept", b"kept"]
    for key, body in (("late", b"kept"), ("k1", b"1" * 60)):
        (record,) = shelf.store.query("Topic", key, 9, 0, 1 << 60)
        assert decode_messages(record)[0].stored_body == body
