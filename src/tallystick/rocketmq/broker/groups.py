"""The consumer groups of a broker and their settings (``SubscriptionGroupManager``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from itertools import islice

from tallystick.rocketmq.broker.config_table import ConfigTable, host_of
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.topics import is_group_name
from tallystick.rocketmq.wire.bodies import GroupTable
from tallystick.rocketmq.wire.registration import topic_places
from tallystick.rocketmq.wire.values import RETRY_PREFIX, GroupConfig, TopicConfig
from tallystick.runtime.clock import Clock
from tallystick.runtime.shares import share

SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

MAX_GROUPS = 10_000
LOOKED_AT = 100  # groups, where there is no room for one
MOST_A_MINUTE = 100  # idle groups that go: each has the tables saved, and all topics registered, anew
MAX_AUTO_GROUP_CHARS = 255  # of a group that makes itself; those made by hand are shorter


class Groups(ConfigTable[GroupConfig]):
    """The table: see ``ConfigTable``. ``auto_create``: a group exists as soon as someone uses it.

    A group that a slave lacks is served as if it had the defaults, but not entered: the next copy would take it out
    again, and the one after that, for as long as somebody uses it.

    ``is_idle`` (settable) says of a group that made itself whether nothing is known of it: where there is no room, such
    groups go, some of them within a minute; ``went`` hears of them.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[], None],
        saved: GroupTable | None = None,
        *,
        auto_create: bool = True,
        most: int = MAX_GROUPS,
        standing: Standing | None = None,
    ):
        system = {name: GroupConfig(name, consume_broadcast_enable=True) for name in SYSTEM_GROUPS}
        groups, version = (saved.groups, saved.version) if saved else ({}, None)
        super().__init__(
            clock,
            changed=changed,
            system=system,
            saved_entries=groups,
            version=version,
            most=most,
            standing=standing,
        )
        self._auto_create = auto_create
        self.is_idle: Callable[[str], bool] = lambda name: False
        self.went: Callable[[list[str]], None] = lambda names: None
        self._forbidden = saved.forbidden if saved else {}
        self._minute, self._in_minute = clock.now(), Counter[str]()  # how many groups went in it, by host for which

    def places(self, config: GroupConfig) -> int:
        """Returns how many places a group takes: as many as its retry and dead-letter topics take of a registration."""
        return topic_places(TopicConfig(RETRY_PREFIX + config.name))

    def get(self, name: str, peer: str) -> GroupConfig | None:
        """Returns the group; where groups make themselves, it is made now, for whoever is at ``peer`` (host:port).

        Returns None if its name is not allowed, or if there is no room for another group.
        """
        return self._table.get(name) or self.get_all([name], peer).get(name)

    def get_all(self, names: Iterable[str], peer: str) -> dict[str, GroupConfig]:
        """Returns groups by name, in one step, as ``get`` does. Groups for which that returns None are left out."""
        wanted_names = dict.fromkeys(names)
        new_names = [name for name in wanted_names if name not in self._table and _makes_itself(name)]
        new_groups = {name: GroupConfig(name) for name in new_names} if self._auto_create else {}
        if new_groups:  # else nobody counts the places of a slave's table, which is another one at each copy
            lacking_places = self.more_places(new_groups.values()) - self.room(peer)
            if lacking_places > 0 and not self._standing.is_slave:
                self._make_room(lacking_places, wanted_names, host_of(peer))
            new_groups = self._fitting(new_groups, self.room(peer))
        if new_groups and not self._standing.is_slave:
            self.put(*new_groups.values(), peer=peer)
        groups = {name: self._table.get(name) or new_groups.get(name) for name in wanted_names}
        return {name: group for name, group in groups.items() if group is not None}

    def _fitting(self, new: dict[str, GroupConfig], room: int) -> dict[str, GroupConfig]:
        """Returns the first new groups, as far as there are places."""
        fitting = {}
        for name, config in new.items():
            room -= self.places(config)
            if room < 0:
                break
            fitting[name] = config
        return fitting

    def _make_room(self, count: int, spared: Container[str], host: str) -> None:
        """Delete ``count`` idle groups that made themselves, as far as some are found soon, the oldest first; none of
        ``spared``."""
        count, idle = min(count, self._may_go(host)), list[str]()
        if not count:
            return
        for name in list(islice(self._makers, 2 * count + LOOKED_AT)):
            if len(idle) == count:
                break
            if name not in spared and self.is_idle(name):
                idle.append(name)
            else:
                self._makers[name] = self._makers.pop(name)  # another one is looked at next time
        if idle:
            self._in_minute[host] += len(idle)
            self.delete(*idle)
            self.went(idle)

    def _may_go(self, host: str) -> int:
        """Returns how many more idle groups may be deleted in this minute, for new ones of that host."""
        now = self._clock.now()
        if now - self._minute >= 60:
            self._minute, self._in_minute = now, Counter()
        return share(MOST_A_MINUTE - self._in_minute.total(), self._in_minute[host])

    def lacks_room(self, name: str, peer: str) -> bool:
        """Whether the group would make itself if there were room for another one, and none can be made."""
        may_make = self._auto_create and not self._standing.is_slave and name not in self._table and _makes_itself(name)
        lacking_places = self.places(GroupConfig(name)) - self.room(peer) if may_make else 0
        if lacking_places > 0:
            self._make_room(lacking_places, (name,), host_of(peer))
        return may_make and self.places(GroupConfig(name)) > self.room(peer)

    def to_save(self) -> GroupTable:
        """Returns the table for the file; call ``saved`` when the file has it."""
        self._saving_changes = self.changes
        return self.table()

    def table(self) -> GroupTable:
        return GroupTable(self.version, dict(self._table), self._forbidden)

    def replace(self, table: GroupTable) -> None:
        """Replace the table by the master's."""
        self._forbidden = table.forbidden
        self._copy(table.groups, table.version)


def _makes_itself(name: str) -> bool:
    return is_group_name(name) and len(name) <= MAX_AUTO_GROUP_CHARS
