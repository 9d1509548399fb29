"""Who is measured by ``broker.py``: pairs of master and slave of ours and of the original, and the clients on them."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from support.broker_peers import Broker, NameServer, original_clients, our_clients
from support.houses import House
from support.java import Java
from support.peers import Driver

OURS, THEIRS = "tallystick", "original"
THEIR_CLIENT, OUR_CLIENT = "original client, our brokers", "our client, original brokers"
ASYNC, SYNC = "async", "sync"
QUEUES = 8

BIG_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")
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

    async def ends(self, broker: Broker, topic: str) -> list[int]:
        return [await broker.queue_end(topic, queue) for queue in range(QUEUES)]

    async def moves(self, topic: str, before: list[int]) -> None:
        """Wait until the slave can serve more than it could."""
        while await self.ends(self.slave, topic) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def caught_up(self, topic: str) -> float:
        """Wait until the slave can serve all that the master has; the seconds it took."""
        started, wanted = time.monotonic(), await self.ends(self.master, topic)
        # The brokers only answer: they have no way to call back.
        while await self.ends(self.slave, topic) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return time.monotonic() - started


@dataclass(frozen=True)
class Side:
    """A kind of client on the pairs of a kind, by mode of replication."""

    name: str
    client: Driver
    pairs: dict[str, Pair]


@dataclass
class Field:
    """Everything that runs at once: a name server a kind, two pairs a kind, a process of clients a kind."""

    java: Java
    folder: Path
    sides: dict[str, Side] = field(default_factory=dict)
    start_seconds: dict[str, list[float]] = field(default_factory=dict)
    _peers: list[Driver | Broker | NameServer] = field(default_factory=list)

    async def start(self, *, mix: bool) -> None:
        """Brokers start one after another, so that each start can be timed."""
        self.folder.mkdir(parents=True)
        ours, theirs = await our_clients(self.folder), await original_clients(self.java, self.folder, flags=BIG_HEAP)
        self._peers += [ours, theirs]
        clients = {"tally": ours, "java": theirs}
        our_pairs = {mode: await self._pair(OURS, None, mode, clients) for mode in ROLES}
        their_pairs = {mode: await self._pair(THEIRS, self.java, mode, clients) for mode in ROLES}
        self.sides = {
            OURS: Side(OURS, ours, our_pairs),
            THEIRS: Side(THEIRS, theirs, their_pairs),
            THEIR_CLIENT: Side(THEIR_CLIENT, theirs, our_pairs),
        }
        if mix:
            self.sides[OUR_CLIENT] = Side(OUR_CLIENT, ours, their_pairs)

    async def _pair(self, name: str, java: Java | None, mode: str, clients: dict[str, Driver]) -> Pair:
        """Under a name server of its own: a producer chooses among all masters that have the topic."""
        kind = "java" if java else "tally"
        server = NameServer(kind, self.folder, java)
        self._peers.append(server)
        await server.start()
        house = House(server, clients)
        settings = {**FILES, **ROLES[mode], "haSendHeartbeatInterval": 5000}
        master = Broker(kind, self.folder, java, house.ns, settings, flags=BIG_HEAP)
        slave_settings = {**settings, "brokerRole": "SLAVE", "brokerId": 1}
        slave = Broker(kind, self.folder, java, house.ns, slave_settings, flags=BIG_HEAP)
        for broker in (master, slave):
            self._peers.append(broker)
            self.start_seconds.setdefault(name, []).append(await broker.start())
            await server.knows(broker)
            if broker is master:
                await house.make_topic(name_of(mode), QUEUES)
                await asyncio.sleep(1)  # an original saves the topic that its slave starts with
                slave.take_tables(master)
        return Pair(house, master, slave)

    def stop(self) -> None:
        for peer in reversed(self._peers):
            peer.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def name_of(mode: str) -> str:
    """The topic of a pair."""
    return f"bench-{mode}"
