"""What a client of each system does in a turn, in a process of its own.

Each function is given an address, a name that is new, and bytes of a message, and yields what works until a moment and
returns how many messages that were. Libraries are imported where they are used: most machines have few of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import tallystick
from tallystick import BrokerClientSettings, Message
from tallystick.bookkeeper.ledger.reader import LedgerReader

WINDOW, BATCH = 1000, 250
GATHER_BYTES = 128 * 1024
FILL = 50_000  # messages that are read
ANSWER_MS = 30_000
REPLICAS = 3

Work = Callable[[float], Awaitable[int]]  # until when, by time.monotonic()


async def pipelined(until: float, send: Callable[[], Awaitable[Any]], each: int = 1, window: int = WINDOW) -> int:
    """Keep a window of messages unanswered; ``each``: how many one call sends."""
    pending: deque[Awaitable[Any]] = deque()
    count = 0
    while time.monotonic() < until:
        if len(pending) * each >= window:
            await pending.popleft()
        pending.append(send())
        count += each
    while pending:
        await pending.popleft()
    return count


@asynccontextmanager
async def ledger_pipelined(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with tallystick.connect(address) as bk, bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        yield lambda until: pipelined(until, lambda: writer.append_nowait(bytes(size)))


@asynccontextmanager
async def ledger_batches(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with tallystick.connect(address) as bk, bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        batch = [bytes(size)] * BATCH
        yield lambda until: pipelined(until, lambda: asyncio.ensure_future(writer.append_batch(batch)), BATCH)


@asynccontextmanager
async def _filled_ledger(address: str, size: int) -> AsyncIterator[LedgerReader]:
    async with tallystick.connect(address) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
            for _ in range(FILL // BATCH):
                await writer.append_batch([bytes(size)] * BATCH)
        async with bk.open_ledger(writer.id) as reader:
            yield reader


@asynccontextmanager
async def ledger_read(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with _filled_ledger(address, size) as reader:

        async def read(until: float) -> int:
            count = 0
            while time.monotonic() < until:
                async with contextlib.aclosing(reader.read(0, reader.last_entry)) as entries:
                    async for _ in entries:
                        count += 1
            return count

        yield read


@asynccontextmanager
async def ledger_arrow(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with _filled_ledger(address, size) as reader:

        async def read(until: float) -> int:
            count = 0
            while time.monotonic() < until:
                async with contextlib.aclosing(reader.read_arrow(0, reader.last_entry)) as batches:
                    async for batch in batches:
                        count += batch.num_rows
            return count

        yield read


@asynccontextmanager
async def topic_pipelined(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with tallystick.topics(address) as mq:
        producer = mq.producer("bench")
        await producer.send(name, b"makes the topic")
        yield lambda until: pipelined(until, lambda: producer.send_nowait(name, bytes(size)))


@asynccontextmanager
async def topic_gathered(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with tallystick.topics(address, settings=BrokerClientSettings(gather_bytes=GATHER_BYTES)) as mq:
        producer = mq.producer("bench")
        await producer.send(name, b"makes the topic")
        yield lambda until: pipelined(until, lambda: producer.send_nowait(name, bytes(size)))


@asynccontextmanager
async def topic_batches(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with tallystick.topics(address) as mq:
        producer, batch = mq.producer("bench"), [Message(name, bytes(size))] * 100
        await producer.send(name, b"makes the topic")
        yield lambda until: pipelined(until, lambda: asyncio.ensure_future(producer.send_batch(name, batch)), 100)


def _kafka_topic(address: str, name: str, *, flushed: bool) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    while len(admin.list_topics(timeout=ANSWER_MS / 1000).brokers) < REPLICAS:  # a broker listens before it is known
        time.sleep(0.1)
    config = {"flush.messages": "1"} if flushed else {}
    topic = NewTopic(name, num_partitions=1, replication_factor=REPLICAS, config=config)
    admin.create_topics([topic])[name].result(ANSWER_MS / 1000)


def _confluent(address: str) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": address, "acks": "all", "message.timeout.ms": ANSWER_MS})


def _produce(producer: Any, name: str, size: int, until: float) -> int:
    """As many as librdkafka takes with a window unanswered; it makes batches by itself."""
    failures: list[object] = []
    unanswered, count = 0, 0

    def answered(error: object, message: object) -> None:
        nonlocal unanswered
        unanswered -= 1
        if error is not None:
            failures.append(error)

    while time.monotonic() < until and not failures:
        while unanswered >= WINDOW:
            producer.poll(0.05)
        producer.produce(name, bytes(size), on_delivery=answered)
        unanswered, count = unanswered + 1, count + 1
        producer.poll(0)
    producer.flush()
    if failures:
        raise RuntimeError(f"Kafka refused {len(failures)} messages: {failures[0]}")
    return count


@asynccontextmanager
async def _kafka_confluent(address: str, name: str, size: int, *, flushed: bool) -> AsyncIterator[Work]:
    _kafka_topic(address, name, flushed=flushed)
    producer = _confluent(address)

    async def produce(until: float) -> int:
        return _produce(producer, name, size, until)

    yield produce


def kafka_flushed(address: str, name: str, size: int) -> Any:
    return _kafka_confluent(address, name, size, flushed=True)


def kafka_default(address: str, name: str, size: int) -> Any:
    return _kafka_confluent(address, name, size, flushed=False)


@asynccontextmanager
async def kafka_aiokafka(address: str, name: str, size: int) -> AsyncIterator[Work]:
    from aiokafka import AIOKafkaProducer

    _kafka_topic(address, name, flushed=True)
    async with AIOKafkaProducer(bootstrap_servers=address, acks="all") as producer:

        async def produce(until: float) -> int:
            pending: deque[Any] = deque()
            count = 0
            while time.monotonic() < until:
                if len(pending) >= WINDOW:
                    await pending.popleft()
                pending.append(await producer.send(name, bytes(size)))
                count += 1
            while pending:
                await pending.popleft()
            return count

        yield produce


@asynccontextmanager
async def kafka_read(address: str, name: str, size: int) -> AsyncIterator[Work]:
    from confluent_kafka import Consumer, TopicPartition

    _kafka_topic(address, name, flushed=False)
    producer, count = _confluent(address), 0
    while count < FILL:
        count += _produce(producer, name, size, time.monotonic() + 0.5)
    consumer = Consumer({"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False})

    async def consume(until: float) -> int:
        read = 0
        while time.monotonic() < until:
            consumer.assign([TopicPartition(name, 0, 0)])
            left = count
            while left > 0 and time.monotonic() < until:
                messages = consumer.consume(1000, 0.5)
                read, left = read + len(messages), left - len(messages)
        return read

    yield consume
    consumer.close()


@asynccontextmanager
async def nats_pipelined(address: str, name: str, size: int) -> AsyncIterator[Work]:
    import nats
    from nats.js.api import StorageType, StreamConfig

    connection = await nats.connect([f"nats://{each}" for each in address.split(",")])
    js = connection.jetstream(publish_async_max_pending=2 * WINDOW, timeout=ANSWER_MS / 1000)
    config = StreamConfig(name=name, subjects=[name], num_replicas=REPLICAS, storage=StorageType.FILE)
    await js.add_stream(config)

    async def publish(until: float) -> int:
        pending: deque[Any] = deque()
        count = 0
        while time.monotonic() < until:
            if len(pending) >= WINDOW:
                await pending.popleft()
            pending.append(await js.publish_async(name, bytes(size)))
            count += 1
        while pending:
            await pending.popleft()
        return count

    yield publish
    await connection.close()


@asynccontextmanager
async def redis_batches(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with _redis(address) as redis:
        synced = await knows_waitaof(redis)

        async def add(until: float) -> int:
            count = 0
            while time.monotonic() < until:
                await _add_batch(redis, name, size)
                wait = ("WAITAOF", 1, 1, ANSWER_MS) if synced else ("WAIT", 1, ANSWER_MS)
                answer = await redis.execute_command(*wait)
                if (answer[1] if synced else answer) < 1:
                    raise RuntimeError("no replica of Redis confirmed the batch")
                count += BATCH
            return count

        yield add


@asynccontextmanager
async def redis_read(address: str, name: str, size: int) -> AsyncIterator[Work]:
    async with _redis(address) as redis:
        for _ in range(FILL // BATCH):
            await _add_batch(redis, name, size)

        async def read(until: float) -> int:
            count, last = 0, "-"
            while time.monotonic() < until:
                entries = await redis.xrange(name, min=last, count=1000)
                count, last = count + len(entries), "(" + entries[-1][0].decode() if len(entries) == 1000 else "-"
            return count

        yield read


@asynccontextmanager
async def _redis(address: str) -> AsyncIterator[Any]:
    from redis.asyncio import Redis

    host, _, port = address.split(",")[0].partition(":")
    async with Redis(host=host, port=int(port)) as redis:
        yield redis


async def _add_batch(redis: Any, name: str, size: int) -> None:
    async with redis.pipeline(transaction=False) as pipeline:
        for _ in range(BATCH):
            pipeline.xadd(name, {b"m": bytes(size)})
        await pipeline.execute()


async def knows_waitaof(redis: Any) -> bool:
    version = (await redis.info("server"))["redis_version"].split(".")
    return (int(version[0]), int(version[1])) >= (7, 2)
