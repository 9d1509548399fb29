"""Which brokers exist and which queues of which topics they have, as they registered them.

A core: connections are opaque keys, time is an argument. The order of steps in ``register`` is the original's
(RouteInfoManager), because brokers of its kind depend on it:

1. the address leaves any other id it had in this broker set;

2. an id held by an address with a higher state version stays with it;

3. a broker new to its set that brings exactly one topic is refused: that is an update that came before the first table;

4. only the master, or the slave with the lowest id of a set with an acting master, says what the topics are.

Strangers can register anything: brokers, topics and the length of names are bounded, the removal of a broker costs what
it had, and ``held_bytes`` counts what is held for one connection. One host has at most a quarter of all brokers and
routes; a broker whose topics are not all taken in is told how many are left out. A broker may have more topics than a
turn of a loop has time for: what goes through all of them is done in steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from tallystick.codec.steps import Steps, finished
from tallystick.rocketmq.nameserver.live_brokers import Announcement, LiveBroker, LiveBrokers
from tallystick.rocketmq.nameserver.queues import STEP_TOPICS, BrokerSet, TopicQueues
from tallystick.rocketmq.nameserver.registered_sets import RegisteredSets
from tallystick.rocketmq.wire.values import (
    MASTER_ID,
    BrokerRoute,
    DataVersion,
    Perm,
    QueueRoute,
    TopicRoute,
)

WRITE = int(Perm.WRITE)
MAX_SET_IDS = 100  # slaves of one name
MAX_NAME_CHARS = 512  # of a cluster, broker, address or topic: brokers have at most half of it
MOST_EXPIRED = 500  # brokers at once
STEP_SETS = 200  # broker sets of a route in one step: about a millisecond
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"  # topics by which brokers find each other: shown as they are


@dataclass(frozen=True)
class RegistrationOutcome:
    """The outcome of a registration, with the addresses of the master for a slave, if there is one; ``left_out`` topics
    were not taken in. ``displaced`` is the address of another living broker of the same name and id; ``begins``: it was
    not displaced before."""

    master_address: str | None = None
    ha_address: str | None = None
    left_out: int = 0
    displaced: str | None = None
    begins: bool = False


class RoutesCore:
    """See the module."""

    def __init__(
        self,
        *,
        delete_missing_topics: bool = False,
        acting_masters: bool = False,
        host_of: Callable[[Hashable], str] = str,
        later: Callable[[Steps[None]], None] = finished,
    ) -> None:
        """``host_of`` returns the host of a connection. ``later`` runs steps that no response waits for."""
        self._host_of, self._later = host_of, later
        self._delete_missing, self._acting_masters = delete_missing_topics, acting_masters
        self._queues = TopicQueues(later)
        self.sets = RegisteredSets()
        self._live = LiveBrokers(host_of)

    # Brokers come

    def register(self, announcement: Announcement, link: Hashable, now: float) -> Steps[RegistrationOutcome | None]:
        """Returns None if it is refused: step 3 of the module's list, or ``is_full``; or the broker is gone, or
        registers again, before all its topics are taken in. Each of them is there as soon as it is.

        Names are at most ``MAX_NAME_CHARS`` long. A broker that has another name now leaves the set of its old one.
        """
        key = (announcement.cluster, announcement.address)
        before = self._live.get(*key)
        if before is not None and before.announcement.name != announcement.name:
            self.unregister(announcement.cluster, before.announcement.name, announcement.address)
        if self.is_full(link, announcement):
            return None
        brokers = self.sets.enter(announcement, self._host_of(link))
        if brokers.acting_master != bool(announcement.acting_master):
            brokers.acting_master = not brokers.acting_master
            brokers.changes += 1
        for broker_id, address in tuple(brokers.addresses.items()):
            if address == announcement.address and broker_id != announcement.broker_id:
                brokers.leave(broker_id)
        if self._outranked(brokers, announcement):
            self._live.forget(*key)
            brokers.leave_displaced(announcement.address)
            return RegistrationOutcome()
        is_known = announcement.broker_id in brokers.addresses
        if not is_known and len(announcement.topics) == 1:
            if not brokers.addresses:
                self._drop_set(brokers)
            return None
        begins = brokers.place(announcement.broker_id, announcement.address)
        version = self.data_version(*key)
        live = self._live.enter(announcement, link, now)
        left_out = yield from self._take_topics(
            brokers, announcement, live, not is_known or version != announcement.version
        )
        if not self._still(brokers, live):
            return None
        live.version = announcement.version
        live.complete_at = None if left_out else (brokers, brokers.changes)
        return replace(self._outcome(brokers, announcement, left_out), begins=begins)

    def registered_again(
        self, cluster: str, address: str, digest: bytes, link: Hashable, now: float
    ) -> RegistrationOutcome | None:
        """A broker says word for word what it said last, over the same connection, and its set is as it was then.

        Returns None if that is not so: ``register`` it.
        """
        live = self._live.get(cluster, address)
        if (
            live is None
            or live.complete_at is None
            or live.link != link
            or not digest
            or live.announcement.digest != digest
        ):
            return None
        brokers, changes = live.complete_at
        if brokers.is_gone or brokers.changes != changes:
            return None
        live.last_heard = now
        return self._outcome(brokers, live.announcement, 0)

    def _outcome(self, brokers: BrokerSet, announcement: Announcement, left_out: int) -> RegistrationOutcome:
        master = self._live.get(announcement.cluster, brokers.addresses.get(MASTER_ID, ""))
        displaced = brokers.displaced.get(announcement.broker_id)
        if announcement.broker_id == MASTER_ID or master is None:
            return RegistrationOutcome(left_out=left_out, displaced=displaced)
        return RegistrationOutcome(master.announcement.address, master.announcement.ha_address, left_out, displaced)

    def is_full(self, link: Hashable, announcement: Announcement) -> bool:
        """Whether there are too many brokers, or ids of this name, for one more over this connection."""
        if self._live.get(announcement.cluster, announcement.address) is None and not self._live.has_room(link):
            return True
        brokers = self.sets.get(announcement.name)
        if brokers is None or announcement.broker_id in brokers.addresses or announcement.broker_id == MASTER_ID:
            return False
        others = sum(holder != announcement.address for id, holder in brokers.addresses.items() if id != MASTER_ID)
        return others >= MAX_SET_IDS

    def _outranked(self, brokers: BrokerSet, announcement: Announcement) -> bool:
        holder = brokers.addresses.get(announcement.broker_id)
        if holder is None or holder == announcement.address:
            return False
        live = self._live.get(announcement.cluster, holder)
        return live is not None and live.announcement.version.state_version > announcement.version.state_version

    def _take_topics(
        self, brokers: BrokerSet, announcement: Announcement, live: LiveBroker, changed: bool
    ) -> Steps[int]:
        """Take in topics. Returns for how many there was no room."""
        is_master = announcement.broker_id == MASTER_ID
        is_prime_slave = announcement.acting_master is not None and announcement.broker_id == min(brokers.addresses)
        if not is_master and not is_prime_slave:
            return 0
        self._queues.move(brokers, self._host_of(live.link))
        if self._delete_missing:
            yield from self._drop_missing(brokers, announcement, live)
        allowed_perm = ~0 if is_master or not brokers.acting_master else ~WRITE
        left_out = 0
        for count, (topic, config) in enumerate(announcement.topics.items(), 1):
            perm = config.perm & allowed_perm
            queue = QueueRoute(brokers.name, config.read_queues, config.write_queues, perm, config.sys_flag)
            was_wide = self._queues.is_wide(topic)
            fits = self._queues.take(topic, brokers, queue, changed=changed)
            left_out += not fits
            if count % STEP_TOPICS == 0 or not fits or was_wide or self._queues.is_wide(topic):
                yield
                if not self._still(brokers, live):
                    break
        return left_out

    def _drop_missing(self, brokers: BrokerSet, announcement: Announcement, live: LiveBroker) -> Steps[None]:
        for count, topic in enumerate(list(brokers.topics), 1):
            if topic in brokers.topics and topic not in announcement.topics:
                self._queues.drop(topic, brokers)
            if count % STEP_TOPICS == 0:
                yield
                if not self._still(brokers, live):
                    return

    def _still(self, brokers: BrokerSet, live: LiveBroker) -> bool:
        """Whether a registration is what it was before others had a turn."""
        announcement = live.announcement
        return not brokers.is_gone and self._live.get(announcement.cluster, announcement.address) is live

    def heartbeat(self, cluster: str, address: str, now: float) -> None:
        live = self._live.get(cluster, address)
        if live is not None:
            live.last_heard = now

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Returns the version that the broker at an address registered last; None if it is not registered."""
        live = self._live.get(cluster, address)
        return live.version if live is not None else None

    def held_bytes(self, link: Hashable) -> int:
        """Returns about what the names of a connection's brokers take; a set's topics count for its first broker."""
        size = 0
        for live in self._live.of_link(link):
            announcement = live.announcement
            names = announcement.cluster, announcement.address, announcement.name, announcement.ha_address
            size += sum(map(sys.getsizeof, names))
            brokers = self.sets.get(announcement.name)
            if brokers is not None and announcement.broker_id == min(brokers.addresses, default=None):
                size += brokers.topic_bytes
        return size

    # Brokers go

    def unregister(self, cluster: str, name: str, address: str) -> None:
        self._live.forget(cluster, address)
        brokers = self.sets.get(name)
        if brokers is None:
            return
        brokers.leave_displaced(address)
        for broker_id in [id for id, holder in brokers.addresses.items() if holder == address]:
            brokers.leave(broker_id)
        if not brokers.addresses:
            self._drop_set(brokers)
        elif brokers.acting_master and MASTER_ID not in brokers.addresses:
            self._later(_without_count(self.set_writeable(name, False)))

    def closed(self, link: Hashable) -> Iterator[Announcement]:
        """A connection ended: unregister the brokers that came over it and have not registered over another one since.

        It is done in steps, one a broker: all connections that end in one turn may have brought very many.
        """
        while (live := self._live.first_of_link(link)) is not None:
            yield self._unregister(live)

    def expire(self, now: float) -> list[Announcement]:
        """Unregister brokers that were silent for longer than they promised, ``MOST_EXPIRED`` in one call. Returns
        them."""
        silent = (live for live in self._live if now - live.last_heard > live.announcement.timeout_s)
        return [self._unregister(live) for live in list(islice(silent, MOST_EXPIRED))]

    def _unregister(self, live: LiveBroker) -> Announcement:
        announcement = live.announcement
        self.unregister(announcement.cluster, announcement.name, announcement.address)
        return announcement

    def _drop_set(self, brokers: BrokerSet) -> None:
        self.sets.remove(brokers)
        self._queues.drop_all(brokers)

    # What an operator changes

    def set_writeable(self, name: str, writeable: bool) -> Steps[int]:
        """Change the permission of all queues of a broker set, until its master registers a change. Returns how many
        topics it has."""
        brokers = self.sets.get(name)
        return (yield from self._queues.set_writeable(brokers, writeable)) if brokers is not None else 0

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Delete a topic from all clusters or one; a broker that still has it brings it back with its next change.
        Returns False if no broker had it."""
        brokers_of_topic = [brokers for brokers in self._queues.of(topic) if cluster in (None, brokers.cluster)]
        for brokers in brokers_of_topic:
            self._queues.drop(topic, brokers)
        return bool(brokers_of_topic)

    # Queries

    def route(self, topic: str) -> Steps[TopicRoute | None]:
        """Returns None if nobody has the topic. Broker sets that go meanwhile may be left out, or not."""
        shows_acting = self._acting_masters and not topic.startswith(SYNC_MEMBER_PREFIX)
        brokers_of_topic = self._queues.of(topic)
        route = TopicRoute([], [])
        for count, (brokers, queue) in enumerate(brokers_of_topic.items(), 1):
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
        addresses_shown = {MASTER_ID: addresses[acting]} | {
            id: address for id, address in addresses.items() if id != acting
        }
        return msgspec.structs.replace(broker, addresses=addresses_shown)

    @property
    def topic_count(self) -> int:
        return self._queues.topic_count

    def topics(self, cluster: str | None = None) -> Steps[list[str]]:
        """Returns the topics of all clusters or one."""
        return self._queues.names(cluster)


def _without_count(steps: Steps[int]) -> Steps[None]:
    yield from steps
