"""The registered brokers: by address, by the connection over which they registered, and how many a host has.

Strangers can register anything, so the number of brokers is bounded: of all, over one connection, and from one host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from tallystick.rocketmq.nameserver.queues import BrokerSet, subtract
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig

MAX_BROKERS = 10_000  # that are registered at once
MAX_HOST_BROKERS = MAX_BROKERS // 4  # over connections from one host
MAX_LINK_BROKERS = 100  # over one connection: a process hosts a few

BrokerKey = tuple[str, str]  # cluster and address


@dataclass(frozen=True)
class Announcement:
    """What one broker registers: its address, its set and its topics."""

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


@dataclass(eq=False)
class LiveBroker:
    """A registered broker. ``version`` is that of the topics that are taken in; None if they never all were.

    ``complete_at``: its set, and how often that had changed when all announced topics were taken in; None if they were
    not.
    """

    announcement: Announcement
    link: Hashable
    last_heard: float
    version: DataVersion | None
    complete_at: tuple[BrokerSet, int] | None = None


class LiveBrokers:
    """The table. ``host_of`` returns the host from which a connection comes."""

    def __init__(self, host_of: Callable[[Hashable], str]) -> None:
        self._host_of = host_of
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._links: dict[Hashable, dict[BrokerKey, None]] = {}  # who came over which connection
        self._host_brokers: Counter[str] = Counter()

    def __iter__(self) -> Iterator[LiveBroker]:
        return iter(self._live.values())

    def get(self, cluster: str, address: str) -> LiveBroker | None:
        return self._live.get((cluster, address))

    def of_link(self, link: Hashable) -> list[LiveBroker]:
        """Returns the brokers that registered over a connection."""
        return [self._live[key] for key in self._links.get(link, ())]

    def first_of_link(self, link: Hashable) -> LiveBroker | None:
        keys = self._links.get(link)
        return self._live[next(iter(keys))] if keys else None

    def has_room(self, link: Hashable) -> bool:
        """Whether one more may register over this connection."""
        return (
            len(self._live) < MAX_BROKERS
            and self._host_brokers[self._host_of(link)] < MAX_HOST_BROKERS
            and len(self._links.get(link, ())) < MAX_LINK_BROKERS
        )

    def enter(self, announcement: Announcement, link: Hashable, now: float) -> LiveBroker:
        """Enter a broker, in the place of its former registration."""
        key = (announcement.cluster, announcement.address)
        self.forget(*key)
        live = self._live[key] = LiveBroker(replace(announcement, topics={}), link, now, None)
        self._links.setdefault(link, {})[key] = None
        self._host_brokers[self._host_of(link)] += 1
        return live

    def forget(self, cluster: str, address: str) -> None:
        key = (cluster, address)
        live = self._live.pop(key, None)
        if live is not None:
            keys = self._links[live.link]
            del keys[key]
            if not keys:
                del self._links[live.link]
            subtract(self._host_brokers, self._host_of(live.link), 1)
