"""Name servers of either kind, and one long-lived process of clients a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from support.broker_peers import NameServer, original_clients, our_clients
from support.clusters import KINDS
from support.houses import House
from support.java import ROCKETMQ, Java, missing, prepare
from support.peers import Driver


@pytest.fixture(scope="session")
def rocketmq() -> Java:
    reason = missing()
    if reason:
        pytest.skip(f"the original cannot run here: {reason}")
    return prepare(ROCKETMQ)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rocketmq")


@pytest.fixture(scope="session")
def clients(rocketmq: Java, folder: Path) -> Iterator[dict[str, Driver]]:
    async def start() -> list[Driver]:
        return await asyncio.gather(original_clients(rocketmq, folder), our_clients(folder))

    started = dict(zip(KINDS, asyncio.run(start()), strict=True))
    yield started
    for client in started.values():
        client.kill()


@pytest.fixture(scope="session")
def new_house(rocketmq: Java, folder: Path, clients: dict[str, Driver]) -> Iterator[Callable[[str], Awaitable[House]]]:
    """Makes a name server of a kind, with nobody in it yet."""
    started: list[NameServer] = []

    async def make(kind: str) -> House:
        started.append(NameServer(kind, folder, rocketmq if kind == "java" else None))
        await started[-1].start()
        return House(started[-1], clients)

    yield make
    for server in started:
        server.kill()
