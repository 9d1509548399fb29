"""How often somebody set a group's offset in a queue on purpose: by it a stale commit is told from a later reset (H13).

What consumers committed at a slave while the master was away it is told when it is back. An operator may have set the
group back, or on, in between: then those commits are of the time before, and are not to be taken. No clock can tell,
so each reset at the master steps a counter of the group's queue, which slaves copy with the offsets. A commit at a
slave remembers the counter that it knew; the master takes it unless its own is higher.

A commit that goes back counts as well, for who goes back means it. There the counter is saved with the offset, seconds
later, so a master may lose a step that its slave has copied; what was committed at the slave after that is taken all
the same, as its counter is the higher one. An operator's reset steps to the next multiple of ``STRIDE``: it is beyond
any number of steps that were lost.

Counters are kept in a file of ours, ``tallyResets.json``. Of topics and groups that are deleted they go too, and
``floor``, below which no counter is, steps instead: so what comes again under the same name has other counters.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tallystick.rocketmq.wire.values import Int32, Int64

STRIDE = 1 << 20


class ResetTable(msgspec.Struct, frozen=True):
    """tallyResets.json, and what of it a page of offsets needs: counters by ``topic@group`` and queue id."""

    floor: Int64 = 0
    counts: dict[str, dict[Int32, Int64]] = {}


class Resets:
    """The counters. ``dirty`` tells the saver that they differ from what was last taken."""

    def __init__(self, saved: ResetTable | None = None) -> None:
        self._floor, self._counts = (saved.floor, dict(saved.counts)) if saved is not None else (0, {})
        self.dirty = False

    def get(self, key: str, queue_id: int) -> int:
        return max(self._floor, self._counts.get(key, {}).get(queue_id, 0))

    def stepped_since(self, key: str, queue_id: int, known: int) -> bool:
        """Whether the offset was set on purpose after the counter was ``known``."""
        return self.get(key, queue_id) > known

    def went_back(self, key: str, queue_id: int) -> None:
        """A commit was lower than the one before."""
        self._step(key, queue_id, self.get(key, queue_id) + 1)

    def set_on_purpose(self, key: str, queue_id: int) -> None:
        """An operator set the offset."""
        self._step(key, queue_id, _beyond(self.get(key, queue_id)))

    def _step(self, key: str, queue_id: int, count: int) -> None:
        self._counts.setdefault(key, {})[queue_id] = count
        self.dirty = True

    def forget(self, keys: Iterable[str]) -> None:
        """These are deleted; commits that were made to them count no more."""
        gone = [self._counts.pop(key, {}) for key in keys]
        self._floor = _beyond(max([self._floor, *(count for counts in gone for count in counts.values())]))
        self.dirty = True

    def of(self, keys: Iterable[str]) -> ResetTable:
        """What a slave needs to know of some keys."""
        return ResetTable(self._floor, {key: counts for key in keys if (counts := self._counts.get(key))})

    def table(self) -> ResetTable:
        """All, as it stands; not a copy."""
        return ResetTable(self._floor, self._counts)

    def replace(self, table: ResetTable) -> None:
        """By the master's. The table is the slave's from now on."""
        self.dirty = self.dirty or (table.floor, table.counts) != (self._floor, self._counts)
        self._floor, self._counts = table.floor, table.counts


def _beyond(count: int) -> int:
    return (count // STRIDE + 1) * STRIDE
