"""Reads from queues, by time and by key (H13). They return views of the mapped log; no message is copied.

Statuses and limits: ``DefaultMessageStore.getMessage``, ``getOffsetInQueueByTime``, ``queryMessage``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from tallystick.codec.records import hash_utf8
from tallystick.codec.unit_runs import runs_of_units
from tallystick.errors import QueueRebuilding
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.index_file import PASSED, index_hash
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.units import FILLER_SIZE, UNIT
from tallystick.rocketmq.store.values import GetResult, GetStatus, TimeBoundary
from tallystick.rocketmq.wire.record import IndexType, StoredMessage, decode_message

_SCAN_UNITS = 800  # how many messages a read passes over in search of its tags (maxFilterMessageSize)
_MAX_READ_BYTES = 128 * 1024 * 1024
_MIN_READ_BYTES = 100
_MARKED_BYTES = 84  # of a record: all its numbers, times and hosts, and the checksum of its body
_MARK_CHARS = 32  # no mark is longer
_FOUND, _NO_MATCH = GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE  # plain names: an enum's attribute is slow per pull
_CANDIDATES = 4  # how many times more index entries than messages are looked at: hashes collide


class Reads:
    """The reads of one store."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: Index | None, settings: StoreSettings) -> None:
        self._log, self._queues, self._index, self._settings = log, queues, index, settings
        self._recent_bytes = settings.recent_bytes

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        tags: frozenset[int] | None,
        *,
        is_slave: bool,
        mark: str | None = None,
    ) -> GetResult:
        """Returns messages from ``offset``, at least one if there is one. A master, and a slave that is to check
        offsets, correct a wrong one in the result.

        ``mark``: with the mark of the last message that was passed. One that is not empty names the last message that
        the reader has: none is read where another one is known here.
        """
        correct = not is_slave or self._settings.offset_check_in_slave
        queue = self._queues.find(topic, queue_id)
        first, end = (queue.first, queue.end) if queue else (0, 0)
        # The unit of the message before ``offset``, which the mark nearly always names, is read with those behind it.
        is_next = (
            queue is not None
            and first < offset < end
            and bool(mark)
            and marked_offset(str(mark)) == offset - 1
            and not queue.has_hole
        )
        if mark and not is_next and self.knows_other(topic, queue_id, mark, is_slave=is_slave):
            return GetResult(GetStatus.OFFSET_RESET, offset, first, end)
        if queue is None or end == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0 if correct else offset, first, end)
        if offset < first:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, first if correct else offset, first, end)
        if offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
        if queue.lacks(offset):
            return GetResult(GetStatus.BEING_REBUILT, offset, first, end)
        if offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end if correct else offset, first, end)
        result = GetResult(_NO_MATCH, offset, first, end)
        max_bytes = min(max(max_bytes, _MIN_READ_BYTES), _MAX_READ_BYTES)
        units = self._collect(queue, result, max_count, max_bytes, tags, mark if is_next else None)
        if mark is not None and result.next_offset > offset:
            physical, size, _ = UNIT.unpack_from(units, (result.next_offset - offset - 1) * UNIT.size)
            result.mark = self._mark_of(result.next_offset - 1, physical, size)
        return result

    def _collect(
        self,
        queue: ConsumeQueue,
        result: GetResult,
        max_count: int,
        max_bytes: int,
        tags: frozenset[int] | None,
        mark: str | None,
    ) -> bytes:
        """Returns the units that it looked at, and more. ``mark``: of the message before, if that is to be checked."""
        log, settings = self._log, self._settings
        end, offset = log.end, result.next_offset
        limits = (
            min(max_count, settings.max_count_in_memory),
            min(max_bytes, settings.max_bytes_in_memory),
            min(max_count, settings.max_count_on_disk),
            min(max_bytes, settings.max_bytes_on_disk),
        )
        most = max(limits[0], limits[2])  # more is of no use, whatever a stranger asks for
        if tags is not None:
            most = max(_SCAN_UNITS, most)
        if mark is None:
            units = queue.read(offset, most)
        else:
            units = queue.read(offset - 1, most + 1)
            physical, size, _ = UNIT.unpack_from(units)
            if self._mark_of(offset - 1, physical, size) not in (None, mark):
                result.status = GetStatus.OFFSET_RESET
                return units
            units = units[UNIT.size :]
        recent, file_bytes = end - self._recent_bytes, log.files.file_bytes
        runs, count, size, passed_units, physical, is_lost = runs_of_units(
            units, log.first, end, file_bytes, recent, limits, tags
        )
        result.buffers = [log.slice(start, stop - start) for start, stop in runs]
        if count:
            result.status = _FOUND
        elif is_lost:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
        result.count, result.size, result.next_offset = count, size, offset + passed_units
        result.far_behind = physical < recent
        return units

    def knows_other(self, topic: str, queue_id: int, mark: str, *, is_slave: bool) -> bool:
        """Whether the message at the mark's place is here and is another one, or the queue of a master ends before it:
        then whoever has the mark read another log. What is too old to be compared is none."""
        offset, queue = marked_offset(mark), self._queues.find(topic, queue_id)
        if offset >= (queue.end if queue is not None else 0):
            return not is_slave
        return self.mark(topic, queue_id, offset) not in (None, mark)

    def mark(self, topic: str, queue_id: int, offset: int) -> str | None:
        """Returns the mark of the message at a queue offset: no other message has it, and a slave's copy has the same
        one. Returns None if the message is not there, or its unit is lost for now."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.first <= offset < queue.end or queue.lacks(offset):
            return None
        physical, size, _ = queue.unit(offset)
        return self._mark_of(offset, physical, size)

    def _mark_of(self, offset: int, physical: int, size: int) -> str | None:
        record = None if size == FILLER_SIZE else self._log.record(physical, size)
        return None if record is None else f"{offset}.{crc32(record[:_MARKED_BYTES]):08x}"

    def stored_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Returns the store time of a message in ms; -1 if it is not there. Raises QueueRebuilding."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.first <= offset < queue.end:
            return -1
        _refuse_hole(queue, queue.lacks(offset))
        return self._stored_at(queue, offset)

    def _stored_at(self, queue: ConsumeQueue, offset: int) -> int:
        physical, size, _ = queue.unit(offset)
        return self._log.stored_ms(physical, size)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: TimeBoundary) -> int:
        """Returns the queue offset of a store time, from the queue's first to its end; 0 without a queue. Raises
        QueueRebuilding.

        Fillers, which have no time, may be anywhere, as in ``UnitFiles.search``.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.end == queue.first:
            return queue.end if queue else 0
        _refuse_hole(queue, queue.has_hole)
        # UPPER is the message before the first one later than the time.
        later = timestamp_ms + (1 if boundary is TimeBoundary.UPPER else 0)
        low, high = queue.first, queue.end
        while low < high:
            middle = (low + high) // 2
            message = queue.last_message(low, middle)
            if message is None or self._stored_at(queue, message) < later:
                low = middle + 1
            else:
                high = message
        if boundary is TimeBoundary.LOWER:
            return low
        message = queue.last_message(queue.first, low - 1)
        return queue.first if message is None else message

    def look_for(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, index_type: IndexType
    ) -> Iterator[bytes]:
        """Yields whole records of the messages that have the key, newest first; and ``b""`` after each step of the
        search that found none, which takes less than a millisecond."""
        if self._index is None:
            return
        max_count = min(max_count, self._settings.max_query_count)
        infix = f"{IndexType.TAG.value}#" if index_type is IndexType.TAG else ""
        key_hash = index_hash(hash_utf8(f"{topic}#{infix}{key}".encode("utf-8", "replace")))
        count, candidates, last_physical = 0, 0, -1
        for physical in self._index.select(key_hash, begin_ms, end_ms):
            if count == max_count or candidates == max_count * _CANDIDATES:
                return
            candidates += physical != PASSED
            record = None if physical in (PASSED, last_physical) else self._log.record(physical)
            match = b""
            if record is not None:
                last_physical, data = physical, bytes(record)
                message = decode_message(data)
                if message.topic == topic and key in _keys_of(message, index_type):
                    count, match = count + 1, data
            yield match


def marked_offset(mark: str) -> int:
    """Returns the queue offset of the message that a mark names; -1 if it is no mark."""
    digits = mark.partition(".")[0]
    return int(digits) if len(mark) <= _MARK_CHARS and digits.isascii() and digits.isdigit() else -1


def _refuse_hole(queue: ConsumeQueue, is_lost: bool) -> None:
    if is_lost:
        raise QueueRebuilding(
            "the queue is being built again from the log; ask again later",
            topic=queue.topic,
            queue=queue.queue_id,
            rebuilt=queue.hole_next,
            end=queue.hole_stop,
        )


def _keys_of(message: StoredMessage, index_type: IndexType) -> Sequence[str | None]:
    if index_type is IndexType.TAG:
        return (message.tags,)
    if index_type is IndexType.UNIQUE:
        return (message.unique_key,)
    return (message.unique_key, *message.keys)
