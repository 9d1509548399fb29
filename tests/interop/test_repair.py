"""Our auditor and replicator beside the original's, in one cluster: names and bytes decide whether they understand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tallystick
from support.clusters import Cluster
from support.java import Java
from support.peers import Bookie, Driver, ZooKeeper, tally
from support.repairers import Repairer
from support.shell import Shell
from support.waiting import until
from tallystick.admin.decommission import decommission
from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.metadata.findings import FindingTree
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import BookieId, Fragment

ENTRIES = 40
SECONDS = 60.0


@dataclass
class Repairs:
    """A cluster of its own, whose bookies are lost, and who repairs it."""

    cluster: Cluster
    repairers: list[Driver] = field(default_factory=list)

    async def original(self, part: str, **settings: object) -> None:
        cluster = self.cluster
        self.repairers.append(
            await Repairer.start_original(cluster.java, part, cluster.uri, cluster.folder, settings=settings)
        )

    async def ours(self, **settings: object) -> None:
        self.repairers.append(await Repairer.start_ours(self.cluster.uri, self.cluster.folder, **settings))

    async def ledger(self, kind: str, *, close: bool = True) -> str:
        writer = await self.cluster.shared(kind)
        ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
        await writer.ask("append", ledger=ledger, count=ENTRIES, size=40, seed=61)
        if close:
            await writer.ask("close", ledger=ledger)
        return ledger

    async def fragments(self, ledger: str) -> str:
        return (await (await self.cluster.shared("tally")).ask("metadata", ledger=ledger))["fragments"]

    async def lose(self, ledger: str, number: int = 1) -> Bookie:
        lost = self.cluster.bookie((await self.fragments(ledger)).removeprefix("0=").split(",")[number])
        lost.kill()
        return lost

    async def require_repaired(self, ledger: str, lost: Bookie) -> None:
        """Nobody names the lost bookie, and the others of the ensemble have all that they should."""

        async def is_moved() -> bool:
            return lost.id not in await self.fragments(ledger)

        await until(is_moved, SECONDS, pause=0.1)
        read = []
        for kind in ("tally", "java"):
            reader = await self.cluster.shared(kind)
            await reader.ask("open", ledger=ledger, recover="no")
            read.append(await reader.ask("read", ledger=ledger, first=0, last=ENTRIES - 1))
        assert read[0] == read[1]
        ensemble = (await self.fragments(ledger)).partition(";")[0].removeprefix("0=").split(",")
        for entry in range(ENTRIES):
            for place in (entry, entry + 1):
                assert await self.cluster.bookie(ensemble[place % 3]).read_code(int(ledger), entry) == 0

    async def marks(self) -> list[int]:
        driver = await open_driver(self.cluster.uri)
        try:
            return [ledger async for ledger in Underreplication(driver).marks()]
        finally:
            await driver.close()

    async def unmarked(self) -> None:
        async def none_left() -> bool:
            return not await self.marks()

        await until(none_left, SECONDS, pause=0.2)


@pytest.fixture
async def make(java: Java, tmp_path: Path) -> AsyncIterator[Callable[[int, int], Awaitable[Repairs]]]:
    service = await ZooKeeper.start(java, tmp_path)
    made: list[Repairs] = []

    async def start(originals: int, ours: int) -> Repairs:
        uri = await service.cluster("repair")
        cluster = Cluster("repair", uri, java, tmp_path / "repair")
        cluster.bookies += [Bookie.original(java, uri, cluster.folder) for _ in range(originals)]
        cluster.bookies += [Bookie.ours(uri, cluster.folder, id=f"tally-{number}") for number in range(ours)]
        made.append(Repairs(cluster))
        await cluster.start()
        return made[-1]

    yield start
    for repairs in made:
        for repairer in repairs.repairers:
            repairer.kill()
        repairs.cluster.stop()
    service.kill()


Make = Callable[[int, int], Awaitable[Repairs]]


@pytest.mark.parametrize("kind", ["tally", "java"])
async def test_an_original_auditor_marks_and_our_replicator_repairs(make: Make, kind: str) -> None:
    repairs = await make(0, 4)
    ledger = await repairs.ledger(kind)
    await repairs.original("auditor")
    await repairs.ours(lostBookieRecoveryDelay=3600)  # its auditor is the second, and would wait for an hour
    lost = await repairs.lose(ledger)
    await repairs.require_repaired(ledger, lost)
    await repairs.unmarked()
    shell = Shell(repairs.cluster.java, repairs.cluster.uri, repairs.cluster.folder / "shell")
    assert "127.0.0.1:1" in await shell.run("whoisauditor")
    assert "urL" not in await shell.run("listunderreplicated")


async def test_our_auditor_marks_and_an_original_worker_repairs(make: Make) -> None:
    repairs = await make(0, 4)
    ledger = await repairs.ledger("tally")
    await repairs.ours(replicationLedgersAtOnce=0)
    await repairs.original("worker")
    lost = await repairs.lose(ledger)
    await repairs.require_repaired(ledger, lost)
    await repairs.unmarked()
    assert lost.id not in await repairs.fragments(ledger)


async def test_what_our_audit_finds_is_mended_in_place_beside_an_original_worker(make: Make) -> None:
    """It is in no mark: the worker would look at two entries of it, and drop it."""
    repairs = await make(0, 4)
    ledger = await repairs.ledger("tally")
    await repairs.original("worker")
    driver = await open_driver(repairs.cluster.uri)
    try:
        versioned = await driver.read_ledger(int(ledger))
        ensemble = versioned.value.ensemble
        (empty,) = {f"tally-{number}" for number in range(4)} - set(ensemble)
        named = replace(versioned.value, fragments=(Fragment(0, (empty, *ensemble[1:])),))
        await changes.replace_bookie(driver, int(ledger), versioned, lambda newest: named, changes.ALWAYS)
        await repairs.ours(closedLedgerCheckInterval=500)

        async def is_whole() -> bool:
            codes = [
                await repairs.cluster.bookie(named.ensemble[place % 3]).read_code(int(ledger), entry)
                for entry in range(ENTRIES)
                for place in (entry, entry + 1)
            ]
            assert await repairs.marks() == []
            return not any(codes)

        assert not await is_whole()
        await until(is_whole, SECONDS, pause=0.5)
        assert (await driver.read_ledger(int(ledger))).value.ensemble == named.ensemble

        async def is_dropped() -> bool:
            return not await FindingTree(driver).ledgers()

        await until(is_dropped, SECONDS, pause=0.2)
    finally:
        await driver.close()


async def test_ours_repairs_a_cluster_of_originals(make: Make) -> None:
    repairs = await make(4, 0)
    closed, written = await repairs.ledger("java"), await repairs.ledger("java", close=False)
    await repairs.ours()
    lost = await repairs.lose(closed)
    await repairs.require_repaired(closed, lost)
    if lost.id in await repairs.fragments(written):
        await repairs.require_repaired(written, lost)
    await repairs.unmarked()
    assert not any([lost.id in await repairs.fragments(ledger) for ledger in (closed, written)])


async def test_the_shell_shows_our_marks_and_switches_our_auditor(make: Make) -> None:
    repairs = await make(0, 3)
    ledger = await repairs.ledger("tally")
    await repairs.ours(bookieId="tally-0")
    shell = Shell(repairs.cluster.java, repairs.cluster.uri, repairs.cluster.folder / "shell")
    assert "tally-0" in await shell.run("whoisauditor")
    lost = await repairs.lose(ledger)  # there is no other bookie for a copy

    async def is_marked() -> bool:
        return await repairs.marks() == [int(ledger)]

    await until(is_marked, SECONDS, pause=0.2)
    printed = await shell.run("listunderreplicated", "-printmissingreplica", "-missingreplica", lost.id)
    assert f"{{ledgerId={ledger}}}" in printed and f"{{missingReplica={lost.id}}}" in printed and "{ctime=" in printed
    await shell.run("autorecovery", "-disable")
    driver = await open_driver(repairs.cluster.uri)
    try:
        tree = Underreplication(driver)
        assert not await tree.is_enabled()
        await shell.run("autorecovery", "-enable")
        await driver.sync()
        assert await tree.is_enabled()
        found = await tree.read_mark(int(ledger))
        assert found is not None and found.value.bookies == (lost.id,)
    finally:
        await driver.close()


async def ledgers_of_one(repairs: Repairs) -> tuple[list[str], Bookie]:
    """Two ledgers of a bookie that was lost, and is registered no more."""
    ledgers = [await repairs.ledger("tally") for _ in range(3)]
    lost = await repairs.lose(ledgers[0])
    driver = await open_driver(repairs.cluster.uri)
    try:

        async def is_away() -> bool:
            return lost.id not in (await driver.bookies()).writable

        await until(is_away, SECONDS, pause=0.1)
    finally:
        await driver.close()
    named = [ledger for ledger in ledgers if lost.id in await repairs.fragments(ledger)]
    assert len(named) >= 2, "of four bookies three take a ledger"
    return named, lost


async def require_taken_out(repairs: Repairs, ledgers: list[str], lost: Bookie) -> None:
    for ledger in ledgers:
        await repairs.require_repaired(ledger, lost)
    await repairs.unmarked()
    driver = await open_driver(repairs.cluster.uri)
    try:
        assert lost.id not in await driver.cookies()
    finally:
        await driver.close()


async def test_a_decommission_that_the_shell_began_is_finished_by_ours(make: Make) -> None:
    """The shell has marked what is to be copied, waits for somebody who does it, and is killed."""
    repairs = await make(0, 4)
    await repairs.ours(replicationLedgersAtOnce=0, lostBookieRecoveryDelay=3600)
    ledgers, lost = await ledgers_of_one(repairs)
    shell = Shell(repairs.cluster.java, repairs.cluster.uri, repairs.cluster.folder / "shell")
    begun = await shell.begin("decommissionbookie", "-bookieid", lost.id)
    try:

        async def are_marked() -> bool:
            return set(await repairs.marks()) == set(map(int, ledgers))

        await until(are_marked, SECONDS, pause=0.1)
    finally:
        begun.kill()
        await begun.communicate()
    ours = await asyncio.create_subprocess_exec(*tally("bookie", "decommission", lost.id, "--uri", repairs.cluster.uri))
    assert await ours.wait() == 0
    await require_taken_out(repairs, ledgers, lost)


async def test_a_decommission_that_ours_began_is_finished_by_the_shell(make: Make) -> None:
    """Ours has moved the first ledger, and is broken off."""
    repairs = await make(0, 4)
    ledgers, lost = await ledgers_of_one(repairs)
    async with tallystick.connect(repairs.cluster.uri) as client:
        moved = asyncio.Event()
        settings = RepairSettings(open_grace_s=1)
        ours = asyncio.create_task(
            decommission(client, BookieId(lost.id), settings, lambda count: moved.set(), "an operator")
        )
        await moved.wait()
        ours.cancel()
        await asyncio.wait([ours])
        assert ours.cancelled()
    assert any([lost.id in await repairs.fragments(ledger) for ledger in ledgers])
    await repairs.ours()
    shell = Shell(repairs.cluster.java, repairs.cluster.uri, repairs.cluster.folder / "shell")
    await shell.run("decommissionbookie", "-bookieid", lost.id)
    await require_taken_out(repairs, ledgers, lost)
