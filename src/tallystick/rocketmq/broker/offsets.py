"""How far each group has consumed each queue (``ConsumerOffsetManager``).

A slave copies its master's table (H12) and serves consumers while the master is away (H3, H13). What they commit here
must not be undone by the older numbers of a master that comes back. So whatever is committed on a slave is remembered
as its ``own``, over restarts too, until the master has been told; till then the higher of the two numbers counts.

A log that loses its tail gives the same queue offsets to other messages, and a group whose offset is beyond the new
end would never see those. So no offset outlives the messages before it: a master cuts its table when it has recovered
its log (``cut``), and a slave tells of nothing beyond what it has itself: that was consumed at the master, who knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import field

from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion, Int32, Int64
from tallystick.runtime.clock import Clock

COMMITS_PER_VERSION = 500  # the version steps once in so many commits, as the original's does

Table = dict[str, dict[int, int]]  # "topic@group" to queue id to the offset of the next message
EndOf = Callable[[str, int], int]  # topic and queue id to the offset after the last message that is here


class SavedOffsets(OffsetTable, frozen=True):
    """consumerOffset.json. The member that the original does not know is there only when a slave needs it."""

    own: dict[str, dict[Int32, Int64]] | None = field(default=None, name="ownOffsetTable")


@dataclass(frozen=True)
class Commit:
    """One group's offset in one queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


class Offsets:
    """The table, in memory. ``dirty`` tells the saver that it differs from what was last taken.

    ``slave`` (settable): what is committed here is to be told to the master.
    """

    def __init__(
        self, clock: Clock, end_of: EndOf, saved: SavedOffsets | None = None, *, slave: bool = False
    ) -> None:  # fmt: skip
        self._clock, self._end_of, self.slave = clock, end_of, slave
        self.version = saved.version if saved else DataVersion(0, clock.wall_ms(), 0)
        self._offsets = _copy(saved.offsets) if saved else {}
        self._pulled = _copy(saved.pull_offsets) if saved else {}
        self._own = _copy(saved.own) if saved and saved.own and slave else {}
        self._commits = 0
        self.removals = 0  # how often keys went, so that those behind them have other places
        self.dirty = False

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember an offset, also a lower one than before: a group may go back on purpose."""
        key = f"{topic}@{group}"
        self._offsets.setdefault(key, {})[queue_id] = offset
        if self.slave:
            self._own.setdefault(key, {})[queue_id] = min(offset, self._end_of(topic, queue_id))
        self.dirty = True
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self.version = self.version.next(self._clock.wall_ms())

    def pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """How far a group has asked for messages; only shown, never resumed from."""
        self._pulled.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.dirty = True

    @property
    def committed(self) -> Mapping[str, dict[int, int]]:
        """By ``topic@group`` and queue id, in the order in which the keys came."""
        return self._offsets

    @property
    def pulled_to(self) -> Mapping[str, dict[int, int]]:
        return self._pulled

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def get_pulled(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id)

    def queues(self, topic: str, group: str) -> Mapping[int, int]:
        """Offset by queue id."""
        return self._offsets.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, other in map(_split, self._offsets) if other == group)

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for other, group in map(_split, self._offsets) if other == topic)

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda key: _split(key)[0] == topic)

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: _split(key)[1] == group)

    def _forget(self, gone: Callable[[str], bool]) -> None:
        for table in (self._offsets, self._pulled, self._own):
            for key in [key for key in table if gone(key)]:
                del table[key]
                self.dirty = True
                self.removals += 1

    def cut(self) -> list[Commit]:
        """When the log is recovered: no offset (of a slave: none of its own) is beyond its queue. What they were."""
        before = []
        for key, queues in (self._own if self.slave else self._offsets).items():
            topic, group = _split(key)
            for queue_id, offset in queues.items():
                if offset > self._end_of(topic, queue_id):
                    before.append(Commit(topic, group, queue_id, offset))
        for commit in before:
            self.commit(commit.topic, commit.group, commit.queue_id, self._end_of(commit.topic, commit.queue_id))
        return before

    # The whole table

    def table(self) -> OffsetTable:
        """A copy to send."""
        topics: dict[str, list[str]] = {}
        for topic, group in map(_split, self._offsets):
            topics.setdefault(group, []).append(topic)
        return OffsetTable(self.version, _copy(self._offsets), _copy(self._pulled), topics)

    def to_save(self) -> SavedOffsets:
        """A copy for the file."""
        table = self.table()
        own = _copy(self._own) or None
        return SavedOffsets(table.version, table.offsets, table.pull_offsets, table.group_topics, own)

    def replace(self, table: OffsetTable) -> None:
        """A slave takes its master's numbers verbatim, but for commits of its own that the master lacks.

        The table is the slave's from now on: nobody else may change it.
        """
        before = self._offsets, self._pulled, self._own, self.version
        own = self.lacking(table)
        self._own = {}
        self._offsets, self._pulled, self.version = table.offsets, table.pull_offsets, table.version
        self.removals += 1
        for commit in own:
            key = f"{commit.topic}@{commit.group}"
            self._own.setdefault(key, {})[commit.queue_id] = commit.offset
            self._offsets.setdefault(key, {})[commit.queue_id] = commit.offset
        self.dirty = self.dirty or before != (self._offsets, self._pulled, self._own, self.version)

    def lacking(self, table: OffsetTable) -> list[Commit]:
        """Which of this slave's own commits the master's table lacks, or has lower numbers for."""
        return [
            Commit(*_split(key), queue_id, offset)
            for key, queues in self._own.items()
            for queue_id, offset in queues.items()
            if table.offsets.get(key, {}).get(queue_id, -1) < offset
        ]

    def disown(self, commit: Commit) -> None:
        """The master has been told, or has no such topic or group. A later commit to the queue is still to be told."""
        key = f"{commit.topic}@{commit.group}"
        queues = self._own.get(key, {})
        if queues.get(commit.queue_id) == commit.offset:
            del queues[commit.queue_id]
            if not queues:
                del self._own[key]
            self.dirty = True


def _copy(table: Mapping[str, Mapping[int, int]]) -> Table:
    return {key: dict(queues) for key, queues in table.items()}


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
