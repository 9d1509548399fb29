"""Retention that a crash interrupts: the next start finishes what was noted, and does no more for it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.codec.checksum import crc32c
from tallystick.errors import DiskFull
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.queue_state import read_queue_state
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime.disk import read_file
from tallystick.sim.disk import Crashed, SimDisk

SENT = [b"%03d" % number * 20 for number in range(100)]
FILE_BYTES = SMALL.commit_log_file_bytes
LOG, QUEUE, INDEX, QUEUE_STATE = (
    f"{ROOT}/commitlog", f"{ROOT}/consumequeue/Topic/0", f"{ROOT}/index", f"{ROOT}/tally-queues"
)  # fmt: skip


def filled(seed: int = 1) -> Shelf:
    shelf = Shelf(seed=seed)
    shelf.send(*SENT, KEYS="key")
    shelf.settle()
    shelf.settle()
    return shelf


def interrupt(shelf: Shelf, *, gone: int) -> None:
    """Kill the store when so many of the log files that are to go are gone."""
    unlinked = list[str]()

    def aim(operation: str, path: str) -> None:
        if operation == "unlink" and LOG in path:
            unlinked.append(path)
            if len(unlinked) > gone:
                shelf.disk.crash_at = shelf.disk.operations

    shelf.disk.fault = aim
    with pytest.raises(Crashed):
        shelf.expire()
    shelf.disk.fault = None
    shelf.disk.kill()
    shelf.events.clear()


def told(shelf: Shelf, kind: str) -> list[dict[str, object]]:
    return [event.fields for event in shelf.events if event.kind == kind]


def first_names(disk: SimDisk) -> list[str]:
    return [min(disk.sizes(folder)) for folder in (LOG, QUEUE, INDEX)]


@pytest.mark.parametrize("end", [SimDisk.kill, SimDisk.power_loss])
def test_a_start_behind_a_crash_at_any_step_of_a_deletion_dispatches_nothing_again(
    end: Callable[[SimDisk], None],
) -> None:
    """It dispatched the whole log again before it was over: 20 s of CPU for a GiB."""
    whole = filled()
    whole.expire()
    deleted = first_names(whole.disk)
    step, is_over, noted = 0, False, 0
    while not is_over:
        step += 1
        shelf = filled(step)
        before = first_names(shelf.disk)
        shelf.disk.crash_at = shelf.disk.operations + step
        try:
            shelf.expire()
            is_over = True
        except Crashed:
            pass
        end(shelf.disk)
        is_noted = read_queue_state(shelf.disk, ROOT).drop_from >= 0
        noted += is_noted
        shelf.events.clear()
        shelf.open()
        (opened,) = told(shelf, "store opened")
        assert (opened["dispatched_again"], shelf.store.rebuilding) == (0, False), f"step {step}"
        assert not told(shelf, "log files came back") and not told(shelf, "log files missing"), f"step {step}"
        assert first_names(shelf.disk) in ([deleted] if is_noted or is_over else [deleted, before]), f"step {step}"
        assert read_queue_state(shelf.disk, ROOT).drop_from == -1
        low, high = shelf.store.queue_range("Topic", 0)
        assert shelf.bodies() == SENT[low:high] and high == len(SENT)
        shelf.settle()
        assert check_store(shelf.disk, ROOT, shelf.settings).findings == []
    assert noted > 10


def test_a_start_that_finished_a_deletion_says_so() -> None:
    shelf = filled()
    interrupt(shelf, gone=2)
    state = read_queue_state(shelf.disk, ROOT)
    shelf.open()
    (deleted,) = told(shelf, "files deleted")
    assert deleted["first"] == shelf.store.first == state.log_first
    assert deleted["count"] == state.log_first // FILE_BYTES - 2 > 0


def test_files_that_are_put_back_when_a_deletion_was_finished_stay() -> None:
    """Whoever finished it: retention, or the start behind a crash."""
    shelf = filled()
    files = shelf.copies("commitlog")
    interrupt(shelf, gone=2)
    shelf.open()
    shelf.store.close()
    shelf.put_back(files)
    shelf.open()
    assert shelf.bodies() == SENT


@pytest.mark.parametrize("wants_them", [False, True])
def test_files_of_a_deletion_that_is_not_finished_go_unless_tally_queues_goes(wants_them: bool) -> None:
    """A start cannot tell a file that was put back from one that was still to go."""
    shelf = filled()
    files = shelf.copies("commitlog")
    interrupt(shelf, gone=2)
    shelf.put_back(files)
    if wants_them:
        shelf.disk.unlink(QUEUE_STATE)
    shelf.open()
    low, high = shelf.store.queue_range("Topic", 0)
    assert shelf.bodies() == SENT[low:high]
    assert (low, high) == (0, len(SENT)) if wants_them else low > 0


def test_no_file_goes_where_older_ones_are_put_back() -> None:
    """A log with a gap could not be opened; and whoever brings back what was deleted before wants none to go."""
    shelf = filled()
    files = shelf.copies("commitlog")
    shelf.expire()
    first = shelf.store.first
    more = [body + b"!" for body in SENT]
    shelf.send(*more)
    shelf.settle()
    interrupt(shelf, gone=0)
    assert read_queue_state(shelf.disk, ROOT).drop_from == first
    shelf.put_back({path: data for path, data in files.items() if int(path[-20:]) < first})
    shelf.open()
    assert shelf.bodies() == SENT + more
    assert not told(shelf, "files deleted")
    assert read_queue_state(shelf.disk, ROOT).drop_from == -1


def test_a_full_disk_that_lets_nobody_note_the_end_of_a_deletion_is_made_up_for() -> None:
    shelf = filled()

    def fault(operation: str, path: str) -> DiskFull | None:
        has_begun = not shelf.disk.exists(f"{LOG}/{0:020}")
        return DiskFull("full", path=path) if has_begun and operation == "write" and QUEUE_STATE in path else None

    shelf.disk.fault = fault
    shelf.expire()
    assert read_queue_state(shelf.disk, ROOT).drop_from == 0
    shelf.disk.fault = None
    shelf.settle()
    assert read_queue_state(shelf.disk, ROOT).drop_from == -1


@pytest.mark.parametrize("change", [lambda row: row[:-1], lambda row: [*row, 7]])
def test_the_file_of_another_version_is_read(change: Callable[[list[object]], list[object]]) -> None:
    """One before knew of no deletion that goes on; one behind may know of more than we do."""
    shelf = filled()
    shelf.store.close()
    data, changed = read_file(shelf.disk, QUEUE_STATE), b""
    while data:
        size = int.from_bytes(data[4:8], "big")
        payload = msgspec.msgpack.encode(change(msgspec.msgpack.decode(data[12 : 12 + size])))
        changed += b"TLYQ" + len(payload).to_bytes(4, "big") + crc32c(payload).to_bytes(4, "big") + payload
        data = data[12 + size :]
    file = shelf.disk.open(QUEUE_STATE)
    file.truncate(0)
    file.write([changed], 0)
    shelf.events.clear()
    shelf.open()
    (opened,) = told(shelf, "store opened")
    assert (opened["dispatched_again"], opened["queues_read"]) == (0, False)
    assert shelf.bodies() == SENT


def test_files_of_a_queue_that_could_not_be_deleted_go_with_the_next_ones() -> None:
    shelf = filled()
    shelf.disk.fault = lambda operation, path: DiskFull() if (operation, path) == ("sync_dir", QUEUE) else None
    with pytest.raises(DiskFull):
        shelf.expire()
    shelf.disk.fault = None
    shelf.send(*SENT)
    shelf.settle()
    shelf.expire()
    low, _ = shelf.store.queue_range("Topic", 0)
    in_file = SMALL.consume_queue_file_units
    assert first_names(shelf.disk)[1] == f"{(low - 1) // in_file * in_file * UNIT.size:020}"


def test_a_topic_whose_expired_files_could_not_be_deleted_leaves_none_of_them() -> None:
    shelf = filled()
    shelf.disk.fault = lambda operation, path: DiskFull() if operation == "unlink" and QUEUE in path else None
    with pytest.raises(DiskFull):
        shelf.expire()
    shelf.disk.fault = None
    deletion = shelf.store.delete_topics(["Topic"])
    deletion.note()
    deletion.unlink()
    assert not shelf.disk.sizes(QUEUE)
