"""What queues and index must show, by the log alone: each message once, at its offset, under each of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tallystick.rocketmq.store.values import GetStatus
from tallystick.rocketmq.wire.record import IndexType, StoredMessage, decode_message
from tallystick.sim.ha_log import QUEUES, SHARED_KEYS, SimLog
from tallystick.sim.invariants import Violation

_ALL = 1 << 30
_decode = lru_cache(10_000)(decode_message)


@dataclass(frozen=True)
class _Record:
    data: bytes
    message: StoredMessage


def check_dispatch(log: SimLog) -> None:
    """Check what was dispatched, on a disk without faults. Raises Violation."""
    with log.disk.undisturbed():
        while log.store.rebuilding:
            log.store.rebuild()
        pieces = [bytes(log.data[at : at + size]) for at, size in log.records(log.end) if size]
        records = [_Record(piece, _decode(piece)) for piece in pieces]
        for topic, queue_id in QUEUES:
            mine = [one for one in records if (one.message.topic, one.message.queue_id) == (topic, queue_id)]
            _check_queue(log, topic, queue_id, mine)
        for number in range(SHARED_KEYS):
            key = f"key{number}"
            keyed = [one for one in records if key in one.message.keys]
            for topic in dict(QUEUES):
                _check_key(log, topic, key, IndexType.KEY, [one for one in keyed if one.message.topic == topic])
        for one in records[-1:]:
            _check_key(log, one.message.topic, one.message.unique_key or "", IndexType.UNIQUE, [one])


def _check_queue(log: SimLog, topic: str, queue_id: int, records: Sequence[_Record]) -> None:
    first, end = log.store.queue_range(topic, queue_id)
    numbers = [one.message.queue_offset for one in records]
    messages: list[bytes] = []
    offset = first
    while offset < end:
        batch = log.store.get(topic, queue_id, offset, 32, _ALL)
        if batch.status is not GetStatus.FOUND and numbers:
            raise Violation(f"queue: {topic}/{queue_id} has {batch.status.name} at {offset}")
        messages += [bytes(view) for view in batch.buffers]
        offset = batch.next_offset
    where = f"{topic}/{queue_id} from {first} to {end}"
    if numbers != list(range(numbers[0], numbers[-1] + 1) if numbers else ()):
        raise Violation(f"queue: the log has {numbers} for {topic}/{queue_id}")
    if not _is_dispatched(log, b"".join(messages), records) or (numbers and first > numbers[0]):
        raise Violation(f"queue: {where} shows other messages than the log has, {numbers}")


def _check_key(log: SimLog, topic: str, key: str, kind: IndexType, records: Sequence[_Record]) -> None:
    messages = log.store.query(topic, key, 64, 0, 1 << 60, kind)
    if len(records) <= 64 and not _is_dispatched(log, b"".join(reversed(messages)), records):
        where = [_decode(data).physical_offset for data in messages]
        offsets = [one.message.physical_offset for one in records]
        raise Violation(f"index: {topic}#{key} finds {where}, the log has {offsets}")


def _is_dispatched(log: SimLog, dispatched_bytes: bytes, records: Sequence[_Record]) -> bool:
    """Returns whether all that was dispatched was found. More is right after a dispatch that a full disk cut short."""
    log_bytes = b"".join(one.data for one in records)
    sure = sum(len(one.data) for one in records if one.message.physical_offset < log.store.reput_offset)
    return log_bytes.startswith(dispatched_bytes) and len(dispatched_bytes) >= sure
