"""Servers go from an earlier release to this one and back, one by one and under load: nothing lost, nothing marked."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tallystick
from support.appending import Load, created
from support.broker_peers import Broker, NameServer
from support.peers import Bookie
from support.releases import SINGLE_COPIES, Release
from support.repairers import Repairer
from support.waiting import until
from tallystick.admin import repair
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.errors import TallyError

GRACE_S = 60  # longer than a bookie needs to start on the busiest machine
TOPIC = "upgraded"


@pytest.fixture
def earlier(tmp_path: Path) -> Release:
    return Release(SINGLE_COPIES, tmp_path / "earlier")


@pytest.mark.timeout(600)
async def test_bookies_are_upgraded_and_rolled_back_under_load(tmp_path: Path, earlier: Release) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    driver = await open_driver(uri)
    await driver.init_cluster()
    await driver.close()
    bookies = [Bookie.ours(uri, tmp_path, id=f"b{number}") for number in range(4)]
    for bookie in bookies:
        earlier.runs(bookie)
    auditor = None
    try:
        await asyncio.gather(*(bookie.start() for bookie in bookies))
        auditor = await Repairer.start_ours(uri, tmp_path, lostBookieRecoveryDelay=GRACE_S)
        async with tallystick.connect(uri) as bk:
            load = Load(bk)
            async with load.running():
                for release in (earlier.ends_at, earlier.runs, earlier.ends_at):
                    for number, bookie in enumerate(bookies):
                        await load.moves()
                        bookie.kill() if number % 2 else bookie.leave()
                        release(bookie)
                        await bookie.start()
                    await load.moves()
            await load.require_all()
            assert load.count > 12 * 50
        assert (await repair.cluster_status(uri)).repair.marks == ()
    finally:
        for peer in (*bookies, *([auditor] if auditor else [])):
            peer.kill()


@dataclass
class Sending:
    """One numbered message after another into a topic; what was not acknowledged is sent again."""

    mq: tallystick.RocketMQ
    acknowledged: int = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        producer = self.mq.producer("upgrading")
        while True:
            with contextlib.suppress(TallyError):
                result = await producer.send(TOPIC, b"%d" % self.acknowledged)
                self.acknowledged += result.status is tallystick.SendStatus.SEND_OK

    async def moves(self) -> None:
        """Wait until some messages more were stored by master and slave."""
        before = self.acknowledged
        await until(lambda: self.acknowledged >= before + 20, seconds=120)


@pytest.mark.timeout(600)
async def test_brokers_are_upgraded_and_rolled_back_under_load(tmp_path: Path, earlier: Release) -> None:
    names = NameServer("tally", tmp_path, None)
    roles: list[dict[str, object]] = [{"brokerRole": "SYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": 1}]
    brokers = [Broker("tally", tmp_path / str(number), None, names.address, role) for number, role in enumerate(roles)]
    master, slave = brokers
    servers = [names, slave, master]
    for server in servers:
        earlier.runs(server)
    try:
        for server in servers:
            await server.start()
        await names.knows(*brokers)
        async with tallystick.topics(names.address) as mq:
            sending = Sending(mq)
            async with sending.running():
                for release in (earlier.ends_at, earlier.runs):
                    for server in servers:
                        await sending.moves()
                        server.leave() if release == earlier.runs else server.kill()
                        release(server)
                        await server.start()
                    await sending.moves()
            assert sending.acknowledged > 6 * 20
            await _require_all(mq, sending.acknowledged)
    finally:
        for server in servers:
            server.kill()


async def _require_all(mq: tallystick.RocketMQ, count: int) -> None:
    """A message is there twice where its answer was lost."""
    missing = set(range(count))
    async with asyncio.timeout(60):
        async for message in mq.consumer("upgraded", TOPIC, start="first"):
            missing.discard(int(message.body))
            if not missing:
                break


@pytest.mark.timeout(180)
async def test_a_bookie_that_knows_nothing_of_some_ledgers_does_not_go_back(tmp_path: Path, earlier: Release) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    driver = await open_driver(uri)
    await driver.init_cluster()
    await driver.close()
    bookies = [Bookie.ours(uri, tmp_path, id=f"b{number}") for number in range(3)]
    rejoined = bookies[0]
    try:
        await asyncio.gather(*(bookie.start() for bookie in bookies))
        async with tallystick.connect(uri) as bk:
            writer = await created(bk)
            await writer.append(b"on all")
            rejoined.kill()
            for folder in ("journal", "ledgers"):
                shutil.rmtree(rejoined.folder / folder)
            rejoined.command.append("--rejoin")
            await rejoined.start()
            rejoined.leave()
            rejoined.command.remove("--rejoin")
            earlier.runs(rejoined)
            with pytest.raises(RuntimeError, match="a section of the state file is of a newer version"):
                await rejoined.start()
            rejoined.kill()  # closes what its end left open here
            earlier.ends_at(rejoined)
            await rejoined.start()
    finally:
        for bookie in bookies:
            bookie.kill()
