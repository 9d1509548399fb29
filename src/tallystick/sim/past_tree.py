"""The nodes of a simulated metadata service, and what they were: a server that lags shows them as of a while ago."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tallystick.bookkeeper.metadata.memory import MemoryTree
from tallystick.bookkeeper.metadata.store import Owner, Znode
from tallystick.bookkeeper.metadata.watch import keys_of
from tallystick.runtime.clock import Clock

T = TypeVar("T")
Moment = int  # how many transactions there were


class NodeChange(NamedTuple):
    """What became of one node."""

    path: str
    before: Znode | None
    after: Znode | None


class PastTree(MemoryTree):
    """A tree whose transactions are numbered. ``on_transaction`` is settable: it hears of each at once, with its nodes
    as they were and as they are."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._times: list[float] = []  # of the transactions
        self._past: dict[str, list[tuple[Moment, Znode | None]]] = {}
        self._names: dict[str, dict[str, None]] = {}  # of all children that there ever were, by path
        self._told: dict[str, Moment] = {}  # when the watchers of a key were told last
        self.on_transaction: Callable[[Sequence[NodeChange]], None] = lambda changes: None

    @property
    def moment(self) -> Moment:
        return len(self._times)

    def transact(self, work: Callable[[], T]) -> T:
        result = super().transact(work)
        changes = [NodeChange(path, before, self.nodes.get(path)) for path, before in self._before.items()]
        self._before = {}
        if changes:
            self._times.append(self._clock.now())
        for path, before, after in changes:
            folder, _, name = path.rpartition("/")
            self._names.setdefault(folder, {})[name] = None
            self._past.setdefault(path, []).append((self.moment, after))
            self._told.update(dict.fromkeys(keys_of(path, before, after), self.moment))
        self.on_transaction(changes)
        return result

    def insert(self, path: str, data: bytes, owner: Owner | None) -> None:
        self.created += 1
        self._set(path, Znode(data, 0, self.created, self._clock.wall_ms(), owner))

    def moment_at(self, time: float) -> Moment:
        """Returns how many transactions there were by then."""
        return bisect_right(self._times, time)

    def find_at(self, path: str, moment: Moment) -> Znode | None:
        """Returns the node as it was."""
        past = self._past.get(path, [])
        place = bisect_right(past, moment, key=lambda each: each[0])
        return past[place - 1][1] if place else None

    def children_at(self, path: str, moment: Moment) -> list[str] | None:
        """Returns the names of the children that there were, sorted. Returns None if there was no node."""
        if self.find_at(path, moment) is None:
            return None
        return sorted(name for name in self._names.get(path, {}) if self.find_at(f"{path}/{name}", moment) is not None)

    def was_told(self, key: str, since: Moment) -> bool:
        """Returns whether watchers of a key were told something after a moment."""
        return self._told.get(key, 0) > since
