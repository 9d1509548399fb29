"""Which topics have queues at which broker sets.

What goes through all topics is done in steps, as a set may have a quarter of a million. A set that goes takes its
topics along for everybody at once; what is kept of them goes later.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tallystick.codec.steps import Steps
from tallystick.rocketmq.wire.values import MAX_QUEUES, BrokerRoute, Perm, QueueRoute

READ, WRITE = int(Perm.READ), int(Perm.WRITE)
MAX_ROUTES = 1_000_000  # topics of broker sets: more topics than that are not taken in
MAX_HOST_ROUTES = MAX_ROUTES // 4  # that came from one host
STEP_TOPICS = 500  # in one step: about a millisecond


@dataclass(eq=False)
class BrokerSet:
    """The brokers of one name: a master and its slaves, and the topics of which it has queues.

    ``host`` is where they were registered from last. One that ``is_gone`` never comes back: another one may.
    """

    cluster: str
    name: str
    host: str
    addresses: dict[int, str]
    acting_master: bool
    topics: dict[str, bool] = field(default_factory=dict)  # True: there was no room for what was said of it last
    topic_bytes: int = 0  # of their names
    changes: int = 0  # of all but permissions
    is_gone: bool = False
    displaced: dict[int, str] = field(default_factory=dict)  # who had an id, and lives, when its holder took it

    def place(self, broker_id: int, address: str) -> bool:
        """Give an id to an address. Returns True if two living brokers begin to take it from each other."""
        was_displaced = self.displaced.get(broker_id) == address
        self.leave_displaced(address)
        holder = self.addresses.get(broker_id)
        if holder == address:
            return False
        self.addresses[broker_id] = address
        self.changes += 1
        if holder is not None:
            self.displaced[broker_id] = holder
        return holder is not None and not was_displaced

    def leave(self, broker_id: int) -> None:
        """Take an id from its holder, which displaces nobody any more."""
        del self.addresses[broker_id]
        self.displaced.pop(broker_id, None)
        self.changes += 1

    def leave_displaced(self, address: str) -> None:
        for broker_id in [id for id, holder in self.displaced.items() if holder == address]:
            del self.displaced[broker_id]

    def first_address(self) -> str | None:
        """Returns the address of its master, or of its first slave; None if it has none."""
        return self.addresses[min(self.addresses)] if self.addresses else None

    def route(self) -> BrokerRoute:
        return BrokerRoute(self.cluster, self.name, dict(sorted(self.addresses.items())), self.acting_master)


class TopicQueues:
    """The queues by topic and broker set. ``len`` counts the topics of sets that are not gone."""

    def __init__(self, later: Callable[[Steps[None]], None]) -> None:
        """``later`` runs steps that nobody waits for."""
        self._later = later
        self._topics: dict[str, dict[BrokerSet, QueueRoute]] = {}  # also of sets that are gone, until they are swept
        self._gone_sets: deque[BrokerSet] = deque()  # those
        self._queues: Counter[str] = Counter()  # of each of those topics
        self._count = 0
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._count

    @property
    def topic_count(self) -> int:
        """For a moment after a broker set went it includes the topics that were that set's alone."""
        return len(self._topics)

    def take(self, topic: str, brokers: BrokerSet, queue: QueueRoute, *, changed: bool) -> bool:
        """Put what a broker says, if that ``changed`` or was not taken yet. Returns False if there is no room.

        Of a topic with too many queues those of the sets with most of them go, or do not come, as at a client: then it
        does not matter who was first.
        """
        if not changed and not brokers.topics.get(topic, True):
            return True
        fits = min(queue.read_queues, queue.write_queues) >= 0 and (
            topic in brokers.topics or (self._count < MAX_ROUTES and self._by_host[brokers.host] < MAX_HOST_ROUTES)
        )
        if fits and queue.count > self._room_of(topic, brokers):
            self._sweep_topic(topic)
        if fits and queue.count > self._room_of(topic, brokers):
            others = {other: one.count for other, one in self.of(topic).items() if other is not brokers}
            largest = max(others, key=others.__getitem__, default=brokers)
            fits = queue.count < others.get(largest, 0)
            if fits:
                self.drop(topic, largest)
        if fits:
            self.put(topic, brokers, queue)
        elif topic in brokers.topics:
            brokers.topics[topic] = True
        return fits

    def _room_of(self, topic: str, brokers: BrokerSet) -> int:
        """Returns how many queues of a topic a set may have beside the others, with those that are not swept yet."""
        queues = self._topics.get(topic, {})
        return MAX_QUEUES - self._queues[topic] + (queues[brokers].count if brokers in queues else 0)

    def is_wide(self, topic: str) -> bool:
        """Whether to take one more broker set of the topic, or to have taken it, may be a step of its own."""
        return self._queues[topic] > MAX_QUEUES // 2

    def of(self, topic: str) -> dict[BrokerSet, QueueRoute]:
        return {brokers: queue for brokers, queue in self._topics.get(topic, {}).items() if not brokers.is_gone}

    def put(self, topic: str, brokers: BrokerSet, queue: QueueRoute) -> None:
        queues = self._topics.setdefault(topic, {})
        if brokers not in queues:
            self._count += 1
            self._by_host[brokers.host] += 1
            brokers.topic_bytes += sys.getsizeof(topic)
        else:
            subtract(self._queues, topic, queues[brokers].count)
        self._queues[topic] += queue.count
        queues[brokers] = queue
        brokers.topics[topic] = False
        brokers.changes += 1

    def drop(self, topic: str, brokers: BrokerSet) -> None:
        del brokers.topics[topic]
        brokers.topic_bytes -= sys.getsizeof(topic)
        brokers.changes += 1
        self._count -= 1
        subtract(self._by_host, brokers.host, 1)
        self._forget(topic, brokers)

    def drop_all(self, brokers: BrokerSet) -> None:
        """A broker set is gone."""
        brokers.is_gone = True
        if brokers.topics:
            self._count -= len(brokers.topics)
            subtract(self._by_host, brokers.host, len(brokers.topics))
            self._gone_sets.append(brokers)
            if len(self._gone_sets) == 1:
                self._later(self._sweep())

    def _sweep(self) -> Steps[None]:
        count = 0  # of all sets together: there may be thousands, with some topics each
        while self._gone_sets:
            brokers = self._gone_sets[0]
            for topic in brokers.topics:
                self._forget(topic, brokers)
                count += 1
                if count % STEP_TOPICS == 0:
                    yield
            self._gone_sets.popleft()

    def _sweep_topic(self, topic: str) -> None:
        """Somebody needs the room of sets that are gone now."""
        for brokers_gone in [brokers for brokers in self._topics.get(topic, ()) if brokers.is_gone]:
            self._forget(topic, brokers_gone)

    def _forget(self, topic: str, brokers: BrokerSet) -> None:
        queues = self._topics.get(topic, {})
        if brokers in queues:
            subtract(self._queues, topic, queues.pop(brokers).count)
            if not queues:
                del self._topics[topic]

    def move(self, brokers: BrokerSet, host: str) -> None:
        """Count the topics of a set at the host that registers them now, also beyond the bound."""
        if brokers.host != host:
            if brokers.topics:
                subtract(self._by_host, brokers.host, len(brokers.topics))
                self._by_host[host] += len(brokers.topics)
            brokers.host = host
            brokers.changes += 1

    def set_writeable(self, brokers: BrokerSet, writeable: bool) -> Steps[int]:
        """Change the permission of all queues of a set. Returns how many topics it has."""
        topics = list(brokers.topics)
        for count, topic in enumerate(topics, 1):
            queues = self._topics.get(topic, {})
            if brokers in queues:
                perm = READ | WRITE if writeable else queues[brokers].perm & ~WRITE
                queues[brokers] = msgspec.structs.replace(queues[brokers], perm=perm)
            if count % STEP_TOPICS == 0:
                yield
        return len(topics)

    def names(self, cluster: str | None) -> Steps[list[str]]:
        """Returns the topics of all clusters or one, but for those that come meanwhile."""
        names: list[str] = []
        for count, topic in enumerate(list(self._topics), 1):
            queues = self._topics.get(topic, ())
            if any(not brokers.is_gone and cluster in (None, brokers.cluster) for brokers in queues):
                names.append(topic)
            if count % STEP_TOPICS == 0:
                yield
        return names


def subtract(counts: Counter[str], name: str, count: int) -> None:
    """Subtract, and drop a count of 0."""
    counts[name] -= count
    if not counts[name]:
        del counts[name]
