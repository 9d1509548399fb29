"""A slave's table of offsets becomes its master's, but for commits of its own that the master lacks (H12, H13).

There may be a million of either, so they are put together in steps, and consumers go on committing meanwhile. Keys for
which they do so are put together once more at the end, when the whole is about to be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from tallystick.rocketmq.broker.offset_keys import OffsetKeys
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.wire.bodies import OffsetTable

STEP_OFFSETS = 1000  # put together within a millisecond or two
STEP_TOUCHED = 100  # keys that are put together again

Table = dict[str, dict[int, int]]  # "topic@group" to queue id to a number


class OffsetMerge:
    """``steps``, then ``end``. All it has belongs to the slave's table afterwards."""

    def __init__(
        self, table: OffsetTable, resets: ResetTable | None, mine: Table, my_pulled: Table, my_own: Table,
        my_own_resets: Table, my_resets: ResetTable,
    ) -> None:  # fmt: skip
        """``table`` and ``resets`` are the master's; an original has no ``resets``. The slave's go on changing."""
        self.offsets, self.pulled, self.version, self.resets = table.offsets, table.pull_offsets, table.version, resets
        self.own, self.own_resets = Table(), Table()
        self.keys, self.pulled_keys = OffsetKeys(), OffsetKeys()
        self.count = self.pulled_count = 0
        self.changed = False  # the slave's table, in what was looked at
        self.resets_changed = False
        self._mine, self._my_pulled, self._my_own, self._my_own_resets = mine, my_pulled, my_own, my_own_resets
        self._theirs, self._my_resets = resets or ResetTable(), my_resets
        # By key where ours are on top the master's queues, and ours with the counters that they knew.
        self._laid: dict[str, tuple[dict[int, int] | None, dict[int, int], dict[int, int]]] = {}
        self._touched: dict[str, None] = {}

    def touched(self, key: str) -> None:
        """There is another commit at the slave."""
        self._touched[key] = None

    def steps(self) -> Iterator[None]:
        """Changes nothing that others see. One table grows at a time: to make room in a long one takes a while."""
        size = 0
        for key in list(self._my_own):
            size += 1 + len(self._my_own.get(key, ()))
            self._lay(key)
            if size >= STEP_OFFSETS:
                size = 0
                yield
        for place, table in enumerate((self.own, self.own_resets)):
            for count, (key, laid) in enumerate(self._laid.items(), 1):
                table[key] = laid[1:][place]
                if count % STEP_OFFSETS == 0:
                    yield
        yield from self.keys.adding(self.offsets)
        yield from self.pulled_keys.adding(self.pulled)
        counts: list[int] = []
        for mine, merged in ((self._mine, self.offsets), (self._my_pulled, self.pulled)):
            counts.append(0)
            for key, queues in merged.items():
                counts[-1] += len(queues)
                self.changed = self.changed or mine.get(key) != queues
                size += 1 + len(queues)
                if size >= STEP_OFFSETS:
                    size = 0
                    yield
            self.changed = self.changed or len(mine) != len(merged)
        self.count, self.pulled_count = counts
        yield from self._comparing_resets()
        while len(self._touched) > STEP_TOUCHED:
            self._lay_again(list(islice(self._touched, STEP_TOUCHED)))
            yield

    def _comparing_resets(self) -> Iterator[None]:
        if self.resets is None:
            return
        theirs, mine, size = self.resets, self._my_resets, 0
        self.resets_changed = (theirs.floor, theirs.topics, theirs.groups) != (mine.floor, mine.topics, mine.groups)
        for after, before in ((theirs.counts, mine.counts), (theirs.waiting, mine.waiting)):
            self.resets_changed = self.resets_changed or len(after) != len(before)
            for key, queues in after.items():
                self.resets_changed = self.resets_changed or before.get(key) != queues
                size += 1 + len(queues)
                if size >= STEP_OFFSETS:
                    size = 0
                    yield

    def end(self) -> dict[str, Any]:
        """The last step; what it needed, for who frees it. The slave's are left to who frees them, too."""
        self._lay_again(list(self._touched))
        laid, self._laid = self._laid, {}
        self._mine, self._my_pulled, self._my_own, self._my_own_resets, self._my_resets = {}, {}, {}, {}, ResetTable()
        return laid

    def _lay_again(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self._touched[key]
            self.count -= len(self.offsets.get(key, ()))
            self._lay(key)
            if (laid := self._laid.get(key)) is not None:
                self.own[key], self.own_resets[key] = laid[1:]
            else:
                self.own.pop(key, None)
                self.own_resets.pop(key, None)
            if key in self.offsets:
                self.keys.add(key)
                self.count += len(self.offsets[key])

    def _lay(self, key: str) -> None:
        """On top of the master's queues those of ours that it lacks."""
        laid = self._laid.pop(key, None)
        theirs = laid[0] if laid is not None else self.offsets.get(key)
        lacking, counters = lacking_of(key, theirs, self._theirs, self._my_own, self._my_own_resets)
        self.changed = self.changed or lacking != self._my_own.get(key)
        if lacking:
            self._laid[key] = theirs, lacking, counters
            self.offsets[key] = {**(theirs or {}), **lacking}
        elif theirs is not None:
            self.offsets[key] = theirs
        elif key in self.offsets:
            self.offsets[key] = {}  # its key is known already


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
    key: str, theirs: Mapping[int, int] | None, resets: ResetTable, own: Table, own_resets: Table
) -> tuple[dict[int, int], dict[int, int]]:
    """A slave's own commits of a key that the master lacks, or has lower numbers for, or that went back at the slave;
    and the counters that they knew.

    Those that somebody at the master meant to undo, by its counters, are not among them.
    """
    queues, known, counters = own.get(key, {}), theirs or {}, own_resets.get(key, {})
    if not any(counters.values()) and all(known.get(queue_id, -1) >= offset for queue_id, offset in queues.items()):
        return {}, {}
    step = resets.of_key(key)
    lacking = {
        queue_id: offset
        for queue_id, offset in queues.items()
        if step(queue_id) + (known.get(queue_id, -1) >= offset) <= counters.get(queue_id, 0)
    }
    return lacking, {queue_id: counters.get(queue_id, 0) for queue_id in lacking}
