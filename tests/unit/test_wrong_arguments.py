"""A wrong argument is a UsageError at the call that has it: in the asynchronous clients and in the blocking ones alike.

Each call is made through both doors; what it returns is awaited or iterated over, as its user would.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

import tallystick
from support.fake_brokers import FakeCluster
from support.small_cluster import SmallCluster
from tallystick import (
    BrokerClientSettings,
    ClientSettings,
    Message,
    MessageQueue,
    Position,
    StreamClientSettings,
    StreamSettings,
    sync,
)
from tallystick.errors import UsageError
from tallystick.runtime.events import Events

Q = MessageQueue("T", "b", 0)
STREAM = "t/n/persistent/s"
HALF = "a\ud83d"  # an emoji, cut in two


@dataclass
class Doors:
    """What calls are made on; of either kind."""

    door: Any  # the module
    bk: Any
    writer: Any
    reader: Any
    stream: Any
    stream_reader: Any
    cursor: Any
    mq: Any
    producer: Any
    consumer: Any


Call = Callable[[Doors], Any]
CALLS: dict[str, list[Call]] = {
    "a metadata URI is text": [lambda d: d.door.connect(1), lambda d: d.door.connect(None)],
    "a metadata URI is sqlite:": [lambda d: d.door.connect("x"), lambda d: d.door.connect("gopher://hole")],
    "the path of a file has no NUL": [lambda d: d.door.connect("sqlite:///a\0b")],
    "settings is of type ClientSettings": [lambda d: d.door.connect("memory://y", settings={})],
    "settings is of type BrokerClientSettings": [lambda d: d.door.topics("h:1", settings=ClientSettings())],
    "events is of type Events": [
        lambda d: d.door.connect("memory://y", events=print),
        lambda d: d.door.topics("h:1", events=print),
    ],
    "ensemble is a whole number from 1": [
        lambda d: d.bk.create_ledger("3"),
        lambda d: d.bk.create_ledger(3.0),
        lambda d: d.bk.create_ledger(0),
        lambda d: d.bk.create_ledger(10**20),  # it was an OverflowError, and 10**11 a MemoryError
    ],
    "write_quorum is a whole number": [lambda d: d.bk.create_ledger(3, write_quorum="2")],
    "ack_quorum is a whole number": [lambda d: d.bk.create_ledger(3, ack_quorum=True)],
    "a digest is given by its name": [lambda d: d.bk.create_ledger(digest=5)],
    "unknown digest 'md5'": [lambda d: d.bk.create_ledger(digest="md5")],
    "a password is bytes: give text.encode()": [
        lambda d: d.bk.create_ledger(password="x"),
        lambda d: d.bk.open_ledger(0, password="x"),
    ],
    "custom_metadata is a dict": [lambda d: d.bk.create_ledger(custom_metadata=[1])],
    "a name in custom_metadata is text": [lambda d: d.bk.create_ledger(custom_metadata={1: b"v"})],
    "tallystick.avoided in custom_metadata is set by the client itself": [
        lambda d: d.bk.create_ledger(custom_metadata={"tallystick.avoided": b"b0"})
    ],
    "a value in custom_metadata is bytes": [lambda d: d.bk.create_ledger(custom_metadata={"k": "v"})],
    "ledger_id is a whole number from 0 to 2^63 - 1": [
        lambda d: d.bk.create_ledger(ledger_id="7"),
        lambda d: d.bk.create_ledger(ledger_id=7.5),
        lambda d: d.bk.create_ledger(ledger_id=-1),
    ],
    "accept_silent_bookies is of type bool": [lambda d: d.bk.create_ledger(accept_silent_bookies="no")],
    "recover is of type bool": [lambda d: d.bk.open_ledger(0, recover="no")],
    "a ledger id is a whole number from 0 to 2^63 - 1": [
        lambda d: d.bk.open_ledger("0"),
        lambda d: d.bk.open_ledger(None),
        lambda d: d.bk.open_ledger(-1),
        lambda d: d.bk.open_ledger(d.writer),
        lambda d: d.bk.delete_ledger("0"),
        lambda d: d.bk.ledger_metadata("0"),
    ],
    "an entry is bytes: give text.encode()": [
        lambda d: d.writer.append("text"),
        lambda d: d.writer.append_nowait("text"),
        lambda d: d.writer.append_batch(["text"]),
    ],
    "an entry is bytes (given=NoneType)": [lambda d: d.writer.append(None)],
    "data is a list": [lambda d: d.writer.append_batch(b"abc"), lambda d: d.writer.append_batch(5)],
    "first is a whole number": [
        lambda d: d.writer.read("0", 1),
        lambda d: d.reader.read(-1, 0),
        lambda d: d.reader.read_arrow(0.0, 0),
        lambda d: d.reader.follow("0"),
        lambda d: d.mq.read(Q, "0"),
        lambda d: d.mq.read(Q, -1, 1),
    ],
    "last is a whole number": [lambda d: d.reader.read(0, "1")],
    "a range of entries needs": [lambda d: d.reader.read(1, 0)],
    "columns is a list": [lambda d: d.reader.read_arrow(0, 0, columns="entry")],
    "batch_rows is a whole number": [lambda d: d.reader.read_arrow(0, 0, batch_rows=0)],
    "batch_bytes is a whole number from 1 to": [lambda d: d.reader.read_arrow(0, 0, batch_bytes=1 << 40)],
    "name_servers is text or a list": [lambda d: d.door.topics(5), lambda d: d.door.topics(None)],
    "a name server's address is text": [lambda d: d.door.topics([5])],
    "an address is host:port": [lambda d: d.door.topics("x")],
    "a group's name is text": [lambda d: d.mq.producer(None), lambda d: d.mq.consumer(5, "T")],
    "a group's name has": [lambda d: d.mq.producer("a b"), lambda d: d.mq.consumer("", "T")],
    "a topic's name is text": [
        lambda d: d.producer.send(5, b"x"),
        lambda d: d.producer.send_one_way(5, b"x"),
        lambda d: d.producer.send_batch(5, [b"x"]),
        lambda d: d.mq.consumer("g", [5]),
        lambda d: d.mq.topic(5),
    ],
    "a message's body is bytes: give text.encode()": [
        lambda d: d.producer.send("T", "text"),
        lambda d: d.producer.send_nowait("T", "text"),
        lambda d: d.producer.send_one_way("T", "text"),
        lambda d: d.producer.send_batch("T", ["text"]),
    ],
    "a message's body is bytes (given=NoneType)": [lambda d: d.producer.send("T", None)],
    "tags is one tag: without ||, without blanks around it, and not *": [
        lambda d: d.producer.send("T", b"x", tags="A || B"),
        lambda d: d.producer.send("T", b"x", tags="*"),
        lambda d: d.producer.send_one_way("T", b"x", tags=" A"),
    ],
    "tags is text that UTF-8 can carry": [
        lambda d: d.producer.send("T", b"x", tags=HALF),
        lambda d: d.producer.send_one_way("T", b"x", tags=HALF),
        lambda d: d.producer.send_batch("T", [Message("T", b"x", tags=HALF)]),
        lambda d: d.mq.consumer("g", "T", tags=HALF),
        lambda d: d.mq.read(Q, 0, tags=HALF),
    ],
    "a key is text that UTF-8 can carry": [lambda d: d.producer.send("T", b"x", keys=["k", HALF])],
    "a property's name is text that UTF-8 can carry": [lambda d: d.producer.send("T", b"x", properties={HALF: "v"})],
    "the property a is text that UTF-8 can carry": [lambda d: d.producer.send("T", b"x", properties={"a": HALF})],
    "a topic's name is text that UTF-8 can carry": [
        lambda d: d.producer.send(HALF, b"x"),
        lambda d: d.mq.consumer("g", HALF),
        lambda d: d.mq.topic(HALF),
    ],
    "a queue's topic is text that UTF-8 can carry": [lambda d: d.mq.queue_limits(MessageQueue(HALF, "b", 0))],
    "a queue's broker is text that UTF-8 can carry": [
        lambda d: d.mq.offset_at(MessageQueue("T", HALF, 0), 0),
        lambda d: d.producer.send("T", b"x", queue=MessageQueue("T", HALF, 0)),
    ],
    "a queue's broker is text": [lambda d: d.mq.read(MessageQueue("T", 5, 0), 0)],  # type: ignore[arg-type]
    "a name server's address is text that UTF-8 can carry": [lambda d: d.door.topics(HALF + ":1")],
    "a name in custom_metadata is text that UTF-8 can carry": [
        lambda d: d.bk.create_ledger(custom_metadata={HALF: b"v"})
    ],
    "tags is text": [
        lambda d: d.producer.send("T", b"x", tags=5),
        lambda d: d.producer.send("T", b"x", tags=["A", "B"]),
        lambda d: d.producer.send_one_way("T", b"x", tags=5),
        lambda d: d.producer.send_batch("T", [Message("T", b"x", tags=5)]),  # type: ignore[arg-type]
        lambda d: d.mq.consumer("g", "T", tags=5),
        lambda d: d.mq.consumer("g", {"T": 5}),
    ],
    "keys is a list": [
        lambda d: d.producer.send("T", b"x", keys=5),
        lambda d: d.producer.send_batch("T", [Message("T", b"x", keys="a key")]),
    ],
    "properties is a dict": [lambda d: d.producer.send("T", b"x", properties=5)],
    "the property a is text": [lambda d: d.producer.send("T", b"x", properties={"a": 1})],
    "flag is a whole number from -2^31 to 2^31 - 1": [
        lambda d: d.producer.send("T", b"x", flag="x"),
        lambda d: d.producer.send("T", b"x", flag=1 << 31),
    ],
    "wait_stored is of type bool": [lambda d: d.producer.send("T", b"x", wait_stored="no")],
    "queue is of type MessageQueue": [
        lambda d: d.producer.send("T", b"x", queue=0),
        lambda d: d.mq.consumer("g", "T", queues=[0]),
        lambda d: d.mq.read(0, 0),
        lambda d: d.mq.queue_limits(0),
        lambda d: d.mq.offset_at(0, 0),
    ],
    "the queue is of another topic": [lambda d: d.producer.send("T", b"x", queue=MessageQueue("U", "b", 0))],
    "the number of a queue": [lambda d: d.producer.send("T", b"x", queue=MessageQueue("T", "b", -1))],
    "topic is a name, a list of names": [lambda d: d.mq.consumer("g", 5)],
    "a topic's name has 1 to 127 letters, digits and % | - _": [
        lambda d: d.mq.consumer("g", ""),
        lambda d: d.mq.consumer("g", ["T", "bad topic!"]),
        lambda d: d.mq.topic("t.u"),
        lambda d: d.producer.send("bad topic!", b"x"),
        lambda d: d.producer.send("t" * 128, b"x"),
        lambda d: d.producer.send_batch("ü", [b"x"]),
        lambda d: d.producer.send_one_way("", b"x"),
    ],
    "a topic's name has 1 to 255 letters": [lambda d: d.mq.consumer("g", "%DLQ%" + "g" * 251)],
    "where a consumer starts is first, last, or a time in ms": [
        lambda d: d.mq.consumer("g", "T", start="earliest"),
        lambda d: d.mq.consumer("g", "T", start=None),
        lambda d: d.mq.consumer("g", "T", start=1.5),
    ],
    "queues names none": [lambda d: d.mq.consumer("g", "T", queues=[])],
    "ordered is of type bool": [lambda d: d.mq.consumer("g", "T", ordered="no")],
    "on_assigned is a function": [lambda d: d.mq.consumer("g", "T", on_assigned=5)],
    "on_revoked is a function": [lambda d: d.mq.consumer("g", "T", on_revoked=5)],
    "end is a whole number": [lambda d: d.mq.read(Q, 0, "1")],
    "timestamp_ms is a whole number": [lambda d: d.mq.offset_at(Q, "now")],
    "message is of type ReceivedMessage": [lambda d: d.consumer.ack(5), lambda d: d.consumer.nack(b"x")],
    "this consumer does not read the queue": [
        lambda d: d.consumer.position(0),
        lambda d: d.consumer.seek(Q, 0),
        lambda d: d.consumer.pause([Q]),
    ],
    "offset is a whole number": [lambda d: d.consumer.seek(Q, "0")],
    "a place in a queue is first, last, or a time": [lambda d: d.consumer.seek_to("x")],
    "queues is a list": [lambda d: d.consumer.pause(0), lambda d: d.consumer.resume(Q)],
    "max_messages is a whole number from 1": [lambda d: d.consumer.batches(0)],
    "max_wait_s is a number": [lambda d: d.consumer.batches(max_wait_s="1")],
    "streams is of type StreamClientSettings": [lambda d: d.door.connect("memory://y", streams=StreamSettings())],
    "the name of a stream is text": [
        lambda d: d.bk.open_stream(5),
        lambda d: d.bk.read_stream(None),
        lambda d: d.bk.delete_stream(b"t/n/persistent/s"),
    ],
    "the name of a stream is tenant/namespace/persistent/topic": [
        lambda d: d.bk.open_stream("s"),
        lambda d: d.bk.read_stream("t/n/persistent/.."),
        lambda d: d.bk.delete_stream("t/n/non-persistent/s"),
    ],
    "prefix is text": [lambda d: d.bk.streams(5)],
    "takeover is of type bool": [
        lambda d: d.bk.open_stream(STREAM, takeover="no"),
        lambda d: d.bk.delete_stream(STREAM, takeover=1),
    ],
    "wait_s is a number": [lambda d: d.bk.open_stream(STREAM, wait_s="1")],
    "settings is of type StreamSettings": [lambda d: d.bk.open_stream(STREAM, settings={})],
    "entry_format is one of pulsar, raw": [
        lambda d: d.bk.read_stream(STREAM, entry_format="json"),
        lambda d: StreamSettings(entry_format="json"),
    ],
    "of ensemble, write_quorum and ack_quorum none is more than the one before it": [
        lambda d: StreamSettings(ack_quorum=5)
    ],
    "a message is bytes: give text.encode()": [
        lambda d: d.stream.append("text"),
        lambda d: d.stream.append_nowait("text"),
        lambda d: d.stream.append_batch(["text"]),
    ],
    "messages is a list": [
        lambda d: d.stream.append_batch(b"abc"),
        lambda d: d.producer.send_batch("T", b"abc"),
        lambda d: d.producer.send_batch("T", None),
    ],
    "a key is text": [
        lambda d: d.stream.append(b"x", key=5),
        lambda d: d.producer.send("T", b"x", keys=[5]),
    ],
    "event_time (ms since 1970) is a whole number": [lambda d: d.stream.append(b"x", event_time=1.5)],
    "a value in properties is text": [lambda d: d.stream.append(b"x", properties={"a": 1})],
    "producer and sequence are given together": [
        lambda d: d.stream.append(b"x", producer="p"),
        lambda d: d.stream.append(b"x", sequence=1),
    ],
    "start is a Position, or a text": [
        lambda d: d.stream_reader.read(40),
        lambda d: d.stream_reader.read(["1", "2", "3", "4"]),
        lambda d: d.stream_reader.read((40, 0)),
        lambda d: d.stream_reader.read("beginning"),
    ],
    "end is a Position, or a text": [lambda d: d.stream_reader.read(end=40)],
    "the entry of start is a whole number": [lambda d: d.stream_reader.read(Position(40, "0"))],  # type: ignore[arg-type]
    "a position is written ledger:entry": [lambda d: Position.parse("7"), lambda d: Position.parse(7)],  # type: ignore[arg-type]
    "start_time needs a time zone": [lambda d: d.stream_reader.read(start_time=datetime(2026, 1, 1))],
    "end_time (a datetime, or ms since 1970) is": [lambda d: d.stream_reader.read(end_time="now")],
    "follow is of type bool": [lambda d: d.stream_reader.read(follow="yes")],
    'on_corrupt is "raise" or "skip"': [lambda d: d.stream_reader.read(on_corrupt="ignore")],
    "time is a datetime": [lambda d: d.stream_reader.position_at(None)],
    "the name of a cursor is text": [
        lambda d: d.bk.cursor(STREAM, 5),
        lambda d: d.bk.delete_cursor(STREAM, None),
    ],
    "the name of a cursor is not empty": [lambda d: d.bk.cursor(STREAM, "..")],
    "durable is of type bool": [lambda d: d.bk.cursor(STREAM, "c", durable="no")],
    "create is of type bool": [lambda d: d.bk.cursor(STREAM, "c", create=None)],
    'start is "beginning", "end", a Position': [lambda d: d.bk.cursor(STREAM, "c", start=5)],
    "count is a whole number from 1": [lambda d: d.cursor.read(0), lambda d: d.cursor.read("10")],
    "max_bytes is a whole number from 1": [lambda d: d.cursor.read(max_bytes=0)],
    "wait is of type bool": [lambda d: d.cursor.read(wait="no")],
    "give a position or a time": [
        lambda d: d.cursor.seek(),
        lambda d: d.cursor.seek("0:0", time=0),
        lambda d: d.stream_reader.read("0:0", start_time=0),
    ],
    "what is a list": [lambda d: d.cursor.ack_batch("0:0"), lambda d: d.cursor.ack_batch(5)],
    "lease_s is a number": [lambda d: StreamClientSettings(lease_s="5")],  # type: ignore[arg-type]
    "add_timeout_s is a number": [lambda d: ClientSettings(add_timeout_s="5")],  # type: ignore[arg-type]
    "degraded_writes is of type bool": [lambda d: ClientSettings(degraded_writes="no")],  # type: ignore[arg-type]
    "pull_count is a whole number": [lambda d: BrokerClientSettings(pull_count=1.5)],  # type: ignore[arg-type]
    "a delay in nack_delays_s is a number": [lambda d: BrokerClientSettings(nack_delays_s=(-1,))],
}


@pytest.fixture
def places() -> Iterator[tuple[str, str]]:
    """A metadata URI and a name server, on a loop of their own: both doors are outside."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    small, fake = SmallCluster(), FakeCluster()

    async def start() -> None:
        await small.start(3)
        await fake.start()
        await fake.add(queues=1)

    async def stop() -> None:
        await fake.stop()
        await small.close()

    asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield f"memory://{small.name}", fake.address
    asyncio.run_coroutine_threadsafe(stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def finished(result: Any) -> None:
    if isinstance(result, AsyncIterator):
        async for _ in result:
            break
    elif hasattr(result, "__await__"):
        await result


def complaint(error: BaseException | None, wanted: str, place: str) -> list[str]:
    if isinstance(error, UsageError) and re.match(re.escape(wanted), str(error)):
        return []
    return [f"{place}: wanted a UsageError with {wanted!r}, got {error!r}"]


async def test_the_asynchronous_door(places: tuple[str, str]) -> None:
    found: list[str] = []
    uri, name_server = places
    async with tallystick.connect(uri) as bk, tallystick.topics(name_server, events=Events()) as mq:
        writer = await bk.create_ledger()
        await writer.append(b"x")
        await writer.close()
        reader, spare = await bk.open_ledger(writer.id), await bk.create_ledger()
        stream, stream_reader = await bk.open_stream(STREAM), await bk.read_stream(STREAM)
        cursor = await bk.cursor(STREAM, "c")
        doors = Doors(
            tallystick, bk, spare, reader, stream, stream_reader, cursor, mq, mq.producer("g"), mq.consumer("g", "T")
        )
        for wanted, calls in CALLS.items():
            for place, call in enumerate(calls):
                error: BaseException | None = None
                try:
                    await finished(call(doors))
                except BaseException as raised:
                    error = raised
                found += complaint(error, wanted, f"{wanted} {place}")
        await doors.producer.drain()
        assert await spare.append(b"the handle goes on") == 0
        assert (await stream.append(b"so does this one")).entry == 0
        assert (await doors.producer.send("T", b"so does this one")).queue_offset == 0
    assert not found, "\n".join(found)


def test_the_blocking_door(places: tuple[str, str]) -> None:
    """It raises at the call, also where it returns an iterator or a future."""
    found: list[str] = []
    uri, name_server = places
    with sync.connect(uri) as bk, sync.topics(name_server, events=Events()) as mq:
        with bk.create_ledger() as writer:
            writer.append(b"x")
        reader, spare = bk.open_ledger(writer.id), bk.create_ledger()
        stream, stream_reader = bk.open_stream(STREAM), bk.read_stream(STREAM)
        cursor = bk.cursor(STREAM, "c")
        doors = Doors(
            sync, bk, spare, reader, stream, stream_reader, cursor, mq, mq.producer("g"), mq.consumer("g", "T")
        )
        for wanted, calls in CALLS.items():
            for place, call in enumerate(calls):
                error: BaseException | None = None
                try:
                    call(doors)
                except BaseException as raised:
                    error = raised
                found += complaint(error, wanted, f"{wanted} {place}")
        assert spare.append(b"the handle goes on") == 0
        assert stream.append(b"so does this one").entry == 0
        assert doors.producer.send("T", b"so does this one").queue_offset == 0
    assert not found, "\n".join(found)
