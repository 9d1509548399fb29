"""A Pulsar broker, unchanged and told not to speak version 2, on bookies of either kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.clusters import Cluster
from support.java import Java
from support.pulsar import PulsarBroker

pulsar = pytest.importorskip("pulsar")

MESSAGES = 300
PATIENCE_MS = 60_000


@pytest.fixture
async def broker(mixed: Cluster, pulsar_java: Java) -> AsyncIterator[PulsarBroker]:
    started = await PulsarBroker.prepare(pulsar_java, mixed.uri, mixed.folder / "pulsar", v2=False)
    await started.start()
    yield started
    started.kill()


def produce(address: str, first: int, last: int, *, batched: bool) -> None:
    client = pulsar.Client(address, operation_timeout_seconds=60, connection_timeout_ms=60_000)
    try:
        producer = client.create_producer("flights", batching_enabled=batched, send_timeout_millis=PATIENCE_MS)
        for number in range(first, last + 1):
            producer.send_async(b"%d" % number, lambda result, message_id: None)
        producer.flush()
    finally:
        client.close()


def consume(address: str, count: int) -> list[int]:
    client = pulsar.Client(address, operation_timeout_seconds=60, connection_timeout_ms=60_000)
    try:
        reader = client.create_reader("flights", pulsar.MessageId.earliest)
        return [int(reader.read_next(PATIENCE_MS).data()) for _ in range(count)]
    finally:
        client.close()


@pytest.mark.rule("Q5", "Q7", "Q10", "Q17")
async def test_q10_a_topic_survives_a_lost_bookie_and_its_broker(mixed: Cluster, broker: PulsarBroker) -> None:
    """Everything is acknowledged once, and read once and in order: also by a broker that recovers the last ledger."""
    await asyncio.to_thread(produce, broker.address, 1, MESSAGES, batched=False)
    lost = next(bookie for bookie in mixed.bookies if bookie.kind == "tally")
    lost.kill()
    try:
        await asyncio.to_thread(produce, broker.address, MESSAGES + 1, 2 * MESSAGES, batched=True)
        broker.kill()
        await broker.start()
        numbers = await asyncio.to_thread(consume, broker.address, 2 * MESSAGES)
        assert numbers == list(range(1, 2 * MESSAGES + 1))
    finally:
        await mixed.restart(lost)
