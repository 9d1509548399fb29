"""Dispatch: what is readable when, whoever appended it; twice is once; damage stops it aloud."""

from __future__ import annotations

import dataclasses
import random

import pytest

from support.message_stores import SMALL, Shelf, put_request
from tallystick.codec.records import java_hash
from tallystick.errors import DiskFull, OffsetMismatch, StorageError
from tallystick.rocketmq.store import reput
from tallystick.rocketmq.store.values import GetStatus
from tallystick.rocketmq.wire.record import decode_message


def test_arrivals_tell_queue_end_and_tags() -> None:
    shelf = Shelf()
    shelf.store.put([put_request(b"1", TAGS="a"), put_request(b"2", queue_id=1), put_request(b"3", TAGS="b")])
    arrivals = {(a.topic, a.queue_id): (a.next_offset, a.tags) for a in shelf.store.reput()}
    assert arrivals == {("Topic", 0): (2, [java_hash("a"), java_hash("b")]), ("Topic", 1): (1, [0])}
    assert shelf.store.reput() == []
    assert shelf.store.reput_offset == shelf.store.end


@pytest.mark.rule("H11")
def test_h11_with_sync_flush_nothing_unsynced_is_readable_on_a_master() -> None:
    """rmq#8239"""
    shelf = Shelf(dataclasses.replace(SMALL, sync_flush=True))
    shelf.send(b"a")
    assert shelf.store.reput() == []
    assert shelf.store.get("Topic", 0, 0, 1, 100).status is GetStatus.NO_MESSAGE_IN_QUEUE
    shelf.store.flush()
    shelf.send(b"b")
    assert [arrival.next_offset for arrival in shelf.store.reput()] == [1]
    shelf.store.take_role(slave=True)
    assert [arrival.next_offset for arrival in shelf.store.reput()] == [2]


def test_a_limit_ends_one_call_not_the_work() -> None:
    shelf = Shelf()
    shelf.send(*(b"%d" % number * 100 for number in range(50)))
    calls = 0
    while shelf.store.reput_offset < shelf.store.end:
        shelf.store.reput(limit_bytes=64)  # less than a record
        calls += 1
    assert calls > 10
    assert len(shelf.bodies()) == 50


