"""A bookie of ours comes back without its disk, beside clients of the original that know nothing of limbo (Q15)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.clusters import Cluster
from support.content import expected
from support.peers import Bookie
from support.waiting import until

_ESTABLISHED = "01"


@pytest.fixture
def ours(clusters: Callable[[str], Cluster]) -> Cluster:
    return clusters("tally")


@pytest.fixture
async def rejoined(ours: Cluster) -> tuple[Cluster, Bookie, str]:
    """A bookie whose disk was lost, and the ledger that keeps it in limbo: 20 entries, on all three bookies."""
    cluster = ours
    writer = cluster.clients["tally"]
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    for count in (19, 1):  # the last one says, by version 2 alone, that those before it are confirmed
        await writer.ask("append", ledger=ledger, count=count, size=100, seed=61)
    victim = cluster.bookies[0]
    victim.kill()
    for name in ("journal", "ledgers"):
        shutil.rmtree(victim.folder / name)
    victim.command.append("--rejoin")
    try:
        await cluster.restart(victim)
    finally:
        victim.command.remove("--rejoin")
    return cluster, victim, ledger


def connections(bookie: Bookie) -> set[str]:
    """The other ends of all connections to a bookie."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    local = f":{bookie.port:04X}"
    return {remote for _, here, remote, state, *_ in rows if here.endswith(local) and state == _ESTABLISHED}


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("reader", ["java", "java-v3", "tally-v3"])
async def test_q15_clients_read_other_ledgers_of_a_bookie_in_limbo_over_the_same_connection(
    rejoined: tuple[Cluster, Bookie, str], reader: str
) -> None:
    cluster, victim, in_limbo = rejoined
    assert await victim.read_code(int(in_limbo), 0) == 101, "it has nothing of it, and does not say so"
    writer, client = cluster.clients["tally"], await cluster.shared(reader)
    alone: list[str] = []  # ledgers that only this bookie has
    while len(alone) < 2:
        ledger = (await writer.ask("create", e=1, qw=1, qa=1))["ledger"]
        await writer.ask("append", ledger=ledger, count=50, size=100, seed=62)
        await writer.ask("close", ledger=ledger)
        if (await writer.ask("metadata", ledger=ledger))["fragments"] == f"0={victim.id}":
            alone.append(ledger)
    for ledger in alone:
        await client.ask("open", ledger=ledger)
    assert await client.ask("read", ledger=alone[0], first=0, last=49) == expected(62, 0, 49, 100)
    before = connections(victim)
    assert before
    for _ in range(3):  # whoever of the replicas is asked first, its "unknown" is no end of the connection
        opened = await client.ask("open", ledger=in_limbo)
        assert opened["closed"] == "no"
        last = int(opened["last"])
        assert last >= 18
        assert await client.ask("read", ledger=in_limbo, first=0, last=last) == expected(61, 0, last, 100)
        assert await client.ask("read", ledger=alone[1], first=0, last=49) == expected(62, 0, 49, 100)
    assert before <= connections(victim)


@pytest.mark.rule("Q10", "Q14", "Q15")
@pytest.mark.parametrize("client", ["java", "java-v3", "tally"])
async def test_q15_a_recovery_beside_it_finds_all_that_was_acknowledged_and_ends_its_limbo(
    rejoined: tuple[Cluster, Bookie, str], client: str
) -> None:
    cluster, victim, ledger = rejoined
    opened = await (await cluster.shared(client)).ask("open", ledger=ledger, recover="yes")
    assert (opened["closed"], opened["last"]) == ("yes", "19")

    async def has_all() -> bool:
        return [await victim.read_code(int(ledger), entry) for entry in (0, 19, 20)] == [0, 0, 2]

    await until(has_all, seconds=60, pause=0.2)
