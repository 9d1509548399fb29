"""A stream whose owner is an unmodified Pulsar broker, while bookies and the broker itself fail."""

from __future__ import annotations

import asyncio

import pytest

from support.peers import Bookie
from support.waiting import until
from tallystick.bookkeeper.stream.client import BookKeeper

pytest.importorskip("pulsar")

from support.pulsar_topics import (
    KEPT,
    PATIENCE_MS,
    Message,
    PulsarTopics,
    messages,
    read_all,
    seen,
    send,
    topic_of,
)

PART = 200


async def in_use(topics: PulsarTopics, bk: BookKeeper, stream: str) -> Bookie:
    """A bookie that takes the entries of the topic now."""
    newest = (await bk.stream_context.catalog.read(stream, synced=True)).value.ledgers[-1].ledger
    metadata = (await bk.context.driver.read_ledger(newest)).value
    return next(bookie for bookie in topics.bookies if bookie.id == metadata.fragments[-1].bookies[0])


@pytest.mark.rule("Q10", "Q19")
async def test_q19_a_reader_of_ours_follows_a_topic_through_lost_and_hung_bookies_and_a_killed_broker(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    """What is acknowledged is read in order; what the broker sent again is there again, for its consumers, too."""
    stream = f"{KEPT}/survivor"
    await bk.create_for_pulsar(stream)
    read: list[Message] = []

    async def follow() -> None:
        async with bk.read_stream(stream) as reader:
            async for message in reader.read(follow=True):
                read.append(seen(message))

    following = asyncio.create_task(follow())
    sent: list[Message] = []
    with topics.client() as client:
        producer = await asyncio.to_thread(client.create_producer, topic_of(stream), send_timeout_millis=PATIENCE_MS)

        def send_part(part: int) -> None:
            for number in range(PART):
                sent.extend(send(producer, messages(1, first=PART * part + number)))

        async def sending(part: int) -> asyncio.Task[None]:
            """Returns when the producer is in the middle of it."""
            task = asyncio.create_task(asyncio.to_thread(send_part, part))
            await until(lambda: len(sent) >= PART * part + PART // 4)
            return task

        await (await sending(0))
        lost = await in_use(topics, bk, stream)
        part = await sending(1)
        lost.kill()
        await part
        await lost.start()
        hung = await in_use(topics, bk, stream)
        part = await sending(2)
        hung.pause()
        await part  # the broker waits for the bookie as long as its settings say, and goes on without it
        hung.resume()
        part = await sending(3)
        topics.broker.kill()
        await topics.broker.start()
        await part
    await topics.unload(stream)
    everything = await read_all(bk, stream)
    assert list(dict.fromkeys(message.data for message in everything)) == [m.data for m in messages(4 * PART)]
    await until(lambda: len(read) >= len(everything))
    following.cancel()
    assert read == everything
    assert await topics.consume(stream, len(everything)) == everything
