"""After a crash: what was promised is there, what is torn is cut for good, what is damaged is refused."""

from __future__ import annotations

import dataclasses
import random

import pytest

from support.message_stores import ROOT, SMALL, Shelf, put_request
from tallystick.errors import CorruptRecord, StorageError, UsageError
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.checkpoint import Checkpoint, CheckpointFile
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.sim.disk import Crashed

FIRST_FILE = f"{ROOT}/commitlog/{0:020}"
SIDECAR = f"{ROOT}/tally-synced"


def consistent(shelf: Shelf) -> None:
    """Queue offsets dense, queues and index as the log says, on the disk as well."""
    for topic, queue_ids in shelf.store.queues().items():
        for queue_id in queue_ids:
            first, end = shelf.store.queue_range(topic, queue_id)
            assert [message.queue_offset for message in shelf.read(topic, queue_id)] == list(range(first, end))
    shelf.settle()
    assert check_store(shelf.disk, ROOT, shelf.settings).findings == []


@pytest.mark.rule("H11")
def test_h11_an_orderly_stop_keeps_all_and_dispatches_nothing_again() -> None:
    shelf = Shelf()
    sent = [b"%d" % number * 40 for number in range(60)]
    for body in sent:
        shelf.send(body, queue_id=int(body[:1]) % 2, KEYS=body[:2].decode())
    log, bodies = shelf.log(), [shelf.bodies(queue_id=0), shelf.bodies(queue_id=1)]
    shelf.store.close()
    assert f"{ROOT}/abort" not in [f"{ROOT}/{name}" for name in shelf.disk.listdir(ROOT)]
    shelf.open()
    assert shelf.events[-1].fields["dispatched_again"] == 0
    assert shelf.log() == log
    assert shelf.store.flushed == shelf.store.end
    assert [shelf.bodies(queue_id=0), shelf.bodies(queue_id=1)] != [[], []]
    shelf.store.reput()
    assert sorted(shelf.bodies(queue_id=0) + shelf.bodies(queue_id=1)) == sorted(sent)
    assert bodies == [[], []]  # before the first reput nothing was readable


def test_a_killed_process_loses_nothing_that_was_written() -> None:
    shelf = Shelf()
    sent = [b"%d" % number * 30 for number in range(40)]
    for body in sent:
        shelf.send(body, KEYS="k")
    log = shelf.log()
    shelf.disk.kill()
    shelf.open()
    assert shelf.log() == log
    assert shelf.bodies() == sent
    consistent(shelf)


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_takes_nothing_that_was_flushed(seed: int) -> None:
    """rmq#467, #405, #1434, #678, #495, #7355, #10108: any moment, any writes lost, kept or torn, twice in a row."""
    rng = random.Random(seed)
    shelf = Shelf(seed=seed)
    flushed: dict[int, list[bytes]] = {0: [], 1: []}
    for _ in range(3):
        shelf.disk.crash_at = shelf.disk.operations + rng.randint(1, 120)
        try:
            written = {queue_id: list(bodies) for queue_id, bodies in flushed.items()}
            for number in range(40):
                body, queue_id = rng.randbytes(rng.randint(1, 300)), number % 2
                (put,) = shelf.send(body, queue_id=queue_id, TAGS="t", KEYS=f"k{number}")
                assert put.status is PutStatus.PUT_OK
                written[queue_id].append(body)
                if rng.random() < 0.3:
                    shelf.store.flush()
                    flushed = {queue_id: list(bodies) for queue_id, bodies in written.items()}
                if rng.random() < 0.4:
                    shelf.store.reput()
                if rng.random() < 0.2:
                    shelf.store.maintain(shelf.clock.ms)
        except Crashed:
            pass
        shelf.disk.power_loss()
        shelf.open()
        for queue_id, promised in flushed.items():
            found = shelf.bodies(queue_id=queue_id)
            assert found[: len(promised)] == promised, f"seed {seed}"
            flushed[queue_id] = found  # durable now, whatever it was before
        consistent(shelf)


@pytest.mark.parametrize("seed", range(24))
def test_a_crash_while_recovering_leaves_it_to_the_next_start(seed: int) -> None:
    rng = random.Random(seed)
    shelf = Shelf(seed=seed)
    shelf.send(*(rng.randbytes(100) for _ in range(20)), KEYS="k")
    shelf.settle()
    promised = shelf.bodies()
    shelf.send(*(rng.randbytes(100) for _ in range(30)), KEYS="k")
    shelf.store.reput()
    shelf.disk.power_loss()
    shelf.disk.crash_at = shelf.disk.operations + 1 + seed
    try:
        shelf.open()
    except Crashed:
        shelf.disk.power_loss()
        shelf.open()
    assert shelf.bodies()[: len(promised)] == promised
    consistent(shelf)


