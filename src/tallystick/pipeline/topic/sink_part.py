"""What one task sends: its messages in batches, one of them under way while the next is made."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

from tallystick.codec.checksum import crc32c
from tallystick.codec.records import Content
from tallystick.pipeline.topic.sink_rows import SinkRow, decode_row
from tallystick.pipeline.worker import TaskWorker
from tallystick.rocketmq.client.arguments import check_message
from tallystick.rocketmq.client.sinking import SinkPlace, SinkSender, SinkStart, differs
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.sink_identity import SINK, brokers_part, identity_prefix, identity_suffix, name_part
from tallystick.rocketmq.wire.values import MessageQueue

RowT = TypeVar("RowT")

BATCH_BYTES, BATCH_ROWS = 512 * 1024, 1000  # of one send
_KEY_BYTES = 10  # of an id that stand for the partition of a batch; the rest is the message's number


class _Part(ABC, Generic[RowT]):
    """Collects messages, and sends them in their order."""

    def __init__(self, task_worker: TaskWorker[SinkSender]) -> None:
        self._worker = task_worker
        self._contents: list[Content] = []
        self._bytes = 0
        self._under_way: Future[None] | None = None
        self.count = 0  # messages so far

    def send_all(self, rows: Iterable[RowT]) -> int:
        """Send all rows. Returns how many messages were new, when all are stored. Raises what the brokers say, and
        UsageError for what is no message."""
        try:
            for row in rows:
                self._add(row)
            self._check()
            self._flush()
            self._wait()
            return self._new_count()
        finally:
            if self._under_way is not None:  # of what is under way nothing is known
                self._under_way.cancel()

    def _append(self, message: Message, properties: str) -> None:
        encoded = properties.encode()
        self._contents.append((message.flag, message.body, encoded))
        self._bytes += len(message.body) + len(encoded)
        if self._bytes >= BATCH_BYTES or len(self._contents) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._wait()
        contents, self._contents, self._bytes = self._contents, [], 0
        if contents:
            self._under_way = self._worker.begin(lambda sender: self._send(sender, contents))

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    @abstractmethod
    def _add(self, row: RowT) -> None: ...

    def _check(self) -> None:
        """All rows are there."""

    @abstractmethod
    def _new_count(self) -> int: ...

    @abstractmethod
    async def _send(self, sender: SinkSender, contents: list[Content]) -> None: ...


class OncePart(_Part[bytes]):
    """Messages with identities: what the broker has is not sent, but for the last of it, by which the broker sees that
    they are the same, and says so when disk and slaves have all of it."""

    def __init__(
        self, task_worker: TaskWorker[SinkSender], place: SinkPlace, start: SinkStart, offsets: int = 0
    ) -> None:
        """``offsets``: a digest of where the batch ends in its source. Messages of a batch that ends elsewhere are
        others, though they begin alike: 0 where nobody can tell it."""
        super().__init__(task_worker)
        self._place, self._start = place, start
        application, query = name_part(place.application), name_part(place.query)
        self._prefix = identity_prefix(application, query, place.batch, place.partitions, place.partition)
        self._brokers = brokers_part(start.brokers)
        whole = f"{place.topic} {self._prefix}".encode()
        self._key = hashlib.blake2b(whole, digest_size=_KEY_BYTES).hexdigest().upper()
        self._crc = offsets % (1 << 32)

    def _add(self, row: bytes) -> None:
        number, self._crc = self.count, crc32c(row, self._crc)
        self.count += 1
        if number < self._start.stored:
            return
        message = decode_row(row).message(self._place.topic)
        check_message(message)
        identity = self._prefix + identity_suffix(number, self._crc, self._brokers)
        self._append(message, message.encode_with_id(f"{self._key}{number:012X}") + f"{SINK}\x01{identity}\x02")

    def _check(self) -> None:
        if self.count <= self._start.stored:
            raise differs(self._place, f"partition {self._place.partition} has fewer rows than were sent before")

    def _new_count(self) -> int:
        return self.count - self._start.stored - 1

    async def _send(self, sender: SinkSender, contents: list[Content]) -> None:
        await sender.send_once(self._place, self._start.queue, contents)


class RepeatablePart(_Part[SinkRow]):
    """Messages that may come twice."""

    def __init__(self, task_worker: TaskWorker[SinkSender], topic: str, queues: list[MessageQueue]) -> None:
        """``queues``: the first one that takes them gets them."""
        super().__init__(task_worker)
        self._topic, self._queues = topic, queues

    def _add(self, row: SinkRow) -> None:
        message = row.message(self._topic)
        check_message(message)
        self._append(message, message.encode_with_id(self._worker.client.message_id()))
        self.count += 1

    def _new_count(self) -> int:
        return self.count

    async def _send(self, sender: SinkSender, contents: list[Content]) -> None:
        await sender.send_again(self._queues, contents)
