"""A Pulsar broker on our bookies whose topics are our streams, and what its clients and administration say of them."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulsar

from support.java import Java
from support.peers import Bookie, ZooKeeper
from support.pulsar import PulsarBroker
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position

KEPT = "tally/kept/persistent"  # of a namespace that ours made: retention without limits
DEFAULT = "public/default/persistent"  # of Pulsar's own: what no subscription holds is deleted
PATIENCE_MS = 60_000
DELETE_ATTEMPTS, DELETE_PAUSE_S = 50, 0.2  # of a broker that is busy
RECEIPT_S = 90.0  # longer than that: the client says why by then
LEDGER_ENTRIES = 100  # of the broker's ledgers
# As a broker has them by default but for short ledgers: what nobody uses is deleted.
DEFAULTS = {
    "brokerDeleteInactiveTopicsEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES,
}
COLLECTING = {"gcWaitTime": 1000}  # bookies look for deleted ledgers all the time


@dataclass(frozen=True)
class Message:
    """A message as its producer or its consumer had it."""

    position: Position
    data: bytes
    key: str | None = None
    event_time: int | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass
class PulsarTopics:
    """A broker and its bookies; ``uri`` is where a client of ours finds ledgers and streams."""

    uri: str
    broker: PulsarBroker
    bookies: list[Bookie]

    @classmethod
    async def start(cls, java: Java, pulsar_java: Java, folder: Path) -> tuple[PulsarTopics, ZooKeeper]:
        """Start three bookies of ours and a broker that speaks version 2, and a ZooKeeper of their own."""
        service = await ZooKeeper.start(java, folder)
        uri = f"zk+hierarchical://{service.address}/topics/ledgers"
        driver = await open_driver(uri)
        await driver.init_cluster()
        await driver.close()
        broker = await PulsarBroker.prepare(pulsar_java, uri, folder / "pulsar", v2=True, changes=DEFAULTS)
        bookies = [Bookie.ours(uri, folder, settings=COLLECTING) for _ in range(3)]
        await asyncio.gather(*(bookie.start() for bookie in bookies))
        await broker.start()
        return cls(uri, broker, bookies), service

    def stored_bytes(self) -> int:
        """The bytes of entry logs that the fullest bookie has on its disk."""
        return max(
            sum(file.stat().st_size for file in (bookie.folder / "ledgers").rglob("*") if file.is_file())
            for bookie in self.bookies
        )

    # -- its administration -------------------------------------------------------------------------------------------

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        """One request to ``/admin/v2/…``; what it answers. Raises urllib.error.HTTPError."""
        request = urllib.request.Request(f"{self.broker.web}/admin/v2/{path}", method=method)
        request.add_header("Content-Type", "application/json")
        if body is not None:
            request.data = json.dumps(body).encode()
        try:
            answered = await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=60).read())
        except urllib.error.HTTPError as error:
            error.add_note(f"{method} {path}: {error.read(4096)!r}")
            raise
        return json.loads(answered) if answered else None

    async def internal_stats(self, stream: str) -> dict[str, Any]:
        return dict(await self.admin("GET", f"{_path(stream)}/internalStats"))

    async def unload(self, stream: str) -> None:
        """The broker closes the topic, and loads it again when somebody asks for it."""
        await self.admin("PUT", f"{_path(stream)}/unload")

    async def delete(self, stream: str) -> None:
        """Delete a topic, with all that its clients have open. A broker that is busy may fail to: it is asked again."""
        for attempt in range(DELETE_ATTEMPTS):
            try:
                await self.admin("DELETE", f"{_path(stream)}?force=true")
            except urllib.error.HTTPError as error:
                if attempt and error.code == 404:  # the broker did it all the same
                    return
                if error.code != 500 or attempt == DELETE_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(DELETE_PAUSE_S)
            else:
                return

    async def topics(self, namespace: str) -> list[str]:
        """The streams of a namespace that the broker lists as topics."""
        return [_stream(each) for each in await self.admin("GET", f"persistent/{namespace}")]

    # -- its clients, in threads --------------------------------------------------------------------------------------

    async def produce(self, stream: str, messages: Sequence[Message], **options: Any) -> list[Message]:
        """Send all, and wait for all receipts. Returns them with their positions; ``options`` are of the producer."""
        return await asyncio.to_thread(self._produce, stream, messages, options)

    def _produce(self, stream: str, messages: Sequence[Message], options: dict[str, Any]) -> list[Message]:
        with self.client() as client:
            return send(client.create_producer(topic_of(stream), send_timeout_millis=PATIENCE_MS, **options), messages)

    async def consume(self, stream: str, count: int) -> list[Message]:
        """Read the first messages of a topic, by a reader that leaves nothing behind."""
        return await asyncio.to_thread(self._consume, stream, count)

    def _consume(self, stream: str, count: int) -> list[Message]:
        with self.client() as client:
            reader = client.create_reader(topic_of(stream), pulsar.MessageId.earliest)
            return [received(reader.read_next(PATIENCE_MS)) for _ in range(count)]

    async def subscribe(self, stream: str, subscription: str, count: int, *, ack: bool = False) -> list[Message]:
        """Receive ``count`` messages of a subscription: acknowledge them, or see that no more come."""
        return await asyncio.to_thread(self._subscribe, stream, subscription, count, ack)

    def _subscribe(self, stream: str, subscription: str, count: int, ack: bool) -> list[Message]:
        with self.client() as client:
            earliest = pulsar.InitialPosition.Earliest
            consumer = client.subscribe(topic_of(stream), subscription, initial_position=earliest)
            read = [consumer.receive(PATIENCE_MS) for _ in range(count)]
            if ack:
                for message in read:
                    consumer.acknowledge(message)
            else:
                with suppress(pulsar.Timeout):
                    raise AssertionError(f"{received(consumer.receive(500))} came, too")
            consumer.close()
            return [received(message) for message in read]

    @contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.broker.folder / "client.log"))
        client = pulsar.Client(
            self.broker.address, operation_timeout_seconds=60, connection_timeout_ms=60_000, logger=log
        )
        try:
            yield client
        finally:
            client.close()


def messages(count: int, *, first: int = 0, size: int = 100, keyed: bool = False) -> list[Message]:
    """Half of the bytes of each are random, half repeat."""
    return [
        Message(
            Position(-1, -1),
            b"%08d" % number + random.Random(number).randbytes(size // 2) + b"x" * (size // 2),
            f"key-{number % 5}" if keyed else None,
            1_700_000_000_000 + number if number % 2 else None,
            (("number", str(number)), ("é", "ü")) if number % 3 else (),
        )
        for number in range(first, first + count)
    ]


def in_order(sent: Iterable[Message]) -> list[Message]:
    return sorted(sent, key=lambda message: message.position)


async def append(stream: Stream, appended: Sequence[Message], **numbered: Any) -> list[Message]:
    """Append all at once with ours. Returns them with their positions."""
    futures = [
        stream.append_nowait(
            each.data, key=each.key, event_time=each.event_time, properties=dict(each.properties), **numbered
        )
        for each in appended
    ]
    positions = await asyncio.gather(*futures)
    return [replace(each, position=position) for each, position in zip(appended, positions, strict=True)]


async def read_all(bk: BookKeeper, stream: str) -> list[Message]:
    """All that ours reads of a stream."""
    async with bk.read_stream(stream) as reader:
        return [seen(message) async for message in reader.read()]


def seen(message: StreamMessage) -> Message:
    assert message.key is None or isinstance(message.key, str)
    properties = tuple(sorted(message.properties.items()))
    return Message(message.position, message.data, message.key, message.event_time, properties)


def send(producer: pulsar.Producer, messages: Sequence[Message]) -> list[Message]:
    """Send all at once, and return them with the positions that the receipts have."""
    # The client hears the last receipt on a thread of its own, at times after the end of a flush.
    receipts: queue.Queue[tuple[int, pulsar.Result, pulsar.MessageId]] = queue.Queue()
    for number, message in enumerate(messages):
        producer.send_async(
            message.data,
            lambda result, id, number=number: receipts.put((number, result, id)),
            partition_key=message.key,
            event_timestamp=message.event_time,
            properties=dict(message.properties),
        )
    producer.flush()
    positions: dict[int, Position] = {}
    for _ in messages:
        number, result, id = receipts.get(timeout=RECEIPT_S)
        assert result == pulsar.Result.Ok, result
        positions[number] = position_of(id)
    return [replace(each, position=positions[number]) for number, each in enumerate(messages)]


def received(message: pulsar.Message) -> Message:
    return Message(
        position_of(message.message_id()),
        message.data(),
        message.partition_key() or None,
        message.event_timestamp() or None,
        tuple(sorted(message.properties().items())),
    )


def position_of(id: pulsar.MessageId) -> Position:
    return Position(id.ledger_id(), id.entry_id(), id.batch_index())


def _parts(stream: str) -> tuple[str, str]:
    tenant, namespace, _, topic = stream.split("/")
    return f"{tenant}/{namespace}", topic


def topic_of(stream: str) -> str:
    namespace, topic = _parts(stream)
    return f"persistent://{namespace}/{topic}"


def _path(stream: str) -> str:
    namespace, topic = _parts(stream)
    return f"persistent/{namespace}/{topic}"


def _stream(topic: str) -> str:
    namespace, _, name = topic.removeprefix("persistent://").rpartition("/")
    return f"{namespace}/persistent/{name}"
