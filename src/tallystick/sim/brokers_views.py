"""What brokers really have, seen past their shells: logs, queues and budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tallystick.codec.records import BLANK, SMALLEST
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.units import FILLER_SIZE
from tallystick.rocketmq.wire.record import StoredMessage, decode_message
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.disk import SimDisk
from tallystick.sim.virtual.worker import DelayWorker

OTHER_FILES = 8  # that are no files of the log, the queues or the index: notes, tables that are being saved
MAX_CALLS = 8  # that wait for one worker

Queue = tuple[str, int]  # topic and queue id


class BrokerView(Protocol):
    """A broker's host. ``broker`` is None when none answers."""

    id: str
    is_slave: bool
    sync_flush: bool
    broker: Broker | None
    workers: list[DelayWorker]

    @property
    def disk(self) -> SimDisk: ...

    @property
    def reached(self) -> int:
        """Returns the highest end that its log had in any of its lives."""
        ...

    @property
    def durable(self) -> int:
        """Returns the end of its synced log, now or when its last process ended."""
        ...


def broker_of(node: BrokerView) -> Broker:
    assert node.broker is not None, f"{node.id} does not answer"
    return node.broker


def store_of(node: BrokerView) -> MessageStore:
    return broker_of(node).parts.store


# The log.


def log_bytes(node: BrokerView, start: int, end: int) -> bytes:
    """Returns the bytes of the log, as far as they exist."""
    with node.disk.undisturbed():
        return _bytes(store_of(node), start, end)


def _bytes(store: MessageStore, start: int, end: int) -> bytes:
    data = bytearray()
    while len(data) < end - start and (piece := store.slice(start + len(data), end - start - len(data))):
        data += piece
    return bytes(data)


def records(node: BrokerView, store: MessageStore, start: int, file_bytes: int) -> Iterator[StoredMessage]:
    """Returns the whole records of a log from ``start`` on, where one begins."""
    with node.disk.undisturbed():
        data, at = _bytes(store, start, store.end), start
    while at + SMALLEST <= store.end:
        size, magic = (int.from_bytes(data[at - start + place :][:4], "big") for place in (0, 4))
        if magic == BLANK:
            at += file_bytes - at % file_bytes
        else:
            if at + size <= store.end:
                yield decode_message(data, at - start)
            at += size


def unsynced_records(node: BrokerView, store: MessageStore, file_bytes: int) -> Iterator[StoredMessage]:
    """Returns the records that are not synced as a whole. A slave syncs whatever has come: its mark may be in one."""
    if store.flushed == store.end:  # also where it was closed, and nothing can be read any more
        return iter(())
    everything = records(node, store, store.first, file_bytes)
    return (message for message in everything if message.physical_offset + message.size > store.flushed)


def messages_end(node: BrokerView, file_bytes: int) -> int:
    """Returns the end of the last whole record of its log."""
    store = store_of(node)
    messages = records(node, store, store.first, file_bytes)
    return max((message.physical_offset + message.size for message in messages), default=store.first)


def body_at(node: BrokerView, at: int) -> bytes | None:
    """Returns the body of the record at a physical offset. Returns None if there is none."""
    store = store_of(node)
    with node.disk.undisturbed():
        record = store.record(at) if store.first <= at < store.end else None
    return decode_message(record).body() if record is not None else None


def is_part(slave: BrokerView, master: BrokerView) -> bool:
    """Returns whether a slave's log is a part of the master's."""
    mine, theirs = store_of(slave), store_of(master)
    start = max(mine.first, theirs.first)
    return mine.end <= theirs.end and log_bytes(slave, start, mine.end) == log_bytes(master, start, mine.end)


def fits(slave: BrokerView, master: BrokerView) -> bool:
    """Returns whether a slave can go on with its master's log: it is empty, or ends in that log as a part of it."""
    end = store_of(slave).end
    return not end or (end > store_of(master).first and is_part(slave, master))


# Queues.


def queue_messages(node: BrokerView) -> list[StoredMessage]:
    """Returns the messages of all queues, each in its order. Raises AssertionError for a wrong unit."""
    store, messages = store_of(node), list[StoredMessage]()
    with node.disk.undisturbed():
        for topic, ids in sorted(store.queues().items()):
            for queue_id in sorted(ids):
                first, end = store.queue_range(topic, queue_id)
                units = store.queue_units(topic, queue_id, first, end - first) or ()
                for offset, (at, size, _) in enumerate(units, first):
                    if size != FILLER_SIZE:  # a place that was the old master's, and lost with it
                        messages.append(_message_at(node, (topic, queue_id), offset, at, size))
    return messages


def _message_at(node: BrokerView, queue: Queue, offset: int, at: int, size: int) -> StoredMessage:
    record = store_of(node).record(at)
    assert record is not None and len(record) == size, f"{node.id} has no record of {size} bytes at {at} for {queue}"
    message = decode_message(record)
    place = message.topic, message.queue_id, message.queue_offset
    assert place == (*queue, offset), f"{node.id} shows {message} at offset {offset} of {queue}"
    return message


def group_offsets(node: BrokerView, group: str) -> dict[str, dict[int, int]]:
    """Returns the offsets of a group, by its keys and queue ids."""
    committed = broker_of(node).tables.offsets.committed_offsets
    return {key: offsets for key, offsets in committed.items() if key.endswith(f"@{group}")}


# Budgets.


def excess(node: BrokerView, plan: BrokersPlan) -> str | None:
    """Returns which bound it exceeds. Returns None if none, or if it does not answer."""
    if node.broker is None:
        return None
    memory = node.broker.memory
    held_bytes = memory.unsent_bytes + memory.unfinished_bytes + memory.kept_bytes
    if held_bytes > plan.held_bytes:
        return f"{held_bytes} bytes for its clients"
    if len(node.disk.open_files) > plan.handles + OTHER_FILES:
        return f"{len(node.disk.open_files)} open files"
    call_count = max(worker.pending_count for worker in node.workers)
    return f"{call_count} calls that wait for one worker" if call_count > MAX_CALLS else None
