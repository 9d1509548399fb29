"""A slave's store becomes a master's, and a master's a slave's, while it runs."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.errors import CorruptRecord, DiskFull, StorageError, UsageError
from tallystick.rocketmq.store import reput
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.values import TimeBoundary
from tallystick.sim.disk import Crashed

BODIES = [b"%03d" % number for number in range(40)]


def copied(size: int = 1 << 20, *, seed: int = 2) -> tuple[Shelf, Shelf]:
    """A master, and a slave that has so many bytes of its log, none of them dispatched."""
    master, slave = Shelf(), Shelf(seed=seed, slave=True)
    master.send(*BODIES)
    while slave.store.end < min(size, master.store.end):
        at = slave.store.end
        slave.store.append_raw(at, bytes(master.store.slice(at, min(4096, size - at))))
    return master, slave


def take_over(slave: Shelf) -> None:
    slave.store.promote()
    slave.store.take_role(slave=False)


@pytest.mark.rule("H8")
def test_a_slave_goes_on_where_its_last_whole_record_ends() -> None:
    """Of the record behind it a part is here, synced even: no producer was told that this slave has it."""
    for size in range(2000, 2400, 7):
        _, slave = copied(size)
        slave.store.flush()
        take_over(slave)
        whole = slave.store.end
        assert size - 200 < whole == slave.store.flushed == slave.store.reput_offset <= size
        count = slave.store.queue_range("Topic", 0)[1]
        assert slave.bodies() == BODIES[:count]
        assert slave.send(b"new")[0].queue_offset == count
        for _ in range(2):
            slave.settle()
            assert slave.bodies() == [*BODIES[:count], b"new"]
            slave.disk.power_loss()
            slave.open()


def test_what_a_slave_had_not_dispatched_keeps_its_queue_offsets() -> None:
    _, slave = copied()
    assert slave.store.reput_offset == 0
    arrivals = slave.store.promote()
    assert arrivals[-1].next_offset == len(BODIES)
    slave.store.take_role(slave=False)
    assert slave.send(b"new")[0].queue_offset == len(BODIES)


@pytest.mark.rule("H8")
def test_what_a_slave_had_not_synced_is_durable_when_it_is_a_master() -> None:
    """Its master may have told producers of it, and is gone: what was here must not go with a loss of power."""
    for size in range(5000, 5400, 7):
        _, slave = copied(size)
        take_over(slave)
        bodies = slave.bodies()
        slave.disk.power_loss()
        slave.open()
        assert slave.bodies() == bodies == BODIES[: len(bodies)]


@pytest.mark.rule("H8", "H11")
def test_h11_damage_of_the_last_record_of_a_promoted_slave_is_no_part_of_a_record() -> None:
    """All of it was looked at: a size that one bit makes too long would else pass for a record that was cut short."""
    _, slave = copied()
    end = slave.store.end
    take_over(slave)
    last = slave.read()[-1].physical_offset
    slave.disk.kill()
    slave.disk.flip(f"{ROOT}/commitlog/{last // 4096 * 4096:020}", last % 4096 + 1, 6)
    with pytest.raises(CorruptRecord, match=f"durable up to {end}"):
        slave.open()


def test_a_record_behind_many_missing_queue_offsets_is_dispatched_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reput fills such a gap in several calls; a record that waits for that is whole all the same."""
    monkeypatch.setattr(reput, "FILL_UNITS", 10)
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"before")
    master.store._appender.next_offsets["Topic", 0] += 100
    master.send(b"behind")
    slave.store.append_raw(0, master.log())
    take_over(slave)
    assert slave.store.end == master.store.end
    assert slave.bodies() == [b"before", b"behind"]


