"""How often somebody set a group's offset in a queue on purpose: by it a stale commit is told from a later reset (H13).

What consumers committed at a slave while the master was away it is told when it is back. An operator may have set the
group back, or on, in between: then those commits are of the time before, and are not to be taken. No clock can tell,
so each reset at the master steps a counter of the group's queue, which slaves copy with the offsets. A commit at a
slave remembers the counter that it knew; the master takes it only if the two are equal.

Counters are kept in a file of ours, ``tallyResets.json``. Of topics and groups that are deleted they go too, and
``floor``, below which no counter is, steps instead: so what comes again under the same name has other counters.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tallystick.rocketmq.wire.values import Int32, Int64


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

    def step(self, key: str, queue_id: int) -> None:
        """The offset was set on purpose."""
        count = self.get(key, queue_id) + 1
        self._counts.setdefault(key, {})[queue_id] = count
        self.dirty = True

    def forget(self, keys: Iterable[str]) -> None:
        """These are deleted; commits that were made to them count no more."""
        gone = [self._counts.pop(key, {}) for key in keys]
        self._floor = 1 + max([self._floor, *(count for counts in gone for count in counts.values())])
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
