"""Which brokers there are and which queues of which topics they have: what brokers said when they registered.

A core: connections are opaque keys, time is an argument. The order of steps in ``register`` is the original's
(RouteInfoManager), because brokers of its kind depend on it:

1. the address leaves any other id it had in this broker set;
2. an id held by an address with a higher state version stays with it;
3. a broker new to its set that brings exactly one topic is refused: that is an update that came before the first table;
4. only the master, or the slave with the lowest id of a set that knows acting masters, says what the topics are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import msgspec

from tallystick.rocketmq.wire.values import (
    MASTER_ID,
    BrokerRoute,
    DataVersion,
    Perm,
    QueueRoute,
    TopicConfig,
    TopicRoute,
)

READ, WRITE = int(Perm.READ), int(Perm.WRITE)
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"  # topics by which brokers find each other: shown as they are


@dataclass(frozen=True)
class Announcement:
    """What one broker says about itself."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_s: float
    acting_master: bool | None  # None: a broker too old to know of it
    version: DataVersion
    topics: Mapping[str, TopicConfig]


@dataclass(frozen=True)
class Registered:
    """The answer: for a slave, where its master is, if there is one."""

    master_address: str | None = None
    ha_address: str | None = None


@dataclass
class _Live:
    announced: Announcement
    link: Hashable
    heard: float


