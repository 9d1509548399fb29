"""Writers of one kind die, are fenced, or lose a bookie; the other kind takes over (Q7 to Q16)."""

from __future__ import annotations

import pytest

from support.clusters import KINDS, OTHER, Cluster
from support.content import expected
from support.peers import Driver, PeerError
from tallystick.errors import LedgerFenced, RecoveryIncomplete


async def read_by_both(cluster: Cluster, ledger: str, last: int) -> list[dict[str, str]]:
    found = []
    for client in cluster.clients.values():
        assert closed_at(await client.ask("open", ledger=ledger)) == last
        found.append(await client.ask("read", ledger=ledger, first=0, last=last))
    return found


def closed_at(opened: dict[str, str]) -> int:
    assert opened["closed"] == "yes"
    return int(opened["last"])


@pytest.mark.rule("Q10", "Q13", "Q14", "Q16")
@pytest.mark.parametrize("quorums", [(3, 2, 2), (3, 3, 2)], ids=["striped", "full"])
async def test_q10_a_killed_writer_is_recovered_by_the_other_kind(
    cluster: Cluster, writer_kind: str, quorums: tuple[int, int, int]
) -> None:
    e, qw, qa = quorums
    victim: Driver = await cluster.client(writer_kind)
    ledger = (await victim.ask("create", e=e, qw=qw, qa=qa))["ledger"]
    await victim.ask("append", ledger=ledger, count=100, size=200, seed=6)
    await victim.ask("send", ledger=ledger, count=200, size=200, seed=6)
    victim.kill()

    last = closed_at(await cluster.clients[OTHER[writer_kind]].ask("open", ledger=ledger, recover="yes"))
    assert 99 <= last <= 299, "every acknowledged entry, none that was never sent"
    assert await read_by_both(cluster, ledger, last) == [expected(6, 0, last, 200)] * 2
    metadata = [await client.ask("metadata", ledger=ledger) for client in cluster.clients.values()]
    assert metadata[0] == metadata[1]
    assert (metadata[0]["state"], metadata[0]["last"]) == ("CLOSED", str(last))
    length = int(metadata[0]["length"])
    if writer_kind == "tally" and last == 99:
        # With nothing to write back the original stores the length at the highest entry it saw, which may lie beyond.
        assert length in {(sent + 1) * 200 for sent in range(99, 300)}
    else:
        assert length == (last + 1) * 200


@pytest.mark.rule("Q11", "Q12")
async def test_q11_a_fenced_writer_is_refused(cluster: Cluster, writer_kind: str) -> None:
    writer, rival = cluster.clients[writer_kind], cluster.clients[OTHER[writer_kind]]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=10, size=50, seed=7)
    assert closed_at(await rival.ask("open", ledger=ledger, recover="yes")) == 9
    after_recovery = await rival.ask("metadata", ledger=ledger)
    with pytest.raises(PeerError) as fenced:
        await writer.ask("append", ledger=ledger, count=1, size=50, seed=7)
    assert fenced.value.code == LedgerFenced.code
    assert await rival.ask("metadata", ledger=ledger) == after_recovery
    assert await read_by_both(cluster, ledger, 9) == [expected(7, 0, 9, 50)] * 2


@pytest.mark.rule("Q10")
async def test_q10_an_empty_ledger_recovers_to_nothing(cluster: Cluster, writer_kind: str) -> None:
    writer, rival = cluster.clients[writer_kind], cluster.clients[OTHER[writer_kind]]
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    assert closed_at(await rival.ask("open", ledger=ledger, recover="yes")) == -1
    metadata = await writer.ask("metadata", ledger=ledger)
    assert (metadata["state"], metadata["last"], metadata["length"]) == ("CLOSED", "-1", "0")


