"""Clusters on one real ZooKeeper: of the original's bookies, of ours, and of both; a client of each kind on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tallystick
from support.clusters import KINDS, Cluster
from support.java import BOOKKEEPER, PULSAR, Java, missing, prepare
from support.peers import Bookie, ZooKeeper
from tallystick.bookkeeper.stream.client import BookKeeper

if TYPE_CHECKING:  # they need Pulsar's client
    from support.pulsar_topics import PulsarTopics
    from support.unused_topics import UnusedTopics

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)
            # The first test of a machine's first run waits for Maven.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def java() -> Java:
    reason = missing()
    if reason:
        pytest.skip(f"the original cannot run here: {reason}")
    return prepare(BOOKKEEPER)


@pytest.fixture(scope="session")
def pulsar_java(java: Java) -> Java:
    """Its own class path; ``java`` says whether originals can run here at all."""
    return prepare(PULSAR)


@pytest.fixture(scope="session")
def clusters(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """A cluster by name, started when first asked for: "java" and "tally" of three bookies, "mixed" of two a kind."""
    folder = tmp_path_factory.mktemp("interop")
    service = asyncio.run(ZooKeeper.start(java, folder))
    started: dict[str, Cluster] = {}

    async def start(name: str) -> Cluster:
        uri = await service.cluster(name)
        cluster = Cluster(name, uri, java, folder / name)
        originals, ours = {"java": (3, 0), "tally": (0, 3), "mixed": (2, 2)}[name]
        cluster.bookies += [Bookie.original(java, uri, cluster.folder) for _ in range(originals)]
        # Among originals, which are named by address, ours have names: so each client must resolve both.
        named = "tally-{}" if originals else ""
        cluster.bookies += [Bookie.ours(uri, cluster.folder, id=named.format(number)) for number in range(ours)]
        started[name] = cluster
        await cluster.start()
        return cluster

    yield lambda name: started.get(name) or asyncio.run(start(name))
    for cluster in started.values():
        cluster.stop()
    service.kill()


@pytest.fixture(scope="session")
def topics(java: Java, pulsar_java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarTopics]:
    pytest.importorskip("pulsar")
    from support.pulsar_topics import PulsarTopics

    started, service = asyncio.run(PulsarTopics.start(java, pulsar_java, tmp_path_factory.mktemp("topics")))
    yield started
    for peer in (started.broker, *started.bookies, service):
        peer.kill()


@pytest.fixture(scope="session")
def unused_topics(topics: PulsarTopics) -> UnusedTopics:
    """Begun with the first test of streams beside Pulsar, so that most of their time passes beside the others."""
    from support.unused_topics import UnusedTopics

    return asyncio.run(UnusedTopics.start(topics))


@pytest.fixture
async def bk(topics: PulsarTopics) -> AsyncIterator[BookKeeper]:
    """A client of ours beside the broker."""
    async with tallystick.connect(topics.uri) as client:
        yield client


@pytest.fixture(params=("java", "tally", "mixed"))
def cluster(request: pytest.FixtureRequest, clusters: Callable[[str], Cluster]) -> Cluster:
    """Each kind of cluster in turn; a test leaves all bookies running."""
    return clusters(request.param)


@pytest.fixture
def mixed(clusters: Callable[[str], Cluster]) -> Cluster:
    return clusters("mixed")


@pytest.fixture(params=KINDS)
def writer_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind
