"""What a writer tells of the bookies that it lacks, while others fail or come back; over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.handshake import Handshaker
from tallystick.errors import BookieUnavailable, NotEnoughBookies


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def test_a_ledger_that_loses_another_bookie_is_told_of_again(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=1)
    await writer.append(b"0")
    first, second, _ = writer.metadata.ensemble
    for missing_bookie in (first, second):
        await cluster.down(missing_bookie)
        while missing_bookie not in writer.missing:
            await writer.append(b"more")
            await asyncio.sleep(0.01)
    told = [event.fields["missing"] for event in cluster.events if event.kind == "ledger degraded"]
    assert told == [(first,), (first, second)]
    await writer.close()


async def test_a_ledger_is_restored_when_its_bookie_takes_entries_though_nobody_waits_for_them(
    cluster: SmallCluster,
) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    missing_bookie = writer.metadata.ensemble[1]
    await until(lambda: missing_bookie in cluster.holders(writer.id, 0))
    await cluster.down(missing_bookie)
    await writer.append(b"1")
    await until(lambda: writer.missing == (missing_bookie,))
    slow, other = (cluster.bookies[name] for name in writer.metadata.ensemble if name != missing_bookie)
    back = cluster.bookies[missing_bookie]
    slow.held, back.held = [], []
    pending = writer.append_nowait(b"2")
    await until(lambda: other.id in cluster.holders(writer.id, 2))
    await cluster.up(missing_bookie)
    await until(lambda: writer.missing == () and bool(back.held))
    slow.release()
    assert await pending == 2
    assert "ledger restored" not in cluster.kinds(), "it may refuse every entry"
    back.release()
    await until(lambda: "ledger restored" in cluster.kinds())
    await writer.close()


@pytest.mark.rule("P1")
async def test_p1_another_bookie_in_a_missing_ones_place_is_told_of_again_when_that_was_back_meanwhile(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    missing_bookie, is_another = writer.metadata.ensemble[1], False
    driver = writer._writers.context.driver
    creation = driver.bookie_creation

    async def who(bookie: str) -> int | None:
        return 10_000 if is_another and bookie == missing_bookie else await creation(bookie)

    def stores(entry: int) -> bool:
        return missing_bookie in cluster.holders(writer.id, entry)

    monkeypatch.setattr(driver, "bookie_creation", who)
    for times in (1, 2):
        entry = await writer.append(b"x")
        await until(partial(stores, entry))
        await cluster.down(missing_bookie)
        await writer.append(b"without it")
        await until(lambda: writer.missing == (missing_bookie,))
        is_another = True
        await cluster.up(missing_bookie)
        await until(lambda: "bookie not believed" in cluster.kinds())
        await asyncio.sleep(60)  # it is tried again and again
        assert cluster.kinds().count("bookie not believed") == times
        is_another = False
        await cluster.down(missing_bookie)
        await cluster.up(missing_bookie)
        await until(lambda: writer.missing == ())
    await writer.close()


async def test_a_writer_that_ends_says_why_each_bookie_gave_no_answer(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*given: object) -> None:
        raise BookieUnavailable("the bookie does not let this client in")

    monkeypatch.setattr(Handshaker, "connect", refuse)
    writer = await cluster.client(no_quorum_s=0.05).create_ledger(3, write_quorum=2, ack_quorum=2)
    with pytest.raises(NotEnoughBookies) as raised:
        await writer.append(b"0")
    reasons = set(raised.value.fields["answers"].values())
    assert reasons == {"the bookie cannot be reached: the bookie does not let this client in"}
    await writer.close()