def test_keys_end_a_slice_as_bytes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "_FREE_KEYS", 20)
    monkeypatch.setattr(reput, "KEY_COST_BYTES", 1024 * 1024 // 40)
    shelf = Shelf(dataclasses.replace(SMALL, index_entries=1024))
    shelf.send(*(b"%d" % number for number in range(40)), KEYS=" ".join(f"k{number}" for number in range(11)))
    shelf.send(*(b"no keys %d" % number for number in range(40)))
    slices = []
    while shelf.store.reput_offset < shelf.store.end:
        slices.append(sum(len(arrival.tags) for arrival in shelf.store.reput()))
    assert set(slices[:8]) <= {4, 5}  # after a file ends at least one more
    assert max(slices) >= 40
    assert len(shelf.bodies()) == sum(slices) == 80
    assert len(shelf.store.query("Topic", "k10", 64, 0, 1 << 60)) == 40


def test_very_many_short_records_are_several_slices() -> None:
    """A megabyte of messages of one byte was a turn of 60 ms."""
    shelf = Shelf()
    for _ in range(100):
        shelf.send(b"x")
    slices = []
    while shelf.store.reput_offset < shelf.store.end:
        slices.append(sum(len(arrival.tags) for arrival in shelf.store.reput(20 * reput.RECORD_COST_BYTES)))
    assert 18 <= max(slices) <= 21 and sum(slices) == len(shelf.bodies()) == 100
    shelf.send(bytes(2 * reput.RECORD_COST_BYTES))
    assert shelf.store.reput(1), "one at least"


def test_new_queues_end_a_slice_as_bytes_do() -> None:
    """512 at a time were a turn of 70 ms: each is a folder and a file."""
    shelf = Shelf()
    for number in range(100):
        shelf.send(b"x", topic=f"T{number % 5}", queue_id=number)
    slices = []
    while shelf.store.reput_offset < shelf.store.end:
        slices.append(len(shelf.store.reput(8 * reput.QUEUE_COST_BYTES)))
    assert max(slices) <= 9 and sum(slices) == 100
    for number in range(100):
        shelf.send(b"y", topic=f"T{number % 5}", queue_id=number)
    assert len(shelf.store.reput(8 * reput.QUEUE_COST_BYTES)) == 100  # they are there
    assert all(shelf.bodies(f"T{number % 5}", number) == [b"x", b"y"] for number in range(100))


def slave_of_a_log_that_jumps(*jumps: int) -> Shelf:
    """Each message but the first of its queue comes so many queue offsets behind the one before."""
    master, slave = Shelf(), Shelf(dataclasses.replace(SMALL, consume_queue_file_units=1024), seed=2, slave=True)
    master.send(b"before")
    master.send(b"another", queue_id=1)
    for number, jump in enumerate(jumps):
        master.store._appender.next_offsets["Topic", 0] += jump
        master.send(b"%d" % number, KEYS=f"k{number}")
    master.send(b"after", queue_id=1)
    slave.store.append_raw(0, master.log())
    return slave


def test_a_queue_offset_that_jumps_is_reached_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 records whose offsets jumped by 300,001 each were a turn of 850 ms, and 600 MB of fillers."""
    monkeypatch.setattr(reput, "FILL_UNITS", 1000)
    slave = slave_of_a_log_that_jumps(0, 5000, 900)
    ends, arrivals = [], []
    while slave.store.reput_offset < slave.store.end:
        arrivals += slave.store.reput()
        ends.append(slave.store.queue_range("Topic", 0)[1])
        assert slave.store.reput_goes_on or slave.store.reput_offset == slave.store.end
        slave.store.maintain(slave.clock.ms)
    assert ends == [1002, 2002, 3002, 4002, 5904]
    assert not slave.store.reput_goes_on
    assert slave.bodies() == [b"before", b"0", b"1", b"2"] and slave.bodies(queue_id=1) == [b"another", b"after"]
    assert [len(slave.store.query("Topic", f"k{number}", 9, 0, 1 << 60)) for number in range(3)] == [1, 1, 1]
    assert [arrival.next_offset for arrival in arrivals if arrival.queue_id == 0] == [2, 5904]
    told = [event.fields for event in slave.events if event.kind == "queue offsets missing"]
    assert [(one["first"], one["end"]) for one in told] == [(2, 5002), (5003, 5903)]
    slave.disk.kill()
    slave.open()
    assert slave.bodies() == [b"before", b"0", b"1", b"2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_queue_offsets_that_jump_too_far_stop_dispatch_aloud(restarts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record that jumped by 2^40 was 22 TB."""
    monkeypatch.setattr(reput, "FILL_UNITS", 1000)
    monkeypatch.setattr(reput, "MOST_MISSING", 5000)
    slave = slave_of_a_log_that_jumps(3000, 1 << 40)
    if restarts:
        slave.disk.kill()
        slave.open()
    for _ in range(10):
        slave.store.reput()
    assert slave.store.refusal == "queue offsets jump too far" and not slave.store.reput_goes_on
    assert slave.store.queue_range("Topic", 0) == (0, 3002)
    assert slave.bodies() == [b"before", b"0"] and slave.bodies(queue_id=1) == [b"another"]
    stopped = [event.fields for event in slave.events if event.kind == "reput stopped"]
    assert [(one["first"], one["end"]) for one in stopped] == [(3002, 3002 + (1 << 40))]


def test_small_jumps_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "MOST_MISSING", 5000)
    slave = slave_of_a_log_that_jumps(*[900] * 10)
    slave.store.reput()
    assert slave.store.refusal == "queue offsets jump too far"
    assert slave.bodies() == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_fillers_of_new_queues_end_a_slice_as_bytes_do() -> None:
    """As the original's a queue has fillers from the start of its first file: 6 MB of them for one message."""
    settings = dataclasses.replace(SMALL, consume_queue_file_units=30_000)
    master, slave = Shelf(), Shelf(settings, seed=2, slave=True)
    for number in range(8):
        master.store._appender.learn({("Topic", number): 29_999})
        master.send(b"x", queue_id=number)
    slave.store.append_raw(0, master.log())
    slices = []
    while slave.store.reput_offset < slave.store.end:
        slices.append(len(slave.store.reput()))
    assert slices == [2] * 4


@pytest.mark.parametrize("bodies", [1, 30])
def test_one_new_queue_is_made_however_little_is_left(bodies: int) -> None:
    shelf = Shelf()
    for number in range(10):
        shelf.send(*[b"x"] * bodies, queue_id=number)
    calls = 0
    while shelf.store.reput_offset < shelf.store.end:
        before, calls = shelf.store.reput_offset, calls + 1
        shelf.store.reput(1)
        assert shelf.store.reput_offset > before
    assert calls >= 10


def test_an_orderly_stop_dispatches_all_however_many_keys_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "_FREE_KEYS", 0)
    monkeypatch.setattr(reput, "KEY_COST_BYTES", 1 << 30)
    shelf = Shelf()
    shelf.send(*(b"%d" % number for number in range(20)), KEYS="a b c")
    shelf.store.close()
    shelf.open()
    assert [event.fields["clean"] for event in shelf.events if event.kind == "store opened"] == [True, True]
    assert len(shelf.bodies()) == 20


