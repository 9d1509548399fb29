"""A start by what the last checkpoint noted: what it does at once, and what it leaves for later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.errors import CorruptRecord, StorageError, UsageError
from tallystick.rocketmq.store import opening
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime.disk import read_file
from tallystick.sim.disk_file import SimFile


def consistent(shelf: Shelf) -> None:
    shelf.settle()
    assert check_store(shelf.disk, ROOT, shelf.settings).findings == []


def test_a_start_writes_to_no_queue_however_often_it_is_killed_before_a_checkpoint() -> None:
    """To write a unit to each of 20,000 queues takes longer than all else of a start."""
    shelf = Shelf()
    written: list[str] = []
    sent = [b"%02d" % number for number in range(20)]
    for queue_id in range(3):
        shelf.send(*sent[:10], queue_id=queue_id)
    shelf.settle()
    for queue_id in range(3):
        shelf.send(*sent[10:12], queue_id=queue_id)
    for _ in range(3):
        shelf.disk.kill()
        shelf.disk.fault = lambda operation, path: written.append(f"{operation} {path}")
        shelf.open()
        shelf.disk.fault = None
        assert [line for line in written if line.startswith("write") and "consumequeue" in line] == []
        for queue_id in range(3):
            assert shelf.bodies(queue_id=queue_id) == sent[:12]
    consistent(shelf)
    for queue_id in range(3):
        shelf.send(*sent[12:], queue_id=queue_id)
    shelf.settle()
    shelf.disk.power_loss()
    shelf.open()
    for queue_id in range(3):
        assert shelf.bodies(queue_id=queue_id) == sent
    consistent(shelf)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("lost", ["000", "016", "032", ""])
def test_a_queue_that_lost_files_is_built_again_where_no_batch_tells_of_it(crash: bool, older: bool, lost: str) -> None:
    """Taken for what it is, its messages would be hidden for good, and its queue offsets given out again."""
    shelf, file = Shelf(), f"{ROOT}/tally-queues"
    sent = [b"%d" % number for number in range(40)]
    shelf.send(*sent[:5])
    shelf.settle()
    before = read_file(shelf.disk, file)
    shelf.send(*sent[5:])
    shelf.send(*sent, queue_id=1)
    shelf.settle()
    shelf.disk.kill() if crash else shelf.store.close()
    shelf.disk.unlink(file)
    if older:
        shelf.disk.open(file, create=True).write([before], 0)
    folder = f"{ROOT}/consumequeue/Topic/0"
    for name in list(shelf.disk.sizes(folder)):
        if name.endswith(lost):
            shelf.disk.unlink(f"{folder}/{name}")
    shelf.open()
    assert shelf.bodies() == shelf.bodies(queue_id=1) == sent
    assert shelf.send(b"new", KEYS="key")[0].queue_offset == 40
    consistent(shelf)
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.bodies() == [*sent, b"new"]
    assert shelf.bodies(queue_id=1) == sent
    consistent(shelf)


def test_a_lost_queue_whose_file_of_expired_messages_is_lost_too_is_built_again() -> None:
    """Its first message is the first of a file, and the last file before it stays, as long as nobody deletes it."""
    shelf = Shelf()
    shelf.send(*[b"%02d" % number for number in range(16)])
    shelf.settle()
    shelf.send(*[b"x" * 300 for _ in range(60)], topic="Other")
    shelf.settle()
    shelf.clock.ms += 80 * 3_600_000
    for _ in range(4):
        shelf.store.delete_expired()
        shelf.settle()
    assert shelf.store.queue_range("Topic", 0) == (16, 16)
    shelf.send(b"one more")
    shelf.settle()
    shelf.store.close()
    folder = f"{ROOT}/consumequeue/Topic/0"
    for name in list(shelf.disk.sizes(folder)):
        shelf.disk.unlink(f"{folder}/{name}")
    shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    assert shelf.bodies() == [b"one more"]
    consistent(shelf)


def test_a_file_that_is_begun_where_a_lost_one_of_expired_messages_was_stays() -> None:
    """Retention deleted it under the name of the lost one: the broker ended with "no such file"."""
    shelf = Shelf()
    shelf.send(*[b"%02d" % number for number in range(11)])
    shelf.send(*[b"x" * 300 for _ in range(30)], topic="Other")
    shelf.settle()
    shelf.expire()
    assert shelf.store.queue_range("Topic", 0) == (11, 11)
    shelf.store.close()
    shelf.disk.unlink(f"{ROOT}/consumequeue/Topic/0/{0:020}")
    shelf.open()
    shelf.send(b"one more")
    shelf.send(*[b"x" * 300 for _ in range(30)], topic="Other")
    shelf.settle()
    shelf.expire()
    shelf.send(b"last")
    shelf.settle()
    assert shelf.bodies()[-1:] == [b"last"]
    consistent(shelf)


def test_a_topic_that_is_made_anew_keeps_its_file_where_the_old_ones_was_lost() -> None:
    """Retention deleted it under the name of the lost one, which the old queue was to do without."""
    shelf = Shelf()
    shelf.send(*[b"%02d" % number for number in range(16)])
    shelf.send(*[b"x" * 300 for _ in range(30)], topic="Other")
    shelf.settle()
    shelf.expire()
    shelf.store.close()
    file = f"{ROOT}/consumequeue/Topic/0/{0:020}"
    shelf.disk.unlink(file)
    shelf.open()
    (queue,) = (queue for queue in shelf.store._parts.queues if queue.topic == "Topic")
    queue.restart(shelf.store.end)  # as a slave does that copies it
    unit = shelf.store.end, 100, 7
    queue.write(0, UNIT.pack(*unit))
    queue.delete_files()
    assert shelf.disk.exists(file) and queue.unit(0) == unit


def test_a_slave_that_copies_a_topic_made_anew_keeps_its_file_where_the_old_ones_was_lost() -> None:
    """Its queue had ended where nothing was left, at 0, so that no message told that the topic began anew."""
    master, slave = Shelf(), Shelf(slave=True)
    master.send(*[b"%02d" % number for number in range(16)])
    master.send(*[b"x" * 300 for _ in range(30)], topic="Other")
    _copy(master, slave)
    slave.expire()
    slave.store.close()
    file = f"{ROOT}/consumequeue/Topic/0/{0:020}"
    slave.disk.unlink(file)
    slave.open()
    master.store.delete_topics(["Topic"]).run()
    master.send(b"new")
    _copy(master, slave)
    assert slave.bodies() == [b"new"]
    master.send(*[b"x" * 300 for _ in range(30)], topic="Other")
    master.send(b"newer")
    _copy(master, slave)
    slave.expire()
    assert slave.disk.exists(file)
    slave.store.close()
    slave.open()
    assert slave.bodies() == [b"newer"] and not slave.store.rebuilding


def _copy(master: Shelf, slave: Shelf) -> None:
    while slave.store.end < master.store.end:
        slave.store.append_raw(slave.store.end, master.store.slice(slave.store.end, 1 << 20))
    slave.settle()


def test_a_store_that_another_program_wrote_meanwhile_is_dispatched_again() -> None:
    """An older version of ours knows nothing of the file, and its own notes are newer."""
    shelf, path = Shelf(), f"{ROOT}/tally-queues"
    shelf.send(b"one")
    shelf.settle()
    shelf.store.close()
    shelf.disk.kill()
    before = read_file(shelf.disk, path)
    shelf.open()
    shelf.send(b"more")
    shelf.settle()
    shelf.store.close()
    shelf.disk.kill()
    shelf.disk.open(path).truncate(0)
    shelf.disk.open(path).write([before], 0)
    shelf.open()
    assert shelf.events[-1].fields["dispatched_again"] == shelf.store.end - shelf.store.first
    assert shelf.bodies() == [b"one", b"more"]
    consistent(shelf)


@pytest.mark.parametrize("seed", range(12))
def test_queue_offsets_of_messages_that_expired_are_not_given_out_again_where_no_batch_tells_of_them(seed: int) -> None:
    """The file of the queue alone tells of them, and it goes when that is noted: the start may be killed before."""
    shelf = Shelf(seed=seed)
    shelf.send(*[b"%d" % number for number in range(20)], topic="Expired")
    shelf.send(*[b"x" * 500 for _ in range(40)])
    shelf.settle()
    shelf.clock.ms += 80 * 3_600_000
    for _ in range(4):
        shelf.store.delete_expired()
        shelf.settle()
    assert shelf.store.queue_range("Expired", 0) == (20, 20)
    shelf.disk.kill()
    shelf.disk.unlink(f"{ROOT}/tally-queues")
    shelf.disk.fault = fail_at(10 * seed)
    with suppress(StorageError):
        shelf.open()
    shelf.disk.fault = None
    shelf.disk.kill()
    shelf.open()
    assert shelf.store.queue_range("Expired", 0) == (20, 20)
    assert shelf.send(b"new", topic="Expired")[0].queue_offset == 20


def fail_at(operation: int) -> Callable[[str, str], StorageError | None]:
    """The disk fails from this change on."""
    left = iter(range(operation))
    return lambda kind, path: StorageError("bad") if next(left, None) is None else None


def test_what_is_behind_the_last_checkpoint_is_dispatched_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf()
    sent = [b"%03d" % number for number in range(100)]
    shelf.send(*sent)
    shelf.disk.kill()
    monkeypatch.setattr(opening, "_DISPATCH_BYTES", 500)
    shelf.open()
    assert shelf.store.reput_offset == shelf.store.end
    assert shelf.bodies() == sent
    consistent(shelf)


def test_a_start_that_is_refused_leaves_a_store_stopped_in_order() -> None:
    """Else the next start, with the log back in its place, would take it for one that was killed."""
    shelf = Shelf()
    shelf.send(*[b"%03d" % number for number in range(100)])
    shelf.store.close()
    logs = {path: path.replace("commitlog/", "aside-") for path in shelf.disk._names if "commitlog/" in path}
    for path, aside in logs.items():
        shelf.disk.rename(path, aside)
    with pytest.raises(CorruptRecord, match="there are no files"):
        shelf.open()
    for path, aside in logs.items():
        shelf.disk.rename(aside, path)
    shelf.open()
    assert [event.fields["clean"] for event in shelf.events if event.kind == "store opened"] == [True, True]
    assert len(shelf.bodies()) == 100


@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (replace(SMALL, commit_log_file_bytes=2 * SMALL.commit_log_file_bytes), "mappedFileSizeCommitLog"),
        (replace(SMALL, commit_log_file_bytes=SMALL.commit_log_file_bytes // 2), "mappedFileSizeCommitLog"),
        (replace(SMALL, consume_queue_file_units=2 * SMALL.consume_queue_file_units), "mappedFileSizeConsumeQueue"),
    ],
)
def test_a_start_with_another_size_changes_nothing_and_names_the_key(
    ended: str, wrong: StoreSettings, key: str
) -> None:
    shelf, sent = Shelf(), [b"%03d" % number for number in range(100)]
    shelf.send(*sent)
    shelf.settle()
    if ended == "stopped":
        shelf.store.close()
    else:
        shelf.disk.kill()
    before = {folder: shelf.disk.sizes(f"{ROOT}/{folder}") for folder in ("commitlog", "consumequeue/Topic/0")}
    shelf.settings = wrong
    with pytest.raises(UsageError, match=key):
        shelf.open()
    assert {folder: shelf.disk.sizes(f"{ROOT}/{folder}") for folder in before} == before
    shelf.settings = SMALL
    shelf.open()
    assert shelf.bodies() == sent


@pytest.mark.parametrize("missing", ["the first", "all but the one in reserve"])
def test_a_start_says_that_files_of_the_log_are_missing(missing: str) -> None:
    shelf = Shelf()
    shelf.send(*[b"%03d" % number for number in range(100)])
    shelf.settle()
    shelf.store.close()
    names = [name for name in shelf.disk.sizes(f"{ROOT}/commitlog") if name.isdecimal()]
    end, in_reserve = shelf.store.end, int(names[-1])
    assert in_reserve > end
    gone, lost_to = (names[:1], int(names[1])) if missing == "the first" else (names[:-1], end)
    for name in gone:
        shelf.disk.unlink(f"{ROOT}/commitlog/{name}")
    for _ in range(2):  # it says so once
        shelf.open()
        shelf.disk.kill()
    (said,) = [event.fields for event in shelf.events if event.kind == "log files missing"]
    assert (said["first"], said["end"]) == (0, lost_to)


def test_a_start_says_nothing_of_files_that_retention_deleted() -> None:
    shelf = Shelf()
    shelf.send(*[b"%03d" % number for number in range(100)])
    shelf.settle()
    shelf.expire()
    assert shelf.store.first > 0
    shelf.disk.power_loss()
    shelf.open()
    assert not [event for event in shelf.events if event.kind == "log files missing"]


@pytest.mark.parametrize("why", ["retention", "somebody moved them away"])
@pytest.mark.parametrize("crash", [False, True])
def test_messages_of_log_files_that_come_back_are_read_again(why: str, crash: bool) -> None:
    """Somebody wants back what retention deleted; a start that missed files asks to put them back."""
    shelf, sent = Shelf(), [b"%03d" % number for number in range(100)]
    shelf.send(*sent)
    shelf.settle()
    log_files = dict(list(shelf.copies("commitlog").items())[:2])
    if why == "retention":
        shelf.expire()
        shelf.disk.kill()
    else:
        shelf.store.close()
        for path in log_files:
            shelf.disk.unlink(path)
        shelf.open()
        shelf.store.close()
    shelf.put_back(log_files)
    shelf.open()
    if crash:
        shelf.disk.kill()
        shelf.open()
    assert shelf.bodies() == sent
    (told,) = [event.fields for event in shelf.events if event.kind == "log files came back"]
    assert (told["first"], told["end"]) == (0, 2 * SMALL.commit_log_file_bytes)
    (put,) = shelf.send(b"next")
    assert put.queue_offset == 100


def test_files_of_a_queue_before_the_log_files_that_came_back_go() -> None:
    """Retention had deleted one log file for good when the power was lost, and no file of a queue yet."""
    shelf, sent = Shelf(), [b"%03d" % number for number in range(100)]
    shelf.send(*sent)
    shelf.settle()
    _, second_log_file, *_ = shelf.copies("commitlog").items()
    queue_files = shelf.copies("consumequeue/Topic/0")
    shelf.expire()
    shelf.disk.kill()
    shelf.put_back({**dict([second_log_file]), **queue_files})
    shelf.open()
    (first, _) = shelf.store.queue_range("Topic", 0)
    assert shelf.bodies() == sent[first:] and first > SMALL.consume_queue_file_units
    assert not shelf.disk.exists(min(queue_files)), "of a file whose messages are gone nobody would ever know"


def test_the_first_key_after_a_start_reads_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slots are 20 MB, and messages are dispatched on the loop."""
    shelf, reads = Shelf(), list[str]()
    shelf.send(b"before", KEYS="one")
    shelf.settle()
    shelf.store.close()
    shelf.open()
    read = SimFile.read

    def spied(file: SimFile, size: int, offset: int) -> bytes:
        reads.append(file._path)
        return read(file, size, offset)

    monkeypatch.setattr(SimFile, "read", spied)
    shelf.send(b"behind", KEYS="two")
    shelf.store.reput()
    assert not [path for path in reads if "/index/" in path]
