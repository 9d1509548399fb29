"""Version 3 of the protocol: clients of both kinds, with the original's at its defaults, on bookies of either kind.

Void cells: the original's client of version 3 has no batch reads (its own raise), and one of version 2 neither defers
a sync nor sends its LAC by itself.
"""

from __future__ import annotations

import asyncio

import pytest

from support.clusters import Cluster
from support.content import content, expected, payload
from support.peers import Driver, PeerError
from tallystick.errors import LedgerFenced, Unauthorized

PAIRS = (
    ("java-v3", "tally"),
    ("java-v3", "tally-v3"),
    ("tally", "java-v3"),
    ("tally-v3", "java-v3"),
    ("tally-v3", "java"),
    ("tally-v2", "java-v3"),
)
DEFERRING = (("java-v3", "tally"), ("tally", "java-v3"), ("tally-v3", "java-v3"))
HIGH_ID = (1 << 62) + 12345


@pytest.fixture(params=PAIRS, ids="-to-".join)
async def pair(request: pytest.FixtureRequest, cluster: Cluster) -> tuple[Driver, Driver]:
    """Who writes, and who reads."""
    writer, reader = request.param
    return await cluster.shared(writer), await cluster.shared(reader)


@pytest.fixture(params=DEFERRING, ids="-to-".join)
async def deferring(request: pytest.FixtureRequest, cluster: Cluster) -> tuple[Driver, Driver]:
    writer, reader = request.param
    return await cluster.shared(writer), await cluster.shared(reader)


async def ensemble_of(client: Driver, ledger: str) -> list[str]:
    return (await client.ask("metadata", ledger=ledger))["fragments"].removeprefix("0=").split(",")


@pytest.mark.rule("Q3", "Q4", "Q17")
@pytest.mark.parametrize("quorums", [(3, 2, 2), (3, 3, 2)], ids=["striped", "full"])
async def test_q17_what_one_writes_the_other_reads(pair: tuple[Driver, Driver], quorums: tuple[int, int, int]) -> None:
    writer, reader = pair
    e, qw, qa = quorums
    ledger = (await writer.ask("create", e=e, qw=qw, qa=qa, password=b"p".hex()))["ledger"]
    assert await writer.ask("append", ledger=ledger, count=50, size=333, seed=31) == {"last": "49"}
    assert await writer.ask("append", ledger=ledger, count=1, size=0, seed=31) == {"last": "50"}
    assert await writer.ask("close", ledger=ledger) == {"last": "50", "length": str(50 * 333)}
    assert (await reader.ask("open", ledger=ledger, password=b"p".hex()))["last"] == "50"
    wanted = content((entry, payload(31, entry, 333 if entry < 50 else 0)) for entry in range(51))
    assert await reader.ask("read", ledger=ledger, first=0, last=50) == wanted
    assert await writer.ask("metadata", ledger=ledger) == await reader.ask("metadata", ledger=ledger)
    with pytest.raises(PeerError) as refused:
        await reader.ask("open", ledger=ledger, password=b"wrong".hex(), recover="yes")
    assert refused.value.code == Unauthorized.code


@pytest.mark.rule("Q10", "Q13", "Q14", "Q16")
async def test_q10_a_killed_writer_is_recovered_by_the_other(cluster: Cluster, pair: tuple[Driver, Driver]) -> None:
    writer, reader = pair
    victim = await cluster.client(next(name for name, client in cluster.others.items() if client is writer))
    ledger = (await victim.ask("create", e=3, qw=2, qa=2))["ledger"]
    await victim.ask("append", ledger=ledger, count=100, size=200, seed=32)
    await victim.ask("send", ledger=ledger, count=200, size=200, seed=32)
    victim.kill()
    opened = await reader.ask("open", ledger=ledger, recover="yes")
    last = int(opened["last"])
    assert opened["closed"] == "yes" and 99 <= last <= 299
    for client in (reader, writer):
        assert int((await client.ask("open", ledger=ledger))["last"]) == last
        assert await client.ask("read", ledger=ledger, first=0, last=last) == expected(32, 0, last, 200)


@pytest.mark.rule("Q11", "Q12")
async def test_q11_a_writer_is_fenced_by_the_other(pair: tuple[Driver, Driver]) -> None:
    writer, reader = pair
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=10, size=50, seed=33)
    assert (await reader.ask("open", ledger=ledger, recover="yes"))["last"] == "9"
    with pytest.raises(PeerError) as fenced:
        await writer.ask("append", ledger=ledger, count=1, size=50, seed=33)
    assert fenced.value.code == LedgerFenced.code
    assert (await writer.ask("metadata", ledger=ledger))["last"] == "9"


@pytest.mark.rule("Q6")
async def test_q6_the_last_entry_of_an_idle_ledger_is_read_by_long_poll(deferring: tuple[Driver, Driver]) -> None:
    """The writer sends its LAC by itself: nothing else says that the last entry is confirmed."""
    writer, reader = deferring
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=3, size=10, seed=34)
    assert (await reader.ask("open", ledger=ledger))["closed"] == "no"
    for entry in range(3):
        async with asyncio.timeout(30):
            while (polled := await reader.ask("poll", ledger=ledger, entry=entry, milliseconds=5000))["count"] == "0":
                pass
        assert polled["sha256"] == expected(34, entry, entry, 10)["sha256"]
    assert polled["last"] == "2", "never beyond the LAC"
    empty = await reader.ask("poll", ledger=ledger, entry=3, milliseconds=200)
    assert (empty["last"], empty["count"]) == ("2", "0")
    await writer.ask("close", ledger=ledger)


