"""A master's port, slaves, and raw peers of either, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from support.ha_log import MemoryLog
from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory, connection, machine
from tallystick.rocketmq.ha.acks import Settle
from tallystick.rocketmq.ha.master import HaMaster
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.ha.slave import HaSlave
from tallystick.rocketmq.ha.waits import Waits
from tallystick.rocketmq.wire.ha import HEAD, REPORT
from tallystick.runtime.events import Event, Events

QUICK = HaSettings(port=0, heartbeat_ms=100, retry_ms=20, handshake_ms=100)


class Master:
    def __init__(self, log: Any, settings: HaSettings, file_bytes: int) -> None:
        self.log, self.events = log, list[Event]()
        self.settles: list[Settle] = []
        outside = machine(Events(self.events.append))
        self.waits = Waits(outside.clock, settings, self.settles.extend, flushed=0)
        self.port = HaMaster(outside, log, self.waits, settings, file_bytes=file_bytes)
        self.address = ""

    def put(self, data: bytes) -> int:
        end: int = self.log.put(data)
        self.port.appended(end)
        return end

    def reasons(self) -> list[str]:
        return [str(event.fields.get("reason")) for event in self.events if event.kind == "slave link closed"]


class Slave:
    def __init__(self, log: Any, settings: HaSettings) -> None:
        self.log, self.events = log, list[Event]()
        self.followed = 0
        self.errors: list[Exception] = []  # why it can follow nobody any more
        self.link = HaSlave(
            machine(Events(self.events.append)),
            log=log,
            settings=settings,
            on_appended=self._appended,
            on_following=self._following,
            failed=self.errors.append,
        )
        self.synced = settings.sync_flush

    def _appended(self) -> None:
        if self.synced:
            asyncio.get_running_loop().call_soon(self._flush)

    def _following(self) -> None:
        self.followed += 1

    def _flush(self) -> None:
        self.log.flush()
        self.link.flushed()


class Peer:
    """Raw bytes to and from a port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def report(self, *offsets: int) -> None:
        self.writer.write(b"".join(map(REPORT.pack, offsets)))

    async def frame(self) -> tuple[int, bytes]:
        offset, size = HEAD.unpack(await self.reader.readexactly(HEAD.size))
        return offset, await self.reader.readexactly(size)

    async def heard(self) -> int:
        return int(REPORT.unpack(await self.reader.readexactly(REPORT.size))[0])

    async def closed(self) -> bytes:
        """What came before the end."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""


class House:
    """Everything that a test starts; stopped with it."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self._strangers = machine().network  # of all raw peers

    async def master(self, log: Any = None, *, file_bytes: int | None = None, **settings: Any) -> Master:
        """Over a MemoryLog, or over a store whose files have ``file_bytes``."""
        log = log if log is not None else MemoryLog()
        master = Master(log, dataclasses.replace(QUICK, **settings), file_bytes or log.file_bytes)
        host, port = await master.port.start()
        master.address = f"{host}:{port}"
        self._stack.push_async_callback(master.port.close)
        self._stack.callback(master.waits.close)
        return master

    def slave(self, address: str | None, log: Any = None, **settings: Any) -> Slave:
        slave = Slave(log if log is not None else MemoryLog(), dataclasses.replace(QUICK, **settings))
        self._stack.push_async_callback(slave.link.close)
        slave.link.follow(address)
        return slave

    async def peer(self, address: str) -> Peer:
        host, _, port = address.rpartition(":")
        peer = Peer(*await connection(host, int(port), self._strangers))
        self._stack.callback(peer.writer.close)
        return peer

    async def raw_master(self, met: Callable[[Peer], None]) -> str:
        """A port whose connections ``met`` gets; its address."""

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._stack.callback(writer.close)
            met(Peer(reader, writer))

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), accepted)

        listener = await self._strangers.listen("127.0.0.1", 0, protocol)
        self._stack.push_async_callback(listener.close)
        host, port = listener.address
        return f"{host}:{port}"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Masters and slaves run in virtual time; real stores, with threads and disks, do not."""
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with contextlib.AsyncExitStack() as stack:
        yield House(stack)
    for _ in range(3):  # transports say good-bye in the turns after their close
        await asyncio.sleep(0)
