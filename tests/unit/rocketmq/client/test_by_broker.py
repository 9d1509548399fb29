"""Questions about many queues of some brokers."""

from __future__ import annotations

import asyncio

import pytest

from tallystick.errors import BrokerError, BrokerUnavailable, TallyError
from tallystick.rocketmq.client.by_broker import AT_ONCE, ask_broker_of, ask_brokers, by_broker
from tallystick.rocketmq.wire.values import MessageQueue


def queues(broker: str, count: int) -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


def test_the_queues_of_each_broker_in_their_order() -> None:
    a, b = queues("a", 3), queues("b", 2)
    assert by_broker([b[1], a[2], a[0], b[0]]) == {"b": [b[1], b[0]], "a": [a[2], a[0]]}


async def test_of_a_broker_that_does_not_answer_no_more_is_asked() -> None:
    asked: list[MessageQueue] = []

    async def ask(queue: MessageQueue) -> None:
        asked.append(queue)
        if queue.broker == "silent":
            raise BrokerUnavailable("nobody", brokers=["h:1"])

    failures = await ask_brokers([*queues("silent", 3 * AT_ONCE), *queues("well", 3 * AT_ONCE)], ask)
    assert [type(failure) for failure in failures] == [BrokerUnavailable] * AT_ONCE
    assert sorted(asked) == sorted([*queues("silent", AT_ONCE), *queues("well", 3 * AT_ONCE)])


async def test_a_refusal_keeps_no_other_queue_from_being_asked() -> None:
    async def ask(queue: MessageQueue) -> None:
        raise BrokerError("no", queue=queue)

    some = queues("b", AT_ONCE + 1)
    failures: list[TallyError] = await ask_broker_of(some, ask)
    assert [failure.fields["queue"] for failure in failures] == some


async def test_brokers_are_asked_side_by_side_and_each_about_some_queues_at_a_time() -> None:
    under_way: dict[str, int] = {"a": 0, "b": 0}
    most = dict(under_way)
    go_on = asyncio.Event()

    async def ask(queue: MessageQueue) -> None:
        under_way[queue.broker] += 1
        most[queue.broker] = max(most[queue.broker], under_way[queue.broker])
        if under_way == {"a": AT_ONCE, "b": AT_ONCE}:
            go_on.set()
        await go_on.wait()
        under_way[queue.broker] -= 1

    assert await ask_brokers([*queues("a", 2 * AT_ONCE), *queues("b", 2 * AT_ONCE)], ask) == []
    assert most == {"a": AT_ONCE, "b": AT_ONCE}


async def test_what_is_no_failure_of_a_broker_is_raised() -> None:
    async def ask(queue: MessageQueue) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask_brokers(queues("b", 1), ask)
