"""One empty place for a cluster per test, in each kind of coordination service."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.zookeeper import missing
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT, ZooKeeperUri, parse

DRIVERS = (
    "memory",
    "sqlite",
    pytest.param(
        "zookeeper",
        marks=[pytest.mark.zookeeper, pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}")],
    ),
)


@dataclass
class Place:
    """Where a cluster can be; ``connect`` gives a client of its own each time."""

    kind: str
    uri: str
    clients: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def connect(self, *, session_timeout_s: float = 10.0) -> MetadataDriver:
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
        uri = {"memory": f"memory://{name}", "sqlite": f"sqlite://{tmp_path}/metadata.db"}[kind]
    found = Place(kind, uri)
    async with found.clients:
        yield found


@pytest.fixture
async def cluster(place: Place) -> Place:
    """An empty cluster is there."""
    driver = await place.connect()
    await driver.init_cluster()
    return place


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
