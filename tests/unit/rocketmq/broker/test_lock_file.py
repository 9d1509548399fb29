"""Owners of queues on the disk: when they are there, who waits for them, and how often they are written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.admin_desk import MASTER, SLAVE, Desk
from support.brokers import Peer, benched, pull_command, send_command
from support.stores import SteppingClock
from support.workers import WorkerAtOnce
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.broker import saver as saver_module
from tallystick.rocketmq.broker.config_files import LOCKS, ConfigFiles
from tallystick.rocketmq.broker.lock_file import LockFile
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode
from tallystick.runtime.atomic import AtomicWrite
from tallystick.runtime.disk import File, OsDisk
from tallystick.runtime.events import Events

QUEUE = MessageQueue("T", "b0", 0)


def locked(by: LockFile, client: str, now: float) -> bool:
    return by.locks.lock("g", client, "host", [QUEUE], now) == [QUEUE]


def test_an_owner_of_a_queue_is_on_the_disk_before_it_hears_of_it_and_a_slave_forgets_them() -> None:
    desk = Desk()
    now = desk.clock.now()
    assert locked(desk.lock_file, "a", now)
    desk.disk.power_loss()
    desk.shelf.open()
    desk.restart()
    assert (locked(desk.lock_file, "b", now), locked(desk.lock_file, "a", now)) == (False, True)
    desk.lock_file.locks.unlock("g", "a", [QUEUE])
    assert desk.lock_file.unsaved_files(urgent=True) == []
    desk.save()
    desk.restart()
    assert locked(desk.lock_file, "b", now)
    desk.settings = SLAVE
    desk.restart()
    desk.settings = MASTER
    names = [name for name in desk.disk.listdir("/store/config") if name.startswith(LOCKS)]
    assert names == []
    promoted = LockFile(desk.files, desk.clock, Standing())
    promoted.take_role(is_new=False)
    assert not locked(promoted, "a", now), "it was a slave: who has locks?"


def loaded(files: ConfigFiles, clock: SteppingClock) -> LockFile:
    """A master's."""
    file = LockFile(files, clock, Standing())
    file.take_role(is_new=True)
    return file


def test_locks_of_a_master_are_none_of_the_slave_that_it_becomes_and_a_new_one_has_none() -> None:
    desk = Desk()
    standing, now = Standing(), desk.clock.now()
    file = LockFile(desk.files, desk.clock, standing)
    file.take_role(is_new=True)
    again = LockFile(desk.files, desk.clock, Standing())
    again.take_role(is_new=False)
    assert locked(again, "a", now), "the file says that nobody had one: no minute of waiting"
    assert locked(file, "a", now) and len(file.locks) == 1
    standing.become(Role.SLAVE, 1)
    file.take_role(is_new=False)
    assert len(file.locks) == 0


class LockDisk(OsDisk):
    """The file of locks is written when it may be, or not at all."""

    def __init__(self) -> None:
        self.gate, self.full, self.written = threading.Event(), False, 0
        self.gate.set()

    def open(self, path: str, **how: bool) -> File:
        if path.endswith(f"{LOCKS}.new"):
            assert self.gate.wait(20), "nobody opened the gate"
            if self.full:
                raise DiskFull("no room", path=path)
            self.written += 1
        return super().open(path, **how)


def lock(client: str, queue_id: int = 0) -> Command:
    asked = LockRequest(client, "g", [MessageQueue("BenchmarkTest", "b0", queue_id)])
    return request(RequestCode.LOCK_BATCH_MQ, {}, dialect.write(asked))


def taken(answer: Command) -> int:
    return len(dialect.read(bytes(answer.body)).get("lockOKMQSet", ()))


async def answered(peer: Peer, opaque: int) -> bool:
    """Whether it is, when the broker has handled all that was sent to it."""
    await peer.ask(pull_command("Nowhere", group="TOOLS_CONSUMER"))
    return opaque in peer._answers


async def test_who_has_a_queue_hears_of_it_when_that_is_saved_and_nobody_else_waits(tmp_path: Path) -> None:
    disk = LockDisk()
    async with benched(tmp_path) as bench:
        broker = await bench.broker(disk=disk)
        peer = await bench.peer(broker)
        assert taken(await peer.ask(lock("a", 1))) == 1
        disk.gate.clear()
        try:
            first, again = peer.send(lock("a")), peer.send(lock("a"))
            assert (await peer.ask(send_command("New"))).code == 0, "its topic is saved"
            assert taken(await peer.ask(lock("a", 1))) == 1, "it is saved that a has it"
            assert taken(await peer.ask(lock("b"))) == 0
            assert [await answered(peer, opaque) for opaque in (first, again)] == [False, False]
        finally:
            disk.gate.set()
        assert [taken(await peer.answer(opaque)) for opaque in (first, again)] == [1, 1]


