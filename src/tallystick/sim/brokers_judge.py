"""The promises of brokers, checked at each acknowledgement, delivery and start, and once more at the end.

B1 what a producer was told is on the disk is there for good; without a flush it outlives its process. B2 what it was
told is at a slave is there. B3 a slave's log is a part of its master's. B4 a place in a queue is given once, and a
producer's messages are in their order. B5 consumers get what was sent, and nothing that is in no log. B6 no message is
left out. B7 no message is doubled unless its producer was told that it may be. B9 when the faults have ended all is
delivered and copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tallystick.codec.records import BLANK, SMALLEST
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.settings import Role
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sending import SendResult, SendStatus
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.message_ids import decode_message_id
from tallystick.rocketmq.wire.record import StoredMessage, decode_message
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.disk import SimDisk
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace

ATTEMPTS = 3  # of a send

Queue = tuple[str, int]  # topic and queue id


class Node(Protocol):
    """A broker's host, as the judge sees it. ``broker`` is None when none answers."""

    id: str
    is_slave: bool
    sync_flush: bool
    broker: Broker | None

    @property
    def disk(self) -> SimDisk: ...

    @property
    def reached(self) -> int:
        """Where its log ended at most, in any of its lives."""
        ...

    @property
    def durable(self) -> int:
        """Where what is synced ends, or did when its last process ended."""
        ...


@dataclass(frozen=True)
class Ack:
    """A producer was told that this message is stored."""

    body: bytes
    queue: Queue
    offset: int  # in the queue
    at: int  # physical offset
    maybe_twice: bool
    is_synced: bool
    holders: tuple[str, ...]  # slaves, if it was told that there is one


@dataclass
class Reader:
    """What a group has seen."""

    topics: tuple[str, ...]
    bodies: set[bytes] = field(default_factory=set)
    next: dict[Queue, int] = field(default_factory=dict)


