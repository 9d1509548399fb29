"""The merge of a master's table of offsets into a slave's, which keeps its own commits that the master lacks (H12,
H13).

There may be a million of either, so they are merged in steps, and consumers go on committing meanwhile. Keys to which
they commit are merged once more at the end, right before the merged table is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from tallystick.rocketmq.broker.offset_keys import OffsetKeys
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire.bodies import OffsetTable

STEP_OFFSETS = 1000  # put together within a millisecond or two
STEP_CHANGED = 100  # keys that are put together again

NumbersByQueue = dict[str, dict[int, int]]  # "topic@group" to queue id to a number


class OffsetMerge:
    """One merge: run ``steps``, then ``end``. All its tables belong to the slave's table afterwards."""

    def __init__(
        self,
        table: OffsetTable,
        *,
        resets: ResetTable | None,
        slave_offsets: NumbersByQueue,
        slave_pull_offsets: NumbersByQueue,
        slave_commits: NumbersByQueue,
        slave_commit_resets: NumbersByQueue,
        slave_resets: ResetTable,
    ) -> None:
        """``table`` and ``resets`` are the master's; an original has no ``resets``. The slave's tables may change
        meanwhile."""
        self.offsets, self.pull_offsets = table.offsets, table.pull_offsets
        self.version, self.resets = table.version, resets
        self.own, self.own_resets = NumbersByQueue(), NumbersByQueue()
        self.keys, self.pull_keys = OffsetKeys(), OffsetKeys()
        self.keys_of_resets: dict[str, None] = {}  # with resets of the master, and no offset
        self.count = self.pull_count = 0
        self.changed = False  # the slave's table, in what was looked at
        self.resets_changed = False
        self._slave_offsets, self._slave_pull_offsets = slave_offsets, slave_pull_offsets
        self._slave_commits, self._slave_commit_resets = slave_commits, slave_commit_resets
        self._master_resets, self._slave_resets = resets or ResetTable(), slave_resets
        # By key with commits of ours on top: the master's queues, our offsets, and the counters that they knew.
        self._overlays: dict[str, tuple[dict[int, int] | None, dict[int, int], dict[int, int]]] = {}
        self._changed_keys: dict[str, None] = {}

    def changed_here(self, key: str) -> None:
        """A key got another commit at the slave."""
        self._changed_keys[key] = None

    def steps(self) -> Iterator[None]:
        """Merge the tables, in steps, one table after another: a long one takes a while to grow."""
        size = 0
        for key in list(self._slave_commits):
            size += 1 + len(self._slave_commits.get(key, ()))
            self._overlay(key)
            if size >= STEP_OFFSETS:
                size = 0
                yield
        for place, table in enumerate((self.own, self.own_resets)):
            for count, (key, overlay) in enumerate(self._overlays.items(), 1):
                table[key] = overlay[1:][place]
                if count % STEP_OFFSETS == 0:
                    yield
        yield from self.keys.adding(self.offsets)
        yield from self.pull_keys.adding(self.pull_offsets)
        counts: list[int] = []
        for former, merged_table in (
            (self._slave_offsets, self.offsets),
            (self._slave_pull_offsets, self.pull_offsets),
        ):
            counts.append(0)
            for key, queues in merged_table.items():
                counts[-1] += len(queues)
                self.changed = self.changed or former.get(key) != queues
                size += 1 + len(queues)
                if size >= STEP_OFFSETS:
                    size = 0
                    yield
            self.changed = self.changed or len(former) != len(merged_table)
        self.count, self.pull_count = counts
        yield from self._compare_resets()
        yield from self._find_keys_of_resets()
        while len(self._changed_keys) > STEP_CHANGED:
            self._overlay_again(list(islice(self._changed_keys, STEP_CHANGED)))
            yield

    def _compare_resets(self) -> Iterator[None]:
        if self.resets is None:
            return
        master, slave, size = self.resets, self._slave_resets, 0
        self.resets_changed = (master.floor, master.topics, master.groups) != (slave.floor, slave.topics, slave.groups)
        for after, before in ((master.counts, slave.counts), (master.pending, slave.pending)):
            self.resets_changed = self.resets_changed or len(after) != len(before)
            for key, queues in after.items():
                self.resets_changed = self.resets_changed or before.get(key) != queues
                size += 1 + len(queues)
                if size >= STEP_OFFSETS:
                    size = 0
                    yield

    def _find_keys_of_resets(self) -> Iterator[None]:
        for count, key in enumerate(chain(self._master_resets.counts, self._master_resets.pending), 1):
            if key not in self.offsets:
                self.keys_of_resets[key] = None
                self.pull_keys.add(key)
            if count % STEP_OFFSETS == 0:
                yield

    def end(self) -> dict[str, Any]:
        """Take the last step. Returns the tables that only the merge needed: free them as the slave's former ones."""
        self._overlay_again(list(self._changed_keys))
        overlays, self._overlays = self._overlays, {}
        self._slave_offsets, self._slave_pull_offsets, self._slave_commits, self._slave_commit_resets = {}, {}, {}, {}
        self._slave_resets = ResetTable()
        return overlays

    def _overlay_again(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self._changed_keys[key]
            self.count -= len(self.offsets.get(key, ()))
            self._overlay(key)
            if (overlay := self._overlays.get(key)) is not None:
                self.own[key], self.own_resets[key] = overlay[1:]
            else:
                self.own.pop(key, None)
                self.own_resets.pop(key, None)
            if key in self.offsets:
                self.keys.add(key)
                self.count += len(self.offsets[key])

    def _overlay(self, key: str) -> None:
        """Put the slave's commits that the master lacks on top of the master's queues."""
        overlay = self._overlays.pop(key, None)
        master_queues = overlay[0] if overlay is not None else self.offsets.get(key)
        lacking_offsets, counters = lacking_of(
            key, master_queues, self._master_resets, self._slave_commits, self._slave_commit_resets
        )
        self.changed = self.changed or lacking_offsets != self._slave_commits.get(key)
        if lacking_offsets:
            self._overlays[key] = master_queues, lacking_offsets, counters
            self.offsets[key] = {**(master_queues or {}), **lacking_offsets}
        elif master_queues is not None:
            self.offsets[key] = master_queues
        elif key in self.offsets:
            self.offsets[key] = {}  # its key is there already


def freeing(tables: list[dict[str, Any]]) -> Iterator[None]:
    """Let go of tables, which nobody changes any more, some entries a step, as far as nobody else has them: a million
    take a tenth of a second."""
    while tables:
        table = tables.pop()
        entries: list[Any] = []
        for count, entry in enumerate(table.items(), 1):
            entries += entry
            if count % STEP_OFFSETS == 0:
                yield
        del table
        while entries:
            del entries[-STEP_OFFSETS:]
            yield


def lacking_of(
    key: str,
    master_queues: Mapping[int, int] | None,
    resets: ResetTable,
    own: NumbersByQueue,
    own_resets: NumbersByQueue,
) -> tuple[dict[int, int], dict[int, int]]:
    """Returns a slave's own commits of a key that the master lacks, or has lower numbers for, or that went back at the
    slave; and the counters that they knew.

    Those that somebody at the master meant to undo, by its counters, are not among them.
    """
    queues, master_offsets, counters = own.get(key, {}), master_queues or {}, own_resets.get(key, {})
    is_behind = all(master_offsets.get(queue_id, -1) >= offset for queue_id, offset in queues.items())
    if is_behind and not any(counters.values()):
        return {}, {}
    step = resets.of_key(key)
    lacking_offsets = {
        queue_id: offset
        for queue_id, offset in queues.items()
        if step(queue_id) + (master_offsets.get(queue_id, -1) >= offset) <= counters.get(queue_id, 0)
    }
    return lacking_offsets, {queue_id: counters.get(queue_id, 0) for queue_id in lacking_offsets}
