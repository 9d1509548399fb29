"""The journal: what was committed is replayed, a torn tail is cut, any other damage is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from support.stores import SMALL
from tallystick.bookkeeper.bookie.journal import Commit, Journal
from tallystick.bookkeeper.bookie.records import Unsynced, first_unsynced
from tallystick.bookkeeper.bookie.segment import COMMIT_BYTES, FIRST_COMMIT
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, read_file
from tallystick.sim.disk import Crashed, SimDisk
from tallystick.sim.disk_file import SimFile

SEGMENT = "/journal/00000001.segment"


class Desk:
    """A journal and what was written to it."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(3))
        self.disk.makedirs("/journal")
        self.disk.sync_dir("/")
        self.random = random.Random(4)
        self.journal = self.open()

    def open(self) -> Journal:
        self.journal = Journal(self.disk, "/journal", SMALL, self.random)
        return self.journal

    def replay(self, mark: int = 0) -> list[tuple[int, bytes]]:
        commits = [(commit.number, bytes(commit.payload)) for commit in self.open().replay(mark)]
        self.journal.release(mark)
        return commits

    def write(self, number: int, payload: bytes, *, synced: bool = True) -> None:
        self.journal.write(Commit(number, (payload,), len(payload)))
        if synced:
            self.journal.sync()

    def content(self) -> dict[str, bytes]:
        return {path: read_file(self.disk, path) for path in self.disk.files()}

    def fill(self, count: int, size: int = 700) -> list[tuple[int, bytes]]:
        commits = [(number, self.random.randbytes(size)) for number in range(1, count + 1)]
        for number, payload in commits:
            self.write(number, payload)
        return commits


def test_commits_are_replayed_over_several_segments() -> None:
    desk = Desk()
    commits = desk.fill(60, 900)
    desk.disk.power_loss()
    assert desk.replay() == commits
    assert desk.replay(mark=41) == commits[41:]


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES])
def test_commits_are_replayed_wherever_in_a_block_they_end(size: int) -> None:
    desk = Desk()
    commits = desk.fill(9, size - COMMIT_BYTES)
    desk.disk.power_loss()
    assert desk.replay() == commits


def test_one_write_and_one_sync_a_commit() -> None:
    desk = Desk()
    desk.fill(1)
    seen: list[str] = []
    desk.disk.fault = lambda operation, path: seen.append(operation)
    desk.journal.write(Commit(2, [b"x" * 10] * 200, 2000))
    desk.journal.sync()
    assert seen == ["write", "sync"]


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_in_a_commit_takes_that_commit_at_most(seed: int) -> None:
    desk = Desk()
    commits = desk.fill(5)
    desk.disk.random = random.Random(seed)
    desk.disk.crash_at = desk.disk.operations + 1 + seed % 2
    last = (6, desk.random.randbytes(2500))
    with pytest.raises(Crashed):
        desk.write(*last)
    desk.disk.power_loss()
    found = desk.replay()
    assert found in (commits, [*commits, last])
    desk.write(len(found) + 1, b"after")
    assert desk.replay() == [*found, (len(found) + 1, b"after")]


def test_damage_before_the_last_commit_is_refused_wherever_it_is() -> None:
    commits = 4
    room = COMMIT_BYTES + 700
    step = room + -room % BLOCK_BYTES
    for offset in range(0, commits * step, 37):
        desk = Desk()
        written = desk.fill(commits)
        desk.disk.flip(SEGMENT, FIRST_COMMIT + offset)
        number, inside = offset // step + 1, offset % step < room
        if not inside:  # the zeros after a commit
            assert desk.replay() == written
        elif number == commits:
            assert desk.replay() == written[:-1]
        else:
            with pytest.raises(CorruptRecord):
                desk.replay()


def test_a_lost_segment_in_the_middle_is_refused() -> None:
    desk = Desk()
    desk.fill(60, 900)
    desk.disk.unlink("/journal/00000002.segment")
    with pytest.raises(CorruptRecord, match="middle"):
        desk.replay()


def test_damage_in_what_a_checkpoint_covers_does_not_matter() -> None:
    desk = Desk()
    written = desk.fill(4)
    desk.disk.flip(SEGMENT, FIRST_COMMIT + 50)
    assert desk.replay(mark=2) == written[2:]