def test_the_last_append_cut_at_every_byte() -> None:
    shelf = Shelf()
    shelf.send(b"first")
    shelf.settle()
    start = shelf.store.end
    _, put = shelf.send(b"second", b"third", TAGS="t")
    (third,) = put.offsets
    image, end = bytes(shelf.disk.open(FIRST_FILE).read(4096, 0)), shelf.store.end
    for cut in range(start, end + 1):
        shelf.disk.kill()
        file = shelf.disk.open(FIRST_FILE)
        file.write([image[:cut] + bytes(4096 - cut)], 0)
        shelf.open()
        assert shelf.bodies() == [b"first", b"second", b"third"][: 1 + (cut >= third) + (cut >= end)]
        # The next messages follow what is whole, at the offsets of what is gone.
        (put,) = shelf.send(b"next")
        assert put.queue_offset == len(shelf.bodies())
        shelf.disk.kill()
        for name in shelf.disk.listdir(f"{ROOT}/consumequeue/Topic/0"):
            shelf.disk.unlink(f"{ROOT}/consumequeue/Topic/0/{name}")
        file = shelf.disk.open(SIDECAR)
        shelf.disk.unlink(SIDECAR)


@pytest.mark.rule("H11")
def test_h11_damage_below_the_synced_offset_is_refused_and_names_the_place() -> None:
    shelf = Shelf()
    for number in range(10):
        shelf.send(b"%d" % number * 50)
    shelf.settle()
    shelf.disk.kill()
    offset = shelf.store.slice(0, 4)
    size = int.from_bytes(offset, "big")
    for position in (3 * size + 100, 3 * size + 5, 3 * size + 30, 9 * size + 100):
        shelf.disk.flip(FIRST_FILE, position)
        with pytest.raises(CorruptRecord, match="Nothing was changed") as caught:
            shelf.open()
        assert caught.value.fields["path"] == FIRST_FILE
        assert caught.value.fields["offset"] == position - position % size
        shelf.disk.flip(FIRST_FILE, position)
        shelf.disk.kill()
    shelf.open()
    assert len(shelf.bodies()) == 10


def test_damage_above_the_synced_offset_is_a_torn_tail_whatever_follows() -> None:
    shelf = Shelf()
    shelf.send(b"kept")
    shelf.settle()
    end = shelf.store.end
    shelf.send(b"a" * 50, b"b" * 50, b"c" * 50)
    shelf.disk.kill()
    shelf.disk.flip(FIRST_FILE, end + 90)
    shelf.open()
    assert shelf.bodies() == [b"kept"]
    assert shelf.store.end == end


@pytest.mark.rule("H11")
def test_h11_what_was_cut_does_not_come_back_after_the_next_crash() -> None:
    """rmq#10666: the tail is gone from the disk, not only from memory."""
    shelf = Shelf()
    shelf.send(b"kept")
    shelf.settle()
    end = shelf.store.end
    shelf.send(b"1" * 50, b"2" * 50, b"3" * 50, b"4" * 50)
    shelf.disk.kill()
    shelf.disk.flip(FIRST_FILE, end + 90)
    shelf.open()
    shelf.send(b"n" * 50)  # exactly as long as the record that was torn
    shelf.disk.kill()
    shelf.open()
    assert shelf.bodies() == [b"kept", b"n" * 50]


def test_without_the_sidecar_a_bad_record_followed_by_good_ones_is_damage() -> None:
    shelf = Shelf()
    shelf.send(*(b"%d" % number * 50 for number in range(10)))
    shelf.settle()
    size = int.from_bytes(shelf.store.slice(0, 4), "big")
    shelf.disk.kill()
    shelf.disk.unlink(SIDECAR)
    shelf.disk.flip(FIRST_FILE, 8 * size + 95)
    with pytest.raises(CorruptRecord, match="good records follow") as caught:
        shelf.open()
    assert caught.value.fields["offset"] == 8 * size
    shelf.disk.flip(FIRST_FILE, 8 * size + 95)
    shelf.disk.flip(FIRST_FILE, 9 * size + 95)  # the last one: nothing good follows
    shelf.disk.kill()
    shelf.open()
    assert len(shelf.bodies()) == 9


