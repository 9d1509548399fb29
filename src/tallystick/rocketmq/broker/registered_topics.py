"""The topics that a broker registers: with the permission of the whole broker, and as many as fit a frame."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.registration import FRAME_BYTES, FRAME_VALUES, topic_size
from tallystick.rocketmq.wire.values import DLQ_PREFIX, RETRY_PREFIX, Perm

STEP_TOPICS = 500  # that are gone through without a stop


async def permitted(table: TopicTable, perm: int) -> TopicTable:
    """The topics as a broker with the permission ``perm`` registers them (``BrokerController.registerBrokerAll``).

    Others have turns in between: for 50,000 topics it takes a tenth of a second. ``table`` is a copy.
    """
    if perm == Perm.READ | Perm.WRITE:
        return table
    masked = {}
    for count, (name, topic) in enumerate(table.topics.items(), 1):
        masked[name] = replace(topic, perm=topic.perm & perm)
        if count % STEP_TOPICS == 0:
            await asyncio.sleep(0)
    return replace(table, topics=masked)


async def fitting(table: TopicTable) -> TopicTable:
    """Returns the topics that fit one registration: first the broker's own, then those made first, then those of
    groups. All fit, unless a table is older than its bounds or these were set higher. It takes steps, as ``permitted``.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for count, (name, topic) in enumerate(table.topics.items(), 1):
        sizes[name] = topic_size(topic)
        if count % STEP_TOPICS == 0:
            await asyncio.sleep(0)
    if _fits(sum(size for size, _ in sizes.values()), sum(values for _, values in sizes.values())):
        return table
    topics, total, total_values = {}, 0, 0
    for name in sorted(table.topics, key=lambda name: name.startswith((RETRY_PREFIX, DLQ_PREFIX))):
        size, values = sizes[name]
        if _fits(total + size, total_values + values):
            topics[name], total, total_values = table.topics[name], total + size, total_values + values
    return replace(table, topics=topics)


def _fits(size: int, values: int) -> bool:
    return size <= FRAME_BYTES and values <= FRAME_VALUES
