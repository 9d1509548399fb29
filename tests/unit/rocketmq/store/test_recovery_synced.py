"""What a start makes of what was synced, to the last sync and to the last bit; ``test_recovery.py`` has the rest."""

from __future__ import annotations

import dataclasses
import random
import struct

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, DiskFull
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.synced import SIDECAR, read_synced
from tallystick.sim.disk import Crashed

FIRST_FILE = f"{ROOT}/commitlog/{0:020}"


def synced_one_by_one(count: int) -> tuple[Shelf, list[int]]:
    """Messages that were acknowledged one by one, less than a second ago: upkeep has written nothing of them yet."""
    shelf = Shelf(dataclasses.replace(SMALL, sync_flush=True, commit_log_file_bytes=1 << 20))
    ends = []
    for number in range(count):
        shelf.send(b"%3d" % number * 20)
        ends.append(shelf.store.flush())
    shelf.disk.kill()
    return shelf, ends


@pytest.mark.rule("H11")
def test_h11_a_flipped_bit_in_what_was_just_synced_is_refused_and_cuts_nothing() -> None:
    """Of 200 acknowledged and synced messages 180 were cut: what durable meant was written once a second."""
    shelf, ends = synced_one_by_one(200)
    starts, rng = [0, *ends], random.Random(7)
    for number in [0, 19, 20, 150, 198]:
        for position in (rng.choice((0, 1, 2, 3)), 4, rng.randint(30, 35), rng.randint(92, 130)):
            shelf.disk.flip(FIRST_FILE, starts[number] + position)
            with pytest.raises(CorruptRecord, match="it was synced") as caught:
                shelf.open()
            assert caught.value.fields["offset"] == starts[number], (number, position)
            shelf.disk.flip(FIRST_FILE, starts[number] + position)
            shelf.disk.kill()
    shelf.open()
    shelf.store.reput()
    assert len(shelf.bodies()) == 200


@pytest.mark.rule("H11")
@pytest.mark.parametrize("noted", [False, True])
def test_h11_only_the_newest_sync_can_be_in_doubt_and_only_until_upkeep_has_noted_it(noted: bool) -> None:
    shelf, ends = synced_one_by_one(20)
    if noted:
        shelf.open()
        ends.append(shelf.send(b"x" * 60)[0].end)
        shelf.store.flush()
        shelf.disk.fault = lambda operation, path: (
            DiskFull("full", path=path) if operation == "write" and "consumequeue" in path else None
        )
        shelf.store.reput()
        shelf.store.maintain(shelf.clock.ms)  # a full disk keeps the queues from being synced, and not this
        shelf.disk.fault = None
        shelf.disk.kill()
    shelf.disk.flip(FIRST_FILE, ends[-2] + 100)
    if noted:
        with pytest.raises(CorruptRecord, match="it was synced"):
            shelf.open()
        return
    shelf.open()
    cut = next(event for event in shelf.events if event.kind == "log cut")
    assert cut.fields == {"offset": ends[-2], "reason": "the last sync did not return"}
    shelf.store.reput()
    assert len(shelf.bodies()) == 19


@pytest.mark.parametrize("step", range(1, 7))
def test_a_sync_that_was_interrupted_anywhere_leaves_what_the_one_before_promised(step: int) -> None:
    for seed in range(12):
        shelf = Shelf(dataclasses.replace(SMALL, sync_flush=True), seed=100 * step + seed)
        shelf.send(b"first" * 20, b"second" * 20)
        shelf.store.flush()
        shelf.send(*(b"%d" % number * 50 for number in range(20)))
        shelf.disk.crash_at = shelf.disk.operations + step
        with pytest.raises(Crashed):
            shelf.store.flush()
            shelf.store.maintain(shelf.clock.ms)
        shelf.disk.power_loss()
        shelf.open()
        shelf.store.reput()
        assert shelf.bodies()[:2] == [b"first" * 20, b"second" * 20], f"step {step} seed {seed}"
        shelf.settle()
        assert check_store(shelf.disk, ROOT, shelf.settings).findings == []


def test_a_tail_with_holes_starts_where_the_flush_lags() -> None:
    """ASYNC_FLUSH: of what half a second brought, power loss kept the end and not the beginning."""
    shelf = Shelf(dataclasses.replace(SMALL, commit_log_file_bytes=1 << 16))
    shelf.send(b"kept")
    shelf.store.flush()
    end = shelf.store.end
    shelf.send(*(b"%d" % number * 50 for number in range(40)))
    hole = shelf.store.end
    shelf.send(*(b"%d" % number * 50 for number in range(40)))
    shelf.disk.kill()
    shelf.disk.open(FIRST_FILE).write([bytes(hole - end - 300)], end + 300)
    shelf.open()
    assert shelf.bodies() == [b"kept", b"0" * 50, b"1" * 50]
    assert end < shelf.store.end <= end + 300


def test_a_store_of_the_version_before_opens_and_goes_on() -> None:
    """Its sidecar had one offset, and no record of each sync."""
    shelf = Shelf()
    for number in range(9):
        shelf.send(b"%d" % number * 50)
    shelf.settle()
    known = read_synced(shelf.disk, ROOT)
    assert known is not None
    shelf.send(b"not noted")
    shelf.disk.kill()
    packed = struct.pack(
        ">8s6q", b"TALLYST1", 3, known.synced, known.dispatched, known.border, known.start, known.file_bytes
    )
    shelf.disk.unlink(f"{ROOT}/{SIDECAR}")
    shelf.disk.open(f"{ROOT}/{SIDECAR}", create=True).write([packed, struct.pack(">I", crc32c(packed))], 512)
    last_synced = known.synced - 10
    shelf.disk.flip(FIRST_FILE, last_synced)
    with pytest.raises(CorruptRecord, match="it was synced"):
        shelf.open()
    shelf.disk.flip(FIRST_FILE, last_synced)
    shelf.disk.kill()
    shelf.open()
    assert len(shelf.bodies()) == 10
    shelf.disk.kill()
    shelf.disk.flip(FIRST_FILE, 100)
    with pytest.raises(CorruptRecord, match="it was synced"):
        shelf.open()


