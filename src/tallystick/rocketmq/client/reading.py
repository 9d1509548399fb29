"""A range of one queue, read outside of all groups: no group is joined, nothing is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tallystick.errors import BrokerUnavailable, Unavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.pulling import EMPTY_PAUSE_S, PullPosition, ask
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.wire.headers import PullResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode

GROUP = "TOOLS_CONSUMER"  # of the original's tools too: every broker knows it
ATTEMPTS = 3  # at the processes of the broker set, one after the other


async def read_queue(
    context: BrokerContext, queue: MessageQueue, first: int, end: int | None, tags: TagFilter
) -> AsyncGenerator[ReceivedMessage, None]:
    """Yields the messages from ``first`` up to, without, ``end``; None: for ever.

    Raises BrokerError, NoSuchTopic, Unavailable, and BrokerUnavailable when only a slave answers that does not have
    messages from here on, as it began in the middle of its master's log.
    """
    pull = PullPosition(queue, tags, first)
    failures = 0
    while end is None or pull.next_offset < end:
        before, asked_at = pull.next_offset, context.clock.now()
        try:
            response = await ask(context, GROUP, pull)
            _check_has(response, pull)
        except Unavailable:
            failures += 1
            if failures == ATTEMPTS:
                raise
            context.routes.refresh_soon(queue.topic)
            await asyncio.sleep(EMPTY_PAUSE_S)
            continue
        failures = 0
        for message in pull.responded(response):
            if end is not None and message.offset >= end:
                return
            yield message
        if end is not None and pull.next_offset < before:
            return  # the queue ends before ``end`` by now: it was made anew
        if pull.next_offset == before and context.clock.now() - asked_at < EMPTY_PAUSE_S:
            await asyncio.sleep(EMPTY_PAUSE_S)  # a broker that does not hold pulls


def _check_has(response: Command, pull: PullPosition) -> None:
    """Raises BrokerUnavailable if a slave's first message is a later one: its master may have the others."""
    if response.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
        return
    header = PullResponse.of(response)
    if max(pull.next_offset, header.next_begin_offset) < header.min_offset:
        pull.broker_id = header.suggest_which_broker_id
        raise BrokerUnavailable(
            "the master of this queue is away, and its slave does not have these messages: wait for the master",
            queue=pull.queue,
            offset=pull.next_offset,
            slave_has_from=header.min_offset,
        )