class Judge:
    """Sees what really is, which no client does. ``nodes`` has the master first."""

    nodes: Sequence[Node]

    def __init__(self, trace: Trace, plan: BrokersPlan, now: Callable[[], float]) -> None:
        self._trace, self._plan, self._now = trace, plan, now
        self.acks: list[Ack] = []  # that must hold
        self.promised = 0
        self.readers: dict[str, Reader] = {}
        self._sent: dict[bytes, None] = {}
        self._given: dict[tuple[Queue, int], tuple[bytes, int]] = {}  # body and physical offset of a place
        self._losses: list[tuple[float, int]] = []  # of the master's power: when, and what was durable
        self._unsynced: dict[Queue, None] = {}  # of the master: queues of which some messages are not durable
        self._torn: dict[Queue, None] = {}  # queues that lost some to that, so that offsets are given again
        self.violation: str | None = None
        self.alarm: tuple[int, Callable[[], None]] | None = None  # call this at that many acknowledgements

    def fail(self, promise: str, what: str) -> None:
        """The first one counts. It is raised too, which ends who looked."""
        self._trace.note("VIOLATION", promise, what)
        self.violation = self.violation or f"{promise}: {what}"
        raise Violation(self.violation)

    # Producers.

    def sending(self, body: bytes) -> None:
        """A message is on its way."""
        self._sent[body] = None

    def acknowledged(self, bodies: Sequence[bytes], result: SendResult, began: float) -> None:
        """A producer, which began at ``began``, was told that these messages are stored."""
        queue = result.queue.topic, result.queue.queue_id
        self._trace.note("acknowledged", queue, result.queue_offset, len(bodies), result.status.name)
        for number, (body, place) in enumerate(zip(bodies, result.offset_id.split(","), strict=True)):
            at = decode_message_id(place)[2]
            self._acknowledge(Ack(
                body, queue, result.queue_offset + number, at, result.maybe_twice, self._is_synced(result, at),
                self._holders(result, at),
            ), began)  # fmt: skip
        if self.alarm is not None and self.promised >= self.alarm[0]:
            (_, call), self.alarm = self.alarm, None
            call()

    def _acknowledge(self, ack: Ack, began: float) -> None:
        if not ack.is_synced and any(when >= began and ack.at >= end for when, end in self._losses):
            return  # it was lost meanwhile
        self.promised += 1
        self._take_place(ack.queue, ack.offset, ack.body, ack.at)
        self.acks.append(ack)

    def _take_place(self, queue: Queue, offset: int, body: bytes, at: int) -> None:
        before, _ = self._given.setdefault((queue, offset), (body, at))
        if before != body:
            self.fail("B4", f"offset {offset} of {queue} was given to {before!r} and to {body!r}")

    def _is_synced(self, result: SendResult, at: int) -> bool:
        """What is FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE is on the master's disk."""
        if not self._plan.sync_flush or result.status is SendStatus.FLUSH_DISK_TIMEOUT:
            return False
        if result.status is not SendStatus.SEND_OK:
            return self.nodes[0].durable > at
        if self.nodes[0].durable <= at:
            self.fail("B1", f"the message at {at} is said to be stored, and {self.nodes[0].durable} bytes are")
        return True

    def _holders(self, result: SendResult, at: int) -> tuple[str, ...]:
        if self._plan.role is not Role.SYNC_MASTER or result.status is not SendStatus.SEND_OK:
            return ()
        holders = tuple(node.id for node in self.nodes[1:] if node.reached > at)
        if not holders:
            self.fail("B2", f"the message at {at} is said to be at a slave, and is at none")
        if all(node.sync_flush for node in self.nodes[1:] if node.id in holders):
            return holders
        return ()

    # Brokers.

    def ends(self, node: Node, store: MessageStore) -> None:
        """Its process is about to die."""
        if not node.is_slave:
            with node.disk.undisturbed():
                self._unsynced = dict.fromkeys(
                    (stored.topic, stored.queue_id) for stored in self._records(store, store.flushed)
                )

    def _records(self, store: MessageStore, start: int) -> Iterator[StoredMessage]:
        """Those of a log from ``start`` on, where one begins; a log that is cut in the middle of one ends there."""
        data, at, file_bytes = _bytes(store, start, store.end), start, self._plan.file_bytes
        while at + SMALLEST <= store.end:
            size, magic = (int.from_bytes(data[at - start + place :][:4], "big") for place in (0, 4))
            if magic == BLANK:
                at += file_bytes - at % file_bytes
            else:
                if at + size <= store.end:
                    yield decode_message(data, at - start)
                at += size

    def lost_power(self, node: Node) -> None:
        """What was not synced may be gone; ``ends`` was before."""
        if node.is_slave:
            return
        durable = node.durable
        self._losses.append((self._now(), durable))
        self._torn |= self._unsynced
        self._given = {place: given for place, given in self._given.items() if given[1] < durable}
        for ack in self.acks:
            if ack.is_synced and ack.at >= durable:
                self.fail("B1", f"the message at {ack.at} was not durable")
        self.acks = [ack for ack in self.acks if ack.at < durable]

    def started(self, node: Node) -> None:
        """It answers again."""
        store = _store(node)
        if not node.is_slave:
            self._unsynced = {}
        with node.disk.undisturbed():
            for ack in self.acks:
                if not node.is_slave or ack.holders == (node.id,):
                    self._require(node, store, ack)

    def _require(self, node: Node, store: MessageStore, ack: Ack) -> None:
        if not _has(store, ack):
            self.fail(
                "B2" if node.is_slave else "B1", f"{node.id} lost {ack.body!r} at {ack.at}: it ends at {store.end}"
            )

    def look(self) -> None:
        """At any time: who follows has what its master has."""
        master = self.nodes[0].broker
        if master is None:
            return
        for node in self.nodes[1:]:
            if node.broker is None:
                continue
            status = node.broker.log.followed()
            fed_by = status.told.instance if status.link and status.told is not None else None
            if fed_by == master.parts.identity.instance and not self._is_part(node):
                self.fail("B3", f"{node.id} follows the master and has other bytes up to {status.end}")

    def _is_part(self, node: Node) -> bool:
        """Whether a slave's log is a part of the master's."""
        mine, theirs = _store(self.nodes[0]), _store(node)
        if theirs.end > mine.end:
            return False
        with self.nodes[0].disk.undisturbed(), node.disk.undisturbed():
            start = max(mine.first, theirs.first)
            return _bytes(mine, start, theirs.end) == _bytes(theirs, start, theirs.end)

    # Consumers.

    def received(self, group: str, message: ReceivedMessage) -> None:
        """A member of a group was given a message."""
        reader, stored = self.readers[group], message.stored
        queue, offset, body = (stored.topic, stored.queue_id), stored.queue_offset, message.body
        self._trace.note("received", group, queue, offset)
        if body not in self._sent:
            self.fail("B5", f"{body!r} was received, and never sent")
        at = stored.physical_offset
        if self._plan.sync_flush and len(self.nodes) == 1 and self.nodes[0].durable <= at:
            self.fail("B5", f"the message at {at} was received before it was on the disk")
        if all(node.broker is not None for node in self.nodes) and not any(
            self._reads(node, at) == body for node in self.nodes
        ):
            self.fail("B5", f"{body!r} was received from {at}, where no log has it")
        expected = reader.next.get(queue, 0)
        if offset > expected and queue not in self._torn:
            self.fail("B6", f"{group} got offset {offset} of {queue} and not {expected}")
        reader.next[queue] = max(expected, offset + 1)
        reader.bodies.add(body)

    def _reads(self, node: Node, at: int) -> bytes | None:
        with node.disk.undisturbed():
            record = _store(node).record(at)
        return decode_message(record).body() if record is not None else None

    # The end.

    def unsettled(self) -> str | None:
        """What is still to come when nothing goes wrong any more; None: all is done."""
        for node in self.nodes:
            if node.broker is None:
                return f"{node.id} does not answer"
            store = node.broker.parts.store
            if store.reput_offset < store.end:
                return f"{node.id} has dispatched {store.reput_offset} of {store.end}"
        for node in self.nodes[1:]:
            if self._is_compatible(node) and _store(node).end < _store(self.nodes[0]).end:
                assert node.broker is not None
                return f"{node.id} has {_store(node).end} bytes: {node.broker.log.followed().why}"
        for topic, ids in _store(self.nodes[0]).queues().items():
            for queue in ((topic, queue_id) for queue_id in ids):
                end = _store(self.nodes[0]).queue_range(*queue)[1]
                for group, reader in self.readers.items():
                    if topic in reader.topics and queue not in self._torn and reader.next.get(queue, 0) < end:
                        return f"{group} has not received offset {reader.next.get(queue, 0)} of {queue}"
        return None

    def _is_compatible(self, node: Node) -> bool:
        """Whether it may follow; what a master lost with its power may keep a slave from that for good."""
        if self._is_part(node):
            return True
        if not self._losses:
            self.fail("B3", f"{node.id} has other bytes than its master, which lost nothing")
        return False

    def at_the_end(self) -> None:
        """All is settled."""
        self.look()
        for node in self.nodes:
            self.started(node)
            self._check_queues(node)
        for ack in self.acks:
            if ack.holders and not any(
                self._reads(node, ack.at) == ack.body for node in self.nodes if node.id in ack.holders
            ):
                self.fail("B2", f"{ack.body!r} at {ack.at} is at none of {ack.holders} any more")
        self._check_copies()
        self._check_order()
        for group, reader in self.readers.items():
            for ack in self.acks:
                if ack.queue not in self._torn and ack.body not in reader.bodies:
                    self.fail("B6", f"{group} never received {ack.body!r} at {ack.offset} of {ack.queue}")

    def _check_queues(self, node: Node) -> None:
        """Each unit shows the record that says so, and they are in the order of the log."""
        before: dict[Queue, StoredMessage] = {}
        for stored in self._stored(node):
            queue = stored.topic, stored.queue_id
            last = before.get(queue)
            if last is not None and (
                stored.queue_offset != last.queue_offset + 1 or stored.physical_offset <= last.physical_offset
            ):
                self.fail("B4", f"{node.id} has {stored} behind {last}")
            before[queue] = stored

    def _check_copies(self) -> None:
        """What was sent is there as often as it may be."""
        found = Counter(stored.body() for stored in self._stored(self.nodes[0]))
        sure = {ack.body for ack in self.acks if not ack.maybe_twice}
        for body, count in found.items():
            if count > (1 if body in sure else ATTEMPTS):
                self.fail("B7", f"{body!r} is stored {count} times")

    def _check_order(self) -> None:
        """Acknowledgements come in the order of the sends, so the places of a queue do."""
        last: dict[tuple[Queue, bytes], int] = {}
        for ack in self.acks:
            key = ack.queue, ack.body.partition(b":")[0]
            if ack.offset <= last.get(key, -1):
                self.fail("B4", f"{ack.body!r} is at offset {ack.offset} of {ack.queue}, before an older message")
            last[key] = ack.offset

    def _stored(self, node: Node) -> Iterator[StoredMessage]:
        """The messages of its queues."""
        store = _store(node)
        with node.disk.undisturbed():
            for topic, ids in sorted(store.queues().items()):
                for queue_id in sorted(ids):
                    first, end = store.queue_range(topic, queue_id)
                    for at, size, _ in store.queue_units(topic, queue_id, first, end - first) or ():
                        record = store.record(at)
                        if record is None or len(record) != size:
                            self.fail("B4", f"{node.id} has no record of {size} bytes at {at} for {topic} {queue_id}")
                        else:
                            yield decode_message(record)


def _store(node: Node) -> MessageStore:
    assert node.broker is not None, f"{node.id} does not answer"
    return node.broker.parts.store


def _has(store: MessageStore, ack: Ack) -> bool:
    record = store.record(ack.at) if store.first <= ack.at < store.end else None
    return record is not None and decode_message(record).body() == ack.body


def _bytes(store: MessageStore, start: int, end: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < end - start and (piece := store.slice(start + len(pieces), end - start - len(pieces))):
        pieces += piece
    return bytes(pieces)
