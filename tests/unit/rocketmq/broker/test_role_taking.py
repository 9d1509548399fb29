"""What is done, and in which order, when a broker takes up a role."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.brokers import TOPIC, Bench, benched, fill, send_command
from support.waiting import until
from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, LOCKS, RESETS
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.rounds import RoundsCore
from tallystick.rocketmq.ha.master import HaMaster
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode
from tallystick.runtime.disk import File, OsDisk

REFUSED = 2  # SYSTEM_BUSY: what an original slave says to a send


async def pair(bench: Bench) -> tuple[Broker, Broker]:
    """A master, and a slave that has its first 3 messages."""
    master = await bench.broker(bench.settings("master"))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1))
    slave.log.follow("{}:{}".format(*master.ha_address or ()))
    slave.sync.master = "{}:{}".format(*master.address)
    await fill(await bench.peer(master), 3)
    await until(lambda: TOPIC in slave.tables.topics.all and slave.parts.store.reput_offset == master.log.store.end)
    return master, slave


@contextlib.asynccontextmanager
async def held_up(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """Masters that end part with their slaves when this is left. The event is set when one begins to."""
    begun, go_on, close = asyncio.Event(), asyncio.Event(), HaMaster.close

    async def closed(master: HaMaster) -> None:
        begun.set()
        await go_on.wait()
        await close(master)

    with monkeypatch.context() as patched:
        patched.setattr(HaMaster, "close", closed)
        try:
            yield begun
        finally:
            go_on.set()


@pytest.mark.rule("H9")
async def test_h9_a_master_refuses_sends_before_it_parts_with_its_slaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took then would be in no other log, and be cut when it follows one."""
    async with benched(tmp_path) as bench:
        master, _ = await pair(bench)
        peer, end = await bench.peer(master), master.parts.store.end
        async with held_up(monkeypatch) as begun:
            taking = asyncio.create_task(master.take_role(Role.SLAVE, 2))
            await begun.wait()
            assert (await peer.ask(send_command())).code == REFUSED
            assert master.parts.store.end == end
        await taking


async def test_a_slave_whose_port_is_taken_when_its_log_is_a_masters_already_goes_on_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free when it was looked at."""

    async def start(_: HaMaster) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        with monkeypatch.context() as patched:
            patched.setattr(HaMaster, "start", start)
            with pytest.raises(UsageError, match="cannot listen for slaves: Address already in use"):
                await slave.take_role(Role.ASYNC_MASTER, 0)
        assert slave.parts.store.slave and slave.standing.is_slave
        await fill(await bench.peer(master), 2)
        await until(lambda: slave.parts.store.queue_range(TOPIC, 0)[1] == 5)


@pytest.mark.rule("H13")
async def test_h13_an_offset_beyond_the_log_is_cut_on_the_disk_too_before_sends_are_taken(tmp_path: Path) -> None:
    """A crash would bring it back, among new messages, and its group would pass over them."""
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await master.stop()
        slave.tables.offsets.commit(TOPIC, "G", 0, 9)
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert slave.tables.offsets.get(TOPIC, "G", 0) == 3
        saved = dialect.read((tmp_path / "slave" / "config" / CONSUMER_OFFSETS).read_bytes())
        assert saved["offsetTable"] == {f"{TOPIC}@G": {"0": 3}}
        assert [event.fields["offset"] for event in bench.told if event.kind == "consumer offset cut"] == [9]


class FullDisk(OsDisk):
    """A file of tables cannot be written."""

    def __init__(self, file: str = CONSUMER_OFFSETS) -> None:
        self.file, self.is_full = file, True

    def open(self, path: str, **how: bool) -> File:
        if self.is_full and path.endswith(f"{self.file}.new"):
            raise DiskFull("no space left on device", path=path)
        return super().open(path, **how)


@pytest.mark.rule("H13")
@pytest.mark.parametrize("file", [CONSUMER_OFFSETS, RESETS])
async def test_h13_a_broker_is_no_master_before_the_offsets_that_its_log_cut_are_saved(
    tmp_path: Path, file: str
) -> None:
    """Sends need no room on a full disk, for the log's file is there: a kill brought an offset back among them."""
    async with benched(tmp_path) as bench:
        disk, settings = FullDisk(file), bench.settings("a")
        disk.is_full = False
        broker = await bench.broker(settings, disk=disk)
        await fill(await bench.peer(broker), 5)
        broker.tables.offsets.commit(TOPIC, "G", 0, 9)
        broker.tables.offsets.resets.pending.put(f"{TOPIC}@G", {0: 9})
        await broker.stop()
        disk.is_full = True
        with pytest.raises(StorageError, match="no messages as a master before the consumer offsets are saved"):
            await bench.broker(settings, disk=disk)
        disk.is_full = False
        broker = await bench.broker(settings, disk=disk)
        assert broker.tables.offsets.get(TOPIC, "G", 0) == 5
        assert broker.tables.offsets.resets.pending.table() == {f"{TOPIC}@G": {0: 5}}


@pytest.mark.rule("H13")
async def test_h13_a_slave_that_cannot_save_the_offsets_it_cut_goes_on_as_one(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        disk = FullDisk()
        disk.is_full = False
        master = await bench.broker(bench.settings("master"))
        slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1), disk=disk)
        slave.tables.offsets.commit(TOPIC, "G", 0, 9)
        disk.is_full = True
        for _ in range(2):  # in memory they are cut then
            with pytest.raises(StorageError, match="consumer offsets are saved"):
                await slave.take_role(Role.ASYNC_MASTER, 0)
            assert slave.parts.store.slave and slave.standing.is_slave
        disk.is_full = False
        await master.stop()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert not slave.standing.is_slave


class SlowLocks(OsDisk):
    """The file of locks is written when it may be."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()

    def open(self, path: str, **how: bool) -> File:
        if path.endswith(f"{LOCKS}.new"):
            self.begun.set()
            assert self.gate.wait(20), "nobody opened the gate"
        return super().open(path, **how)


async def test_locks_that_are_being_saved_when_a_master_becomes_a_slave_are_on_no_disk_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a master once more it would take them for what its clients have, and others have the queues by then."""
    disk = SlowLocks()
    async with benched(tmp_path) as bench:
        disk.gate.set()
        broker = await bench.broker(disk=disk)
        disk.gate.clear()
        disk.begun.clear()
        asked = LockRequest("a", "g", [MessageQueue("BenchmarkTest", "b0", 0)])
        (await bench.peer(broker)).send(request(RequestCode.LOCK_BATCH_MQ, {}, dialect.write(asked)))
        await until(disk.begun.is_set)
        saver = broker._lock_saver
        save = saver.save

        async def awaited(*, urgent: bool = False) -> None:
            disk.gate.set()
            await save(urgent=urgent)

        monkeypatch.setattr(saver, "save", awaited)
        try:
            await broker.take_role(Role.SLAVE, 1)
        finally:
            disk.gate.set()
        await save()  # what is under way is done
        assert [name for name in disk.listdir(str(tmp_path / "b0" / "config")) if name.startswith(LOCKS)] == []


async def test_a_master_that_becomes_a_slave_says_when_it_copies_no_tables_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def began(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        await broker.take_role(Role.SLAVE, 1)
        assert not broker.failure.done()
        monkeypatch.setattr(RoundsCore, "began", began)
        broker.sync.master = "127.0.0.1:1"
        assert "a bug" in str(await asyncio.wait_for(broker.failure, 10))