def test_store_times_go_on_behind_those_of_the_old_master_whatever_the_clock_says() -> None:
    """Searches by time rest on it: they passed over the old messages and all new ones."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.clock.ms += 10_000
    master.send(b"old")
    slave.store.append_raw(0, bytes(master.store.slice(0, master.store.end)))
    take_over(slave)
    slave.send(b"new")
    slave.settle()
    old, new = (slave.store.stored_at("Topic", 0, offset) for offset in (0, 1))
    assert old is not None and new is not None and new >= old
    assert slave.store.offset_at("Topic", 0, old, TimeBoundary.LOWER) == 0


@pytest.mark.parametrize("kind", ["kill", "power_loss"])
def test_a_crash_at_any_operation_leaves_a_store_that_opens_in_either_role(kind: str) -> None:
    for slave_again in (True, False):
        whole, step = False, 0
        while not whole:
            step += 1
            master, slave = Shelf(), Shelf(seed=step, slave=True)
            master.send(*[b"old"] * 40, topic="Old")
            master.send(*BODIES)
            start = master.store.end // 4096 * 4096 - 4096
            slave.store.append_raw(start, bytes(master.store.slice(start, 4096)))
            slave.store.append_raw(start + 4096, bytes(master.store.slice(start + 4096, 300)))
            slave.settle()
            slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
            slave.disk.crash_at = slave.disk.operations + step
            try:
                take_over(slave)
                whole = True
            except Crashed:
                pass
            slave.disk.crash_at = None
            getattr(slave.disk, kind)()
            slave.open(slave=slave_again)
            if slave_again:
                assert slave.store.replicated.ends_known
                take_over(slave)
            assert slave.send(b"new", topic="Old")[0].queue_offset == 40
            assert slave.send(b"new")[0].queue_offset == len(BODIES)
        assert step > 5


def test_a_copy_that_was_never_told_the_ends_stays_a_slaves() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*BODIES, *BODIES)
    slave.store.append_raw(4096, bytes(master.store.slice(4096, 300)))
    with pytest.raises(UsageError, match="never told where the master's queues end"):
        slave.store.promote()
    assert (slave.store.slave, slave.store.end) == (True, 4396), "nothing changed"
    slave.store.append_raw(4396, bytes(master.store.slice(4396, 4096)))
    assert slave.store.end == master.store.end


def test_a_slave_whose_queues_have_no_room_is_no_master_before_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFull("no room")

    _, slave = copied()
    with monkeypatch.context() as filled:
        filled.setattr(ConsumeQueue, "write", full)
        with pytest.raises(StorageError, match="the disk is full"):
            slave.store.promote()
    take_over(slave)
    assert slave.bodies() == BODIES


class _Lock:
    """Reput's lock. The takeover waits behind a turn of its own that came no further until another thread is in the
    middle of its fillers; that thread waits there until the takeover wants the lock again."""

    def __init__(self, dispatch: reput.Reput, thread: threading.Thread) -> None:
        self._lock, self._reput, self._thread = threading.Lock(), dispatch, thread
        self._offset = -1  # of the turn before
        self.is_inside, self.is_wanted = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread() is not self._thread and self.is_inside.is_set():
            self.is_wanted.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        stays, self._offset = self._reput.filling and self._reput.offset == self._offset, self._reput.offset
        self._lock.release()
        if stays and not self._thread.ident:
            self._thread.start()
            assert self.is_inside.wait(10)


def test_records_behind_many_fillers_stay_while_the_loop_dispatches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log of 51 messages, all synced, the first was left: the loop's turn had said that nothing was to be done."""
    monkeypatch.setattr(reput, "FILL_UNITS", 1000)
    settings = dataclasses.replace(SMALL, commit_log_file_bytes=1 << 16, consume_queue_file_units=1024)
    master, slave = Shelf(settings), Shelf(settings, seed=2, slave=True)
    master.send(b"first")
    master.store._appender.next_offsets["Topic", 0] += 10_000
    master.send(*BODIES)
    slave.store.append_raw(0, master.log())
    loop = threading.Thread(target=slave.store.reput)
    lock = _Lock(slave.store._reput, loop)
    fill = ConsumeQueue.fill

    def fill_slowly(queue: ConsumeQueue, end: int) -> None:
        if threading.current_thread() is loop:
            lock.is_inside.set()
            assert lock.is_wanted.wait(10)
        fill(queue, end)

    monkeypatch.setattr(ConsumeQueue, "fill", fill_slowly)
    monkeypatch.setattr(slave.store._reput, "lock", lock)
    take_over(slave)
    loop.join()
    assert lock.is_wanted.is_set()
    assert slave.store.end == master.store.end
    assert slave.bodies() == [b"first", *BODIES]


