"""Which consumer groups there are and what they may do (``SubscriptionGroupManager``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.rocketmq.broker.topics import is_group_name
from tallystick.rocketmq.wire.bodies import GroupTable
from tallystick.rocketmq.wire.values import DataVersion, GroupConfig
from tallystick.runtime.clock import Clock

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


MAX_AUTO_GROUP_CHARS = 255  # of a group that makes itself; those made by hand are shorter


class Groups:
    """The table; see ``Topics`` for how it changes. ``auto_create``: a group exists as soon as someone uses it.

    ``slave`` (settable): the table is the master's. A group that it lacks is served as if it had the defaults, but not
    entered: the next copy would take it out again, and the one after that, for as long as somebody uses it.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[], None],
        saved: GroupTable | None = None,
        *,
        auto_create: bool = True,
        slave: bool = False,
    ):
        self._clock, self._changed, self._auto_create, self.slave = clock, changed, auto_create, slave
        self._system = {name: GroupConfig(name, consume_broadcast_enable=True) for name in SYSTEM_GROUPS}
        self.version = saved.version if saved else DataVersion(0, clock.wall_ms(), 0)
        self._forbidden = saved.forbidden if saved else {}
        self._table: Mapping[str, GroupConfig] = self._system | (saved.groups if saved else {})

    def get(self, name: str) -> GroupConfig | None:
        """The group; where groups make themselves, it is made now (and None means that its name is no good)."""
        found = self._table.get(name)
        if found is None and self._auto_create and is_group_name(name) and len(name) <= MAX_AUTO_GROUP_CHARS:
            found = GroupConfig(name)
            if not self.slave:
                self.put(found)
        return found

    @property
    def all(self) -> Mapping[str, GroupConfig]:
        return self._table

    def table(self) -> GroupTable:
        return GroupTable(self.version, dict(self._table), self._forbidden)

    def put(self, config: GroupConfig) -> None:
        self._become({**self._table, config.name: config}, self.version.next(self._clock.wall_ms()))

    def delete(self, name: str) -> bool:
        """False: there is none."""
        if name not in self._table:
            return False
        left = {other: config for other, config in self._table.items() if other != name}
        self._become(left, self.version.next(self._clock.wall_ms()))
        return True

    def replace(self, table: GroupTable) -> None:
        """A slave's table is its master's, version and all."""
        if table.version != self.version or dict(self._table) != self._system | table.groups:
            self._forbidden = table.forbidden
            self._become(self._system | table.groups, table.version)

    def _become(self, table: Mapping[str, GroupConfig], version: DataVersion) -> None:
        self._table, self.version = table, version
        self._changed()