def test_without_checkpoint_and_sidecar_everything_is_dispatched_from_the_log() -> None:
    shelf = Shelf()
    for number in range(80):
        shelf.send(b"%d" % number * 20, KEYS="k")
    shelf.settle()
    bodies = shelf.bodies()
    shelf.disk.kill()
    for name in ("checkpoint", "tally-synced"):
        shelf.disk.unlink(f"{ROOT}/{name}")
    shelf.open()
    assert shelf.bodies() == bodies
    consistent(shelf)


@pytest.mark.rule("H11")
def test_h11_after_a_crash_of_the_original_the_index_of_files_before_its_restart_point_is_built_again() -> None:
    """Its checkpoint never vouches for the index, and yet says that the first files need no dispatch."""
    shelf = Shelf()
    for number in range(80):
        shelf.send(b"%d" % number * 20, KEYS=f"k{number}")
    shelf.settle()
    assert len(shelf.disk.listdir(f"{ROOT}/commitlog")) > 3
    bodies, end = shelf.bodies(), shelf.store.end
    shelf.disk.kill()
    shelf.disk.unlink(SIDECAR)
    CheckpointFile(shelf.disk, ROOT).write(Checkpoint(log_ms=1, queues_ms=1, index_ms=0, dispatch_from=end))
    shelf.open()
    assert shelf.bodies() == bodies
    assert all(len(shelf.store.query("Topic", f"k{number}", 9, 0, 1 << 60)) == 1 for number in range(80))
    consistent(shelf)


def test_missing_files_are_damage() -> None:
    shelf = Shelf()
    for number in range(60):
        shelf.send(b"%d" % number * 100)
    shelf.settle()
    shelf.disk.kill()
    names = shelf.disk.listdir(f"{ROOT}/commitlog")
    assert len(names) > 4
    shelf.disk.unlink(f"{ROOT}/commitlog/{names[1]}")
    with pytest.raises(CorruptRecord, match="missing"):
        shelf.open()
    for name in shelf.disk.listdir(f"{ROOT}/commitlog"):
        shelf.disk.unlink(f"{ROOT}/commitlog/{name}")
    shelf.disk.kill()
    with pytest.raises(CorruptRecord, match="no files"):
        shelf.open()


def test_other_file_sizes_are_refused() -> None:
    shelf = Shelf()
    shelf.send(b"x")
    shelf.store.close()
    shelf.settings = dataclasses.replace(SMALL, commit_log_file_bytes=8192)
    with pytest.raises(UsageError, match="size"):
        shelf.open()
    shelf.settings = dataclasses.replace(SMALL, commit_log_file_bytes=2048)
    with pytest.raises(UsageError, match="size"):
        shelf.open()


def test_data_that_a_failed_sync_left_in_memory_is_written_again() -> None:
    """rmq#9713 and its aftermath: after a restart what is served is on the disk."""
    shelf = Shelf()
    shelf.send(b"before")
    shelf.settle()
    shelf.send(b"after")

    def fault(operation: str, path: str) -> StorageError | None:
        return StorageError("no") if operation == "sync" and "commitlog" in path else None

    shelf.disk.fault = fault
    flushed = shelf.store.flushed
    with pytest.raises(StorageError):
        shelf.store.flush()
    assert shelf.store.flushed == flushed
    assert not shelf.store.writeable
    shelf.disk.fault = None
    with pytest.raises(StorageError, match="stopped"):
        shelf.store.flush()  # a later sync that succeeds proves nothing
    shelf.disk.kill()
    shelf.open()
    assert shelf.bodies() == [b"before", b"after"]
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.bodies() == [b"before", b"after"]


def test_a_slaves_half_record_is_cut_even_below_what_was_synced() -> None:
    master, slave = Shelf(), Shelf(seed=2)
    master.send(b"one" * 30, b"two" * 30)
    master.store.reput()
    half = master.store.end - 20
    slave.store.take_role(slave=True)
    slave.store.append_raw(0, master.store.slice(0, half))
    slave.settle()
    assert slave.store.flushed == half
    slave.disk.power_loss()
    slave.open()
    assert slave.bodies() == [b"one" * 30]
    slave.store.append_raw(slave.store.end, master.store.slice(slave.store.end, 4096))
    slave.disk.kill()
    slave.open()
    assert slave.log() == master.log()


def test_hosts_of_both_kinds_survive() -> None:
    shelf = Shelf(dataclasses.replace(SMALL, store_host=bytes(15) + b"\x01\x00\x00\x2a\x9f"))
    shelf.store.put([put_request(b"six", born_host=bytes(20)), put_request(b"four")])
    shelf.settle()
    shelf.disk.power_loss()
    shelf.open()
    assert [(len(m.born_host), len(m.store_host)) for m in shelf.read()] == [(20, 20), (8, 20)]