@dataclass
class _BrokerSet:
    """The brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str]
    acting_master: bool

    def route(self) -> BrokerRoute:
        return BrokerRoute(self.cluster, self.name, dict(sorted(self.addresses.items())), self.acting_master)


class Routes:
    """See the module."""

    def __init__(self, *, delete_missing_topics: bool = False, acting_masters: bool = False) -> None:
        self._delete_missing, self._acting_masters = delete_missing_topics, acting_masters
        self._topics: dict[str, dict[str, QueueRoute]] = {}  # by topic and broker name
        self._sets: dict[str, _BrokerSet] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # broker names, in order of registration
        self._live: dict[tuple[str, str], _Live] = {}  # by cluster and address

    # Brokers come

    def register(self, announced: Announcement, link: Hashable, now: float) -> Registered | None:
        """None: refused (step 3 of the module's list)."""
        key = (announced.cluster, announced.address)
        self._clusters.setdefault(announced.cluster, {})[announced.name] = None
        brokers = self._sets.setdefault(announced.name, _BrokerSet(announced.cluster, announced.name, {}, False))
        brokers.acting_master = bool(announced.acting_master)
        for broker_id, address in tuple(brokers.addresses.items()):
            if address == announced.address and broker_id != announced.broker_id:
                del brokers.addresses[broker_id]
        if self._outranked(brokers, announced):
            self._live.pop(key, None)
            return Registered()
        known = announced.broker_id in brokers.addresses
        if not known and len(announced.topics) == 1:
            if not brokers.addresses:
                self._drop_set(announced.cluster, announced.name)
            return None
        brokers.addresses[announced.broker_id] = announced.address
        self._take_topics(brokers, announced, not known)
        self._live[key] = _Live(announced, link, now)
        master = self._live.get((announced.cluster, brokers.addresses.get(MASTER_ID, "")))
        if announced.broker_id == MASTER_ID or master is None:
            return Registered()
        return Registered(master.announced.address, master.announced.ha_address)

    def _outranked(self, brokers: _BrokerSet, announced: Announcement) -> bool:
        holder = brokers.addresses.get(announced.broker_id)
        if holder is None or holder == announced.address:
            return False
        live = self._live.get((announced.cluster, holder))
        return live is not None and live.announced.version.state_version > announced.version.state_version

    def _take_topics(self, brokers: _BrokerSet, announced: Announcement, first: bool) -> None:
        is_master = announced.broker_id == MASTER_ID
        is_prime_slave = announced.acting_master is not None and announced.broker_id == min(brokers.addresses)
        if not is_master and not is_prime_slave:
            return
        name = announced.name
        if self._delete_missing:
            for topic in [topic for topic, queues in self._topics.items() if name in queues]:
                if topic not in announced.topics:
                    self._drop(topic, name)
        changed = first or self.data_version(announced.cluster, announced.address) != announced.version
        allowed = ~0 if is_master or not brokers.acting_master else ~WRITE
        for topic, config in announced.topics.items():
            queues = self._topics.setdefault(topic, {})
            if changed or name not in queues:
                perm = config.perm & allowed
                queues[name] = QueueRoute(name, config.read_queues, config.write_queues, perm, config.sys_flag)

    def heartbeat(self, cluster: str, address: str, now: float) -> None:
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard = now

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """What the broker at an address registered last."""
        live = self._live.get((cluster, address))
        return live.announced.version if live is not None else None

    # Brokers go

    def unregister(self, cluster: str, name: str, address: str) -> None:
        self._live.pop((cluster, address), None)
        brokers = self._sets.get(name)
        if brokers is None:
            return
        for broker_id in [id for id, held in brokers.addresses.items() if held == address]:
            del brokers.addresses[broker_id]
        if not brokers.addresses:
            self._drop_set(cluster, name)
        elif brokers.acting_master and MASTER_ID not in brokers.addresses:
            self.set_writeable(name, False)

    def closed(self, link: Hashable) -> list[Announcement]:
        """A connection ended: unregister who came over it."""
        return self._unregister_all([live for live in self._live.values() if live.link == link])

    def expire(self, now: float) -> list[Announcement]:
        """Unregister who was silent for longer than it promised."""
        silent = [live for live in self._live.values() if now - live.heard > live.announced.timeout_s]
        return self._unregister_all(silent)

    def _unregister_all(self, gone: list[_Live]) -> list[Announcement]:
        for live in gone:
            self.unregister(live.announced.cluster, live.announced.name, live.announced.address)
        return [live.announced for live in gone]

    def _drop_set(self, cluster: str, name: str) -> None:
        del self._sets[name]
        names = self._clusters.get(cluster, {})
        names.pop(name, None)
        if not names:
            self._clusters.pop(cluster, None)
        for topic in [topic for topic, queues in self._topics.items() if name in queues]:
            self._drop(topic, name)

    def _drop(self, topic: str, name: str) -> None:
        queues = self._topics[topic]
        queues.pop(name, None)
        if not queues:
            del self._topics[topic]

    # What an operator changes

    def set_writeable(self, name: str, writeable: bool) -> int:
        """Change what all queues of a broker set allow, until its master registers a change; how many topics it has."""
        count = 0
        for queues in self._topics.values():
            queue = queues.get(name)
            if queue is not None:
                perm = READ | WRITE if writeable else queue.perm & ~WRITE
                queues[name] = msgspec.structs.replace(queue, perm=perm)
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """From all clusters or one. A broker that still has it brings it back with its next change."""
        if cluster is None:
            self._topics.pop(topic, None)
            return
        for name in self._clusters.get(cluster, ()):
            if name in self._topics.get(topic, ()):
                self._drop(topic, name)

    # Questions

    def route(self, topic: str) -> TopicRoute | None:
        queues = self._topics.get(topic, {})
        brokers = [self._sets[name].route() for name in queues if name in self._sets]
        if not brokers:
            return None
        if self._acting_masters and not topic.startswith(SYNC_MEMBER_PREFIX):
            brokers = [self._with_acting_master(broker, queues[broker.name]) for broker in brokers]
        return TopicRoute(brokers, list(queues.values()))

    @staticmethod
    def _with_acting_master(broker: BrokerRoute, queue: QueueRoute) -> BrokerRoute:
        addresses = broker.addresses
        if not broker.acting_master or MASTER_ID in addresses or not addresses or queue.perm & WRITE:
            return broker
        acting = min(addresses)
        shown = {MASTER_ID: addresses[acting]} | {id: held for id, held in addresses.items() if id != acting}
        return msgspec.structs.replace(broker, addresses=shown)

    def broker_sets(self) -> dict[str, BrokerRoute]:
        return {name: brokers.route() for name, brokers in self._sets.items()}

    def clusters(self) -> dict[str, list[str]]:
        """Names of clusters to those of their broker sets."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def members(self, name: str) -> dict[int, str]:
        """The addresses of a broker set by id; none if it is not known."""
        return self._sets[name].route().addresses if name in self._sets else {}

    def topics(self, cluster: str | None = None) -> list[str]:
        """Of all clusters or one."""
        if cluster is None:
            return list(self._topics)
        names = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)]
