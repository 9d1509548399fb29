"""What an operator had forgotten of a sink stays forgotten, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.message_stores import SMALL, Shelf
from support.sinks import identities, newest_of, put_sink
from tallystick.errors import DiskFull
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.sink_table import SinkBatch, SinkTable

DAY_MS = 24 * 3_600_000


def forget(shelf: Shelf) -> None:
    assert shelf.store.sinks.forget_application("Topic", "app", shelf.clock.ms)


def found(shelf: Shelf) -> dict[int, int] | None:
    state = shelf.store.sinks.find("Topic", "app")
    return None if state is None else {last.partition: last.sequence for last in state.partitions.values()}


@pytest.mark.parametrize("end", ["kill", "power", "stop"])
def test_it_survives_a_restart(end: str) -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 2))
    put_sink(shelf, identities(0, 2, partition=1))
    forget(shelf)
    assert found(shelf) is None and shelf.store.sinks.room == SMALL.max_sink_partitions
    shelf.settle()
    shelf.settle()
    for _ in range(2):
        if end == "stop":
            shelf.store.close()
        else:
            shelf.disk.kill() if end == "kill" else shelf.disk.power_loss()
        shelf.open()
        assert found(shelf) is None
    put_sink(shelf, identities(0, 1, partition=1))
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    assert found(shelf) == {1: 0}, "what is sent from then on counts, and of that alone"


@pytest.mark.parametrize("end", ["kill", "power"])
def test_what_is_noted_survives_a_crash_at_once(end: str) -> None:
    """It was told to be done when it was in memory alone, and whoever sent again was told that it is stored."""
    shelf = Shelf()
    put_sink(shelf, identities(0, 2))
    shelf.settle()
    put_sink(shelf, identities(2, 1))
    forget(shelf)
    shelf.store.note_sinks()
    shelf.disk.kill() if end == "kill" else shelf.disk.power_loss()
    shelf.open()
    assert found(shelf) is None


def test_it_is_noted_though_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint took what is not durable, and after each sync there is more of that."""
    shelf = Shelf()
    put_sink(shelf, identities(0, 2))
    shelf.store.maintain(shelf.clock.ms)
    forget(shelf)
    flush, others = CommitLog.flush, iter([each._replace(application="other") for each in identities(0, 9)])

    def flush_and_go_on(log: CommitLog) -> int:
        offset = flush(log)
        put_sink(shelf, [next(others)])
        return offset

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "flush", flush_and_go_on)
        shelf.store.note_sinks()
    shelf.disk.power_loss()
    shelf.open()
    assert found(shelf) is None and next(others).sequence == 3


def test_what_found_no_room_is_noted_when_it_is_asked_for_again() -> None:
    shelf = Shelf()
    put_sink(shelf, identities(0, 2))
    shelf.settle()
    forget(shelf)
    shelf.disk.fault = lambda operation, path: DiskFull("full") if operation == "write" else None
    with pytest.raises(DiskFull):
        shelf.store.note_sinks()
    shelf.disk.fault = None
    shelf.store.note_sinks()
    shelf.disk.power_loss()
    shelf.open()
    assert found(shelf) is None


def test_no_message_is_forgotten_that_takes_the_place_of_one_that_power_loss_took() -> None:
    """Its offset is before the end up to which was forgotten: it would be stored twice."""
    shelf = Shelf()
    put_sink(shelf, identities(0, 1))
    shelf.settle()
    put_sink(shelf, identities(1, 9))
    forget(shelf)
    for _ in range(3):
        shelf.store.maintain(shelf.clock.ms)  # the log is not synced
    shelf.disk.power_loss()
    shelf.open()
    put_sink(shelf, identities(0, 2, partition=1))
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    sequences = found(shelf)
    assert sequences is not None and sequences[1] == 1


def test_a_slave_forgets_what_it_has_and_what_it_copies_later() -> None:
    master, slave, late = Shelf(), Shelf(seed=2, slave=True), Shelf(seed=3, slave=True)
    put_sink(master, identities(0, 2))
    data = bytes(master.store.slice(0, master.store.end))
    slave.store.append_raw(0, data)
    slave.settle()
    assert found(slave) == {0: 1}
    forget(master)
    rows = master.store.sinks.rows()
    slave.store.replicated.learn_sinks(rows)
    late.store.replicated.learn_sinks(rows)
    assert late.store.sinks.count == 0, "its log may get other messages there: the next round tells it"
    late.store.append_raw(0, data)
    late.settle()
    late.store.replicated.learn_sinks(rows)
    for shelf in (slave, late):
        assert found(shelf) is None
        shelf.settle()
        shelf.settle()
        shelf.disk.kill()
        shelf.open()
        assert found(shelf) is None


def test_a_slave_that_has_newer_messages_keeps_those() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    put_sink(master, identities(0, 2))
    put_sink(master, identities(0, 2, partition=1))
    forget(master)
    rows = master.store.sinks.rows()
    put_sink(master, identities(0, 1, partition=1))
    slave.store.append_raw(0, bytes(master.store.slice(0, master.store.end)))
    slave.settle()
    slave.store.replicated.learn_sinks(rows)
    assert found(slave) == found(master) == {1: 0}
    assert slave.store.sinks.room == master.store.sinks.room


def test_what_is_forgotten_is_bounded_and_expires() -> None:
    shelf = Shelf(replace(SMALL, max_sink_partitions=2, sink_expire_days=2, file_reserved_hours=1000))
    put_sink(shelf, identities(0, 2))
    forget(shelf)
    sinks = shelf.store.sinks
    sinks.learn([SinkBatch("T", f"a{n}", "", -1, 0, "", [], 1, shelf.clock.ms) for n in range(9)], 100)
    sinks.learn([SinkBatch("T", "a" * 2000, "", -1, 0, "", [], 1, shelf.clock.ms)], 100)
    assert sinks.count == 4
    shelf.clock.ms += 3 * DAY_MS
    shelf.settle()
    assert sinks.count == 0


def test_what_is_forgotten_holds_for_the_batches_behind() -> None:
    """Else a log that is read again has the old message under the same number."""
    table = SinkTable(SMALL)
    (old,) = identities(0, 1, partition=1)
    table.put("Topic", old, (0, 0, 10), 0)
    assert table.forget_application("Topic", "app", 5)
    table.put("Topic", identities(0, 1)[0], (0, 1, 20), 6)
    table.put("Topic", old, (0, 0, 10), 0)
    assert newest_of(table)["Topic", "app"] == ("q", 0, {0: 0})
