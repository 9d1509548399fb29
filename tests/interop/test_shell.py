"""The original's ``bookkeeper shell`` at its own settings, which are version 3, over bookies of either kind."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from support.clusters import Cluster
from support.content import payload
from support.peers import tally
from support.shell import Shell


@pytest.fixture
def shell(cluster: Cluster) -> Shell:
    return Shell(cluster.java, cluster.uri, cluster.folder / "shell")


async def closed_ledger(cluster: Cluster, count: int) -> str:
    writer = await cluster.shared("tally")
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=count, size=40, seed=51)
    await writer.ask("close", ledger=ledger)
    return ledger


@pytest.mark.rule("Q1", "Q2", "Q5")
async def test_simpletest_writes_and_reads_by_version_3(shell: Shell) -> None:
    sizes = ("-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2")
    printed = await shell.run("simpletest", *sizes, "-numEntries", "200")
    assert re.search(r"200 entries written to ledger \d+ \(lastEntryId 199\)", printed)


async def test_bookieinfo_sums_what_every_bookie_says(shell: Shell, cluster: Cluster) -> None:
    printed = await shell.run("bookieinfo")
    for bookie in cluster.bookies:
        assert bookie.id in printed
    assert "Total disk capacity in the cluster" in printed


@pytest.mark.rule("Q1", "Q3", "Q17")
async def test_ledgers_are_listed_shown_read_and_deleted(shell: Shell, cluster: Cluster) -> None:
    ledger = await closed_ledger(cluster, 20)
    assert re.search(rf"\b{ledger}\b", await shell.run("listledgers"))
    assert "CLOSED" in await shell.run("ledgermetadata", "-ledgerid", ledger)
    listed = await shell.run("listbookies", "-rw")
    assert all(bookie.id in listed for bookie in cluster.bookies)
    words = ("-ledgerid", ledger, "-firstentryid", "3", "-lastentryid", "5", "-msg")
    printed = await shell.run("-entryformat", "hex", "readledger", *words)
    hexadecimal = re.findall(r"^[0-9A-F]{8} ((?:[0-9A-F]{2} ){1,16})", printed, re.MULTILINE)
    found = bytes.fromhex("".join(hexadecimal))
    assert found == b"".join(payload(51, entry, 40) for entry in (3, 4, 5))
    await shell.run("deleteledger", "-ledgerid", ledger, "-force")
    assert ledger not in (await (await cluster.shared("tally")).ask("ledgers"))["ledgers"].split(",")


@pytest.mark.rule("Q14")
async def test_recover_copies_what_a_lost_bookie_had(mixed: Cluster) -> None:
    """Both kinds are read from and written to, with the recovery flag, by version 3."""
    shell = Shell(mixed.java, mixed.uri, mixed.folder / "shell")
    ledger = await closed_ledger(mixed, 30)
    ours = await mixed.shared("tally")
    ensemble = (await ours.ask("metadata", ledger=ledger))["fragments"].removeprefix("0=").split(",")
    lost = mixed.bookie(ensemble[1])
    lost.kill()
    try:
        await shell.run("recover", "-f", "-l", ledger, lost.id)
        fragments = (await ours.ask("metadata", ledger=ledger))["fragments"]
        assert lost.id not in fragments
        (target,) = set(fragments.removeprefix("0=").split(",")) - set(ensemble)
        stored = await ours.ask("stored", ledger=ledger, bookie=target, most=29)
        assert stored == {"ranges": "0-29", "count": "30"}
    finally:
        await mixed.restart(lost)


async def test_a_drained_bookie_of_ours_is_read_only_to_the_original(mixed: Cluster) -> None:
    shell = Shell(mixed.java, mixed.uri, mixed.folder / "shell-drained")
    bookie = next(bookie for bookie in mixed.bookies if bookie.kind == "tally")
    command = tally("bookie", "drain", "--config", str(bookie.folder / "bookie.conf"))

    async def listed(list_: str, is_there: bool) -> None:
        async with asyncio.timeout(60):
            while (bookie.id in await shell.run("listbookies", list_)) is not is_there:
                pass  # each look takes a second

    await asyncio.to_thread(subprocess.run, command, check=True, timeout=30)
    try:
        await listed("-ro", True)
        await listed("-rw", False)
        await bookie.probe()
    finally:
        await asyncio.to_thread(subprocess.run, [*command, "--undo"], check=True, timeout=30)
    await listed("-rw", True)
    await listed("-ro", False)