async def ledger_with_spare(mixed: Cluster, client: Driver, spare_kind: str) -> tuple[str, list[str], str]:
    """A ledger whose ensemble leaves out a bookie of this kind: its id, its ensemble, and that bookie."""
    while True:
        ledger = (await client.ask("create", e=3, qw=2, qa=2))["ledger"]
        ensemble = (await client.ask("metadata", ledger=ledger))["fragments"].removeprefix("0=").split(",")
        spare = next(bookie for bookie in mixed.bookies if bookie.id not in ensemble)
        if spare.kind == spare_kind:
            return ledger, ensemble, spare.id
        await client.ask("close", ledger=ledger)


@pytest.mark.rule("Q7", "Q8")
@pytest.mark.parametrize("victim_kind", KINDS)
async def test_q8_an_ensemble_changes_onto_the_other_kind(mixed: Cluster, writer_kind: str, victim_kind: str) -> None:
    writer: Driver = await mixed.client(writer_kind)  # its own: a client remembers failed bookies for a while
    ledger, ensemble, spare = await ledger_with_spare(mixed, writer, OTHER[victim_kind])
    victim = next(mixed.bookie(id) for id in ensemble if mixed.bookie(id).kind == victim_kind)
    await writer.ask("append", ledger=ledger, count=10, size=100, seed=8)
    victim.kill()
    try:
        await writer.ask("append", ledger=ledger, count=10, size=100, seed=8)
        metadata = await writer.ask("metadata", ledger=ledger)
        fragments = dict(fragment.split("=") for fragment in metadata["fragments"].split(";"))
        # Behind the last confirmed entry: those before the first that the victim should store may be confirmed by then.
        slot = ensemble.index(victim.id)
        failed = next(entry for entry in range(10, 13) if slot in (entry % 3, (entry + 1) % 3))
        _, first = fragments
        assert 10 <= int(first) <= failed
        assert fragments[first].split(",") == [spare if id == victim.id else id for id in ensemble]
        # The writer is not told; what it wrote is recovered by the other kind while the victim is still down.
        rival = mixed.clients[OTHER[writer_kind]]
        assert closed_at(await rival.ask("open", ledger=ledger, recover="yes")) == 19
        assert await read_by_both(mixed, ledger, 19) == [expected(8, 0, 19, 100)] * 2
    finally:
        writer.kill()
        await mixed.restart(victim)


@pytest.mark.rule("Q15")
async def test_q15_an_unfinished_recovery_of_one_kind_is_finished_by_the_other(
    mixed: Cluster, writer_kind: str
) -> None:
    writer, rival = mixed.clients[writer_kind], mixed.clients[OTHER[writer_kind]]
    ledger = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=10, size=100, seed=9)
    ensemble = (await writer.ask("metadata", ledger=ledger))["fragments"].removeprefix("0=").split(",")
    down = [mixed.bookie(id) for id in ensemble[:2]]
    for bookie in down:
        bookie.kill()
    try:
        with pytest.raises(PeerError) as incomplete:
            await rival.ask("open", ledger=ledger, recover="yes")
        assert incomplete.value.code == RecoveryIncomplete.code
        assert (await rival.ask("metadata", ledger=ledger))["state"] == "IN_RECOVERY"
    finally:
        await mixed.restart(*down)
    assert closed_at(await writer.ask("open", ledger=ledger, recover="yes")) == 9
    assert await read_by_both(mixed, ledger, 9) == [expected(9, 0, 9, 100)] * 2


@pytest.mark.rule("P1")
async def test_p1_acknowledged_entries_survive_kill_9_of_every_bookie(mixed: Cluster, writer_kind: str) -> None:
    writer = mixed.clients[writer_kind]
    ledger = (await writer.ask("create", e=3, qw=2, qa=2))["ledger"]
    await writer.ask("append", ledger=ledger, count=300, size=500, seed=10)
    for bookie in mixed.bookies:
        bookie.kill()
    await mixed.restart(*mixed.bookies)
    rival = mixed.clients[OTHER[writer_kind]]
    assert closed_at(await rival.ask("open", ledger=ledger, recover="yes")) == 299
    assert await read_by_both(mixed, ledger, 299) == [expected(10, 0, 299, 500)] * 2
