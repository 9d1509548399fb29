"""How far each group has consumed each queue (``ConsumerOffsetManager``).

A slave copies its master's table (H12) and serves consumers while the master is away (H3, H13). What they commit here
meanwhile must not be undone by the master's older numbers when it comes back: such commits are remembered as ``own``
until the master has them, and win over its number while they are higher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion
from tallystick.runtime.clock import Clock

COMMITS_PER_VERSION = 500  # the version steps once in so many commits, as the original's does

Table = dict[str, dict[int, int]]  # "topic@group" to queue id to the offset of the next message


@dataclass(frozen=True)
class Commit:
    """One group's offset in one queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


class Offsets:
    """The table, in memory; ``dirty`` tells the saver that it differs from what was last taken."""

    def __init__(self, clock: Clock, saved: OffsetTable | None = None) -> None:
        self._clock = clock
        self.version = saved.version if saved else DataVersion(0, clock.wall_ms(), 0)
        self._offsets: Table = {key: dict(queues) for key, queues in saved.offsets.items()} if saved else {}
        self._pulled: Table = {key: dict(queues) for key, queues in saved.pull_offsets.items()} if saved else {}
        self._commits = 0
        self._own: dict[tuple[str, int], int] = {}
        self.dirty = False

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember an offset, also a lower one than before: a group may go back on purpose."""
        self._offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.dirty = True
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self.version = self.version.next(self._clock.wall_ms())

    def commit_alone(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """A commit on a slave whose master is away."""
        self.commit(topic, group, queue_id, offset)
        self._own[f"{topic}@{group}", queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """How far a group has asked for messages; only shown, never resumed from."""
        self._pulled.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.dirty = True

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
        for table in (self._offsets, self._pulled):
            for key in [key for key in table if gone(key)]:
                del table[key]
                self.dirty = True
        self._own = {place: offset for place, offset in self._own.items() if not gone(place[0])}

    def table(self) -> OffsetTable:
        """A copy to save or to send."""
        topics: dict[str, list[str]] = {}
        for topic, group in map(_split, self._offsets):
            topics.setdefault(group, []).append(topic)
        return OffsetTable(
            self.version,
            {key: dict(queues) for key, queues in self._offsets.items()},
            {key: dict(queues) for key, queues in self._pulled.items()},
            topics,
        )

    def replace(self, table: OffsetTable) -> None:
        """A slave takes its master's numbers verbatim, but for commits of its own that the master lacks yet."""
        self._offsets = {key: dict(queues) for key, queues in table.offsets.items()}
        self._pulled = {key: dict(queues) for key, queues in table.pull_offsets.items()}
        self.version = table.version
        self.dirty = True
        for (key, queue_id), offset in list(self._own.items()):
            queues = self._offsets.setdefault(key, {})
            if queues.get(queue_id, -1) >= offset:
                del self._own[key, queue_id]
            else:
                queues[queue_id] = offset

    def own(self) -> Iterator[Commit]:
        """What the master still has to be told."""
        for (key, queue_id), offset in self._own.items():
            topic, group = _split(key)
            yield Commit(topic, group, queue_id, offset)


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group
