"""What topics and groups have in common: configurations by name, with a version (``ConfigManager``, H12).

A change is one step on the loop: whoever looks sees all of it or nothing, also while a slave takes over its master's
table (the original's slaves had empty tables meanwhile).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.clock import Clock
from tallystick.runtime.shares import share


class Named(Protocol):
    """The configuration of a topic or a group."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


class ConfigTable(ABC, Generic[C]):
    """``changed`` is called after each change: to save it, and for topics to register.

    ``system`` has what every broker has. ``standing``: a slave's table is its master's; what somebody changes here
    steps the version like any change, so the next copy makes it good. ``most``: strangers and operators make no more
    entries than take so many places, one each unless they are long (``places``); a table that has more already is
    served as it is. What strangers make by using it is remembered with their host: no host gets more than
    three quarters of what others leave.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        changed: Callable[[], None],
        system: Mapping[str, C],
        saved_entries: Mapping[str, C],
        version: DataVersion | None,
        most: int,
        standing: Standing | None,
    ) -> None:
        self._clock, self._changed, self.system, self.most = clock, changed, system, most
        self._standing = standing or Standing()
        self.version = version or DataVersion(0, clock.wall_ms(), 0)
        self.changes = self.removals = 0  # of this process; how many of them took entries away
        self.fresh: dict[str, int] = {}  # by name of an entry that is not saved yet: after how many changes it was put
        self._unsaved_removal: int | None = (
            None  # after how many changes entries were taken away last; None: it is saved
        )
        self._saving_changes = 0  # how many changes are in the text that is being saved
        self._table: dict[str, C] = {**system, **saved_entries}
        # Of all entries; None: they are counted when somebody needs it, as hardly anybody does at a slave after a copy.
        self._used_places: int | None = sum(map(self.places, self._table.values()))
        self._makers: dict[str, str] = {}  # entries that a host's use made, in this process
        self._of_host: Counter[str] = Counter()  # their places

    @property
    def all(self) -> Mapping[str, C]:
        """The table as it stands now; later changes show in it."""
        return self._table

    @abstractmethod
    def places(self, config: C) -> int:
        """Returns how many of the table's places an entry takes."""

    def more_places(self, configs: Iterable[C]) -> int:
        """Returns how many more places are taken when these entries have been put."""
        after = {config.name: config for config in configs}
        before = (self._table[name] for name in after if name in self._table)
        return sum(map(self.places, after.values())) - sum(map(self.places, before))

    def room(self, peer: str | None = None) -> int:
        """Returns how many more places entries may take; with ``peer`` (host:port) those that its use may make."""
        if self._used_places is None:
            self._used_places = sum(map(self.places, self._table.values()))
        room = max(0, self.most - self._used_places)
        if peer is None or not room:
            return room
        return share(room, self._of_host[host_of(peer)])

    def put(self, *configs: C, peer: str | None = None) -> None:
        """Make or change entries, all in one step. ``peer`` is the client whose use makes them; None: an operator asked
        for them."""
        for config in configs:
            self.fresh[config.name] = self.changes
            if config.name in self._table:
                self._leave(self._table[config.name])
            if peer is not None:
                self._makers[config.name] = host_of(peer)
                self._of_host[host_of(peer)] += self.places(config)
            if self._used_places is not None:
                self._used_places += self.places(config)
            self._table[config.name] = config
        self._step(self.version.next(self._clock.wall_ms()))

    def delete(self, *names: str) -> bool:
        """Delete entries, all in one step. Returns False if there is none of them. Who asks for it again waits for the
        disk as well: until the table is saved they may come back."""
        configs = [config for name in names if (config := self._table.pop(name, None)) is not None]
        for config in configs:
            self._leave(config)
        if configs or self._unsaved_removal is not None:
            self._unsaved_removal = self.changes
            self.removals += bool(configs)
            self._step(self.version.next(self._clock.wall_ms()) if configs else self.version)
        return bool(configs)

    def _leave(self, config: C) -> None:
        """Free the places of an entry."""
        if self._used_places is not None:
            self._used_places -= self.places(config)
        host = self._makers.pop(config.name, None)
        if host is not None:
            self._of_host[host] -= self.places(config)
            if not self._of_host[host]:
                del self._of_host[host]

    def saved(self) -> None:
        """The file has the table as it was when ``to_save`` was called."""
        for name in [name for name, change in self.fresh.items() if change < self._saving_changes]:
            del self.fresh[name]
        if self._unsaved_removal is not None and self._unsaved_removal < self._saving_changes:
            self._unsaved_removal = None

    def _copy(self, entries: Mapping[str, C], version: DataVersion) -> None:
        """Replace a slave's table by its master's, version and all. Its own system entries stay."""
        table = {**self.system, **entries}
        if version != self.version or self._table != table:
            self.removals += not self._table.keys() <= table.keys()
            self._table, self._used_places = table, None
            self._step(version)

    def _step(self, version: DataVersion) -> None:
        self.version = version
        self.changes += 1
        self._changed()


def host_of(peer: str) -> str:
    return peer.rpartition(":")[0]
