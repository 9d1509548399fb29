"""What topics and groups have in common: configurations by name, with a version (``ConfigManager``, H12).

Every change makes a new table and a new version in one step: whoever looks sees all of the old one or all of the new
one, also while a slave takes over its master's (the original's slaves had empty tables meanwhile).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.clock import Clock


class Named(Protocol):
    """A topic's or a group's configuration."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


class ConfigTable(Generic[C]):
    """``changed`` is called after each change, when the new table stands: it saves, and for topics registers.

    ``system`` has what every broker has. ``slave`` (settable): the table is the master's; what somebody changes here
    steps the version like any change, so the next copy makes it good.
    """

    def __init__(
        self, clock: Clock, changed: Callable[[], None], system: Mapping[str, C], saved: Mapping[str, C],
        version: DataVersion | None, *, slave: bool,
    ) -> None:  # fmt: skip
        self._clock, self._changed, self.system, self.slave = clock, changed, system, slave
        self.version = version or DataVersion(0, clock.wall_ms(), 0)
        self._table: Mapping[str, C] = {**system, **saved}

    @property
    def all(self) -> Mapping[str, C]:
        """The table as it stands; it never changes, the next change makes another one."""
        return self._table

    def put(self, *configs: C) -> None:
        """Make or change entries, all in one step."""
        new = {config.name: config for config in configs}
        self._become({**self._table, **new}, self.version.next(self._clock.wall_ms()))

    def delete(self, name: str) -> bool:
        """False: there is none."""
        if name not in self._table:
            return False
        left = {other: config for other, config in self._table.items() if other != name}
        self._become(left, self.version.next(self._clock.wall_ms()))
        return True

    def _copy(self, entries: Mapping[str, C], version: DataVersion) -> None:
        """A slave's table is its master's, version and all. Its own system entries stay."""
        table = {**self.system, **entries}
        if version != self.version or self._table != table:
            self._become(table, version)

    def _become(self, table: Mapping[str, C], version: DataVersion) -> None:
        self._table, self.version = table, version
        self._changed()
