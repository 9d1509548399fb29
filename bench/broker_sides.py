"""Who is measured by ``broker.py``: pairs of master and slave of ours and of the original, and the clients on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from field import BIG_HEAP, Peers
from machine import anonymous_mb
from report import OURS, PYTHON

from support.broker_peers import TOPICS, Broker, NameServer, original_clients, our_clients
from support.houses import House
from support.java import Java
from support.peers import Driver
from support.waiting import until
from tallystick.codec import implementation

THEIRS = "original"
THEIR_CLIENT, OUR_CLIENT = "original client, our brokers", "our client, original brokers"
ASYNC, SYNC = "async", "sync"
PUSHED = "bench-push"  # the topic of those that consume by push, on the pairs that replicate asynchronously
QUEUES = 8

MIB = 1 << 20
# Both kinds read these. Indexes are smaller than by default: some minutes need no more.
FILES = {
    "mappedFileSizeCommitLog": 256 * MIB,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
}
# The original waits for its slave only when it is told to.
ROLES: dict[str, dict[str, object]] = {
    ASYNC: {"brokerRole": "ASYNC_MASTER"},
    SYNC: {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2},
}


@dataclass(frozen=True)
class Pair:
    """A master and its slave, under a name server of their kind."""

    house: House
    master: Broker
    slave: Broker

    @property
    def brokers(self) -> dict[str, Broker]:
        """By role."""
        return {"master": self.master, "slave": self.slave}

    async def ends(self, broker: Broker, topic: str) -> list[int]:
        return [await broker.queue_end(topic, queue) for queue in range(QUEUES)]

    async def grown(self, topic: str, total: int) -> list[int]:
        """Wait until the master has so many messages in its queues, which are later there than its log; their ends."""
        # The brokers only answer: they have no way to call back.
        while sum(ends := await self.ends(self.master, topic)) < total:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return ends

    async def caught_up(self, topic: str, ends: Sequence[int]) -> float:
        """Wait until the slave's queues reach the master's ``ends``; the seconds it took."""
        start = time.monotonic()
        for queue, end in enumerate(ends):
            while await self.slave.queue_end(topic, queue) < end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return time.monotonic() - start


@dataclass(frozen=True)
class Side:
    """A kind of client on the pairs of a kind, by mode of replication."""

    name: str
    client: Driver
    pairs: dict[str, Pair]


class Field(Peers):
    """Everything that runs at once: two pairs a kind, a name server a pair, a process of clients a kind."""

    def __init__(self, java: Java, folder: Path, *, python: bool, mix: bool) -> None:
        super().__init__(java, folder)
        self._python, self._mix = python and implementation.in_use() != "python", mix
        self.sides: dict[str, Side] = {}

    async def start(self) -> None:
        """Brokers start one after another, so that each start can be timed."""
        ours, theirs = await our_clients(self.folder), await original_clients(self.java, self.folder, flags=BIG_HEAP)
        self.peers += [ours, theirs]
        clients = {"tally": ours, "java": theirs}
        our_pairs, their_pairs = await self._pairs(OURS, None, clients), await self._pairs(THEIRS, self.java, clients)
        self.sides = {
            OURS: Side(OURS, ours, our_pairs),
            THEIRS: Side(THEIRS, theirs, their_pairs),
            THEIR_CLIENT: Side(THEIR_CLIENT, theirs, our_pairs),
        }
        if self._python:
            pure = await our_clients(self.folder, codec="python")
            self.peers.append(pure)
            self.sides[PYTHON] = Side(PYTHON, pure, await self._pairs(PYTHON, None, clients, codec="python"))
        if self._mix:
            self.sides[OUR_CLIENT] = Side(OUR_CLIENT, ours, their_pairs)

    async def _pairs(
        self, name: str, java: Java | None, clients: dict[str, Driver], codec: str = ""
    ) -> dict[str, Pair]:
        """A pair a mode. All masters first: an original registers ten seconds after its start."""
        masters = {mode: await self._master(name, java, mode, clients, codec) for mode in ROLES}
        return {mode: await self._pair(name, java, mode, *masters[mode], codec) for mode in ROLES}

    async def _master(
        self, name: str, java: Java | None, mode: str, clients: dict[str, Driver], codec: str
    ) -> tuple[House, Broker]:
        """Under a name server of its own: a producer chooses among all masters that have the topic."""
        kind = "java" if java else "tally"
        server = NameServer(kind, self.folder, java)
        self.peers.append(server)
        await server.start()
        master = Broker(kind, self.folder, java, server.address, settings_of(mode), flags=BIG_HEAP, codec=codec)
        await self._start(name, master)
        return House(server, clients), master

    async def _pair(self, name: str, java: Java | None, mode: str, house: House, master: Broker, codec: str) -> Pair:
        await house.name_server.knows(master)
        for topic in (PUSHED, name_of(mode)) if mode == ASYNC else (name_of(mode),):
            await house.make_topic(topic, QUEUES)
        settings = {**settings_of(mode), "brokerRole": "SLAVE", "brokerId": 1}
        slave = Broker(master.kind, self.folder, java, house.ns, settings, flags=BIG_HEAP, codec=codec)
        if java:
            await until(lambda: name_of(mode) in master.table(TOPICS).get("topicConfigTable", {}))
        slave.take_tables(master)
        await self._start(name, slave)
        await house.name_server.knows(slave)
        return Pair(house, master, slave)

    async def _start(self, name: str, broker: Broker) -> None:
        self.peers.append(broker)
        self.start_seconds.setdefault(name, []).append(await broker.start())

    def memory(self) -> dict[str, dict[str, float]]:
        """Without mapped files, which are the disk's and grow with it."""
        return {
            name: {role: anonymous_mb(broker.pid) for role, broker in self.sides[name].pairs[ASYNC].brokers.items()}
            for name in (OURS, PYTHON, THEIRS)
            if name in self.sides
        }


def settings_of(mode: str) -> dict[str, object]:
    """A master's."""
    return {**FILES, **ROLES[mode], "haSendHeartbeatInterval": 5000}


def name_of(mode: str) -> str:
    """The topic of a pair."""
    return f"bench-{mode}"
