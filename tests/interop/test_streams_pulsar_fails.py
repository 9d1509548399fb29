"""A stream whose owner is an unmodified Pulsar broker, while bookies and the broker itself fail."""

from __future__ import annotations

import asyncio

import pytest

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
HUNG_S = 12.0  # longer than the broker waits for a bookie


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
    lost, hung, _ = topics.bookies
    with topics.client() as client:
        producer = await asyncio.to_thread(client.create_producer, topic_of(stream), send_timeout_millis=PATIENCE_MS)

        def sending(part: int) -> asyncio.Task[list[Message]]:
            one_by_one = [messages(1, first=PART * part + number) for number in range(PART)]
            return asyncio.create_task(
                asyncio.to_thread(lambda: [send(producer, message)[0] for message in one_by_one])
            )

        await sending(0)
        part = sending(1)
        await asyncio.sleep(0.05)
        lost.kill()
        await part
        await lost.start()
        part = sending(2)
        await asyncio.sleep(0.05)
        hung.pause()
        await asyncio.sleep(HUNG_S)
        hung.resume()
        await part
        part = sending(3)
        await asyncio.sleep(0.05)
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
