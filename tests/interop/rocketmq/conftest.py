"""Name servers of either kind, and one long-lived process of clients a kind; the logs of a test that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.broker_peers import NameServer, original_clients, our_clients
from support.clusters import KINDS
from support.houses import House
from support.java import ROCKETMQ, Java, missing, prepare
from support.pairs import MODES, TOPIC, Pair, PairOf
from support.peers import Driver

# Of each broker and name server, of the original's store, and of its clients.
LOGS = ("broker.log", "name-server.log", "store.log", "broker_default.log")
TAIL_LINES, LINE_LENGTH = 12, 240


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure's report ends with what the peers logged during the test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name in ("folder", "tmp_path"):
            if isinstance(folder := item.funcargs.get(name), Path):
                report.sections += _tails(folder, call.start)
    return report


def _tails(folder: Path, since: float) -> Iterator[tuple[str, str]]:
    for log in sorted(folder.rglob("*.log")):
        if log.name in LOGS and log.stat().st_mtime >= since:
            lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            yield str(log.relative_to(folder)), "\n".join(line[:LINE_LENGTH] for line in lines)


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
    async def start() -> tuple[Driver, Driver]:
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


@pytest.fixture
async def pair_of(
    rocketmq: Java, tmp_path: Path, new_house: Callable[[str], Awaitable[House]]
) -> AsyncIterator[PairOf]:
    """Makes a house with a running master of a kind and mode, and the topic."""
    houses = []
    with ExitStack() as stack:

        async def make(kind: str, mode: str) -> Pair:
            pair = Pair(await new_house("tally"), tmp_path, rocketmq, kind, MODES[mode], stack)
            houses.append(pair.house)
            await pair.house.start(pair.master)
            await pair.house.make_topic(TOPIC)
            return pair

        yield make
        for house in houses:
            await house.forget()