def test_one_damaged_header_copy_does_no_harm_and_two_are_refused() -> None:
    desk = Desk()
    written = desk.fill(2)
    desk.disk.flip(SEGMENT, 9)
    assert desk.replay() == written
    desk.disk.flip(SEGMENT, BLOCK_BYTES + 9)
    with pytest.raises(CorruptRecord, match="headers"):
        desk.open()


@pytest.mark.parametrize("copy", [0, BLOCK_BYTES])
def test_a_segment_of_a_newer_version_is_told_from_a_damaged_one(copy: int) -> None:
    """Of its two headers one may be torn, or still of this version."""
    desk = Desk()
    desk.fill(2)
    file = desk.disk.open(SEGMENT)
    header = file.read(24, copy)
    newer = header[:7] + b"3" + header[8:]
    file.write([newer + crc32c(newer).to_bytes(4, "big")], copy)
    before = desk.content()
    with pytest.raises(StorageError, match="a journal segment is of a newer version") as refused:
        desk.open()
    assert refused.value.fields == {"path": SEGMENT, "offset": copy, "version": 3}
    assert desk.content() == before


def test_a_commit_says_where_it_is() -> None:
    desk = Desk()
    desk.fill(60, 900)
    file = {path: desk.disk.open(path) for path in desk.disk.files()}
    for commit in desk.open().replay(0):
        assert file[commit.path].read(len(commit.payload), commit.offset) == commit.payload


def test_who_cannot_use_a_commit_has_changed_nothing() -> None:
    desk = Desk()
    desk.fill(60, 900)
    desk.disk.open("/journal/00000099.segment.new", create=True).write([b"not whole"], 0)
    before = desk.content()
    commits = desk.open().replay(10)
    assert [next(commits).number for _ in range(11, 61)] == list(range(11, 61))
    assert desk.content() == before
    assert next(commits, None) is None
    assert desk.content().keys() == before.keys() - {"/journal/00000099.segment.new"}


def test_a_segment_used_again_keeps_nothing_of_its_past() -> None:
    desk = Desk()
    desk.fill(6)
    desk.replay(mark=6)  # all free now
    for number in range(7, 10):
        desk.write(number, b"new %d" % number)
    desk.disk.power_loss()
    assert len(desk.disk.listdir("/journal")) == 1, "the segment was recycled"
    assert desk.replay(mark=6) == [(number, b"new %d" % number) for number in range(7, 10)]


def test_bytes_of_a_client_that_look_like_a_commit_are_not_one() -> None:
    """A torn commit may have any bytes at any sector; only the salt, which no client sees, makes them a commit."""
    desk = Desk()
    desk.write(1, b"honest")
    other = Desk()
    other.random = random.Random(99)  # another salt
    other.journal = other.open()
    other.fill(3)
    forged = other.disk.open(SEGMENT).read(4 * BLOCK_BYTES * 3, FIRST_COMMIT)
    file = desk.disk.open(SEGMENT)
    file.write([forged], FIRST_COMMIT + BLOCK_BYTES)
    file.sync()
    assert desk.replay() == [(1, b"honest")]


@pytest.mark.parametrize("error", [StorageError("simulated"), DiskFull("simulated")])
def test_a_failed_sync_is_the_end(error: StorageError) -> None:
    desk = Desk()
    desk.fill(1)
    desk.disk.fault = lambda operation, path: error if operation == "sync" else None
    with pytest.raises(StorageError):
        desk.write(2, b"lost")
    desk.disk.fault = None
    with pytest.raises(StorageError, match="restart"):
        desk.write(2, b"lost")


def test_what_a_failed_sync_left_in_the_page_cache_is_made_durable_before_it_counts() -> None:
    desk = Desk()
    desk.fill(1)
    desk.disk.fault = lambda operation, path: StorageError("simulated") if operation == "sync" else None
    with pytest.raises(StorageError):
        desk.write(2, b"only in the cache")
    desk.disk.kill()
    desk.disk.fault = None
    assert desk.replay()[-1] == (2, b"only in the cache")
    desk.disk.power_loss()
    assert desk.replay()[-1] == (2, b"only in the cache")