async def test_a_lock_that_cannot_be_saved_is_none(tmp_path: Path) -> None:
    disk = LockDisk()
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker(disk=disk))
        disk.full = True
        for _ in range(2):
            refused = await peer.ask(lock("a"))
            assert (refused.code, bytes(refused.body)) == (1, b"")
            assert "the locks cannot be saved: no room" in (refused.remark or "")
        disk.full = False
        assert taken(await peer.ask(lock("a"))) == 1


async def test_who_asks_again_after_a_save_that_failed_waits_for_no_period(tmp_path: Path) -> None:
    disk, clock, done = LockDisk(), SteppingClock(), list[StorageError | None]()
    files = ConfigFiles(disk, str(tmp_path))
    file = loaded(files, clock)
    saver = Saver(file, files, clock, Events(), WorkerAtOnce())
    saver.start()
    disk.full = True
    file.locks.lock("g", "a", "host", [QUEUE], clock.now())
    for full in (True, False):
        disk.full = full
        saver.after(file.changes, done.append)
        for _ in range(20):
            await asyncio.sleep(0)
    assert [bool(error) for error in done] == [True, False], "no time has gone by"
    await saver.close()


@pytest.mark.parametrize("is_long", [False, True])
async def test_many_locks_are_saved_a_share_of_the_time_and_at_the_end(
    tmp_path: Path, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_long:
        monkeypatch.setattr(saver_module, "FREE_BYTES", 0)
        monkeypatch.setattr(saver_module, "BYTES_A_SECOND", 1)
    disk, clock = LockDisk(), SteppingClock()
    files = ConfigFiles(disk, str(tmp_path))
    file = loaded(files, clock)
    saver = Saver(file, files, clock, Events(), WorkerAtOnce())
    saver.start()
    before = disk.written
    for number in range(5):
        file.locks.lock(f"g{number}", "a", "host", [QUEUE], clock.now())
        for _ in range(20):
            await asyncio.sleep(0)
    assert disk.written - before == (1 if is_long else 5)
    done: list[StorageError | None] = []
    saver.after(file.changes, done.append)
    await saver.close()
    assert done == [None]
    assert len(loaded(files, clock).locks) == 5


class CountingDisk(OsDisk):
    """How many files were opened and closed."""

    def __init__(self) -> None:
        self.opened = self.closed = 0

    def open(self, path: str, **how: bool) -> File:
        file = super().open(path, **how)
        close = file.close
        self.opened += 1

        def closing() -> None:
            self.closed += 1
            close()

        file.close = closing  # type: ignore[method-assign]
        return file


async def test_a_long_file_is_never_all_in_memory_and_one_that_fails_halfway_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "AT_ONCE", 2)
    disk = CountingDisk()
    files, clock, pieces = ConfigFiles(disk, str(tmp_path)), SteppingClock(), list[int]()
    write, most = AtomicWrite.write, 3

    def counted(new: AtomicWrite, *data: bytes) -> None:
        pieces.append(len(data))
        if len(pieces) > most:
            raise DiskFull("no room")
        write(new, *data)

    file = loaded(files, clock)
    saver = Saver(file, files, clock, Events(), WorkerAtOnce())
    file.locks.lock("g", "a", "host", [MessageQueue("T", "b0", number) for number in range(1000)], clock.now())
    monkeypatch.setattr(AtomicWrite, "write", counted)
    for _ in range(2):
        done: list[StorageError | None] = []
        saver.after(file.changes, done.append)
        await saver.save(urgent=True)
        assert (max(pieces), bool(done[0])) == (2, len(pieces) > most)
        assert disk.opened == disk.closed, "also of what failed halfway nothing stays open"
        assert len(loaded(files, clock).locks) == (1000 if most > 3 else 0)
        most = 1000
    await saver.close()


def test_a_slave_writes_no_locks_that_it_would_know_when_it_is_a_master() -> None:
    desk = Desk(SLAVE)
    assert locked(desk.lock_file, "a", 0.0)
    desk.lock_file.locks.unlock("g", "a", [QUEUE])
    assert desk.lock_file.unsaved_files() == []


class Meanwhile(WorkerAtOnce):
    """Something else happens while a file is written."""

    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def submit(self, call: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        super().submit(call, done)
        self.then()


async def test_an_owner_that_came_while_the_file_was_written_waits_for_the_next_one(tmp_path: Path) -> None:
    files, clock = ConfigFiles(OsDisk(), str(tmp_path)), SteppingClock()
    file = loaded(files, clock)
    worker = Meanwhile(lambda: file.locks.lock("h", "b", "host", [QUEUE], clock.now()))
    saver = Saver(file, files, clock, Events(), worker)
    file.locks.lock("g", "a", "host", [QUEUE], clock.now())
    await saver.save(urgent=True)
    told: list[StorageError | None] = []
    saver.after(file.changes, told.append)
    assert not told and len(loaded(files, clock).locks) == 1
    await saver.save(urgent=True)
    assert told == [None] and len(loaded(files, clock).locks) == 2
    await saver.close()
