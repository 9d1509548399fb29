"""Real brokers in this process, and a client of frames to talk to them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire.headers import PullHeader, SendHeader
from tallystick.rocketmq.wire.record import decode_messages
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode, request
from tallystick.rocketmq.wire.values import PullFlag, RequestCode
from tallystick.runtime.disk import Disk, OsDisk
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

MIB = 1024 * 1024
SMALL = StoreSettings(
    commit_log_file_bytes=16 * MIB, consume_queue_file_units=3000, index_slots=5000, index_entries=20000
)
TOPIC = "T"


class Peer:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader()
        self._opaque = itertools.count(1)
        self._answers: dict[int, Command] = {}
        self.pushed: list[Command] = []  # requests that the broker sent by itself
        self.order: list[Command] = []  # everything, as it came

    def send(self, command: Command) -> int:
        """Its opaque."""
        command.opaque = next(self._opaque)
        self.writer.write(encode(command))
        return command.opaque

    async def answer(self, opaque: int) -> Command:
        async with asyncio.timeout(10):
            while opaque not in self._answers:
                await self._read()
        return self._answers.pop(opaque)

    async def ask(self, command: Command) -> Command:
        return await self.answer(self.send(command))

    async def code(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.ask(request(code, fields, body))

    async def _read(self) -> None:
        data = await self.reader.read(1 << 20)
        assert data, "the broker closed the connection"
        for command in self._frames.take(data):
            self.order.append(command)
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.pushed.append(command)

    async def ended(self) -> bool:
        """The broker closed the connection."""
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                while await self.reader.read(1 << 20):
                    pass
        return True


def send_command(
    topic: str = TOPIC,
    body: bytes = b"body",
    queue_id: int = 0,
    *,
    properties: str = "WAIT\x01true\x02",
    one_way: bool = False,
    **header: Any,
) -> Command:
    fields: dict[str, Any] = {
        "producer_group": "P", "topic": topic, "default_topic": "TBW102", "default_topic_queue_nums": 4,
        "queue_id": queue_id, "sys_flag": 0, "born_timestamp": 1_700_000_000_000, "flag": 0, "properties": properties,
    }  # fmt: skip
    made = SendHeader(**(fields | header))
    batch = made.batch is True
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return request(code, made.to_letters(), body, one_way=one_way)


def pull_command(
    topic: str = TOPIC,
    queue_id: int = 0,
    offset: int = 0,
    *,
    flags: int = PullFlag.SUBSCRIPTION,
    count: int = 32,
    suspend_ms: int = 5000,
    group: str = "G",
    tags: str = "*",
    code: int = RequestCode.PULL_MESSAGE,
    **header: Any,
) -> Command:
    fields: dict[str, Any] = {
        "consumer_group": group, "topic": topic, "queue_id": queue_id, "queue_offset": offset, "max_msg_nums": count,
        "sys_flag": int(flags), "commit_offset": 0, "suspend_timeout_millis": suspend_ms, "subscription": tags,
        "sub_version": 0, "expression_type": "TAG",
    }  # fmt: skip
    return request(code, PullHeader(**(fields | header)).to_fields())


@dataclass
class Bench:
    """Brokers of one test, in folders of its own; all are stopped at its end."""

    folder: Path
    told: list[Event] = field(default_factory=list)
    brokers: list[Broker] = field(default_factory=list)
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    def settings(self, name: str = "b0", **changes: Any) -> BrokerSettings:
        store, ha = changes.pop("store", SMALL), changes.pop("ha", HaSettings())
        made = BrokerSettings(str(self.folder / name), "b0", "c0", port=0, store=store, ha=ha)
        return replace(made, **changes)

    async def broker(self, settings: BrokerSettings | None = None, disk: Disk | None = None) -> Broker:
        outside = replace(this_machine(Events(self.told.append)), disk=disk or OsDisk())
        broker = await start_broker(settings or self.settings(), outside)
        self._stack.push_async_callback(broker.stop)
        self.brokers.append(broker)
        return broker

    async def peer(self, broker: Broker, *, fast: bool = False) -> Peer:
        peer = Peer(*await asyncio.open_connection(*(broker.fast_address if fast else broker.address)))
        self._stack.callback(peer.writer.close)
        return peer


@contextlib.asynccontextmanager
async def benched(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    async with bench._stack:
        yield bench


def bodies(answer: Command) -> list[bytes]:
    return [message.stored_body for message in decode_messages(answer.body)]


async def fill(peer: Peer, count: int, **send: Any) -> None:
    opaques = [peer.send(send_command(body=str(number).encode(), **send)) for number in range(count)]
    for opaque in opaques:
        assert (await peer.answer(opaque)).code == 0