def test_what_a_failed_sync_left_in_the_page_cache_is_made_durable_though_it_is_at_the_mark() -> None:
    """The state that is written next counts it as reached: a journal that ended before it would be refused."""
    desk = Desk()
    desk.fill(1)
    desk.disk.fault = lambda operation, path: StorageError("simulated") if operation == "sync" else None
    with pytest.raises(StorageError):
        desk.write(2, b"only in the cache")
    desk.disk.kill()
    desk.disk.fault = None
    assert desk.replay(mark=2) == []
    end = desk.journal.end
    desk.disk.power_loss()
    assert list(desk.open().replay(2, end)) == []
    assert desk.replay()[-1] == (2, b"only in the cache")


def test_a_full_disk_does_no_harm_and_the_commit_can_be_tried_again() -> None:
    desk = Desk()
    desk.disk.capacity = 36 * 1024
    written = desk.fill(6, 2500)
    with pytest.raises(DiskFull):
        desk.write(7, b"x" * 4000)
    assert desk.disk.listdir("/journal") == ["00000001.segment"], "no half segment is left"
    desk.disk.capacity = 1 << 20
    desk.write(7, b"x" * 4000)
    desk.disk.power_loss()
    assert desk.replay() == [*written, (7, b"x" * 4000)]


def test_a_commit_larger_than_a_segment_gets_one_of_its_own() -> None:
    desk = Desk()
    desk.write(1, b"a" * 50_000)
    desk.write(2, b"b")
    desk.disk.power_loss()
    assert desk.replay() == [(1, b"a" * 50_000), (2, b"b")]


def test_few_free_segments_are_kept() -> None:
    desk = Desk()
    desk.fill(90, 900)
    assert desk.journal.used_bytes > 5 * SMALL.journal_segment_bytes
    desk.journal.release(90)
    assert desk.journal.used_bytes <= SMALL.journal_segment_bytes
    assert len(desk.disk.listdir("/journal")) == SMALL.journal_spare_segments + 1


def test_a_header_is_whole_after_any_number_of_crashes() -> None:
    desk = Desk()
    desk.fill(1)
    for seed in range(100):
        desk.disk.random = random.Random(seed)
        desk.replay(mark=1)
        desk.disk.crash_at = desk.disk.operations + 1 + seed % 4  # in the stamp of the segment
        with pytest.raises(Crashed):
            desk.write(2, b"never")
        desk.disk.power_loss()
    assert len(desk.disk.listdir("/journal")) == 1


