"""A Pulsar broker, unchanged and told not to speak version 2, on bookies of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import tallystick
from support.clusters import Cluster
from support.java import Java
from support.peers import Bookie
from support.pulsar import PulsarBroker
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings

pytest.importorskip("pulsar")

from support.pulsar_topics import (
    DEFAULTS,
    KEPT,
    PulsarTopics,
    append,
    in_order,
    messages,
    read_all,
    seen,
)

BATCHES = {"batching_enabled": True, "batching_max_messages": 7, "batching_max_publish_delay_ms": 100}
MESSAGES = 300


@pytest.fixture(scope="module")
def both(clusters: Callable[[str], Cluster], pulsar_java: Java) -> Iterator[PulsarTopics]:
    """Its topics are our streams, on bookies of both kinds."""
    mixed = clusters("mixed")

    async def start() -> PulsarBroker:
        broker = await PulsarBroker.prepare(pulsar_java, mixed.uri, mixed.folder / "pulsar", v2=False, changes=DEFAULTS)
        await broker.start()
        return broker

    broker = asyncio.run(start())
    yield PulsarTopics(mixed.uri, broker, mixed.bookies)
    broker.kill()


def killed(mixed: Cluster, kind: str) -> Bookie:
    lost = next(bookie for bookie in mixed.bookies if bookie.kind == kind)
    lost.kill()
    return lost


@pytest.mark.rule("Q5", "Q7", "Q10", "Q17")
async def test_q10_a_topic_survives_a_lost_bookie_and_its_broker(mixed: Cluster, both: PulsarTopics) -> None:
    """Everything is acknowledged once, and read once and in order: also by a broker that recovers the last ledger."""
    topic = f"{KEPT}/flights"
    async with tallystick.connect(both.uri) as bk:
        await bk.create_for_pulsar(topic)
    sent = await both.produce(topic, messages(MESSAGES), batching_enabled=False)
    lost = killed(mixed, "tally")
    try:
        sent += await both.produce(topic, messages(MESSAGES, first=MESSAGES), **BATCHES)
        both.broker.kill()
        await both.broker.start()
        assert await both.consume(topic, len(sent)) == in_order(sent)
    finally:
        await mixed.restart(lost)


@pytest.mark.rule("Q18", "Q19")
async def test_q19_a_stream_on_bookies_of_both_kinds_is_a_topic_and_comes_back(
    mixed: Cluster, both: PulsarTopics
) -> None:
    """A bookie of the original's dies while the broker appends; the cursor has holes in a ledger."""
    stream, acked = f"{KEPT}/both", [0, 2, 3, 41]
    async with tallystick.connect(both.uri) as bk:
        await bk.create_for_pulsar(stream)
        handle = await bk.open_stream(stream, settings=StreamSettings(max_entries_per_ledger=40))
        sent = await append(handle, messages(100, keyed=True))
        ensembles = [await ensemble(bk, position.ledger) for position in dict.fromkeys(m.position for m in sent)]
        assert {bookie.startswith("tally") for each in ensembles for bookie in each} == {True, False}
        async with bk.cursor(stream, "billing") as cursor:
            read = await cursor.read(100)
            await cursor.ack_batch([read[number] for number in acked])
        await bk.hand_over(stream)

        assert await both.consume(stream, 100) == sent
        assert await both.subscribe(stream, "billing", 96) == [m for at, m in enumerate(sent) if at not in acked]
        sent += await both.produce(stream, messages(50, first=100), batching_enabled=False)
        lost = killed(mixed, "java")
        try:
            sent += in_order(await both.produce(stream, messages(200, first=150), **BATCHES))
            await both.unload(stream)
            async with bk.take_back(stream) as back:
                sent += await append(back, messages(10, first=350))
            assert await read_all(bk, stream) == sent
            async with bk.cursor(stream, "billing") as cursor:
                left = await cursor.read(len(sent), wait=False)
            assert [seen(message) for message in left] == [m for at, m in enumerate(sent) if at not in acked]
        finally:
            await mixed.restart(lost)


async def ensemble(bk: BookKeeper, ledger: int) -> list[str]:
    metadata = (await bk.context.driver.read_ledger(ledger)).value
    return list(metadata.fragments[0].bookies)