def test_a_slave_that_died_before_its_first_bytes_begins_again() -> None:
    """Its first file is there, named by a place far behind 0, and nothing else."""
    shelf = Shelf()
    shelf.store.take_role(slave=True)
    shelf.disk.crash_at = shelf.disk.operations + 2  # opened, not yet allocated
    with pytest.raises(Crashed):
        shelf.store.append_raw(8192, b"x" * 100)
    shelf.disk.kill()
    shelf.open()
    assert (shelf.store.first, shelf.store.end) == (0, 0)
    master = Shelf()
    master.send(*[b"m" * 100] * 100)
    start = 4096
    shelf.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    shelf.store.take_role(slave=True)
    shelf.store.reput()
    assert shelf.bodies()


@pytest.mark.parametrize("slave", [False, True])
def test_a_log_that_is_lost_as_a_whole_begins_anew(slave: bool) -> None:
    """Found by the simulator: of two new files power loss took the name of the first and left the one in reserve."""
    shelf = Shelf()
    shelf.store.take_role(slave=slave)
    shelf.send(b"a", b"b", KEYS="k")
    shelf.store.reput()
    shelf.store.maintain(shelf.clock.ms)  # queues and index are durable; the log is not
    shelf.disk.kill()
    shelf.disk.unlink(FIRST_FILE)
    assert shelf.disk.listdir(f"{ROOT}/commitlog") == [f"{4096:020}"]
    for _ in range(2):
        shelf.open()
        assert (shelf.store.first, shelf.store.end) == (0, 0)
        assert shelf.store.queue_range("Topic", 0) == (0, 0)
        shelf.disk.kill()
    (put,) = shelf.open().put([put_request(b"n")])
    assert (put.offsets[0], put.queue_offset) == (0, 0)


@pytest.mark.rule("H4")
def test_h4_a_slave_whose_log_was_lost_but_for_an_empty_file_begins_there() -> None:
    """What was synced is behind that file's beginning: nothing is left of it to be written again."""
    shelf = Shelf()
    shelf.store.take_role(slave=True)
    for body in (b"a", b"b"):  # the first sync is known by the second
        shelf.send(body)
        shelf.settle()
    assert 0 < shelf.store.flushed < 4096
    shelf.disk.kill()
    shelf.disk.unlink(FIRST_FILE)
    shelf.open()
    assert (shelf.store.first, shelf.store.end) == (4096, 4096)


def test_a_record_that_ends_unwritten_is_torn_whatever_follows() -> None:
    shelf = Shelf()
    shelf.send(b"kept")
    shelf.settle()
    end = shelf.store.end
    _, put = shelf.send(b"torn", b"whole", KEYS="key")
    shelf.disk.kill()
    shelf.disk.open(FIRST_FILE).write([bytes(3)], put.offsets[0] - 3)
    shelf.open()
    assert shelf.bodies() == [b"kept"]
    assert shelf.store.end == end


def test_a_slaves_half_synced_record_that_ends_unwritten_is_torn() -> None:
    master, slave = Shelf(), Shelf(seed=2)
    master.send(b"one", b"two", KEYS="key")
    end = master.store.end
    slave.store.take_role(slave=True)
    slave.store.append_raw(0, master.store.slice(0, end - 5))
    slave.settle()
    slave.store.append_raw(end - 5, master.store.slice(end - 5, 5))
    slave.disk.kill()
    slave.disk.open(FIRST_FILE).write([bytes(5)], end - 5)
    slave.open()
    assert slave.bodies() == [b"one"]


def test_a_queues_folder_made_by_a_process_that_was_killed_is_made_durable() -> None:
    shelf = Shelf()
    shelf.send(b"a", topic="New")
    shelf.store.reput()
    shelf.disk.kill()
    shelf.open()
    shelf.settle()
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.bodies("New") == [b"a"]
    consistent(shelf)


@pytest.mark.parametrize("seed", range(20))
def test_a_slaves_queue_that_lost_its_first_file_is_built_again(seed: int) -> None:
    master, slave = Shelf(), Shelf(seed=seed)
    master.send(*[b"%d" % number for number in range(100)])  # a file of the queue has 16 units
    slave.store.take_role(slave=True)
    for start in (4096, 8192):
        slave.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    slave.store.flush()
    slave.store.reput()
    before = slave.bodies()
    slave.disk.power_loss()
    slave.open()
    assert slave.bodies() == before != []
    consistent(slave)
