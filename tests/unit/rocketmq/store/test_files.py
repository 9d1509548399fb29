"""Runs of files: borders, cuts that last, what a crash leaves of their names and lengths."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from tallystick.errors import CorruptRecord, DiskFull, UsageError
from tallystick.rocketmq.store.files import FileQueue, StoreFile
from tallystick.sim.disk import SimDisk

SIZE = 1000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/log")
    disk.sync_dir("/")
    return disk


def files_on(disk: SimDisk, tail: int | None = None, *, mapped: bool = False) -> FileQueue:
    files = FileQueue(disk, "/log", SIZE, mapped=mapped)
    files.load(tail=tail)
    return files


def filled(disk: SimDisk, count: int) -> FileQueue:
    files = files_on(disk)
    for number in range(count):
        files.write([bytes([number + 1]) * SIZE], number * SIZE)
    files.sync(0, count * SIZE)
    return files


def test_names_are_offsets_and_reads_pass_borders(disk: SimDisk) -> None:
    files = filled(disk, 3)
    assert disk.listdir("/log") == [f"{0:020}", f"{1000:020}", f"{2000:020}"]
    assert files.read(900, 1200) == b"\1" * 100 + b"\2" * 1000 + b"\3" * 100
    assert files.read(2900, 500) == b"\3" * 100
    assert files.find(-1) is files.find(3000) is None
    assert (files.first, files.limit) == (0, 3000)


@pytest.mark.parametrize("end", [0, 1, 999, 1000, 1001, 2500, 3000])
def test_what_is_cut_is_gone_after_a_crash(disk: SimDisk, end: int) -> None:
    files = filled(disk, 3)
    assert not files.is_blank_from(min(end, 2999))
    files.cut(end)
    disk.power_loss()
    again = files_on(disk)
    assert again.is_blank_from(end)
    assert again.read(0, end) == (b"\1" * 1000 + b"\2" * 1000 + b"\3" * 1000)[:end]
    assert again.limit == -(-end // SIZE) * SIZE


def test_synced_files_keep_their_names(disk: SimDisk) -> None:
    filled(disk, 3)
    disk.power_loss()
    assert files_on(disk).read(0, 3000) == b"\1" * 1000 + b"\2" * 1000 + b"\3" * 1000


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_takes_no_mapped_file_before_one_that_it_leaves(seed: int) -> None:
    """Not even unsynced ones: what is left would begin elsewhere, and its messages be counted from 0 again."""
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/log")
    disk.sync_dir("/")
    files = files_on(disk, mapped=True)
    for number in range(4):
        files.write([bytes([number + 1]) * SIZE], number * SIZE)
    disk.power_loss()
    names = disk.listdir("/log")
    assert names[:3] == [f"{0:020}", f"{1000:020}", f"{2000:020}"]
    assert files_on(disk, tail=0, mapped=True).first == 0


def test_no_file_is_made_behind_a_name_that_could_not_be_synced(disk: SimDisk) -> None:
    files = files_on(disk, mapped=True)
    files.prepare(0)
    disk.fault = lambda operation, path: DiskFull("full") if operation == "sync_dir" else None
    with pytest.raises(DiskFull):
        files.prepare(SIZE)
    assert disk.listdir("/log") == [f"{0:020}"]
    disk.fault = None
    assert files.prepare(SIZE).start == SIZE


def test_a_file_that_another_thread_made_meanwhile_is_not_made_again(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next file is made ahead on a thread, and by who writes if that comes too late: both at the same moment."""
    files, made = filled(disk, 1), list[StoreFile]()
    making = files._making

    @contextlib.contextmanager
    def taken_late() -> Iterator[None]:
        monkeypatch.setattr(files, "_making", making)
        made.append(files.prepare(SIZE))
        with making:
            yield

    monkeypatch.setattr(files, "_making", taken_late())
    assert files.prepare(SIZE) is made[0]
    assert [file.start for file in files.files] == [0, SIZE]


def test_short_and_missing_files_are_a_tail_only_where_nothing_was_durable(disk: SimDisk) -> None:
    filled(disk, 4)
    disk.open(f"/log/{3000:020}").truncate(10)
    with pytest.raises(CorruptRecord):
        files_on(disk)
    assert files_on(disk, tail=3000).limit == 4000
    disk.unlink(f"/log/{2000:020}")
    with pytest.raises(CorruptRecord):
        files_on(disk, tail=2001)
    assert files_on(disk, tail=2000).limit == 2000
    assert disk.listdir("/log") == [f"{0:020}", f"{1000:020}"]


def test_a_file_without_length_was_never_used(disk: SimDisk) -> None:
    filled(disk, 1)
    disk.open(f"/log/{1000:020}", create=True)
    files = files_on(disk)
    assert files.limit == 1000
    files.write([b"x"], 1000)
    assert files_on(disk).read(1000, 1) == b"x"


