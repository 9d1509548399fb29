"""A stretch of one queue, read for nobody's account: no group is joined, nothing is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tallystick.errors import Unavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.pulling import EMPTY_PAUSE_S, Pull, ask
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.wire.values import MessageQueue

GROUP = "TOOLS_CONSUMER"  # of the original's tools too: every broker knows it
ATTEMPTS = 3  # at the processes of the broker set, one after the other


async def read_queue(
    context: BrokerContext, queue: MessageQueue, first: int, end: int | None, tags: TagFilter
) -> AsyncGenerator[ReceivedMessage, None]:
    """From ``first`` up to, without, ``end``; None: for ever. Raises BrokerError, NoSuchTopic, Unavailable."""
    pull = Pull(queue, tags, first)
    failed = 0
    while end is None or pull.next_offset < end:
        before, asked = pull.next_offset, context.clock.now()
        try:
            answer = await ask(context, GROUP, pull)
        except Unavailable:
            failed += 1
            if failed == ATTEMPTS:
                raise
            context.routes.refresh_soon(queue.topic)
            await asyncio.sleep(EMPTY_PAUSE_S)
            continue
        failed = 0
        for message in pull.answered(answer):
            if end is not None and message.offset >= end:
                return
            yield message
        if end is not None and pull.next_offset < before:
            return  # the queue ends before ``end`` by now: it was made anew
        if pull.next_offset == before and context.clock.now() - asked < EMPTY_PAUSE_S:
            await asyncio.sleep(EMPTY_PAUSE_S)  # a broker that does not hold pulls
