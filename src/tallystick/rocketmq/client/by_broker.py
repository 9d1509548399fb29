"""Requests about many queues, broker by broker: a silent broker costs one time-out, and nothing at the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tallystick.errors import BrokerUnavailable, TallyError
from tallystick.rocketmq.wire.values import MessageQueue

AT_ONCE = 64  # queues of one broker that are asked about at a time: each has its time-out to itself

BrokerCall = Callable[[MessageQueue], Awaitable[None]]


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Returns the queues of each broker set, in their order."""
    queues_by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        queues_by_broker.setdefault(queue.broker, []).append(queue)
    return queues_by_broker


async def ask_brokers(queues: Iterable[MessageQueue], ask: BrokerCall) -> list[TallyError]:
    """Call ``ask_broker_of`` for all brokers side by side. Returns what the requests raised."""
    failures = await asyncio.gather(*(ask_broker_of(some, ask) for some in by_broker(queues).values()))
    return [failure for some in failures for failure in some]


async def ask_broker_of(queues: Sequence[MessageQueue], ask: BrokerCall) -> list[TallyError]:
    """Ask about each of these queues of one broker, but for those that come behind one to which no
    process of its set responded.

    Returns what the requests raised. Raises what is no TallyError.
    """
    failures: list[TallyError] = []
    for start in range(0, len(queues), AT_ONCE):
        asks = [ask(queue) for queue in queues[start : start + AT_ONCE]]
        for result in await asyncio.gather(*asks, return_exceptions=True):
            if isinstance(result, TallyError):
                failures.append(result)
            elif isinstance(result, BaseException):
                raise result
        if any(isinstance(failure, BrokerUnavailable) and failure.brokers is not None for failure in failures):
            break
    return failures
