"""The broker sets that are registered, by name, and the clusters that they are in."""

from __future__ import annotations

from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.queues import BrokerSet
from tallystick.rocketmq.wire.values import MASTER_ID, BrokerRoute


class RegisteredSets:
    """A table. ``len`` counts the sets; sets and clusters are in the order in which they were registered."""

    def __init__(self) -> None:
        self._sets: dict[str, BrokerSet] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # broker names

    def __len__(self) -> int:
        return len(self._sets)

    def get(self, name: str) -> BrokerSet | None:
        return self._sets.get(name)

    def enter(self, announcement: Announcement, host: str) -> BrokerSet:
        """Returns a broker's set, which is made if it is missing. It is in the cluster that its last registration
        named."""
        brokers = self._sets.get(announcement.name)
        if brokers is None:
            brokers = self._sets[announcement.name] = BrokerSet(
                announcement.cluster, announcement.name, host, {}, False
            )
        elif brokers.cluster != announcement.cluster:
            self._leave_cluster(brokers)
            brokers.cluster = announcement.cluster
            brokers.changes += 1
        self._clusters.setdefault(announcement.cluster, {})[announcement.name] = None
        return brokers

    def remove(self, brokers: BrokerSet) -> None:
        """Remove a set that has no broker any more."""
        del self._sets[brokers.name]
        self._leave_cluster(brokers)

    def _leave_cluster(self, brokers: BrokerSet) -> None:
        names = self._clusters.get(brokers.cluster, {})
        names.pop(brokers.name, None)
        if not names:
            self._clusters.pop(brokers.cluster, None)

    def first_address(self) -> str | None:
        """Returns the address of some broker, or None if there is none."""
        first = next(iter(self._sets.values()), None)
        return first.first_address() if first is not None else None

    def routes(self) -> dict[str, BrokerRoute]:
        """Returns all sets as responses have them, by name."""
        return {name: brokers.route() for name, brokers in self._sets.items()}

    def clusters(self) -> dict[str, list[str]]:
        """Returns the names of clusters with those of their broker sets."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def members(self, name: str) -> dict[int, str]:
        """Returns the addresses of a broker set by id; it is empty for a set that is not registered."""
        return self._sets[name].route().addresses if name in self._sets else {}

    @property
    def broker_counts(self) -> tuple[int, int]:
        """How many masters and slaves are registered."""
        masters = sum(MASTER_ID in brokers.addresses for brokers in self._sets.values())
        return masters, sum(len(brokers.addresses) for brokers in self._sets.values()) - masters

    @property
    def displaced_count(self) -> int:
        """How many ids two living brokers take from each other."""
        return sum(len(brokers.displaced) for brokers in self._sets.values())
