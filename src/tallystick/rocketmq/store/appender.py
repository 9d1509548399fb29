"""From put requests to records: what is refused, which queue offsets messages get, and one write for all of a tick.

A request that is refused or fails takes no queue offset. Store times never go back against the order of the log,
whatever the clock does, also between two processes: searches by time rest on it. Limits and
statuses: ``CommitLog.asyncPutMessage``, ``HookUtils.checkBeforePutMessage``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from tallystick.codec.records import BLANK_BYTES, FIXED_BYTES, SMALLEST, Content, Row, encode_records, topic_field
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.values import PutRequest, PutResult
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES
from tallystick.rocketmq.wire.values import RETRY_PREFIX, PutStatus

MAX_RETRY_TOPIC_BYTES = 255
_ENVELOPE_BYTES = 64 * 1024  # how much a record may be longer than the longest body
_OK, _ILLEGAL = PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL  # an enum's attribute costs more than a name
_MAX_TOPICS = 100_000  # whose fields are kept in memory

Queue = tuple[str, int]


def most_members(max_message_bytes: int) -> int:
    """Returns the most messages of a batch: more, whatever they are, would make a record that is longer than one may
    be."""
    return (max_message_bytes + _ENVELOPE_BYTES) // SMALLEST


class Appender:
    """Appends put requests. ``next_offsets`` has the next queue offset of each queue with messages; ``removals`` counts
    the queues that went."""

    def __init__(self, log: CommitLog, settings: StoreSettings, last_ms: int) -> None:
        """``last_ms`` is the store time of the last record in the log."""
        self._log, self._settings = log, settings
        self.next_offsets: dict[Queue, int] = {}
        self.removals = 0
        self._queue_ids: dict[str, set[int]] = {}  # of these, by topic
        self._topics: dict[str, bytes] = {}
        self._stamp = last_ms

    def learn(self, ends: Mapping[Queue, int]) -> None:
        """Note the next queue offsets of some queues."""
        before = len(self.next_offsets)
        self.next_offsets.update(ends)
        if len(self.next_offsets) > before:
            for topic, queue_id in ends:
                self._queue_ids.setdefault(topic, set()).add(queue_id)

    def not_before(self, last_ms: int) -> None:
        """The log has a record of this store time that another process wrote: later ones are not earlier."""
        self._stamp = max(self._stamp, last_ms)

    def forget(self, topic: str, kept_ids: Collection[int]) -> None:
        """A topic was deleted: all its queues but those of ``kept_ids`` begin at queue offset 0 again."""
        queue_ids = self._queue_ids.pop(topic, set())
        for queue_id in queue_ids.difference(kept_ids):
            del self.next_offsets[topic, queue_id]
            self.removals += 1
        if remaining_ids := queue_ids.intersection(kept_ids):
            self._queue_ids[topic] = remaining_ids

    def put(self, put_requests: Sequence[PutRequest], now_ms: int) -> list[PutResult]:
        """Append what is allowed and fits the disk. Returns the result of each request, in their order."""
        self._stamp = stamp = max(now_ms, self._stamp)
        puts: list[PutResult] = []
        batch = _Batch(self._log, self._settings.store_host, stamp)
        max_body, file_room = self._settings.max_message_bytes, self._settings.commit_log_file_bytes - BLANK_BYTES
        max_size = min(file_room, max_body + _ENVELOPE_BYTES)
        hosts, surely_fits = FIXED_BYTES + len(self._settings.store_host), min(max_body, MAX_PROPERTIES_BYTES)
        offset, room = self._log.end, self._log.room - BLANK_BYTES
        batch_ends: dict[Queue, int] = {}  # queue offsets given out in this batch
        fields, next_offsets = self._topics, self.next_offsets
        for put_request in put_requests:
            topic, messages = put_request.topic, put_request.messages
            field = fields.get(topic) or self._field(topic)
            fixed = hosts + len(put_request.born_host) + len(field)
            sizes = [fixed + len(body) + len(properties) for _, body, properties in messages]
            size, refusal = sum(sizes), None if field else _ILLEGAL
            if max(sizes, default=0) - fixed > surely_fits or any(
                [properties[-1:] == b"\0" for _, _, properties in messages]
            ):
                refusal = refusal or _refusal_of(messages, max_body)
            if refusal or size > max_size:
                puts.append(PutResult(refusal or _ILLEGAL))
                continue
            if size > room:
                self._write(batch, batch_ends)
                self._end_file(batch)
                offset, room = self._log.end, self._log.room - BLANK_BYTES
            queue = topic, put_request.queue_id
            first = batch_ends.get(queue)
            if first is None:
                first = next_offsets.get(queue, 0)
            batch_ends[queue] = first + len(messages)
            offsets = list(accumulate(sizes, initial=offset))
            offset, room = offsets.pop(), room - size
            puts.append(batch.add(put_request, field, first, offsets, offset))
        self._write(batch, batch_ends)
        return puts

    def _field(self, topic: str) -> bytes:
        """Returns the topic as records have it, or nothing if the topic may not be stored."""
        limit = MAX_RETRY_TOPIC_BYTES if topic.startswith(RETRY_PREFIX) else self._settings.max_topic_bytes
        if not topic or len(topic.encode()) > limit:
            return b""
        if len(self._topics) >= _MAX_TOPICS:
            self._topics.clear()
        field = self._topics[topic] = topic_field(topic)
        return field

    def _write(self, batch: _Batch, batch_ends: dict[Queue, int]) -> None:
        if batch.write():
            self.learn(batch_ends)
        batch_ends.clear()

    def _end_file(self, batch: _Batch) -> None:
        if batch.status is not None:
            return
        try:
            self._log.end_file()
        except DiskFull:
            batch.status = PutStatus.CREATE_MAPPED_FILE_FAILED
        except StorageError:
            batch.status = PutStatus.UNKNOWN_ERROR


class _Batch:
    """The rows of one write, and their results. After a failure all later requests have its status."""

    def __init__(self, log: CommitLog, store_host: bytes, stamp: int) -> None:
        self._log, self._store_host, self._stamp = log, store_host, stamp
        self._rows: list[Row] = []
        self._puts: list[PutResult] = []
        self.status: PutStatus | None = None

    def add(self, put_request: PutRequest, field: bytes, queue_offset: int, offsets: list[int], end: int) -> PutResult:
        """Add a row for each request. ``offsets`` are where its records go, ``end`` is behind the last."""
        self._rows.append(
            (
                field,
                put_request.queue_id,
                queue_offset,
                put_request.sys_flag,
                put_request.born_timestamp,
                put_request.born_host,
                put_request.reconsume_times,
                put_request.messages,
            )
        )
        put = PutResult(_OK, offsets, end, queue_offset, self._stamp)
        self._puts.append(put)
        return put

    def write(self) -> bool:
        """Write the rows. Returns whether all are in the log now."""
        rows, puts = self._rows, self._puts
        self._rows, self._puts = [], []
        if rows and self.status is None:
            records = encode_records(rows, self._log.end, self._stamp, self._store_host)
            try:
                self._log.append([records], len(records))
                return True
            except DiskFull:
                self.status = PutStatus.CREATE_MAPPED_FILE_FAILED
            except StorageError:
                self.status = PutStatus.UNKNOWN_ERROR
        for put in puts:
            put.status = self.status or PutStatus.UNKNOWN_ERROR
        return False


def _refusal_of(messages: Sequence[Content], max_body: int) -> PutStatus | None:
    """Returns why one of the messages is not stored, or None if all may be."""
    refusal = None
    for _, body, properties in messages:
        if len(properties) > MAX_PROPERTIES_BYTES:
            refusal = PutStatus.PROPERTIES_SIZE_EXCEEDED
        elif len(body) > max_body or properties.endswith(b"\0"):  # which recovery takes for a torn record
            refusal = _ILLEGAL
    return refusal
