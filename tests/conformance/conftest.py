"""One empty place for a cluster per test, in each kind of coordination service."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.fake_bookie import FakeBookie
from support.zookeeper import missing
from support.zookeeper_identities import SECRET, USER, Drivers, SecuredZooKeeper, serving
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT, ZooKeeperUri, parse
from tallystick.sim.remote_store import RemoteStore
from tallystick.sim.store_service import StoreFaults, StoreService
from tallystick.sim.virtual.loop import VirtualClock
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace

DRIVERS = (
    "memory",
    "sqlite",
    "simulated",
    pytest.param(
        "zookeeper",
        marks=[pytest.mark.zookeeper, pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}")],
    ),
)


class SimulatedStores:
    """A service of the simulator without faults."""

    def __init__(self) -> None:
        rng = random.Random(0)
        clock = VirtualClock(asyncio.get_running_loop())
        fabric = Fabric(rng, Trace(clock.now))
        self._service = StoreService(fabric, rng, StoreFaults(), clock)

    def connect(self, session_timeout_s: float) -> RemoteStore:
        """For a process of its own."""
        loop: Any = asyncio.get_running_loop()  # no process pauses here
        return RemoteStore(self._service, Process(loop, "process", "10.0.1.1"), session_timeout_s)


@dataclass
class Place:
    """Where a cluster can be; ``connect`` gives a client of its own each time."""

    kind: str
    uri: str
    clients: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    simulated: SimulatedStores | None = None

    async def connect(self, *, session_timeout_s: float = 10.0) -> MetadataDriver:
        if self.simulated is not None:
            driver: MetadataDriver = ClusterMetadata(self.simulated.connect(session_timeout_s))
        else:
            driver = await open_driver(self.uri, session_timeout_s=session_timeout_s)
        self.clients.push_async_callback(driver.close)
        return driver


@pytest.fixture(params=DRIVERS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Nothing is there yet."""
    kind, name = request.param, uuid.uuid4().hex
    if kind == "zookeeper":
        uri = f"zk+hierarchical://{request.getfixturevalue('zookeeper')}/{name}/ledgers"
    else:
        uri = {"sqlite": f"sqlite://{tmp_path}/metadata.db"}.get(kind, f"memory://{name}")
    found = Place(kind, uri, simulated=SimulatedStores() if kind == "simulated" else None)
    async with found.clients:
        yield found


@pytest.fixture
async def cluster(place: Place) -> Place:
    """An empty cluster is there."""
    driver = await place.connect()
    await driver.init_cluster()
    return place


@pytest.fixture
async def bookies(cluster: Place) -> AsyncIterator[list[FakeBookie]]:
    """Three bookies of the cluster that store in memory."""
    driver = await cluster.connect()
    made = [FakeBookie(f"b{number}") for number in range(3)]
    for bookie in made:
        await driver.register(bookie.id, await bookie.start())
    yield made
    for bookie in made:
        await bookie.stop()


@pytest.fixture(params=Manager, ids=lambda manager: manager.name.lower())
async def either_cluster(place: Place, request: pytest.FixtureRequest) -> Place:
    """An empty cluster that keeps its ledgers in either layout."""
    driver, where = await place.connect(), parse(place.uri)
    assert isinstance(driver, ClusterMetadata)
    root = where.root if isinstance(where, ZooKeeperUri) else DEFAULT_ROOT
    await ClusterMetadata(driver.store, root, request.param).init_cluster()
    place.uri = place.uri.replace("zk+hierarchical", "zk+null")
    return place


@pytest.fixture
def root() -> str:
    """Where in ZooKeeper a cluster can be."""
    return f"/{uuid.uuid4().hex}/ledgers"


@pytest.fixture
def uri(zookeeper: str, root: str) -> str:
    """Of a cluster in ZooKeeper."""
    return f"zk+hierarchical://{zookeeper}{root}"


@pytest.fixture
async def driver(uri: str) -> AsyncIterator[ClusterMetadata]:
    """An empty cluster in ZooKeeper."""
    made = await open_driver(uri, session_timeout_s=4.0)
    assert isinstance(made, ClusterMetadata)
    await made.init_cluster()
    yield made
    await made.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredZooKeeper]:
    """Its one user may log in."""
    yield from serving(tmp_path, {USER: SECRET})


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    made = Drivers()
    yield made
    for driver in made.opened:
        await driver.close()
