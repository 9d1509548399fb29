"""Streams beside an unmodified Pulsar broker with its default settings: its topics are read, ours are its topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.waiting import until
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import StreamOwned

pulsar = pytest.importorskip("pulsar")

from support.pulsar_topics import (  # noqa: E402
    KEPT,
    LEDGER_ENTRIES,
    Message,
    PulsarTopics,
    in_order,
    messages,
    read_all,
    seen,
    send,
    topic_of,
)

pytestmark = pytest.mark.usefixtures("unused_topics")  # time passes for them meanwhile

CODECS = {
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
BATCHES = {"batching_enabled": True, "batching_max_messages": 7, "batching_max_publish_delay_ms": 100}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batched": BATCHES,
    "keyed": {**BATCHES, "batching_type": pulsar.BatchingType.KeyBased},
    **{name: {"compression_type": codec} for name, codec in CODECS.items()},
    **{f"{name}-batched": {"compression_type": codec, **BATCHES} for name, codec in CODECS.items()},
}
LONG_BYTES = 12 << 20  # a message that Pulsar's client cuts into three, or two if it is compressed


@pytest.mark.rule("Q18", "Q19")
@pytest.mark.parametrize("kind", KINDS)
async def test_q19_a_topic_is_read_with_its_ids_and_bytes_beside_its_broker_and_without_it(
    topics: PulsarTopics, bk: BookKeeper, kind: str
) -> None:
    """An entry is known to be confirmed when one was sent after its acknowledgement, or its ledger is closed."""
    stream = f"{KEPT}/{kind}"
    await bk.create_for_pulsar(stream)
    *most, last = messages(250, keyed=kind == "keyed")
    sent = in_order(await topics.produce(stream, most, **KINDS[kind]))
    before = await topics.internal_stats(stream)
    closed = [message for message in sent if message.position.ledger != sent[-1].position.ledger]
    assert (read := await read_all(bk, stream)) == sent[: len(read)] and len(closed) <= len(read) < len(sent)
    assert await topics.internal_stats(stream) == before, "the broker was disturbed"

    last_sent = await topics.produce(stream, [last], **KINDS[kind])
    assert await read_all(bk, stream) == sent
    assert last_sent[0].position.ledger == sent[-1].position.ledger, "the broker was disturbed"
    sent += last_sent

    await topics.unload(stream)
    assert await read_all(bk, stream) == sent
    assert await topics.consume(stream, len(sent)) == sent


@pytest.mark.rule("Q19")
@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_a_message_in_chunks_is_one(topics: PulsarTopics, bk: BookKeeper, compression: str) -> None:
    stream = f"{KEPT}/chunked-{compression}"
    await bk.create_for_pulsar(stream)
    long = messages(1, size=LONG_BYTES)
    options = {} if compression == "none" else {"compression_type": CODECS[compression]}
    sent = await topics.produce(stream, [*long, *messages(3), *long], chunking_enabled=True, **options)
    await topics.unload(stream)
    async with bk.read_stream(stream) as reader:
        read = [message async for message in reader.read()]
    assert [seen(message) for message in read] == sent
    assert len(read[0].chunks) >= 1 and read[0].chunks[0] == Position(sent[0].position.ledger, 0)
    assert await topics.consume(stream, len(sent)) == sent


@pytest.mark.rule("Q19")
async def test_each_partition_of_a_topic_is_a_stream(topics: PulsarTopics, bk: BookKeeper) -> None:
    stream = f"{KEPT}/parted"
    await bk.create_for_pulsar(f"{KEPT}/any")
    await topics.admin("PUT", "persistent/tally/kept/parted/partitions", 3)
    sent = await topics.produce(stream, messages(90, keyed=True))
    parts = [f"{stream}-partition-{number}" for number in range(3)]
    assert [name async for name in bk.streams(f"{stream}-")] == parts
    for part in parts:
        await topics.unload(part)
    read = [message for part in parts for message in await read_all(bk, part)]
    assert sorted(read, key=lambda message: message.data) == sent
    keys = [{message.key for message in await read_all(bk, part)} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 5, "a key is in one partition"


@pytest.mark.rule("Q18", "Q19")
async def test_a_reader_follows_a_live_topic_across_its_ledgers_and_never_passes_the_lac(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    stream = f"{KEPT}/followed"
    await bk.create_for_pulsar(stream)
    sent: list[Message] = []
    count = 3 * LEDGER_ENTRIES + 10

    def produce() -> None:
        with topics.client() as client:
            producer = client.create_producer(topic_of(stream))
            for message in messages(count):
                sent.extend(send(producer, [message]))

    producing = asyncio.create_task(asyncio.to_thread(produce))
    read: list[Message] = []
    async with bk.read_stream(stream) as reader:

        async def follow() -> None:
            async for message in reader.read(follow=True):
                read.append(seen(message))

        following = asyncio.create_task(follow())
        await producing
        with pytest.raises(StreamOwned, match="durable=False"):
            await bk.cursor(stream, "mine")
        async with bk.cursor(stream, "mine", durable=False) as cursor:
            assert [seen(message) for message in await cursor.read(10)] == sent[:10]
        await until(lambda: len(read) == count - 1)
        assert await reader.last_confirmed() == sent[-2].position, "nothing says that the last one is confirmed"
        assert read == sent[:-1]
        await topics.unload(stream)
        await until(lambda: len(read) == count)
        following.cancel()
    assert read == sent
    assert len({message.position.ledger for message in sent}) == 4, "the broker rolled over as it does alone"
