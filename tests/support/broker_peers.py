"""Name servers and brokers as peers, each the original's or ours, behind the same few methods; and clients of each."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from support.java import SMALL, Java
from support.peers import Driver, Server, tally, with_codec
from support.ports import free_port
from support.waiting import until
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire import dialect
from tallystick.runtime.disk import OsDisk

CLUSTER = "interop"
ANSWER_S = 5.0
PAUSE_S = 0.05  # between two looks at a server or at files: on two cores the looks themselves delay what is awaited
TOPICS, GROUPS, OFFSETS = "topics.json", "subscriptionGroup.json", "consumerOffset.json"
GET_ROUTE, GET_CLUSTER, GET_MAX_OFFSET, GET_MEMBERS = 105, 106, 30, 38
_LENGTHS = struct.Struct(">II")
_CHECKPOINT = struct.Struct(">6q")

# Small files, so that a few messages reach several of them. The originals' keys, which ours reads too.
FILES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
}
# Only for the original: no wheel of 38 MB, and no refusals because a busy machine kept a send waiting for 0.2 s.
JAVA_KEYS = {"timerWheelEnable": "false", "waitTimeMillsInSendQueue": 60_000}
# An original slave that connects again is silent until its next report is due: that costs one second, not five.
COMMON = {"diskMaxUsedSpaceRatio": 95, "slaveReadEnable": "true", "haSendHeartbeatInterval": 1000}


@dataclass(frozen=True)
class Ports:
    name_server: int
    broker: int
    ha: int


def free_ports() -> Ports:
    """A broker has a second port two below its own."""
    return Ports(free_port(), free_port(-2), free_port())


def name_server_configuration(folder: Path, port: int) -> str:
    return _lines({"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": folder / "kvConfig.json"})


def broker_configuration(store: Path, ports: Ports, name_server: str, changes: Mapping[str, object]) -> str:
    """A ``broker.conf`` on the loopback interface; both kinds read it."""
    values: dict[str, object] = {
        "brokerClusterName": CLUSTER,
        "brokerName": "b0",
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "namesrvAddr": name_server,
        "listenPort": ports.broker,
        "haListenPort": ports.ha,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        **FILES,
        **COMMON,
        **changes,
    }
    return _lines(values)


def _lines(values: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


async def ask(port: int, code: int, fields: Mapping[str, str]) -> tuple[dict[str, Any], bytes]:
    """Header and body of the answer to one hand-made request."""
    header = json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": 1, "version": 513}
    ).encode()
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(_LENGTHS.pack(4 + len(header), len(header)) + header)
            whole, length = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
            return json.loads(await reader.readexactly(length)), await reader.readexactly(whole - 4 - length)
        finally:
            writer.close()


def java_flags(home: Path, flags: tuple[str, ...]) -> tuple[str, ...]:
    """The originals keep logs and more in what they take for their user's home."""
    return (*flags, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}")


class NameServer(Server):
    """One name server of either kind."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        java: Java | None,
        settings: Mapping[str, object] | None = None,
        *,
        flags: tuple[str, ...] = SMALL,
    ) -> None:
        self.kind, self.port = kind, free_port()
        home = folder / f"{kind}-name-server-{self.port}"
        file = home / "namesrv.conf"
        if java is not None:
            command = java.command("NameServerPeer", str(file), flags=java_flags(home, flags))
        else:
            command = tally("nameserver", "run", "--config", str(file))
        super().__init__(command, home, "name-server")
        home.mkdir(parents=True)
        file.write_text(name_server_configuration(home, self.port) + _lines(settings or {}))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def probe(self) -> None:
        await ask(self.port, GET_ROUTE, {"topic": "absent"})

    async def knows(self, *brokers: Broker) -> None:
        """Wait until they are registered here."""

        async def all_there() -> bool:
            _, body = await ask(self.port, GET_CLUSTER, {})
            return all(broker.address.encode() in body for broker in brokers)

        await until(all_there, seconds=60, pause=PAUSE_S)

    async def has_lost(self, broker: Broker) -> None:
        """Wait until it is not registered here any more."""

        async def gone() -> bool:
            return broker.address.encode() not in (await ask(self.port, GET_CLUSTER, {}))[1]

        await until(gone, seconds=60, pause=PAUSE_S)

    async def routes(self, topic: str, to: str = "brokerName") -> None:
        """Wait until it has a route of the topic, with this broker's address in it if one is given."""

        async def known() -> bool:
            return to.encode() in (await ask(self.port, GET_ROUTE, {"topic": topic}))[1]

        await until(known, pause=PAUSE_S)


