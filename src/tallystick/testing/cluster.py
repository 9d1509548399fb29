"""A cluster in this process, of production servers, with an in-memory network and disks that fail on command."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Self

from tallystick.admin.dev_nodes import NAME_SERVER, bookie_ids, broker_ids
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.errors import UsageError
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.runtime import arguments
from tallystick.runtime.opening import Opening
from tallystick.runtime.outside import Outside
from tallystick.runtime.worker import ThreadWorker, Worker
from tallystick.sim.disk import SimDisk
from tallystick.sim.virtual.worker import DelayWorker
from tallystick.testing.nodes import NAMES_PORT, POLL_S, SYNC_S, BookieNode, BrokerNode, NameServerNode, Node
from tallystick.testing.world import InProcessWorld, Listener

MOST_NODES = 200
CLIENTS = "clients"  # the name of all clients, for cuts


class Cluster:
    """Made by ``cluster``. ``nodes`` has all of them by name, bookies and brokers those of their kind."""

    def __init__(self, world: InProcessWorld, bookies: int, brokers: str | None) -> None:
        self._world = world
        self.bookies: dict[str, BookieNode] = {}
        self.brokers: dict[str, BrokerNode] = {}
        self.nodes: dict[str, Node] = {}
        self._stack = contextlib.AsyncExitStack()
        for name in bookie_ids(bookies):
            self.bookies[name] = self.nodes[name] = BookieNode(world, name, len(self.nodes) + 1)
        for name in broker_ids(brokers) if brokers is not None else []:
            self._add_broker(name)
        if len(self.nodes) > MOST_NODES:
            raise UsageError(f"a cluster has at most {MOST_NODES} nodes", given=len(self.nodes))

    def _add_broker(self, name: str) -> None:
        number = len(self.nodes) + 1
        if name == NAME_SERVER:
            self.nodes[name] = NameServerNode(self._world, number)
            return
        base, _, slave = name.partition("-s")
        names, master = self.nodes[NAME_SERVER], self.brokers[base] if slave else None
        assert isinstance(names, NameServerNode)
        self.brokers[name] = self.nodes[name] = BrokerNode(self._world, name, number, names, master)

    @property
    def uri(self) -> str:
        """For ``tallystick.connect``; on a virtual loop ``connect`` of this cluster alone reaches the bookies."""
        return self._world.uri

    @property
    def name_servers(self) -> str:
        """For ``tallystick.topics``, likewise. Raises UsageError without brokers."""
        if NAME_SERVER not in self.nodes:
            raise UsageError("this cluster has no brokers: cluster(brokers='1+1')")
        return f"{self.nodes[NAME_SERVER].address}:{NAMES_PORT}"

    def connect(self, settings: ClientSettings | None = None) -> Opening[BookKeeper]:
        """A client of the ledgers, on the cluster's own network: ``async with c.connect() as bk``."""

        async def start() -> BookKeeper:
            driver = await self._world.connect(self._world.clients)
            return BookKeeper(driver, self._outside(), settings or ClientSettings())

        return Opening(start, "connect(…)")

    def topics(self, settings: BrokerClientSettings | None = None) -> Opening[RocketMQ]:
        """A client of the topics, likewise."""
        name_servers = self.name_servers

        async def start() -> RocketMQ:
            return RocketMQ((name_servers,), self._outside(), settings or BrokerClientSettings(), program=CLIENTS)

        return Opening(start, "topics(…)")

    def _outside(self) -> Outside:
        """What all clients see of the world; they keep nothing on a disk."""
        world = self._world
        return Outside(
            world.fabric.network(world.clients),
            SimDisk(random.Random(0)),
            world.clock,
            world.events(CLIENTS),
            workers=self._delay_worker if world.is_virtual else ThreadWorker,
            random=world.chance(),
        )

    def _delay_worker(self, name: str) -> Worker:
        """Virtual time does not wait for threads."""
        return DelayWorker(self._world.clients, random.Random(name), SYNC_S)

    async def settled(self) -> None:
        """Wait until the name server knows all brokers that run, and their slaves are in sync: after a start."""
        while not all(  # noqa: ASYNC110  # nobody tells of it
            broker.is_settled for broker in self.brokers.values() if broker.is_running
        ):
            await asyncio.sleep(POLL_S)

    # What goes wrong between nodes.

    def cut(self, source: str, target: str) -> None:
        """Nothing that ``source`` sends arrives at ``target``, until ``heal``; cut both ways for both.

        Names are those of nodes, and "clients". Nobody is told, as with a cable that is pulled.
        """
        self._world.fabric.cut([(self._address(source), self._address(target))])

    def heal(self) -> None:
        """All cuts are no more; what was under way arrives."""
        self._world.heal()

    def delay(self, seconds: float) -> None:
        """Each piece on each connection takes up to so long from now on."""
        self._world.delay(arguments.number(seconds, "seconds"))

    def _address(self, name: str) -> str:
        if name == CLIENTS:
            return self._world.clients.address
        if name not in self.nodes:
            raise UsageError(f"no node has this name; there are: {', '.join((*self.nodes, CLIENTS))}", given=name)
        return self.nodes[name].address

    # Its life.

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._world.open(stack)
            stack.callback(self._kill_all)
            for node in self.nodes.values():
                await node.open()
            others = [node for node in self.nodes.values() if not isinstance(node, BrokerNode)]
            masters = [broker for broker in self.brokers.values() if not broker.is_slave]
            slaves = [broker for broker in self.brokers.values() if broker.is_slave]
            for wave in (others, masters, slaves):
                await asyncio.gather(*(node.start() for node in wave))
            await self.settled()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """All nodes die, and what they stored is gone. Close clients before."""
        await self._stack.aclose()

    def _kill_all(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def __repr__(self) -> str:
        return f"<Cluster {', '.join(self.nodes)}>"


def cluster(
    *, bookies: int = 3, brokers: str | None = None, seed: int = 0, listener: Listener | None = None
) -> Opening[Cluster]:
    """A cluster in this process: ``async with cluster(bookies=3, brokers="1+1") as c``.

    ``brokers``: masters+slaves of each, and a name server; ``seed`` decides what chance does; ``listener(node, event)``
    hears what happens. In real time on an ordinary event loop, in virtual time in ``run``. Raises UsageError.
    """
    count = arguments.whole(bookies, "bookies", most=MOST_NODES)
    arguments.optional(brokers, str, "brokers")
    arguments.instance(seed, int, "seed")
    if listener is not None:
        arguments.plain_function(listener, "listener")

    async def start() -> Cluster:
        return await Cluster(InProcessWorld(seed, listener), count, brokers).__aenter__()

    return Opening(start, "cluster(…)")
