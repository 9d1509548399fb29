"""A client works on the loop that it was made on: on another one, or on none, each of its calls says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from support.machines import machine, virtual_loop
from support.small_cluster import SmallCluster
from tallystick.errors import UsageError
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.sim.virtual.loop import VirtualLoop

QUEUE = MessageQueue("T", "b", 0)
Call = Callable[[], Any]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with closing(virtual_loop()) as loop:
        yield loop


async def _ended(call: Call) -> None:
    result = call()
    if isinstance(result, Awaitable):
        await result
    elif hasattr(result, "__anext__"):
        await anext(result)


def _check(calls: dict[str, Call]) -> None:
    with closing(virtual_loop()) as other:
        for name, call in calls.items():
            with pytest.raises(UsageError, match="the event loop that it was made on"):
                other.run_until_complete(_ended(call))
                pytest.fail(f"{name} was done")
    for call in calls.values():
        with pytest.raises(UsageError, match="the event loop that it was made on"):
            _ended(call).send(None)  # as a thread without a loop calls


def test_a_client_of_ledgers(loop: VirtualLoop) -> None:
    async def open_all() -> tuple[Any, ...]:
        cluster = await SmallCluster().start(3)
        bk = cluster.client()
        writer = await bk.create_ledger()
        await writer.append(b"0")
        return cluster, bk, writer, await bk.open_ledger(writer.id)

    cluster, bk, writer, reader = loop.run_until_complete(open_all())
    _check(
        {
            "create_ledger": bk.create_ledger,
            "open_ledger": lambda: bk.open_ledger(0),
            "delete_ledger": lambda: bk.delete_ledger(0),
            "ledger_metadata": lambda: bk.ledger_metadata(0),
            "ledgers": bk.ledgers,
            "bookies": bk.bookies,
            "close": bk.close,
            "append": lambda: writer.append(b"1"),
            "append_nowait": lambda: writer.append_nowait(b"1"),
            "append_batch": lambda: writer.append_batch([b"1"]),
            "drain": writer.drain,
            "read": lambda: writer.read(0, 0),
            "close of a writer": writer.close,
            "refresh": reader.refresh,
            "read of a reader": lambda: reader.read(0, 0),
            "all of a reader": lambda: aiter(reader),
            "read_arrow": lambda: reader.read_arrow(0, 0),
            "follow": lambda: reader.follow(0),
        }
    )
    loop.run_until_complete(cluster.close())


def test_a_client_of_topics(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.rocketmq.client.client.this_machine", machine)

    async def open_all() -> tuple[Any, ...]:
        mq = await topics("127.0.0.1:1")
        return mq, mq.producer("p"), mq.consumer("g", "T")

    mq, producer, consumer = loop.run_until_complete(open_all())
    _check(
        {
            "producer": lambda: mq.producer("p"),
            "consumer": lambda: mq.consumer("g", "T"),
            "read": lambda: mq.read(QUEUE, 0),
            "topic": lambda: mq.topic("T"),
            "queue_limits": lambda: mq.queue_limits(QUEUE),
            "offset_at": lambda: mq.offset_at(QUEUE, 0),
            "close": mq.close,
            "send": lambda: producer.send("T", b"x"),
            "send_nowait": lambda: producer.send_nowait("T", b"x"),
            "send_batch": lambda: producer.send_batch("T", [b"x"]),
            "send_one_way": lambda: producer.send_one_way("T", b"x"),
            "drain": producer.drain,
            "close of a producer": producer.close,
            "start": consumer.start,
            "a loop": lambda: aiter(consumer),
            "a message": lambda: anext(consumer),
            "batches": consumer.batches,
            "commit": consumer.commit,
            "lag": consumer.lag,
            "seek": lambda: consumer.seek(QUEUE, 0),
            "seek_to": lambda: consumer.seek_to("first"),
            "pause": consumer.pause,
            "resume": consumer.resume,
            "close of a consumer": consumer.close,
        }
    )
    loop.run_until_complete(mq.close())