@pytest.mark.parametrize("damaged", [0, BLOCK_BYTES])
def test_a_crash_in_a_stamp_damages_no_header_copy_that_is_the_only_whole_one(
    damaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is torn damages its whole block: the copy that is damaged already is the one to write first."""
    desk, written = Desk(), list[int]()
    desk.fill(1)
    desk.disk.flip(SEGMENT, damaged + 9)
    desk.replay(mark=1)
    write = SimFile.write

    def note(file: SimFile, buffers: Sequence[Buffer], offset: int) -> int:
        written.append(offset)
        return write(file, buffers, offset)

    monkeypatch.setattr(SimFile, "write", note)
    desk.disk.crash_at = desk.disk.operations + 1
    with pytest.raises(Crashed):
        desk.write(2, b"never")
    desk.disk.power_loss()
    desk.disk.flip(SEGMENT, written[-1] + 10)
    desk.open()


# Commits that nobody waits for are written and not synced.


def without_records(commits: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The commits without the records that say what had not been synced."""
    records = [0 if first_unsynced(payload) is None else len(Unsynced(0).encode()) for _, payload in commits]
    return [(number, payload[size:]) for (number, payload), size in zip(commits, records, strict=True)]


def unsynced(desk: Desk, first: int, count: int) -> list[tuple[int, bytes]]:
    commits = [(number, desk.random.randbytes(700)) for number in range(first, first + count)]
    for number, payload in commits:
        desk.write(number, payload, synced=False)
    return commits


def test_commits_are_written_without_a_sync_and_one_sync_is_of_all() -> None:
    desk = Desk()
    desk.fill(1)
    seen: list[str] = []
    desk.disk.fault = lambda operation, path: seen.append(operation)
    unsynced(desk, 2, 3)
    assert seen == ["write"] * 3
    desk.journal.sync()
    desk.journal.sync()
    assert seen == ["write"] * 3 + ["sync"]


def test_what_was_written_outlives_the_process_and_from_its_next_start_on_the_machine() -> None:
    desk = Desk()
    written = desk.fill(2) + unsynced(desk, 3, 30)  # of several segments
    desk.disk.kill()
    assert without_records(desk.replay()) == written
    desk.disk.power_loss()
    assert without_records(desk.replay()) == written


def test_what_a_failed_sync_of_several_commits_left_in_the_page_cache_is_made_durable() -> None:
    desk = Desk()
    written = desk.fill(2) + unsynced(desk, 3, 4)
    desk.disk.fault = lambda operation, path: StorageError("simulated") if operation == "sync" else None
    with pytest.raises(StorageError):
        desk.journal.sync()
    desk.disk.kill()
    desk.disk.fault = None
    assert without_records(desk.replay()) == written
    desk.disk.power_loss()
    assert without_records(desk.replay()) == written


@pytest.mark.parametrize("seed", range(60))
def test_a_loss_of_power_takes_unsynced_commits_from_one_on_and_no_synced_one(seed: int) -> None:
    desk = Desk()
    durable = desk.fill(3) + unsynced(desk, 4, 3)
    desk.journal.sync()
    end = desk.journal.end
    assert end.number == 6, "what is not synced does not count as reached"
    written = durable + unsynced(desk, 7, 5)
    assert desk.journal.end == end
    written += unsynced(desk, 12, 4)  # in another segment
    desk.disk.random = random.Random(seed)
    desk.disk.power_loss()
    found = without_records([(commit.number, bytes(commit.payload)) for commit in desk.open().replay(0, end)])
    assert found == written[: len(found)] and len(found) >= len(durable)
    after = [*found, (len(found) + 1, b"after")]
    desk.write(*after[-1])
    desk.disk.power_loss()
    assert without_records(desk.replay()) == after, "nothing comes back of what was cut"


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_while_a_start_cuts_does_no_harm(seed: int) -> None:
    desk = Desk()
    written = desk.fill(1) + unsynced(desk, 2, 5)
    file = desk.disk.open(SEGMENT)
    file.write([bytes(BLOCK_BYTES)], FIRST_COMMIT + 2 * BLOCK_BYTES)
    file.sync()  # all but commit 3 reached the disk
    desk.disk.random = random.Random(seed)
    desk.disk.crash_at = desk.disk.operations + 4 + seed % 6
    with pytest.raises(Crashed):
        desk.replay()
    desk.disk.power_loss()
    assert without_records(desk.replay()) == written[:2]
    desk.write(3, b"after")
    assert without_records(desk.replay()) == [*written[:2], (3, b"after")]


@pytest.mark.parametrize("damaged", range(2, 6))
def test_damage_of_what_a_later_commit_says_was_synced_is_refused(damaged: int) -> None:
    desk = Desk()
    written = desk.fill(1) + unsynced(desk, 2, 2)
    desk.journal.sync()
    written += unsynced(desk, 4, 2)
    desk.disk.flip(SEGMENT, FIRST_COMMIT + (damaged - 1) * BLOCK_BYTES + 30)
    if damaged < 4:
        with pytest.raises(CorruptRecord, match="middle"):
            desk.replay()
    else:
        assert without_records(desk.replay()) == written[: damaged - 1], "nobody was told that these are durable"


@pytest.mark.parametrize("damaged", [3, 4])
def test_damage_of_what_the_state_says_was_synced_is_refused(damaged: int) -> None:
    """Be it the last commit alone: no later one says that it was synced."""
    desk = Desk()
    desk.fill(1)
    unsynced(desk, 2, 3)
    desk.journal.sync()
    desk.disk.flip(SEGMENT, FIRST_COMMIT + (damaged - 1) * BLOCK_BYTES + 30)
    with pytest.raises(CorruptRecord, match="its end was lost"):
        list(desk.open().replay(0, desk.journal.end._replace(generation=1, number=4)))


def test_a_lost_end_of_a_segment_is_refused_when_there_is_a_later_segment() -> None:
    desk = Desk()
    unsynced(desk, 1, 30)
    last = max(path for path in desk.disk.files() if path.endswith(".segment"))
    desk.replay()  # all of it is here
    desk.disk.flip(SEGMENT, FIRST_COMMIT + BLOCK_BYTES + 30)
    assert last != SEGMENT
    with pytest.raises(CorruptRecord, match="middle"):
        desk.replay()
