"""Which brokers there are and which queues of which topics they have: what brokers said when they registered.

A core: connections are opaque keys, time is an argument. The order of steps in ``register`` is the original's
(RouteInfoManager), because brokers of its kind depend on it:

1. the address leaves any other id it had in this broker set;
2. an id held by an address with a higher state version stays with it;
3. a broker new to its set that brings exactly one topic is refused: that is an update that came before the first table;
4. only the master, or the slave with the lowest id of a set that knows acting masters, says what the topics are.

Strangers can register whatever they like: brokers, topics and the length of names are bounded, a broker that goes costs
what it had, and ``held_bytes`` says what is kept for who came over one connection. One host has at most a quarter of
all brokers and routes; whose topics are not all taken in is told how many.

A broker may have more topics than a turn of a loop has time for: what goes through all of them is done in steps.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from tallystick.rocketmq.nameserver.queues import STEP_TOPICS, BrokerSet, TopicQueues, subtract
from tallystick.rocketmq.wire.steps import Steps, finished
from tallystick.rocketmq.wire.values import (
    MASTER_ID,
    BrokerRoute,
    DataVersion,
    Perm,
    QueueRoute,
    TopicConfig,
    TopicRoute,
)

WRITE = int(Perm.WRITE)
MAX_BROKERS = 10_000  # that are registered at once
MAX_HOST_BROKERS = MAX_BROKERS // 4  # over connections from one host
MAX_LINK_BROKERS = 100  # over one connection: a process hosts a few
MAX_SET_IDS = 100  # slaves of one name
MAX_NAME_CHARS = 512  # of a cluster, broker, address or topic: brokers have at most half of it
MOST_EXPIRED = 500  # brokers at once
STEP_SETS = 200  # broker sets of a route in one step: about a millisecond
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
    digest: bytes = b""  # of all that; empty: it is not known


@dataclass(frozen=True)
class Registered:
    """The answer: for a slave, where its master is, if there is one; ``left_out`` topics were not taken in.

    ``displaced``: another that lives was registered at this address by the same name and id; ``begins``: it is news.
    """

    master_address: str | None = None
    ha_address: str | None = None
    left_out: int = 0
    displaced: str | None = None
    begins: bool = False


@dataclass(eq=False)
class _Live:
    """A registered broker. ``version``: of the topics that are taken in; None: they never all were.

    ``taken``: its set, and how often that had changed when all that was announced was taken in; None: it was not all.
    """

    announced: Announcement
    link: Hashable
    heard: float
    version: DataVersion | None
    taken: tuple[BrokerSet, int] | None = None


class Routes:
    """See the module."""

    def __init__(
        self,
        *,
        delete_missing_topics: bool = False,
        acting_masters: bool = False,
        host_of: Callable[[Hashable], str] = str,
        later: Callable[[Steps[None]], None] = finished,
    ) -> None:
        """``host_of`` says from which host a connection comes. ``later`` does what nobody waits for."""
        self._host_of, self._later = host_of, later
        self._delete_missing, self._acting_masters = delete_missing_topics, acting_masters
        self._queues = TopicQueues(later)
        self._sets: dict[str, BrokerSet] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # broker names, in order of registration
        self._live: dict[tuple[str, str], _Live] = {}  # by cluster and address
        self._links: dict[Hashable, dict[tuple[str, str], None]] = {}  # who came over which connection
        self._host_brokers: Counter[str] = Counter()

    # Brokers come

    def register(self, announced: Announcement, link: Hashable, now: float) -> Steps[Registered | None]:
        """Returns None if it is refused: step 3 of the module's list, or ``is_full``; or the broker is gone, or
        registers again, before all its topics are taken in. Each of them is there as soon as it is.

        Names are at most ``MAX_NAME_CHARS`` long. A broker that has another name now leaves the set of its old one.
        """
        key = (announced.cluster, announced.address)
        before = self._live.get(key)
        if before is not None and before.announced.name != announced.name:
            self.unregister(announced.cluster, before.announced.name, announced.address)
        if self.is_full(link, announced):
            return None
        brokers = self._set_of(announced, self._host_of(link))
        if brokers.acting_master != bool(announced.acting_master):
            brokers.acting_master = not brokers.acting_master
            brokers.changes += 1
        for broker_id, address in tuple(brokers.addresses.items()):
            if address == announced.address and broker_id != announced.broker_id:
                brokers.leave(broker_id)
        if self._outranked(brokers, announced):
            self._forget(key)
            brokers.leave_displaced(announced.address)
            return Registered()
        known = announced.broker_id in brokers.addresses
        if not known and len(announced.topics) == 1:
            if not brokers.addresses:
                self._drop_set(brokers)
            return None
        begins = brokers.place(announced.broker_id, announced.address)
        version = self.data_version(*key)
        self._forget(key)
        live = self._live[key] = _Live(replace(announced, topics={}), link, now, None)
        self._links.setdefault(link, {})[key] = None
        self._host_brokers[self._host_of(link)] += 1
        left_out = yield from self._take_topics(brokers, announced, live, not known or version != announced.version)
        if not self._still(brokers, live):
            return None
        live.version = announced.version
        live.taken = None if left_out else (brokers, brokers.changes)
        return replace(self._registered(brokers, announced, left_out), begins=begins)

    def registered_again(
        self, cluster: str, address: str, digest: bytes, link: Hashable, now: float
    ) -> Registered | None:
        """A broker says word for word what it said last, over the same connection, and its set is as it was then.

        Returns None if that is not so: ``register`` it.
        """
        live = self._live.get((cluster, address))
        if live is None or live.taken is None or live.link != link or not digest or live.announced.digest != digest:
            return None
        brokers, changes = live.taken
        if brokers.is_gone or brokers.changes != changes:
            return None
        live.heard = now
        return self._registered(brokers, live.announced, 0)

    def _registered(self, brokers: BrokerSet, announced: Announcement, left_out: int) -> Registered:
        master = self._live.get((announced.cluster, brokers.addresses.get(MASTER_ID, "")))
        displaced = brokers.displaced.get(announced.broker_id)
        if announced.broker_id == MASTER_ID or master is None:
            return Registered(left_out=left_out, displaced=displaced)
        return Registered(master.announced.address, master.announced.ha_address, left_out, displaced)

    def is_full(self, link: Hashable, announced: Announcement) -> bool:
        """Whether there are too many brokers, or ids of this name, for one more over this connection."""
        host = self._host_of(link)
        if (announced.cluster, announced.address) not in self._live and (
            len(self._live) >= MAX_BROKERS
            or self._host_brokers[host] >= MAX_HOST_BROKERS
            or len(self._links.get(link, ())) >= MAX_LINK_BROKERS
        ):
            return True
        brokers = self._sets.get(announced.name)
        if brokers is None or announced.broker_id in brokers.addresses or announced.broker_id == MASTER_ID:
            return False
        others = sum(held != announced.address for id, held in brokers.addresses.items() if id != MASTER_ID)
        return others >= MAX_SET_IDS

    def _set_of(self, announced: Announcement, host: str) -> BrokerSet:
        """Its broker set, which is in the cluster that its last registration named."""
        brokers = self._sets.get(announced.name)
        if brokers is None:
            brokers = self._sets[announced.name] = BrokerSet(announced.cluster, announced.name, host, {}, False)
        elif brokers.cluster != announced.cluster:
            self._leave_cluster(brokers)
            brokers.cluster = announced.cluster
            brokers.changes += 1
        self._clusters.setdefault(announced.cluster, {})[announced.name] = None
        return brokers

    def _leave_cluster(self, brokers: BrokerSet) -> None:
        names = self._clusters.get(brokers.cluster, {})
        names.pop(brokers.name, None)
        if not names:
            self._clusters.pop(brokers.cluster, None)

    def _forget(self, key: tuple[str, str]) -> None:
        live = self._live.pop(key, None)
        if live is not None:
            keys = self._links[live.link]
            del keys[key]
            if not keys:
                del self._links[live.link]
            subtract(self._host_brokers, self._host_of(live.link), 1)

    def _outranked(self, brokers: BrokerSet, announced: Announcement) -> bool:
        holder = brokers.addresses.get(announced.broker_id)
        if holder is None or holder == announced.address:
            return False
        live = self._live.get((announced.cluster, holder))
        return live is not None and live.announced.version.state_version > announced.version.state_version

    def _take_topics(self, brokers: BrokerSet, announced: Announcement, live: _Live, changed: bool) -> Steps[int]:
        """How many of them there was no room for."""
        is_master = announced.broker_id == MASTER_ID
        is_prime_slave = announced.acting_master is not None and announced.broker_id == min(brokers.addresses)
        if not is_master and not is_prime_slave:
            return 0
        self._queues.moved(brokers, self._host_of(live.link))
        if self._delete_missing:
            yield from self._drop_missing(brokers, announced, live)
        allowed = ~0 if is_master or not brokers.acting_master else ~WRITE
        left_out = 0
        for count, (topic, config) in enumerate(announced.topics.items(), 1):
            perm = config.perm & allowed
            queue = QueueRoute(brokers.name, config.read_queues, config.write_queues, perm, config.sys_flag)
            was_wide = self._queues.is_wide(topic)
            fits = self._queues.take(topic, brokers, queue, changed=changed)
            left_out += not fits
            if count % STEP_TOPICS == 0 or not fits or was_wide or self._queues.is_wide(topic):
                yield
                if not self._still(brokers, live):
                    break
        return left_out

    def _drop_missing(self, brokers: BrokerSet, announced: Announcement, live: _Live) -> Steps[None]:
        for count, topic in enumerate(list(brokers.topics), 1):
            if topic in brokers.topics and topic not in announced.topics:
                self._queues.drop(topic, brokers)
            if count % STEP_TOPICS == 0:
                yield
                if not self._still(brokers, live):
                    return

    def _still(self, brokers: BrokerSet, live: _Live) -> bool:
        """Whether a registration is what it was before others had a turn."""
        announced = live.announced
        return not brokers.is_gone and self._live.get((announced.cluster, announced.address)) is live

    def heartbeat(self, cluster: str, address: str, now: float) -> None:
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard = now

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """What the broker at an address registered last."""
        live = self._live.get((cluster, address))
        return live.version if live is not None else None

    def held_bytes(self, link: Hashable) -> int:
        """About what names take of the brokers that came over a connection; a set's topics are its first broker's."""
        held = 0
        for key in self._links.get(link, ()):
            announced = self._live[key].announced
            held += sum(map(sys.getsizeof, (*key, announced.name, announced.ha_address)))
            brokers = self._sets.get(announced.name)
            if brokers is not None and announced.broker_id == min(brokers.addresses, default=None):
                held += brokers.topic_bytes
        return held

    # Brokers go

    def unregister(self, cluster: str, name: str, address: str) -> None:
        self._forget((cluster, address))
        brokers = self._sets.get(name)
        if brokers is None:
            return
        brokers.leave_displaced(address)
        for broker_id in [id for id, held in brokers.addresses.items() if held == address]:
            brokers.leave(broker_id)
        if not brokers.addresses:
            self._drop_set(brokers)
        elif brokers.acting_master and MASTER_ID not in brokers.addresses:
            self._later(_nobody_asked(self.set_writeable(name, False)))

    def closed(self, link: Hashable) -> list[Announcement]:
        """A connection ended: unregister who came over it."""
        return self._unregister_all([self._live[key] for key in self._links.get(link, ())])

    def expire(self, now: float) -> list[Announcement]:
        """Unregister who was silent for longer than it promised: ``MOST_EXPIRED`` of them in one call."""
        silent = (live for live in self._live.values() if now - live.heard > live.announced.timeout_s)
        return self._unregister_all(list(islice(silent, MOST_EXPIRED)))

    def _unregister_all(self, gone: list[_Live]) -> list[Announcement]:
        for live in gone:
            self.unregister(live.announced.cluster, live.announced.name, live.announced.address)
        return [live.announced for live in gone]

    def _drop_set(self, brokers: BrokerSet) -> None:
        del self._sets[brokers.name]
        self._leave_cluster(brokers)
        self._queues.drop_all(brokers)

    # What an operator changes

    def set_writeable(self, name: str, writeable: bool) -> Steps[int]:
        """Change what all queues of a broker set allow, until its master registers a change; how many topics it has."""
        brokers = self._sets.get(name)
        return (yield from self._queues.set_writeable(brokers, writeable)) if brokers is not None else 0

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """From all clusters or one. A broker that still has it brings it back with its next change. False: nobody had
        it."""
        having = [brokers for brokers in self._queues.of(topic) if cluster in (None, brokers.cluster)]
        for brokers in having:
            self._queues.drop(topic, brokers)
        return bool(having)

    # Questions

    def route(self, topic: str) -> Steps[TopicRoute | None]:
        """Returns None if nobody has the topic. Broker sets that go meanwhile may be left out, or not."""
        having, shows_acting = self._queues.of(topic), not topic.startswith(SYNC_MEMBER_PREFIX) and self._acting_masters
        route = TopicRoute([], [])
        for count, (brokers, queue) in enumerate(having.items(), 1):
            if not brokers.is_gone:
                one = brokers.route()
                route.brokers.append(self._with_acting_master(one, queue) if shows_acting else one)
                route.queues.append(queue)
            if count % STEP_SETS == 0:
                yield
        return route if route.queues else None

    @staticmethod
    def _with_acting_master(broker: BrokerRoute, queue: QueueRoute) -> BrokerRoute:
        addresses = broker.addresses
        if not broker.acting_master or MASTER_ID in addresses or not addresses or queue.perm & WRITE:
            return broker
        acting = min(addresses)
        shown = {MASTER_ID: addresses[acting]} | {id: held for id, held in addresses.items() if id != acting}
        return msgspec.structs.replace(broker, addresses=shown)

    def first_address(self) -> str | None:
        """Of some broker. Returns None if there is none."""
        first = next(iter(self._sets.values()), None)
        return first.first_address() if first is not None else None

    def broker_sets(self) -> dict[str, BrokerRoute]:
        return {name: brokers.route() for name, brokers in self._sets.items()}

    def clusters(self) -> dict[str, list[str]]:
        """Names of clusters to those of their broker sets."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def members(self, name: str) -> dict[int, str]:
        """The addresses of a broker set by id; none if it is not known."""
        return self._sets[name].route().addresses if name in self._sets else {}

    @property
    def topic_count(self) -> int:
        return self._queues.topic_count

    @property
    def set_count(self) -> int:
        return len(self._sets)

    @property
    def broker_counts(self) -> tuple[int, int]:
        """Masters and slaves."""
        masters = sum(MASTER_ID in brokers.addresses for brokers in self._sets.values())
        return masters, sum(len(brokers.addresses) for brokers in self._sets.values()) - masters

    @property
    def displaced_count(self) -> int:
        """Ids that two living brokers take from each other."""
        return sum(len(brokers.displaced) for brokers in self._sets.values())

    def topics(self, cluster: str | None = None) -> Steps[list[str]]:
        """Of all clusters or one."""
        return self._queues.names(cluster)


def _nobody_asked(steps: Steps[int]) -> Steps[None]:
    yield from steps
