"""Master and slave of ours, over a real connection."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from support.ha_log import MemoryLog
from support.waiting import until
from tallystick.rocketmq.ha.acks import Settle
from tallystick.rocketmq.wire.values import PutStatus

if TYPE_CHECKING:
    from unit.rocketmq.ha.conftest import House, Master


@pytest.mark.rule("H2", "H8")
@pytest.mark.parametrize("synced", [False, True])
async def test_h8_the_slaves_log_becomes_the_masters(house: House, synced: bool) -> None:
    rng = random.Random(3)
    master = await house.master(MemoryLog(rng.randbytes(500_000), file_bytes=1 << 24))
    slave = house.slave(master.address, sync_flush=synced)
    for _ in range(50):
        master.put(rng.randbytes(rng.randint(1, 100_000)))
    await until(lambda: slave.log.end == master.log.end)
    assert slave.log.data == master.log.data
    await until(lambda: master.port.status()[0].acked == master.log.end)
    if synced:
        assert slave.log.flushed == master.log.end
    [status] = master.port.status()
    assert (status.slave_id, status.proven, status.behind_bytes) == ("slave", True, 0)
    assert slave.link.status().proven
    assert slave.link.status().master_hello is not None


@pytest.mark.rule("H9")
async def test_h9_sync_means_synced_when_the_slave_says_so(house: House) -> None:
    master = await house.master(MemoryLog(b"old"))
    slave = house.slave(master.address, sync_flush=True)
    await until(lambda: master.port.status() != [] and master.port.status()[0].acked == 3)
    slave.synced = False  # its disk is slow now
    end = master.put(b"new")
    ticket = master.waits.appended(end, flush=False, replicas=True).ticket
    await until(lambda: slave.log.end == end)
    assert master.settles == []
    slave._flush()
    await until(lambda: master.settles == [Settle(ticket, PutStatus.PUT_OK)])


async def waiting_behind_a_slave(house: House) -> Master:
    """A master, one of whose sends, up to 4050, waits for a slave that left; its newest file begins behind that."""
    master = await house.master(MemoryLog(b"x" * 4000, file_bytes=4096), slave_timeout_ms=5000)
    former = house.slave(master.address, MemoryLog(bytes(master.log.data)), slave_id="b:1")
    await until(lambda: master.waits.core.in_sync(4000) == 1)
    former.link.follow(None)
    master.waits.appended(master.put(b"y" * 50), flush=False, replicas=True)
    await until(lambda: master.port.status() == [])
    master.put(b"z" * 100)
    return master


@pytest.mark.rule("H9")
async def test_h9_a_slave_that_begins_behind_a_send_is_no_copy_of_it(house: House) -> None:
    """Its first acks are beyond the send, and those after it came again."""
    master = await waiting_behind_a_slave(house)
    slave = house.slave(master.address, MemoryLog(file_bytes=4096), slave_id="b:2")
    await until(lambda: master.waits.core.replicated(4150) == 4150)
    slave.link.follow(None)
    await until(lambda: master.port.status() == [])
    slave.link.follow(master.address)
    await until(lambda: master.waits.core.replicated(4150) == 4150)
    assert master.settles == []
    await until(lambda: master.settles == [Settle(1, PutStatus.FLUSH_SLAVE_TIMEOUT)])


@pytest.mark.rule("H9")
async def test_h9_an_original_slave_that_begins_behind_a_send_is_no_copy_of_it(house: House) -> None:
    """It says where its log begins only by being empty."""
    master = await waiting_behind_a_slave(house)
    for end in (0, 4150):
        original = await house.peer(master.address)
        original.report(end)
        if not end:
            assert await original.frame() == (4096, b"z" * 54)
        await original.frame()
        original.report(4150)
        await until(lambda: master.waits.core.replicated(4150) == 4150)
        assert master.settles == []
        original.writer.close()
        await until(lambda: master.port.status() == [])
    await until(lambda: master.settles == [Settle(1, PutStatus.FLUSH_SLAVE_TIMEOUT)])


async def test_a_slave_that_was_away_goes_on_where_it_was(house: House) -> None:
    master = await house.master(MemoryLog(random.Random(1).randbytes(300_000)))
    log = MemoryLog(bytes(master.log.data[:123_456]))
    slave = house.slave(master.address, log)
    await until(lambda: slave.log.end == master.log.end)
    assert slave.log.data == master.log.data
    assert slave.log.appends[0][0] == 123_456


@pytest.mark.parametrize("whole", [False, True])
async def test_an_empty_slave_gets_the_newest_file_or_all(house: House, whole: bool) -> None:
    master = await house.master(MemoryLog(random.Random(1).randbytes(2500), file_bytes=1000))
    slave = house.slave(master.address, MemoryLog(file_bytes=1000), copy_whole_log=whole)
    await until(lambda: slave.log.end == 2500)
    assert slave.log.first == (0 if whole else 2000)


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_slave_whose_log_differs_is_refused_and_keeps_its_data(house: House, ahead: bool) -> None:
    """R3: the original would append the master's bytes behind the slave's other ones."""
    master = await house.master(MemoryLog(b"abcdefgh"))
    log = MemoryLog(b"abcX" if not ahead else b"abcdefghi")
    before = bytes(log.data)
    slave = house.slave(master.address, log)
    await until(lambda: "start it with an empty one" in slave.link.status().why)
    master.put(b"more")
    await until(lambda: len(master.reasons()) >= 2)
    assert bytes(slave.log.data) == before
    assert not master.waits.core.available(12)
    assert len([event for event in slave.events if event.kind == "master link closed"]) == 1 or ahead


async def test_a_second_link_of_one_slave_replaces_the_first(house: House) -> None:
    """R2: two links are not two copies."""
    master = await house.master(MemoryLog(b"data"), in_sync_replicas=3)
    house.slave(master.address, slave_id="b:1", retry_ms=60_000)
    await until(lambda: master.waits.core.in_sync(4) == 1)
    twin = house.slave(master.address, slave_id="b:1", retry_ms=60_000)
    await until(lambda: twin.log.end == 4 and len(master.port.status()) == 1)
    assert "slave replaced" in [event.kind for event in master.events]
    assert master.waits.core.in_sync(4) == 1
    third = house.slave(master.address, slave_id="b:1", retry_ms=60_000)
    await until(lambda: third.log.end == 4 and len(master.port.status()) == 1)
    assert [event.kind for event in master.events].count("slave replaced") == 2, "the end of the first left the second"
    assert master.waits.core.in_sync(4) == 1
    house.slave(master.address, slave_id="b:2")
    await until(lambda: master.waits.core.in_sync(4) == 2)
    await until(lambda: master.waits.core.replicated(4) == 4)
