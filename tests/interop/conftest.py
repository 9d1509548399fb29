"""Clusters on one real ZooKeeper: of the original's bookies, of ours, and of both; a client of each kind on each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.clusters import KINDS, Cluster
from support.java import BOOKKEEPER, Java, missing, prepare
from support.peers import Bookie, ZooKeeper

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
