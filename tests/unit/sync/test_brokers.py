"""The blocking façade of the broker client, against fakes on a loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.fake_brokers import FakeCluster
from tallystick import sync
from tallystick.errors import NoSuchTopic, UsageError
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.sync import loop as loops


@pytest.fixture
def address() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> FakeCluster:
        made = FakeCluster()
        await made.start()
        await made.add()
        return made

    cluster = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield cluster.address
    asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_send_and_read(address: str) -> None:
    with sync.topics(address) as mq:
        assert len(mq.topic("T").readable) == 2
        producer = mq.producer("p")
        assert producer.group == "p"
        producer.send("T", b"0", tags="A", keys="k")
        producer.send_batch("T", [b"1", b"2"])
        futures = [producer.send_nowait("T", b"%d" % number) for number in range(3, 50)]
        producer.send_one_way("T", b"50")
        producer.drain()
        assert {future.result().queue.topic for future in futures} == {"T"}
        bodies = set()
        with mq.consumer("g", "T", start="first") as consumer:
            assert len(consumer.queues) == 2
            for message in consumer:
                bodies.add(int(message.body))
                consumer.ack(message)
                if len(bodies) == 51:
                    break
            consumer.commit()
            assert consumer.lag().total == 0
        assert bodies == set(range(51))
        assert sum(mq.queue_limits(MessageQueue("T", "b", n))[1] for n in range(2)) == 51
        assert mq.offset_at(MessageQueue("T", "b", 0), 42) == 42
        queues = [MessageQueue("T", "b", number) for number in range(2)]
        read = [int(message.body) for queue in queues for message in mq.read(queue, *mq.queue_limits(queue))]
        assert sorted(read) == list(range(51))
        endless = mq.read(queues[0], 0)
        assert next(endless).offset == 0
        del endless  # ends what it reads from, wherever that happens


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_a_message_whose_processing_failed_comes_again(address: str, kind: type[BaseException]) -> None:
    queue = MessageQueue("T", "b", 0)
    with sync.topics(address) as mq:
        mq.producer("p").send_batch("T", [b"%d" % number for number in range(10)], queue=queue)
    with pytest.raises(kind), sync.topics(address) as mq:
        for message in mq.consumer("g", "T", start="first", queues=[queue]):
            if message.offset == 4:
                raise kind
    with sync.topics(address) as mq:
        consumer = mq.consumer("g", "T", queues=[queue])
        seen = [next(iter(consumer)).offset, next(iter(consumer)).offset]  # two loops, each left at once
        assert seen == [4, 4]


def test_a_consumer_is_steered(address: str) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    settings = BrokerClientSettings(nack_delays_s=(0.01,))
    heard: list[tuple[str, list[MessageQueue]]] = []
    with sync.topics(address, settings=settings) as mq:
        mq.producer("p").send_batch("T", [b"%d" % number for number in range(10)], queue=queues[0])

        def revoked(gone: list[MessageQueue]) -> None:
            consumer.commit()  # listeners may wait for the client, as they are not on its loop
            heard.append(("revoked", gone))

        consumer = mq.consumer(
            "g",
            ["T"],
            start="first",
            alone=True,
            on_assigned=lambda new: heard.append(("assigned", new)),
            on_revoked=revoked,
        )
        with consumer:
            assert (consumer.group, consumer.topics) == ("g", ("T",))
            assert heard == [("assigned", queues)]
            messages = iter(consumer)
            first = next(messages)
            consumer.nack(first)
            rest = [next(messages) for _ in range(10)]
            assert sorted(message.offset for message in rest) == list(range(10))
            consumer.seek(queues[0], 7)
            assert consumer.position(queues[0]) == 7
            consumer.seek_to("last", queues=[queues[1]])
            consumer.pause()
            consumer.resume(queues)
            assert [message.offset for message in next(consumer.batches(3))] == [7, 8, 9]
            consumer.seek_to("first")
            for batch in consumer.batches(4):
                if batch[-1].offset == 9:
                    break
            assert consumer.lag().by_queue == {queues[0]: 2, queues[1]: 0}
            assert repr(consumer) == "<Consumer g of T: 2 queues>"
        assert heard[1:] == [("revoked", queues)]


def test_errors_come_through_and_a_closed_client_says_so(address: str) -> None:
    mq = sync.topics(address)
    with pytest.raises(NoSuchTopic):
        mq.topic("Nope")
    with pytest.raises(UsageError):
        mq.producer("p").send("T", b"")
    mq.close()
    mq.close()
    with pytest.raises(UsageError, match="closed"):
        mq.topic("T")
    assert loops._loops == {}


def test_a_bad_address_is_said_at_once() -> None:
    with pytest.raises(UsageError):
        sync.topics("nowhere")


def test_a_listener_may_close_what_is_being_closed(address: str) -> None:
    with sync.topics(address) as mq:
        mq.producer("p").send("T", b"x")
        closed: list[bool] = []

        def revoked(queues: list[MessageQueue]) -> None:
            consumer.close()
            closed.append(True)

        consumer = mq.consumer("g", "T", start="first", on_revoked=revoked)
        next(iter(consumer))
        consumer.close()
        assert closed == [True]


async def listener(queues: list[MessageQueue]) -> None:
    """As the asynchronous client takes it."""


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked"])
def test_a_listener_that_nobody_would_await_is_refused_at_the_call(address: str, name: str) -> None:
    """It was taken, and never ran: what it was to save before queues went was lost."""
    wrong: Any = {name: listener}
    with (
        sync.topics(address) as mq,
        pytest.raises(UsageError, match=f"{name} is a function, no coroutine function"),
    ):
        mq.consumer("g", "T", **wrong)


def test_a_listener_that_returns_a_coroutine_ends_the_loop(address: str) -> None:
    with sync.topics(address) as mq:
        mq.producer("p").send("T", b"x")
        consumer = mq.consumer("g", "T", start="first", on_assigned=lambda queues: listener(queues))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="nobody awaits"):
            next(iter(consumer))