@pytest.mark.rule("H8", "H11")
def test_h11_on_a_slave_a_flipped_bit_does_not_make_half_a_record_of_a_whole_one() -> None:
    """A slave's log may end within a record; one whose size grew reaches over the end of what is durable too."""
    master, slave = Shelf(), Shelf(seed=2)
    slave.store.take_role(slave=True)
    master.send(*(b"%02d" % number * 30 for number in range(15)))
    end, size = master.store.end, int.from_bytes(master.store.slice(0, 4), "big")
    for start in range(0, end - 30, 100):
        slave.store.append_raw(start, master.store.slice(start, min(100, end - 30 - start)))
        slave.store.flush()
        if start % 300 == 0:
            slave.store.reput()
    slave.disk.kill()
    for number in (0, 5, 12):
        slave.disk.flip(FIRST_FILE, number * size + 1, 6)
        with pytest.raises(CorruptRecord, match="it was synced"):
            slave.open()
        slave.disk.flip(FIRST_FILE, number * size + 1, 6)
        slave.disk.kill()
    slave.open()
    assert slave.store.end == 14 * size


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("half", [20, 150])
def test_h11_a_crash_at_any_step_of_a_cut_leaves_no_damage(settled: bool, half: int) -> None:
    """What is cut of a slave's half record was synced: the sidecar says so before it is gone, not after."""
    steps = range(1, 400)
    for step in steps:
        master, slave = Shelf(), Shelf(seed=step)
        slave.store.take_role(slave=True)
        master.send(b"one" * 30, b"two" * 30)
        end = master.store.end
        slave.store.append_raw(0, master.store.slice(0, end - half))
        slave.store.flush()
        slave.store.append_raw(end - half, master.store.slice(end - half, half - 5))
        slave.store.flush()
        if settled:
            slave.store.reput()
            slave.store.maintain(slave.clock.ms)
        slave.disk.power_loss()
        slave.disk.crash_at = slave.disk.operations + step
        try:
            slave.open()
        except Crashed:
            for _ in range(2):
                slave.disk.power_loss()
                slave.open()
                assert slave.bodies() == [b"one" * 30], f"step {step}"
        else:
            break
    assert step > 10, "the start was interrupted at every step"


@pytest.mark.rule("H11")
@pytest.mark.parametrize("sync_step", range(1, 4))
def test_h11_what_a_sync_that_did_not_return_left_in_memory_is_durable_before_it_is_said_to_be(sync_step: int) -> None:
    """A kill within the sync of a slave's half record, and then a loss of power at any step of the start."""
    for step in range(1, 400):
        master, slave = Shelf(), Shelf(seed=step)
        slave.store.take_role(slave=True)
        master.send(b"one" * 30)
        promised = master.store.end
        master.send(b"two" * 30, b"three" * 30)
        end = master.store.end
        slave.store.append_raw(0, master.store.slice(0, promised))
        slave.store.flush()
        slave.store.append_raw(promised, master.store.slice(promised, end - 5 - promised))
        slave.disk.crash_at = slave.disk.operations + sync_step
        with pytest.raises(Crashed):
            slave.store.flush()
        slave.disk.kill()
        slave.disk.crash_at = slave.disk.operations + step
        try:
            slave.open(slave=False)
        except Crashed:
            for _ in range(2):
                slave.disk.power_loss()
                slave.open(slave=False)
                assert slave.bodies()[:1] == [b"one" * 30], f"step {step}"
        else:
            break
    assert step > 10, "the start was interrupted at every step"


@pytest.mark.rule("H11")
@pytest.mark.parametrize("promoted", [False, True])
def test_h11_a_record_that_was_dispatched_after_its_sync_is_no_part_of_one(promoted: bool) -> None:
    """A slave syncs bytes before anybody looks for records in them: what is noted later counts as well."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"%03d" % number for number in range(30)])
    slave.store.append_raw(0, master.log())
    slave.store.flush()
    if promoted:
        slave.store.promote()
        slave.store.take_role(slave=False)
    slave.store.reput()
    slave.store.maintain(slave.clock.ms)
    last = slave.read()[-1].physical_offset
    slave.disk.kill()
    slave.disk.flip(FIRST_FILE, last + 1, 6)  # its size becomes a large one
    with pytest.raises(CorruptRecord, match="it was synced"):
        slave.open()


@pytest.mark.rule("H11")
def test_h11_queues_that_are_ahead_of_the_logs_sync_say_nothing_of_what_it_has() -> None:
    """A slave synced 4 bytes of a record, got more, dispatched it, and lost the power before the next sync."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"one")
    log = master.log()
    slave.store.append_raw(0, log[:4])
    slave.store.flush()
    slave.store.append_raw(4, log[4:])
    slave.store.reput()
    slave.store.maintain(slave.clock.ms)
    synced = read_synced(slave.disk, ROOT)
    assert synced is not None and synced.synced == 4 < synced.dispatched
    slave.disk.power_loss()
    slave.open()
    assert slave.store.end in (0, len(log))