def test_no_space_for_a_file(disk: SimDisk) -> None:
    files = files_on(disk, mapped=True)
    disk.capacity = 500
    with pytest.raises(DiskFull):
        files.prepare(0)
    assert disk.listdir("/log") == []
    disk.capacity = 5000
    assert len(files.view_of(files.prepare(0)) or b"") == SIZE


def test_old_files_go_and_held_views_stay(disk: SimDisk) -> None:
    filled(disk, 3)
    files = files_on(disk)
    view = files.view_of(files.files[0])
    assert view is not None
    assert [file.start for file in files.drop_before(2500)] == [0, 1000]
    assert (files.first, files.limit) == (2000, 3000)
    assert bytes(view[:3]) == b"\1\1\1"


def test_what_is_held_is_read_as_if_it_were_written_and_is_with_the_next_write(disk: SimDisk) -> None:
    files = filled(disk, 2)
    stored = b"\1" * SIZE + b"\2" * SIZE
    files.write([b"c"], 2000)
    files.hold(b"de", 2001)
    files.hold(b"f", 2003)
    for start in range(1995, 2004):
        for size in range(10):
            assert files.read(start, size) == (stored + b"cdef")[start : start + size] or start + size > 2004
    assert disk.open(files.files[-1].path).read(4, 0) == b"c\0\0\0"
    files.write([b"g"], 2004)
    assert disk.open(files.files[-1].path).read(6, 0) == b"cdefg\0"
    assert files.read(1999, 6) == b"\2cdefg"


def test_what_is_held_is_durable_after_a_sync_and_gone_without(disk: SimDisk) -> None:
    files = filled(disk, 1)
    files.write([b"a"], SIZE)
    files.sync(SIZE, SIZE + 1)
    files.hold(b"b", SIZE + 1)
    files.sync(SIZE, SIZE + 2)
    files.hold(b"c", SIZE + 2)
    disk.power_loss()
    assert files_on(disk).read(SIZE, 3) == b"ab\0"


@pytest.mark.parametrize("offset", [1000, 1500])
def test_what_is_no_continuation_in_one_file_is_written_at_once(disk: SimDisk, offset: int) -> None:
    """Without a file, and behind a gap."""
    files = filled(disk, 1)
    if offset == 1500:
        files.write([b"x"], 1000)
        files.hold(b"y", 1001)
        files.hold(b"zz", offset)
        assert files.read(1000, 2) == disk.open(files.files[-1].path).read(2, 0) == b"xy"
    else:
        files.hold(b"zz", offset)
    assert disk.open(files.files[offset // SIZE].path).read(2, offset % SIZE) == b"zz"


def test_files_that_are_closed_or_cleared_hold_nothing_any_more(disk: SimDisk) -> None:
    files = filled(disk, 1)
    files.write([b"a"], SIZE)
    files.hold(b"b", SIZE + 1)
    files.clear()
    files.flush()
    assert disk.listdir("/log") == []


@pytest.mark.parametrize("tail", [None, 2500])
@pytest.mark.parametrize("file_bytes", [500, 2000])
def test_another_size_is_told_before_anything_is_changed(disk: SimDisk, tail: int | None, file_bytes: int) -> None:
    filled(disk, 3)
    before = disk.sizes("/log")
    with pytest.raises(UsageError, match="set the size that it was made with") as raised:
        FileQueue(disk, "/log", file_bytes).load(tail=tail)
    assert raised.value.fields["size"] == SIZE
    assert disk.sizes("/log") == before


@pytest.mark.parametrize("tail", [None, 1000, 2500])
def test_a_file_that_became_shorter_is_damage_and_is_left_as_it_is(disk: SimDisk, tail: int | None) -> None:
    """Filled up with zeros it would be served, and nobody could see any more what had happened to it."""
    filled(disk, 3)
    disk.open(f"/log/{0:020}").truncate(300)
    with pytest.raises(CorruptRecord, match="restore it from a copy") as raised:
        files_on(disk, tail)
    assert raised.value.path == f"/log/{0:020}" and raised.value.fields["size"] == 300
    assert disk.size(f"/log/{0:020}") == 300


def test_a_file_that_was_not_durable_yet_may_be_short(disk: SimDisk) -> None:
    filled(disk, 3)
    disk.open(f"/log/{2000:020}").truncate(300)
    assert files_on(disk, 2999).limit == 3000
    assert disk.size(f"/log/{2000:020}") == 1000


def test_a_file_before_the_logs_begin_that_a_crash_brought_back_goes(disk: SimDisk) -> None:
    """A slave's first copy of it failed, and the log began anew farther on."""
    disk.open(f"/log/{0:020}", create=True).truncate(10)
    disk.open(f"/log/{3000:020}", create=True).truncate(1000)
    files = FileQueue(disk, "/log", SIZE)
    files.load(tail=2000, begin=2000)
    assert (files.first, disk.listdir("/log")) == (3000, [f"{3000:020}"])
