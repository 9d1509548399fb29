"""The wait for messages: what ends it, and what it reports."""

from __future__ import annotations

import asyncio

import pytest

from support.deliveries import assign, core, found, take
from tallystick.rocketmq.client.ready import ReadyMessages
from tallystick.runtime.events import Event, Events


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_stall_is_reported_once_until_there_is_room_again() -> None:
    events: list[Event] = []
    delivery = core(count=2)
    ready = ReadyMessages(Events(events.append), "g", delivery)
    queue = assign(delivery, messages=2)
    messages = take(delivery, 2)
    assert not delivery.may_pull(queue)
    waiting = asyncio.create_task(ready.wait())
    for _ in range(3):
        await turns()
        ready.arrived.set()
    await turns()
    assert [event.kind for event in events] == ["waits for acknowledgements"]
    ready.acknowledged(delivery.ack(messages[0]), messages[0])
    assert ready.room.is_set() and not delivery.room_made
    assert delivery.may_pull(queue) and delivery.responded(queue.pull, found(queue.queue, 2, 3))
    ready.arrived.set()
    assert await waiting
    take(delivery, 1)
    assert not delivery.may_pull(queue)
    waiting = asyncio.create_task(ready.wait())
    await turns()
    assert [event.kind for event in events] == ["waits for acknowledgements"] * 2
    ready.close()
    assert not await waiting


async def test_the_first_failure_comes_behind_the_messages_that_are_here() -> None:
    delivery = core()
    ready = ReadyMessages(Events(), "g", delivery)
    assign(delivery, messages=1)
    ready.fail(ValueError("first"))
    ready.fail(ValueError("second"))
    assert await ready.wait()
    take(delivery, 1)
    with pytest.raises(ValueError, match="first"):
        await ready.wait()


async def test_a_wait_for_many_ends_when_no_more_can_come() -> None:
    delivery = core(count=2)
    ready = ReadyMessages(Events(), "g", delivery)
    queue = assign(delivery, messages=2)
    waiting = asyncio.create_task(ready.wait_for(3))
    await turns()
    assert not waiting.done()
    assert not delivery.may_pull(queue)
    ready.arrived.set()
    await waiting


async def test_a_wait_for_many_ends_with_a_failure() -> None:
    delivery = core()
    ready = ReadyMessages(Events(), "g", delivery)
    assign(delivery, messages=1)
    waiting = asyncio.create_task(ready.wait_for(2))
    await turns()
    ready.fail(ValueError("refused"))
    await turns()
    assert waiting.done()


async def test_an_acknowledgement_from_elsewhere_wakes_the_loop_that_waits_for_the_next_message_of_its_queue() -> None:
    delivery = core(ordered=True)
    ready = ReadyMessages(Events(), "g", delivery)
    assign(delivery, messages=2)
    [message] = take(delivery, 1)
    waiting = asyncio.create_task(ready.wait())
    await turns()
    assert not waiting.done()
    ready.acknowledged(delivery.ack(message), message)
    await turns()
    assert waiting.done() and waiting.result()


async def test_an_acknowledgement_of_a_message_that_is_not_here_is_an_event() -> None:
    events: list[Event] = []
    delivery = core()
    ready = ReadyMessages(Events(events.append), "g", delivery)
    assign(delivery, messages=1)
    [message] = take(delivery, 1)
    ready.acknowledged(delivery.ack(message), message)
    ready.acknowledged(delivery.ack(message), message)
    assert [event.kind for event in events] == ["acknowledgement ignored"]