@pytest.mark.rule("H8")
@pytest.mark.parametrize("seed", range(10))
def test_h8_a_slave_appends_raw_pieces_and_dispatches_whole_records(seed: int) -> None:
    rng = random.Random(seed)
    master, slave = Shelf(), Shelf(seed=2)
    slave.store.take_role(slave=True)
    for number in range(60):
        master.send(rng.randbytes(rng.randint(1, 400)), queue_id=number % 3, KEYS=f"k{number}", TAGS="t")
    master.store.reput()
    while slave.store.end < master.store.end:
        piece = master.store.slice(slave.store.end, rng.randint(1, 700))
        assert slave.store.append_raw(slave.store.end, piece) == slave.store.end
        slave.store.reput()
    assert slave.log() == master.log()
    for queue_id in range(3):
        assert slave.bodies(queue_id=queue_id) == master.bodies(queue_id=queue_id)
    assert slave.store.query("Topic", "k7", 9, 0, 1 << 60) == master.store.query("Topic", "k7", 9, 0, 1 << 60)
    # Made a master it goes on with the queue offsets where the old one ended (rmq#8539).
    slave.store.take_role(slave=False)
    assert slave.send(b"more", queue_id=1)[0].queue_offset == 20


@pytest.mark.rule("H8")
def test_h8_bytes_of_another_place_are_refused() -> None:
    shelf = Shelf()
    shelf.send(b"a")
    for offset in (0, shelf.store.end - 1, shelf.store.end + 1):
        with pytest.raises(OffsetMismatch):
            shelf.store.append_raw(offset, b"bytes")


def test_an_empty_slave_begins_anywhere() -> None:
    master, slave = Shelf(), Shelf(seed=2)
    for number in range(40):
        master.send(b"%d" % number * 100)
    master.store.reput()
    start = next(m.physical_offset for m in master.read() if m.physical_offset > 9000)
    slave.store.take_role(slave=True)
    offset = start
    while offset < master.store.end:
        offset = slave.store.append_raw(offset, master.store.slice(offset, 1000))
    slave.store.reput()
    assert slave.store.first == start
    expected = [m.stored_body for m in master.read() if m.physical_offset >= start]
    assert slave.bodies() == expected
    slave.store.flush()
    slave.disk.power_loss()
    slave.open()
    assert (slave.store.first, slave.store.end) == (start, master.store.end)
    assert slave.bodies() == expected


def test_a_record_of_another_place_stops_dispatch_aloud() -> None:
    master, slave = Shelf(), Shelf(seed=2)
    master.send(b"a" * 50, b"b" * 50)
    record = bytes(master.store.slice(0, master.store.end // 2))
    slave.store.take_role(slave=True)
    slave.store.append_raw(0, record + record)  # the second one says that it is the first
    slave.store.reput()
    slave.store.reput()
    assert [str(event) for event in slave.events if event.kind == "reput stopped"] == [
        f"reput stopped offset={len(record)} reason=no record of this place"
    ]
    assert slave.store.refusal == "no record of this place"
    assert slave.bodies() == [b"a" * 50]


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        ("../../escaped", 0), ("/escaped", 0), ("a/b", 0), ("..", 0), (".", 0), ("a\0b", 0),
        ("T", -5), ("T", 65_536),
    ],
)  # fmt: skip
def test_no_name_in_a_log_makes_a_folder_elsewhere(topic: str, queue_id: int) -> None:
    """A slave's log is what its master sends. The other messages are readable."""
    shelf = Shelf()
    shelf.send(b"before")
    shelf.settle()
    paths = set(shelf.disk.files())
    shelf.send(b"evil", topic=topic, queue_id=queue_id)
    shelf.send(b"after")
    shelf.store.reput()
    shelf.store.replicated.learn_ends({(topic, queue_id): 5}, shelf.store.end)
    shelf.settle()
    assert shelf.bodies() == [b"before", b"after"]
    assert shelf.store.queues() == {"Topic": [0]}
    assert set(shelf.disk.files()) == paths
    shelf.disk.kill()
    shelf.open()
    shelf.settle()
    assert shelf.bodies() == [b"before", b"after"]
    assert set(shelf.disk.files()) == paths
    told = [event for event in shelf.events if event.kind == "record without a queue"]
    assert [(event.fields["topic"], event.fields["queue"]) for event in told[:1]] == [(topic, queue_id)]


def test_a_full_disk_delays_dispatch() -> None:
    shelf = Shelf()
    shelf.send(b"a", b"b")

    def fault(operation: str, path: str) -> StorageError | None:
        return DiskFull("no space") if "consumequeue" in path and operation == "write" else None

    shelf.disk.fault = fault
    assert shelf.store.reput() == []
    assert not shelf.store.writeable
    shelf.disk.fault = None
    assert [arrival.next_offset for arrival in shelf.store.reput()] == [2]
    assert shelf.store.writeable
    assert shelf.bodies() == [b"a", b"b"]


