"""What an open ledger costs while nothing happens: a process may have tens of thousands, and each full collection of
Python's garbage looks at every object of all of them, in one turn of the loop."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import writers as writers_module
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.errors import LedgerFenced

COUNT, IDLE_SESSIONS = 200, 5
OBJECTS = 3.5  # of a ledger, with the event of its creation that the test keeps
ALL_THE_SAME = 60 * IDLE_SESSIONS


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    monkeypatch.setattr(writers_module, "IDLE_SESSIONS", IDLE_SESSIONS)
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def open_ledgers(client: BookKeeper) -> list[LedgerWriter]:
    return [await client.create_ledger(3, write_quorum=2, ack_quorum=2) for _ in range(COUNT)]


async def write(writers: list[LedgerWriter]) -> None:
    """One entry each; until no more of them have a session than may."""
    for entry in await asyncio.gather(*(writer.append(b"x") for writer in writers)):
        assert entry == 0
    await until(lambda: sum(writer._session is not None for writer in writers) <= IDLE_SESSIONS)


def beat(writer: LedgerWriter) -> None:
    """As its connections do several times a second: they forget who has his answers."""
    for peer in writer._writers.context.bookies._peers.values():
        if peer._link is not None:
            peer._link._outstanding.wake_at()


def forget(cluster: SmallCluster) -> None:
    """What bookies hold is not the client's."""
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
        bookie.clear()


def tracked() -> Counter[str]:
    gc.collect()
    gc.collect()  # a tuple is left out once what it refers to was
    return Counter(type(one).__name__ for one in gc.get_objects())


async def test_an_open_ledger_is_few_objects_for_the_collector(cluster: SmallCluster) -> None:
    client = cluster.client()
    writers = await open_ledgers(client)  # and whatever the first ones make for all
    await write(writers)
    forget(cluster)
    before = tracked()
    more = await open_ledgers(client)
    idle = tracked() - before
    assert idle.total() <= OBJECTS * COUNT, idle.most_common(12)
    await write(more)
    beat(more[0])
    forget(cluster)
    written = tracked() - before
    assert written.total() <= OBJECTS * COUNT + ALL_THE_SAME, written.most_common(20)
    for writer in (*writers, *more):
        writer.abort()


async def test_a_writer_is_held_until_it_takes_no_more(cluster: SmallCluster) -> None:
    client = cluster.client()
    closed, stopped, fenced, kept = (await open_ledgers(client))[:4]
    held = client._writers.open
    assert len(held) == COUNT and [*held.values()][:4] == [closed, stopped, fenced, kept]
    await closed.close()
    stopped.abort()
    await (await cluster.client().open_ledger(fenced.id, recover=True)).close()
    with pytest.raises(LedgerFenced):
        await fenced.append(b"x")
    assert len(held) == COUNT - 3 and next(iter(held)) == kept.id
    await client.close()
    assert not held


@pytest.mark.rule("Q7", "Q8")
async def test_q7_a_bookie_that_is_lost_to_many_ledgers_is_told_of_once() -> None:
    cluster = await SmallCluster().start(4)
    client = cluster.client()
    try:
        writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=3) for _ in range(40)]
        lost = writers[0].metadata.ensemble[0]
        await asyncio.gather(*(writer.append(b"x") for writer in writers))
        await cluster.down(lost)
        await asyncio.gather(*(writer.append(b"x") for writer in writers))
    finally:
        await cluster.close()
    failed = [event.fields for event in cluster.events if event.kind == "bookie failed"]
    assert [(fields["bookie"], fields["first"]) for fields in failed] == [(lost, 1)]
    assert failed[0]["answer"], "why it gave none is known by then"
    changed = [event.fields for event in cluster.events if event.kind == "ensemble changed"]
    assert len(changed) > 20 and all(fields["failed"] == (lost,) for fields in changed)
    assert failed[0]["ledger"] in {fields["ledger"] for fields in changed}