def test_what_is_no_part_of_a_record_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever dispatch says: whole records are all that is left of those messages."""
    master, slave = copied()
    slave.store.flush()
    monkeypatch.setattr(reput.Reput, "run", lambda *_: [])
    with pytest.raises(StorageError, match="neither a record nor a part of one"):
        slave.store.promote()
    assert slave.store.end == master.store.end and slave.log() == master.log()


@pytest.mark.rule("H8")
@pytest.mark.parametrize("size", [4, 8, 27])
def test_a_part_of_a_blank_is_cut_off_as_one_of_a_record(size: int) -> None:
    """The master's next message did not fit into its file, and is not here."""
    master, slave = copied()
    master.send(b"the next one")
    whole = master.store.end
    assert whole == SMALL.commit_log_file_bytes - 28
    master.send(b"begins a file")
    at = slave.store.end
    slave.store.append_raw(at, bytes(master.store.slice(at, whole + size - at)))
    take_over(slave)
    assert slave.store.end == whole
    assert slave.send(b"new")[0].queue_offset == len(BODIES) + 1
    slave.settle()
    assert slave.bodies() == [*BODIES, b"the next one", b"new"]


def test_a_record_whose_size_is_damaged_is_no_part_of_one_that_would_reach_beyond_its_file() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*BODIES)
    log = bytearray(master.log())
    log[len(log) // 2 : len(log) // 2 + 2] = b"\1\0"  # the size of the middle one
    slave.store.append_raw(0, bytes(log))
    slave.store.flush()
    with pytest.raises(StorageError, match="cannot be a master's now"):
        slave.store.promote()
    assert slave.store.end == master.store.end and slave.log() == log


def test_a_deletion_that_the_log_did_not_reach_takes_nothing_new() -> None:
    master, slave = copied()
    master.send(b"more")
    master.store.delete_topics(["Topic"]).run()
    deletion = slave.store.replicated.learn_deletions(master.store.replicated.deletions)
    assert deletion is not None
    deletion.run()
    take_over(slave)
    slave.send(b"new")
    for _ in range(2):
        slave.settle()
        assert slave.bodies() == [b"new"]
        slave.disk.power_loss()
        slave.open()


def test_a_master_that_follows_dispatches_what_it_has_not_synced_and_goes_on_as_one_later() -> None:
    master, other = Shelf(), Shelf(seed=2)
    for shelf in (master, other):
        shelf.send(*BODIES[:10])
    master.send(*BODIES[10:20])
    other.store.take_role(slave=True)
    other.store.append_raw(other.store.end, bytes(master.store.slice(other.store.end, 4096)))
    other.store.reput()
    assert other.bodies() == BODIES[:20]
    take_over(other)
    assert other.send(b"new")[0].queue_offset == 20


@pytest.mark.parametrize("runs", [False, True])
def test_where_the_log_of_its_first_master_began_is_nothing_to_a_store_that_was_a_master_itself(runs: bool) -> None:
    """As a slave once more it has all there is of the log that it went on with, until its new master says otherwise."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*BODIES * 3)
    for at in range(4096, master.store.end, 4096):
        slave.store.append_raw(at, bytes(master.store.slice(at, 4096)))
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end, master.store.first)
    slave.settle()
    assert slave.store.lacks_beginning("Topic", 0)
    if runs:
        take_over(slave)
    else:
        slave.disk.kill()
        slave.open(slave=False)
    slave.send(b"new")
    slave.settle()
    for _ in range(2):
        slave.disk.kill()
        slave.open(slave=True)
        assert not slave.store.lacks_beginning("Topic", 0)
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end, 0)
    assert slave.store.lacks_beginning("Topic", 0)
