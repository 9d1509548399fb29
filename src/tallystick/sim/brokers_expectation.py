"""What must be true of simulated brokers: it grows with what clients are told, and shrinks with what machines lose.

An operator's orders change it too: a deletion, a group that is set back, a slave that becomes the master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.store.store import MessageStore
from tallystick.sim.brokers_plan import BrokersPlan
from tallystick.sim.brokers_views import (
    BrokerView,
    Queue,
    broker_of,
    log_bytes,
    messages_end,
    records,
    store_of,
    unsynced_records,
)


@dataclass(frozen=True)
class Ack:
    """A message that a producer was told is stored."""

    body: bytes
    queue: Queue
    offset: int  # in the queue
    at: int  # physical offset
    maybe_twice: bool
    is_ok: bool  # SEND_OK: its topic is saved, too
    is_synced: bool
    holders: tuple[str, ...]  # slaves that have it synced, if it was told that a slave has it


@dataclass
class Reader:
    """The messages that a group has received."""

    topics: tuple[str, ...]
    bodies: set[bytes] = field(default_factory=set)
    next: dict[Queue, int] = field(default_factory=dict)
    redeliveries: dict[bytes, None] = field(default_factory=dict)  # given back, and to be delivered again
    finished: set[bytes] = field(default_factory=set)  # acknowledged by a member


@dataclass(frozen=True)
class SlaveHoldings:
    """The log of a slave at the moment in which its master came back empty."""

    node: BrokerView
    broker: Broker  # the process that had it
    first: int  # of the log
    durable: int  # where the whole messages that it had synced of it ended
    log: bytes
    topics: set[str]
    groups: set[str]


class Expectation:
    """What must be in the brokers' logs. ``nodes`` has the master first."""

    nodes: Sequence[BrokerView]

    def __init__(self, plan: BrokersPlan, now: Callable[[], float]) -> None:
        self._plan, self._now = plan, now
        self.sent_bodies: dict[bytes, None] = {}
        self.acks: list[Ack] = []  # that must hold
        self.content_by_place: dict[tuple[Queue, int], tuple[bytes, int]] = {}  # body and physical offset of a place
        self.readers: dict[str, Reader] = {}
        self.deleted: dict[str, int] = {}  # by topic: where in the master's log it was deleted
        self.holdings: list[SlaveHoldings] = []
        self.changed_at = -1.0  # when another log became the master's
        self.losses: list[tuple[float, int]] = []  # of the master: when, and where what is sure ends
        self._unsynced: dict[Queue, None] = {}  # of the master: queues of which some messages are not durable
        self._torn_queues: dict[Queue, None] = {}  # queues that lost some
        self._remade: dict[str, None] = {}  # topics that were or may be deleted, or whose log is another now
        self._deleting: dict[str, int] = {}  # deletions of which nobody knows whether they are made, or will be

    @property
    def master(self) -> BrokerView:
        return self.nodes[0]

    def is_torn(self, queue: Queue) -> bool:
        """Returns whether offsets of a queue may have been given again, so that consumers pass over messages."""
        return queue in self._torn_queues or queue[0] in self._remade

    @property
    def is_whole(self) -> bool:
        """Returns whether nothing was lost or deleted."""
        return not self.losses and not self._remade

    def holds(self, ack: Ack, began: float) -> bool:
        """Returns whether an ack of a send that began then must hold: its message was not lost or deleted."""
        is_lost = any(when >= began and ack.at >= end for when, end in self.losses)
        topic = ack.queue[0]
        is_deleted = self._deleting.get(topic, 0) > 0 or ack.at < self.deleted.get(topic, 0)
        return not is_deleted and (ack.is_synced or not is_lost)

    def _lose(self, end: int) -> None:
        """Expect no more of the master's log behind ``end``; its places may be given again."""
        self.losses.append((self._now(), end))
        self.content_by_place = {place: content for place, content in self.content_by_place.items() if content[1] < end}
        self.acks = [ack for ack in self.acks if ack.at < end]
        self.deleted = {topic: min(at, end) for topic, at in self.deleted.items()}

    def _tear_all(self) -> None:
        self._remade |= dict.fromkeys(topic for reader in self.readers.values() for topic in reader.topics)

    # Machines.

    def process_ends(self, node: BrokerView, store: MessageStore) -> None:
        """The process of a broker is about to die."""
        if node is self.master:
            unsynced = unsynced_records(node, store, self._plan.file_bytes)
            self._unsynced = dict.fromkeys((message.topic, message.queue_id) for message in unsynced)

    def power_lost(self, node: BrokerView) -> Ack | None:
        """Bytes that were not synced may be lost, after ``process_ends``. Returns a durable ack that is lost."""
        if node is not self.master:
            return None
        lost_ack = next((ack for ack in self.acks if ack.is_synced and ack.at >= node.durable), None)
        self._torn_queues |= self._unsynced
        self._lose(node.durable)
        return lost_ack

    def process_began(self, node: BrokerView) -> None:
        """A broker has started, and has synced its log."""
        if node is self.master:
            self._unsynced = {}

    # Operators.

    def deletion_asked(self, topic: str) -> None:
        self._remade[topic] = None
        self._deleting[topic] = self._deleting.get(topic, 0) + 1
        self.acks = [ack for ack in self.acks if ack.queue[0] != topic]
        self.content_by_place = {
            place: content for place, content in self.content_by_place.items() if place[0][0] != topic
        }

    def deletion_told(self, topic: str) -> None:
        """The operator was told that a topic is deleted."""
        if self.master.broker is not None:  # else nobody can tell where in the log
            self.deleted[topic] = store_of(self.master).replicated.deletions.get(topic, 0)
            self._deleting[topic] -= 1

    def was_set_back(self, group: str, topic: str) -> None:
        """A group without members begins at the first message again."""
        reader = self.readers[group]
        reader.next = {queue: offset for queue, offset in reader.next.items() if queue[0] != topic}
        reader.bodies.clear()
        reader.redeliveries.clear()
        reader.finished.clear()

    def places_are_given_again(self) -> None:
        """An operator accepts that a new master does not know where queues end."""
        self.content_by_place.clear()
        self._tear_all()

    def promoted(self, node: BrokerView) -> None:
        """The master is about to go for good; this slave, whose log is a part of its log, takes its place."""
        store, master, end = store_of(node), store_of(self.master), 0
        for message in records(self.master, master, master.first, self._plan.file_bytes):
            if message.physical_offset + message.size <= store.end:
                end = message.physical_offset + message.size
            else:  # it has not all of this one
                self._torn_queues[message.topic, message.queue_id] = None
        if store.first:
            self._tear_all()
        self.changed_at = self._now()
        self._lose(end)
        durable = node.durable
        self.acks = [replace(ack, is_synced=ack.at < durable, holders=()) for ack in self.acks if ack.at >= store.first]
        deletions = store.replicated.deletions
        self.deleted = {topic: at for topic, at in self.deleted.items() if deletions.get(topic, 0) >= at}

    def begins_anew(self, node: BrokerView) -> None:
        """This slave, whose log does not fit, is about to get an empty directory."""
        self.acks = [replace(ack, holders=tuple(id for id in ack.holders if id != node.id)) for ack in self.acks]
        self.holdings = [holding for holding in self.holdings if holding.node is not node]

    def emptied(self) -> None:
        """The master is about to lose all that it has."""
        for node in self.nodes[1:]:
            if node.broker is not None and store_of(node).end:
                self.holdings.append(_holdings(node, self._plan.file_bytes))
        self.changed_at = self._now()
        self._lose(0)
        self.deleted = {}
        self._tear_all()


def _holdings(node: BrokerView, file_bytes: int) -> SlaveHoldings:
    broker, store = broker_of(node), store_of(node)
    durable = min(store.flushed, messages_end(node, file_bytes))
    topics, groups = set(broker.tables.topics.all), set(broker.tables.offsets.committed_offsets)
    return SlaveHoldings(node, broker, store.first, durable, log_bytes(node, store.first, store.end), topics, groups)