@pytest.mark.rule("Q5", "Q6")
async def test_q5_deferred_adds_are_confirmed_by_force(deferring: tuple[Driver, Driver]) -> None:
    writer, reader = deferring
    ledger = (await writer.ask("create-mode", e=3, qw=3, qa=2, deferred="yes"))["ledger"]
    await writer.ask("append", ledger=ledger, count=5, size=10, seed=35)
    assert await writer.ask("force", ledger=ledger) == {"last": "4"}
    await writer.ask("append", ledger=ledger, count=2, size=10, seed=35)
    assert (await writer.ask("close", ledger=ledger))["last"] == "4", "what was not forced is no part of the ledger"
    assert (await reader.ask("open", ledger=ledger))["last"] == "4"
    assert await reader.ask("read", ledger=ledger, first=0, last=4) == expected(35, 0, 4, 10)


@pytest.mark.rule("Q1", "Q5")
async def test_q5_entries_with_given_ids_come_in_any_order(pair: tuple[Driver, Driver]) -> None:
    writer, reader = pair
    ledger = (await writer.ask("create-mode", e=3, qw=2, qa=2, given="yes"))["ledger"]
    assert await writer.ask("add-given", ledger=ledger, entries="3,1,0,2", size=20, seed=36) == {"last": "3"}
    await writer.ask("close", ledger=ledger)
    await reader.ask("open", ledger=ledger)
    assert await reader.ask("read", ledger=ledger, first=0, last=3) == expected(36, 0, 3, 20)


@pytest.mark.rule("Q2")
async def test_q2_a_ledger_id_is_given_by_its_creator(cluster: Cluster, pair: tuple[Driver, Driver]) -> None:
    writer, reader = pair
    wanted = HIGH_ID + PAIRS.index(next(names for names in PAIRS if [cluster.others.get(n) for n in names] == [*pair]))
    assert (await writer.ask("create-mode", e=3, qw=2, qa=2, id=wanted))["ledger"] == str(wanted)
    with pytest.raises(PeerError):
        await reader.ask("create-mode", e=3, qw=2, qa=2, id=wanted)
    await writer.ask("close", ledger=wanted)
    assert (await reader.ask("open", ledger=wanted))["last"] == "-1"
    assert str(wanted) in (await reader.ask("ledgers"))["ledgers"].split(",")
    await reader.ask("delete", ledger=wanted)


@pytest.mark.rule("Q4")
async def test_q4_both_say_which_entries_a_bookie_has(cluster: Cluster, pair: tuple[Driver, Driver]) -> None:
    writer, _ = pair
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=9, size=10, seed=37)
    await writer.ask("close", ledger=ledger)
    for slot, bookie in enumerate(await ensemble_of(writer, ledger)):
        entries = [entry for entry in range(9) if slot in (entry % 3, (entry + 1) % 3)]
        for name in ("java-v3", "tally", "tally-v3"):
            stored = await (await cluster.shared(name)).ask("stored", ledger=ledger, bookie=bookie, most=8)
            assert stored["count"] == str(len(entries))
            assert [entry for entry in range(9) if _covers(stored["ranges"], entry)] == entries


def _covers(ranges: str, entry: int) -> bool:
    return any(int(first) <= entry <= int(last) for first, last in (pair.split("-") for pair in ranges.split(",")))


async def test_both_ask_for_the_space_of_disks(cluster: Cluster) -> None:
    for name in ("java-v3", "tally", "tally-v3"):
        space = await (await cluster.shared(name)).ask("space")
        assert set(space) == {bookie.id for bookie in cluster.bookies}
        for pair in space.values():
            free, total = map(int, pair.split("/"))
            assert 0 < free < total


@pytest.mark.rule("Q7", "Q8")
@pytest.mark.parametrize("name", ["java-v3", "tally-v3"])
async def test_q8_an_ensemble_changes_over_version_3(mixed: Cluster, name: str) -> None:
    writer, reader = await mixed.client(name), await mixed.shared("java-v3" if name == "tally-v3" else "tally-v3")
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    ensemble = await ensemble_of(writer, ledger)
    await writer.ask("append", ledger=ledger, count=10, size=100, seed=38)
    victim = mixed.bookie(ensemble[1])
    victim.kill()
    try:
        await writer.ask("append", ledger=ledger, count=10, size=100, seed=38)
        fragments = dict(
            part.split("=") for part in (await writer.ask("metadata", ledger=ledger))["fragments"].split(";")
        )
        assert list(fragments) == ["0", "10"] and victim.id not in fragments["10"].split(",")
        assert (await reader.ask("open", ledger=ledger, recover="yes"))["last"] == "19"
        assert await reader.ask("read", ledger=ledger, first=0, last=19) == expected(38, 0, 19, 100)
    finally:
        writer.kill()
        await mixed.restart(victim)