def test_a_deleted_topic_begins_anew() -> None:
    shelf = Shelf()
    shelf.send(b"old", b"older")
    shelf.send(b"other", topic="Other")
    shelf.store.reput()
    shelf.store.delete_topics(["Topic"]).run()
    assert shelf.store.queue_range("Topic", 0) == (0, 0)
    assert shelf.store.queues() == {"Other": [0]}
    assert shelf.send(b"new")[0].queue_offset == 0
    shelf.store.reput()
    assert shelf.bodies() == [b"new"]
    shelf.disk.kill()
    shelf.open()  # all is dispatched again, the deleted messages too
    assert shelf.bodies() == [b"new"]


def test_parts_of_transactions_are_indexed_and_have_no_units_a_rollback_has_neither() -> None:
    shelf = Shelf()
    plain, prepared, committed, rolled_back = 0, 4, 8, 12
    for number, kind in enumerate((plain, prepared, committed, rolled_back)):
        sent = put_request(b"%d" % number, queue_id=number, KEYS="k")
        sent.sys_flag = kind
        shelf.store.put([sent])
    shelf.store.reput()
    assert [shelf.bodies(queue_id=number) for number in range(4)] == [[b"0"], [], [b"2"], []]
    records = shelf.store.query("Topic", "k", 9, 0, 1 << 60)
    assert [decode_message(record).body() for record in records] == [b"2", b"1", b"0"]


def test_a_slave_knows_which_queues_it_has_not_from_their_beginning() -> None:
    """Else whoever asks for a queue's first message gets the first one that the slave happens to have."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    for number in range(40):
        master.send(b"%d" % number * 100)
    master.send(b"new", topic="New")
    master.settle()
    start = next(message.physical_offset for message in master.read() if message.physical_offset > 9000)
    offset = start
    while offset < master.store.end:
        offset = slave.store.append_raw(offset, master.store.slice(offset, 1000))
    slave.settle()
    for _ in range(2):
        assert slave.store.queue_range("Topic", 0)[0] > 0
        assert slave.store.lacks_beginning("Topic", 0)
        assert not slave.store.lacks_beginning("New", 0)
        slave.store.close()
        slave.open()
    assert not master.store.lacks_beginning("Topic", 0)


def test_a_queue_of_which_a_slave_with_a_part_of_the_log_has_nothing_is_not_empty() -> None:
    """Else whoever asks for its limits while the master is away reads none of its messages, in silence."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    assert slave.store.lacks_beginning("Old", 0), "nothing is copied yet"
    assert not master.store.lacks_beginning("Old", 0)
    for topic in ("Old", "Gone"):
        master.send(b"x" * 1000, topic=topic)
    start = master.store.end
    master.send(b"new", topic="New")
    master.settle()
    slave.store.append_raw(start, master.store.slice(start, 1000))
    slave.settle()
    assert slave.store.lacks_beginning("none", 0), "nobody told it yet"
    slave.store.replicated.learn_ends(master.store.replicated.next_offsets, master.store.end)
    for _ in range(2):
        lacks = {topic: slave.store.lacks_beginning(topic, 0) for topic in ("Old", "Gone", "New", "none")}
        assert lacks == {"Old": True, "Gone": True, "New": False, "none": False}
        slave.store.close()
        slave.open()
    deletion = slave.store.replicated.learn_deletions({"Gone": master.store.end})
    assert deletion is not None
    deletion.run()
    assert not slave.store.lacks_beginning("Gone", 0), "made anew, it would be here from its first message on"
    assert slave.store.lacks_beginning("Old", 0)


@pytest.mark.rule("H13")
@pytest.mark.parametrize("start", [0, 4096])
def test_what_a_slave_gave_up_before_its_master_did_is_not_expired(start: int) -> None:
    """Its own retention is shorter, or its disk is fuller: whoever asks for the first message while the master is away
    got a later one, and passed over those that the master has."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"x" * 300 for _ in range(60)])
    master.settle()
    offset = start
    while offset < master.store.end:
        offset = slave.store.append_raw(offset, master.store.slice(offset, 1000))
    slave.settle()
    slave.store.replicated.learn_ends(master.store.replicated.next_offsets, master.store.end, master.store.first)
    assert slave.store.lacks_beginning("Topic", 0) == (start > 0)
    _expire(slave)
    assert slave.store.first > start
    for _ in range(2):
        assert slave.store.lacks_beginning("Topic", 0), "the master may be away, and has it"
        slave.store.close()
        slave.open()
    _expire(master)
    slave.store.replicated.learn_ends(master.store.replicated.next_offsets, master.store.end, master.store.first)
    assert not slave.store.lacks_beginning("Topic", 0), "there is none any more"


def _expire(shelf: Shelf) -> None:
    shelf.clock.ms += 100 * 3_600_000
    shelf.store.delete_expired()
    shelf.settle()
