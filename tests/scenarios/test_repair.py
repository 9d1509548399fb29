"""A bookie killed for good, with real processes over both metadata services: its copies are made good by themselves."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tallystick
from support.peers import Bookie, Peer
from support.repairers import Repairer
from support.waiting import until
from support.zookeeper import missing
from tallystick.admin import repair
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import LedgerId

SECONDS = 90.0
REPAIR = {
    "autoRecoveryDaemonEnabled": "true",
    "lostBookieRecoveryDelay": 1,
    "replicationPollInterval": 200,
    "replicationRetryInterval": 500,
}
SERVICES = (
    "sqlite",
    pytest.param(
        "zookeeper",
        marks=[pytest.mark.zookeeper, pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}")],
    ),
)


@dataclass
class Processes:
    """Bookies of one cluster, each a process, and whoever repairs it."""

    uri: str
    folder: Path
    bookies: list[Bookie] = field(default_factory=list)
    others: list[Peer] = field(default_factory=list)

    async def start(self, count: int, settings: dict[str, object]) -> None:
        self.bookies = [
            Bookie.ours(self.uri, self.folder, id=f"b{number}", settings=settings) for number in range(count)
        ]
        await asyncio.gather(*(bookie.start() for bookie in self.bookies))

    async def written(self, bk: BookKeeper, count: int) -> LedgerId:
        async with bk.create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
            for number in range(count):
                await writer.append(b"entry %d " % number * 20)
        return writer.id

    def kill(self, bookie: str) -> None:
        next(each for each in self.bookies if each.id == bookie).kill()

    async def require_whole(self, bk: BookKeeper, ledger: LedgerId, gone: str) -> None:
        """Nobody names the bookie, and each entry is on all bookies of its write set, with the same bytes."""

        async def is_moved() -> bool:
            metadata = await bk.ledger_metadata(ledger)
            return all(gone not in fragment.bookies for fragment in metadata.fragments)

        await until(is_moved, SECONDS, pause=0.1)
        metadata = await bk.ledger_metadata(ledger)
        digest = Digest.of(metadata.digest_type)
        for entry in range(metadata.last_entry + 1):
            copies = set()
            for place in (entry, entry + 1):
                response = await bk.context.bookies.read(metadata.ensemble_of(entry)[place % 3], ledger, entry)
                digest.decode(ledger, entry, response.entry)
                copies.add(bytes(response.entry))
            assert len(copies) == 1, entry

    def stop(self) -> None:
        for peer in (*self.others, *self.bookies):
            peer.kill()


@pytest.fixture(params=SERVICES)
async def processes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Processes]:
    uri = f"sqlite://{tmp_path}/metadata.db"
    if request.param == "zookeeper":
        uri = f"zk+hierarchical://{request.getfixturevalue('zookeeper')}/{uuid.uuid4().hex}/ledgers"
    driver = await open_driver(uri)
    await driver.init_cluster()
    await driver.close()
    made = Processes(uri, tmp_path)
    yield made
    made.stop()


async def alone(processes: Processes) -> None:
    """Two processes beside the bookies repair."""
    await processes.start(4, {})
    for name in ("first", "second"):
        processes.others.append(await Repairer.start_ours(processes.uri, processes.folder / name, bookieId=name))


async def inside(processes: Processes) -> None:
    """Each bookie's process repairs."""
    await processes.start(4, REPAIR)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", [alone, inside])
async def test_what_a_killed_bookie_had_is_made_good(
    processes: Processes, start: Callable[[Processes], Awaitable[None]]
) -> None:
    await start(processes)
    async with tallystick.connect(processes.uri) as bk:
        ledgers = [await processes.written(bk, count) for count in (0, 1, 40, 400)]
        gone = (await bk.ledger_metadata(ledgers[2])).ensemble[0]
        processes.kill(gone)
        for ledger in ledgers:
            await processes.require_whole(bk, ledger, gone)

        async def is_repaired() -> bool:
            found = await repair.status(processes.uri)
            return not found.marks and not found.in_hand

        await until(is_repaired, SECONDS, pause=0.2)
        assert (await repair.cluster_audit(processes.uri, lambda more: None)).findings == ()
