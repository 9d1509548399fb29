"""Counters of how often a group's offset in a queue was set on purpose: they tell a stale commit from a later reset
(H13).

Commits that consumers made at a slave while the master was away are sent to it when it is back. An operator may have
set the group back, or on, in between: then those commits are older, and must not count. No clock can tell, so each
reset at the master steps a counter of the group's queue, which slaves copy with the offsets. A commit at a slave has
the counter that the slave had; the master takes it unless its own counter is higher.

A commit that goes back steps the counter as well, for a consumer goes back on purpose; a consumer of ours says so, as
the higher offset may be at a slave alone. The counter is saved with the offset, seconds later, so a master may lose a
step that its slave has copied. A commit that goes back at a slave has one more than the slave's counter. Commits at the
slave after either count all the same, though they are lower, as their counter is the higher one (``takes_over``). An
operator's reset steps to the next multiple of ``STRIDE``, beyond any number of lost steps.

Counters are kept in a file of ours, ``tallyResets.json``. When a topic or group is deleted its counters go too, and its
name is kept with a counter beyond all of them: so another one of that name has other counters, and no other group is
touched. Of very many names the older half goes, and ``floor``, the least counter of all, steps instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import field

from tallystick.rocketmq.broker.offset_keys import split
from tallystick.rocketmq.broker.pending_resets import PendingResetsCore
from tallystick.rocketmq.wire.values import Int32, Int64

STRIDE = 1 << 20
MAX_NAMES = 8192  # of deleted topics, and as many of deleted groups: a page of offsets has all of them


class ResetTable(msgspec.Struct, frozen=True):
    """The content of tallyResets.json, and the part of it in a page of offsets: counters by ``topic@group`` and queue
    id.

    ``topics`` and ``groups`` are the deleted ones, the last one last, each with the least value of its counters.
    ``pending``: the offsets to which an operator set groups, and of which consumers may not have heard.
    """

    floor: Int64 = 0
    counts: dict[str, dict[Int32, Int64]] = {}
    topics: dict[str, Int64] = {}
    groups: dict[str, Int64] = {}
    pending: dict[str, dict[Int32, Int64]] = field(default_factory=dict, name="waiting")

    def of_key(self, key: str) -> Callable[[int], int]:
        """Returns the function that gives the counter of a queue id."""
        topic, group = split(key)
        least = max(self.floor, self.topics.get(topic, 0), self.groups.get(group, 0))
        counts = self.counts.get(key)
        return (lambda queue_id: max(least, counts.get(queue_id, 0))) if counts else (lambda queue_id: least)


class ResetsCore:
    """The counters, and which commits count by them. ``dirty`` tells the saver that they differ from the last written
    text."""

    def __init__(self, saved: ResetTable | None = None) -> None:
        table = saved or ResetTable()
        self._floor, self._counts = table.floor, dict(table.counts)
        self._topics, self._groups = dict(table.topics), dict(table.groups)
        self.pending = PendingResetsCore(table.pending, self._changed, lambda *place: self.get(*place) // STRIDE)
        self.dirty = False

    def _changed(self) -> None:
        self.dirty = True

    def get(self, key: str, queue_id: int) -> int:
        return self.table().of_key(key)(queue_id)

    def stepped_since(self, key: str, queue_id: int, count: int) -> bool:
        """Whether the offset was set on purpose after the counter was ``count``."""
        return self.get(key, queue_id) > count

    def takes_over(self, key: str, queue_id: int, count: int) -> bool:
        """Whether a commit at a slave, which had the counter ``count``, went back after all resets known here.

        Only steps of consumers can be missing here: a counter that is further ahead is not believed.
        """
        return 0 < count - self.get(key, queue_id) < STRIDE

    def raise_to(self, key: str, queue_id: int, count: int) -> None:
        """Raise the counter to that of a slave whose commit was taken."""
        self._step(key, queue_id, count)

    def went_back(self, key: str, queue_id: int) -> None:
        """A commit was lower than the one before."""
        self._step(key, queue_id, self.get(key, queue_id) + 1)

    def set_on_purpose(self, key: str, queue_id: int) -> None:
        """An operator set the offset."""
        self._step(key, queue_id, _beyond(self.get(key, queue_id)))

    def _step(self, key: str, queue_id: int, count: int) -> None:
        self._counts.setdefault(key, {})[queue_id] = count
        self.dirty = True

    def forget_topic(self, topic: str, keys: Sequence[str]) -> None:
        """A topic is deleted, with these keys: earlier commits to them count no more."""
        self._forget(self._topics, topic, keys)

    def forget_group(self, group: str, keys: Sequence[str]) -> None:
        """A group is deleted: see ``forget_topic``."""
        self._forget(self._groups, group, keys)

    def _forget(self, names: dict[str, int], name: str, keys: Sequence[str]) -> None:
        highest = max(self._floor, names.pop(name, 0))
        others, place = (self._groups, 1) if names is self._topics else (self._topics, 0)
        if others:  # there may be very many keys, and mostly none of them has a counter
            highest = max([highest, *(others.get(split(key)[place], 0) for key in keys)])
        for key in keys if self._counts else ():
            if counts := self._counts.pop(key, None):
                highest = max(highest, *counts.values())
        names[name] = _beyond(highest)  # the last one of them now
        if len(names) > MAX_NAMES:
            for old in list(names)[: MAX_NAMES // 2]:
                self._floor = max(self._floor, names.pop(old))
        self.dirty = True

    def of(self, keys: Iterable[str], *, with_names: bool) -> ResetTable:
        """Returns the counters of some keys, for a slave; ``with_names``: with those of deleted topics and groups."""
        keys, pending = list(keys), self.pending.table()
        counts = {key: counts for key in keys if (counts := self._counts.get(key))}
        names = (self._topics, self._groups) if with_names else ({}, {})
        return ResetTable(self._floor, counts, *names, {key: pending[key] for key in keys if key in pending})

    def table(self) -> ResetTable:
        """Returns all counters as they are now; it is no copy."""
        return ResetTable(self._floor, self._counts, self._topics, self._groups, self.pending.table())

    def replace(self, table: ResetTable) -> ResetTable:
        """Replace the counters by the master's table, which is the slave's from now on. Returns the former ones."""
        before = self.table()
        self._floor, self._counts, self._topics, self._groups = table.floor, table.counts, table.topics, table.groups
        self.pending.replace(table.pending)
        return before


def _beyond(count: int) -> int:
    return (count // STRIDE + 1) * STRIDE
