"""Open writers replace a bookie that is gone for a third of the grace, also those that append nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.ledger import absences as module
from tallystick.bookkeeper.ledger.absences import AbsenceCore, AbsentBookies
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.errors import MetadataUnavailable

GRACE_S = 600.0


@pytest.fixture
async def cluster() -> AsyncIterator[RepairedCluster]:
    made = await RepairedCluster().started(4)
    yield made
    await made.close()


async def opened(cluster: RepairedCluster, client: Any, entries: int = 1, **modes: Any) -> LedgerWriter:
    writer: LedgerWriter = await client.create_ledger(3, write_quorum=3, ack_quorum=2, **modes)
    for number in range(entries):
        await writer.append(b"%d" % number)
    await asyncio.sleep(0.5)  # what its bookies still hear of it
    return writer


async def ensemble(cluster: RepairedCluster, writer: LedgerWriter) -> tuple[str, ...]:
    return (await cluster.metadata(writer.id)).ensemble


def test_who_is_away_is_due_once_and_again_when_others_have_come() -> None:
    core = AbsenceCore()
    core.named(("b0", "b1"))
    core.looked({"b1", "b2"}, 0.0, 200.0)
    assert (core.due(199.9), core.wake_at(), core.due(200.0)) == ([], 200.0, ["b0"])
    core.tried(["b0"])
    assert (core.due(300.0), core.wake_at()) == ([], None)
    core.looked({"b1", "b2", "b3"}, 300.0, 200.0)
    assert core.due(300.0) == ["b0"]
    core.looked({"b0", "b1", "b3"}, 310.0, 200.0)
    assert (core.due(509.9), core.due(510.0)) == ([], ["b2"]), "b0 is back, and b2 was seen once"


@pytest.mark.parametrize("entries", [0, 1])
async def test_an_idle_writer_replaces_it_before_a_repairer_ends_its_ledger(
    cluster: RepairedCluster, entries: int
) -> None:
    writer = await opened(cluster, cluster.client(), entries)
    cluster.repair(grace_s=GRACE_S, open_grace_s=GRACE_S)
    gone = writer.metadata.ensemble[1]
    await cluster.down(gone)
    await asyncio.sleep(GRACE_S / 3 - 10)
    assert gone in await ensemble(cluster, writer)
    await asyncio.sleep(GRACE_S / 3 * module.SPREAD + 20)
    metadata = await cluster.metadata(writer.id)
    assert gone not in metadata.ensemble and len(metadata.fragments) == 1 + entries
    await asyncio.sleep(3 * GRACE_S)
    assert await writer.append(b"it goes on") == entries
    assert not cluster.heard("open ledger recovered for repair")
    await writer.close()
    await asyncio.sleep(100)
    await cluster.require_whole(writer.id)


async def test_one_that_took_the_place_of_another_is_replaced_too(cluster: RepairedCluster) -> None:
    """While the writer still has what its newest append needed, and when it has not."""
    client = cluster.client()
    writer = await opened(cluster, client)
    for number in range(1, 4):
        gone = (await ensemble(cluster, writer))[0]
        await cluster.down(gone)
        if number % 2:
            assert await writer.append(b"%d" % number) == number
        else:
            await asyncio.sleep(250)
            assert await writer.append(b"%d" % number) == number
        assert gone not in await ensemble(cluster, writer)
        await cluster.up(gone)
        await asyncio.sleep(100)
        newest = (await ensemble(cluster, writer))[0]
        await cluster.down(newest)
        await asyncio.sleep(250)
        assert newest not in await ensemble(cluster, writer)
        await cluster.up(newest)
        await asyncio.sleep(100)


async def test_without_the_watch_a_repairer_ends_it(cluster: RepairedCluster) -> None:
    writer = await opened(cluster, cluster.client(absent_bookie_s=0.0))
    cluster.repair(grace_s=GRACE_S, open_grace_s=GRACE_S)
    await cluster.down(writer.metadata.ensemble[1])
    await asyncio.sleep(3 * GRACE_S)
    assert cluster.heard("open ledger recovered for repair")


async def test_the_grace_that_the_metadata_says_counts_if_it_is_less(cluster: RepairedCluster) -> None:
    await cluster.tree.set_recovery_delay(30)
    writer = await opened(cluster, cluster.client())
    gone = writer.metadata.ensemble[0]
    await cluster.down(gone)
    await asyncio.sleep(9.0)
    assert gone in await ensemble(cluster, writer)
    await asyncio.sleep(4.0)
    assert gone not in await ensemble(cluster, writer)


async def test_who_is_back_in_time_keeps_its_place(cluster: RepairedCluster) -> None:
    writer = await opened(cluster, cluster.client())
    before = writer.metadata.ensemble
    for _ in range(3):
        await cluster.down(before[2])
        await asyncio.sleep(150)
        await cluster.up(before[2])
        await asyncio.sleep(100)
    assert await ensemble(cluster, writer) == before and "ensemble changed" not in cluster.kinds()


async def test_without_another_bookie_it_waits_for_one_and_costs_no_session(cluster: RepairedCluster) -> None:
    client = cluster.client()
    writer = await opened(cluster, client)
    spare = next(name for name in cluster.bookies if name not in writer.metadata.ensemble)
    gone = writer.metadata.ensemble[0]
    await cluster.down(spare, gone)
    await asyncio.sleep(500)
    assert gone in await ensemble(cluster, writer) and "ledger degraded" not in cluster.kinds()
    await cluster.up(spare)
    await asyncio.sleep(1)
    assert spare in await ensemble(cluster, writer)
    assert await writer.append(b"more") == 1


async def test_a_writer_with_deferred_sync_is_left_alone(cluster: RepairedCluster) -> None:
    writer = await opened(cluster, cluster.client(), deferred_sync=True)
    await writer.force()
    gone = writer.metadata.ensemble[0]
    await cluster.down(gone)
    await asyncio.sleep(500)
    await cluster.up(gone)
    await asyncio.sleep(100)
    assert await writer.append(b"a change would have ended it") == 1
    await writer.close()


async def test_a_closed_writer_changes_nothing(cluster: RepairedCluster) -> None:
    client = cluster.client()
    writer, other = await opened(cluster, client), await opened(cluster, client)
    await writer.close()
    other.abort()
    await cluster.down(*{writer.metadata.ensemble[0], other.metadata.ensemble[1]})
    await asyncio.sleep(500)
    assert "ensemble changed" not in cluster.kinds()


async def test_many_writers_change_a_few_at_once(cluster: RepairedCluster) -> None:
    """However many there are: each turn begins no more, and idle sessions are dropped again."""
    client = cluster.client()
    writers = [await opened(cluster, client, entries=0) for _ in range(300)]
    counts = {name: sum(name in writer.metadata.ensemble for writer in writers) for name in cluster.bookies}
    under_way = most = 0
    change = LedgerWriter.replace_absent

    async def counted(self: LedgerWriter, bookies: Any) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await change(self, bookies)
        under_way -= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerWriter, "replace_absent", counted)
        await cluster.down("b0")
        await asyncio.sleep(300)
    assert cluster.kinds().count("ensemble changed") == counts["b0"] > 100
    assert most == module.CHANGED_AT_ONCE
    assert len(client._writers) <= 128
    assert not [writer.id for writer in writers if "b0" in await ensemble(cluster, writer)]


async def test_metadata_that_does_not_answer_is_asked_again(cluster: RepairedCluster) -> None:
    client = cluster.client()
    writer = await opened(cluster, client)
    gone = writer.metadata.ensemble[0]
    driver: Any = client.context.driver
    write, failures = driver.write_ledger, 0

    async def failing(*arguments: Any, **more: Any) -> Any:
        nonlocal failures
        failures += 1
        raise MetadataUnavailable("no response")

    driver.write_ledger = failing
    await cluster.down(gone)
    await asyncio.sleep(230)
    driver.write_ledger = write
    assert failures and gone in await ensemble(cluster, writer)
    await asyncio.sleep(30)
    assert gone not in await ensemble(cluster, writer)
    assert await writer.append(b"more") == 1


async def test_a_bookie_that_takes_no_new_entries_is_not_away(cluster: RepairedCluster) -> None:
    writer = await opened(cluster, cluster.client())
    before = writer.metadata.ensemble
    await cluster.set_read_only(before[0])
    await asyncio.sleep(500)
    assert await ensemble(cluster, writer) == before


def late_looks(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Clients look at registrations once this is set."""
    begin, run = asyncio.Event(), AbsentBookies._run

    async def run_later(absences: AbsentBookies) -> None:
        await begin.wait()
        await run(absences)

    monkeypatch.setattr(AbsentBookies, "_run", run_later)
    return begin


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, error: Exception) -> list[Exception]:
    """The first call of a method fails. The error is taken out of what is returned."""
    call, failures = getattr(owner, method), [error]

    async def failing(*arguments: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return await call(*arguments, **more)

    monkeypatch.setattr(owner, method, failing)
    return failures


async def test_a_bookie_that_goes_before_the_registrations_were_looked_at_is_replaced(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_gone = late_looks(monkeypatch)
    writer = await opened(cluster, cluster.client())
    gone = writer.metadata.ensemble[0]
    await cluster.down(gone)
    await asyncio.sleep(1)
    is_gone.set()
    await asyncio.sleep(250)
    assert gone not in await ensemble(cluster, writer)


async def test_who_took_a_place_and_went_before_the_registrations_could_be_looked_at_is_replaced(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_gone = late_looks(monkeypatch)
    writer = await opened(cluster, cluster.client())
    before = await ensemble(cluster, writer)
    await cluster.down(before[0])
    await writer.append(b"one that brings another bookie")
    await asyncio.sleep(10)
    (newest,) = {*await ensemble(cluster, writer)} - {*before}
    await cluster.up(before[0])
    await cluster.down(newest)
    await asyncio.sleep(1)
    is_gone.set()
    await asyncio.sleep(250)
    assert newest not in await ensemble(cluster, writer)


async def test_a_writer_that_could_not_ask_is_asked_again(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    writer = await opened(cluster, client)
    failures = failing_once(monkeypatch, client.placement, "without", MetadataUnavailable("no response"))
    gone = writer.metadata.ensemble[0]
    await cluster.down(gone)
    await asyncio.sleep(250)
    assert not failures and gone not in await ensemble(cluster, writer)


@pytest.mark.parametrize("error", [MetadataUnavailable("no response"), RuntimeError("a bug")])
async def test_registrations_that_could_not_be_looked_at_are_looked_at_again(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    client = cluster.client()
    writer = await opened(cluster, client)
    failures = failing_once(monkeypatch, client._absences._tree, "recovery_delay", error)
    gone = writer.metadata.ensemble[0]
    await cluster.down(gone)
    await asyncio.sleep(250)
    assert not failures and gone not in await ensemble(cluster, writer)
    reasons = [fields["reason"] for fields in cluster.heard("absent bookies not replaced")]
    assert reasons == ([repr(error)] if isinstance(error, RuntimeError) else [])


async def test_a_bookie_that_is_back_in_the_middle_keeps_its_other_ledgers(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    writers = [await opened(cluster, client, entries=0) for _ in range(60)]
    concerned = [writer for writer in writers if "b0" in writer.metadata.ensemble]
    change, is_back = LedgerWriter.replace_absent, list[bool]()

    async def changed(self: LedgerWriter, bookies: Any) -> None:
        await change(self, bookies)
        if not is_back:
            is_back.append(True)
            await cluster.up("b0")
        await asyncio.sleep(1)

    monkeypatch.setattr(LedgerWriter, "replace_absent", changed)
    await cluster.down("b0")
    await asyncio.sleep(400)
    kept = [writer for writer in concerned if "b0" in await ensemble(cluster, writer)]
    assert len(concerned) - len(kept) == module.CHANGED_AT_ONCE < len(concerned)


async def test_clients_that_see_a_bookie_go_at_once_begin_one_after_another(cluster: RepairedCluster) -> None:
    writers = [await opened(cluster, cluster.client(seed)) for seed in range(2, 10)]
    began = asyncio.get_running_loop().time()
    gone = await writers_gone(cluster, writers)
    await asyncio.sleep(GRACE_S / 3 - 1)
    seconds = dict[int, float]()
    while len(seconds) < len(gone):
        await asyncio.sleep(0.5)
        now = asyncio.get_running_loop().time() - began
        for writer in gone:
            if "b0" not in await ensemble(cluster, writer):
                seconds.setdefault(writer.id, now)
        assert now < GRACE_S / 3 * (1 + module.SPREAD) + 5
    assert max(seconds.values()) - min(seconds.values()) > 5


async def writers_gone(cluster: RepairedCluster, writers: list[LedgerWriter]) -> list[LedgerWriter]:
    """Take b0 away. Returns those that have it."""
    having = [writer for writer in writers if "b0" in await ensemble(cluster, writer)]
    assert len(having) > 2
    await cluster.down("b0")
    return having


async def test_what_is_written_without_a_bookie_is_left_to_who_restores_it(cluster: RepairedCluster) -> None:
    writer = await opened(cluster, cluster.client())
    spare = next(name for name in cluster.bookies if name not in writer.metadata.ensemble)
    gone = writer.metadata.ensemble[0]
    assert writer.has_any([gone]) and not writer.has_any([spare])
    await cluster.down(spare, gone)
    await writer.append(b"without")
    assert writer.missing == (gone,) and not writer.has_any([gone])


async def test_each_of_very_many_writers_is_looked_at_some_in_a_turn(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT_A_TURN", 2)
    client, turns, named = cluster.client(), 0, list[tuple[int, Any]]()
    writers = [await opened(cluster, client, entries=0) for _ in range(5)]

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    monkeypatch.setattr(client._absences._core, "named", lambda bookies: named.append((turns, bookies)))
    await client._absences._look()
    counting.cancel()
    assert [bookies for _, bookies in named] == [writer.metadata.ensemble for writer in writers]
    assert len({turn for turn, _ in named}) == 3