class Broker(Server):
    """One broker of either kind; ``store`` is its directory, by default one of its own."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        java: Java | None,
        name_server: str,
        settings: Mapping[str, object],
        *,
        flags: tuple[str, ...] = SMALL,
        store: Path | None = None,
        codec: str = "",
    ) -> None:
        self.kind, self.ports = kind, free_ports()
        home = folder / f"{kind}-broker-{self.ports.broker}"
        self.store = store or home / "store"
        file = home / "broker.conf"
        if java is not None:
            command = java.command("BrokerPeer", str(file), flags=java_flags(home, flags))
            settings = {**JAVA_KEYS, **settings}
        else:
            command = with_codec(tally("broker", "run", "--config", str(file)), codec)
        super().__init__(command, home, "broker")
        home.mkdir(parents=True)
        file.write_text(broker_configuration(self.store, self.ports, name_server, settings))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports.broker}"

    async def probe(self) -> None:
        await ask(self.ports.broker, GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})

    async def queue_end(self, topic: str, queue: int) -> int:
        """The offset after the last message that it can serve."""
        answer, _ = await ask(self.ports.broker, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
        return int(answer["extFields"]["offset"])

    async def serves(self, topic: str, count: int, queues: int = 4) -> None:
        """Wait until so many messages can be read here: the original queues them a moment after its answer."""

        async def all_queued() -> bool:
            return sum([await self.queue_end(topic, queue) for queue in range(queues)]) == count

        await until(all_queued, pause=PAUSE_S)

    async def members(self, group: str) -> list[str]:
        """The client ids of a group."""
        _, body = await ask(self.ports.broker, GET_MEMBERS, {"consumerGroup": group})
        return list(json.loads(body)["consumerIdList"]) if body else []

    def log(self) -> dict[str, bytes]:
        """The files of the CommitLog by name, without those in which nothing is yet."""
        files = {file.name: file.read_bytes() for file in sorted((self.store / "commitlog").iterdir())}
        return {name: data for name, data in files.items() if any(data)}

    def table(self, name: str) -> dict[str, Any]:
        """One of its configuration files; empty where there is none, or half of one, at the moment."""
        file = self.store / "config" / name
        try:
            return cast(dict[str, Any], dialect.read(file.read_bytes()))
        except (OSError, RemoteProtocolError):
            return {}

    def vouches(self) -> bool:
        """Whether the checkpoint covers the log and its index to the end.

        After a crash the original drops an index file of which it does not, and builds only its newest entries again.
        """
        log_ms, _, index_ms, _, _, dispatched = _CHECKPOINT.unpack_from((self.store / "checkpoint").read_bytes())
        name, data = max(self.log().items())
        return bool(log_ms == index_ms and dispatched >= int(name) + len(data.rstrip(b"\0")))

    def take_tables(self, other: Broker) -> None:
        """Copy the tables as they are on disk: an original slave asks for them a minute after its start."""
        shutil.copytree(other.store / "config", self.store / "config", dirs_exist_ok=True)

    def check(self) -> list[str]:
        """What our check of store directories finds wrong; of one that is not in use."""
        settings = StoreSettings(
            commit_log_file_bytes=FILES["mappedFileSizeCommitLog"],
            consume_queue_file_units=FILES["mappedFileSizeConsumeQueue"] // 20,
            index_slots=FILES["maxHashSlotNum"],
            index_entries=FILES["maxIndexNum"],
        )
        return [str(finding) for finding in check_store(OsDisk(), str(self.store), settings).findings]


async def original_clients(java: Java, folder: Path, *, flags: tuple[str, ...] = SMALL) -> Driver:
    """The original's clients and admin commands in one process; each request names its name server."""
    return await Driver.original(java, "", folder, {}, flags=java_flags(folder, flags))


async def our_clients(folder: Path, *, codec: str = "") -> Driver:
    return await Driver.ours("", folder, program="broker_driver.py", codec=codec)
