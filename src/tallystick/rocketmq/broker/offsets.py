"""How far each group has consumed each queue (``ConsumerOffsetManager``).

A slave copies its master's table (H12) and serves consumers while the master is away (H3, H13). What they commit here
must not be undone by the older numbers of a master that comes back. So whatever is committed on a slave is remembered
as its ``own``, over restarts too, until the master has been told; till then the higher of the two numbers counts.

An operator may have set a group elsewhere meanwhile: see ``resets``.

A log that loses its tail gives the same queue offsets to other messages, and a group whose offset is beyond the new
end would never see those. So no offset outlives the messages before it: a master cuts its table when it has recovered
its log (``cut``), and none is taken beyond a queue's end (``is_beyond``). A slave that lags takes none there either: it
cannot know whether that was consumed at the master, or in a queue that was deleted and is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import field

from tallystick.rocketmq.broker.offset_keys import STEP_KEYS, OffsetKeys, split
from tallystick.rocketmq.broker.offset_merge import OffsetMerge, Table, freeing, lacking_of
from tallystick.rocketmq.broker.resets import Resets, ResetTable
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion, Int32, Int64
from tallystick.runtime.clock import Clock

MAX_OFFSETS = 1_000_000  # a fifth of a gigabyte
COMMITS_PER_VERSION = 500  # the version steps once in so many commits, as the original's does

EndOf = Callable[[str, int], int]  # topic and queue id to the offset after the last message that is here


class SavedOffsets(OffsetTable, frozen=True):
    """consumerOffset.json. Members that the original does not know are there only when a slave needs them."""

    own: dict[str, dict[Int32, Int64]] | None = field(default=None, name="ownOffsetTable")
    own_resets: dict[str, dict[Int32, Int64]] | None = field(default=None, name="ownResetTable")


@dataclass(frozen=True)
class OffsetCommit:
    """One group's offset in one queue; of a slave's own: ``resets`` is the counter that it knew (``resets.py``)."""

    topic: str
    group: str
    queue_id: int
    offset: int
    resets: int = 0

    @property
    def key(self) -> str:
        return f"{self.topic}@{self.group}"


class Offsets:
    """The table, in memory. ``dirty`` tells the saver that it differs from what was last taken.

    ``standing``: what is committed at a slave is to be told to the master. ``most``: groups in queues; strangers get
    no more than that, what a slave copies or a file has may be more. ``save_now`` is called when a group begins in a
    queue or goes back, and when an offset was set, or deleted, on purpose: then all is to be saved before that is
    answered.
    """

    def __init__(
        self, clock: Clock, end_of: EndOf, saved: SavedOffsets | None = None, resets: ResetTable | None = None, *,
        most: int = MAX_OFFSETS, standing: Standing | None = None, save_now: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._clock, self._end_of, self.most, self._save_now = clock, end_of, most, save_now
        self._standing = standing or Standing()
        self.version = saved.version if saved else DataVersion(0, clock.wall_ms(), 0)
        self._offsets: Table = saved.offsets if saved else {}
        self._pulled: Table = saved.pull_offsets if saved else {}
        # The other ones are the keys of the other tables, committed or not.
        self._committed, self._others = OffsetKeys(self._offsets), OffsetKeys(self._pulled)
        self._count, self._pulled_count = (sum(map(len, table.values())) for table in (self._offsets, self._pulled))
        self._merge: OffsetMerge | None = None  # under way
        self._own: Table = (saved.own or {}) if saved else {}
        self._own_resets: Table = (saved.own_resets or {}) if saved else {}
        self.take_role()
        self.resets = Resets(resets)
        # The offset of a reset may not have come to the disk, when the reset had: its key goes with its topic, too.
        for key in (*self._own, *self._own_resets, *self.resets.pending.table()):
            self._others.add(key)
        self._commits = 0
        self.removals = self.replacements = 0  # how many keys went, and how often all did
        self.dirty = False

    def take_role(self) -> None:
        """What the broker is now: a master has nobody to tell of commits, and copies no table."""
        self._merge = None
        if not self._standing.is_slave:
            self._own, self._own_resets = {}, {}

    def commit(self, topic: str, group: str, queue_id: int, offset: int, *, went_back: bool = False) -> bool:
        """Remember an offset, also a lower one than before: a group may go back on purpose. ``went_back``: its consumer
        says so, for the one before may be known to a slave alone.

        Returns False if there is no room for another group in a queue.
        """
        key = f"{topic}@{group}"
        before = self._offsets.get(key, {}).get(queue_id)
        if before is None and self._count >= self.most:
            return False
        back = went_back or (before is not None and offset < before)
        if back and not self._standing.is_slave:
            self.resets.went_back(key, queue_id)
        self._set(key, queue_id, offset)
        self._touched(key)
        if self._standing.is_slave:
            self._own.setdefault(key, {})[queue_id] = offset
            self._own_resets.setdefault(key, {})[queue_id] = self.counter(key, queue_id) + back
        self._commits += 1
        if self._commits % COMMITS_PER_VERSION == 0:
            self.version = self.version.next(self._clock.wall_ms())
        if before is None or back:  # a crash that costs this one would pass over messages: elsewhere they come again
            self._save_now()
        return True

    def counter(self, key: str, queue_id: int) -> int:
        """Of resets; a slave's is the master's, or more when one went back here and the master is to hear of it."""
        return max(self.resets.get(key, queue_id), self._own_resets.get(key, {}).get(queue_id, 0))

    def is_beyond(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the offset is behind messages that are not here: of a topic that was made anew, or of a log that lost
        its tail; at a slave perhaps of those that it still lacks."""
        return offset > self._end_of(topic, queue_id)

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Set an offset on purpose, whatever it was: what was committed at a slave before counts no more.

        Returns False if there is no room for another group in a queue.
        """
        if not self.commit(topic, group, queue_id, offset):
            return False
        self.resets.set_on_purpose(f"{topic}@{group}", queue_id)
        self._save_now()
        return True

    def is_overtaken(self, commit: OffsetCommit) -> bool:
        """Whether the offset was set on purpose since that commit was made at a slave."""
        return self.resets.stepped_since(commit.key, commit.queue_id, commit.resets)

    def take(self, commit: OffsetCommit) -> bool:
        """A commit that was made at a slave. Returns False if it is overtaken, or if there is no room; one that is not
        further on than what is known here is as good as taken, unless it went back at the slave."""
        if self.is_overtaken(commit):
            return False
        key, known = commit.key, self.get(commit.topic, commit.group, commit.queue_id)
        if known is not None and self.resets.takes_over(key, commit.queue_id, commit.resets):
            self.resets.raise_to(key, commit.queue_id, commit.resets)
            self._set(key, commit.queue_id, commit.offset)
            return True
        is_behind = known is not None and known >= commit.offset
        return is_behind or self.commit(commit.topic, commit.group, commit.queue_id, commit.offset)

    def _set(self, key: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._committed.add(key)
        self._count += queue_id not in queues
        queues[queue_id] = offset
        self.dirty = True

    def pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """How far a group has asked for messages: only shown, never resumed from, not kept where no room is left."""
        key = f"{topic}@{group}"
        if queue_id not in self._pulled.get(key, {}):
            if self._pulled_count >= self.most:
                return
            self._pulled_count += 1
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
            self._others.add(key)
        queues[queue_id] = offset
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
        return sorted(self._committed.topics_of(group))

    def groups_of(self, topic: str) -> list[str]:
        return sorted(self._committed.groups_of(topic))

    def knows_group(self, group: str) -> bool:
        """Whether it has committed, or asked for, anything."""
        return bool(self._committed.topics_of(group) or self._others.topics_of(group))

    def first_committed(self, most: int) -> list[str]:
        """So many of their keys in the order of topics, then of groups."""
        return self._committed.first(most)

    def forget_topic(self, topic: str, *, was_there: bool = True) -> None:
        """It is deleted. A slave may have commits to it of which nothing is known here: those count no more, too,
        unless the topic was not even there, as a stranger may invent it."""
        keys = [*self._committed.of_topic(topic), *self._others.of_topic(topic)]
        self._forget(keys)
        if keys or was_there:
            self.resets.forget_topic(topic, keys)
            self._save_now()

    def forgetting_group(self, group: str, *, was_there: bool = True) -> Iterator[None]:
        """As ``forget_topic``, in steps: a group may have all topics. What is committed meanwhile may go too."""
        keys = [*self._committed.of_group(group), *self._others.of_group(group)]
        for start in range(0, len(keys), STEP_KEYS):
            self._forget(keys[start : start + STEP_KEYS])
            yield
        if keys or was_there:
            self.resets.forget_group(group, keys)
            self._save_now()

    def forgetting_resets(self, group: str) -> Iterator[None]:
        """It is deleted, and keeps its offsets: nobody of its name is told of resets of before. In steps."""
        keys = [*self._committed.of_group(group), *self._others.of_group(group)]
        for start in range(0, len(keys), STEP_KEYS):
            self.resets.pending.forget(keys[start : start + STEP_KEYS])
            yield

    def _forget(self, keys: Sequence[str]) -> None:
        self.resets.pending.forget(keys)
        for key in keys:
            self._committed.discard(key)
            self._others.discard(key)
            self._count -= len(self._offsets.pop(key, ()))
            self._pulled_count -= len(self._pulled.pop(key, ()))
            self._own.pop(key, None)
            self._own_resets.pop(key, None)
            self._touched(key)
        if keys:
            self.removals += len(keys)
            self.dirty = True

    def cut(self, *, slave: bool) -> list[OffsetCommit]:
        """When the log has its end: no offset (of a slave: none of its own) is beyond its queue. What they were.

        Nor is one that operators set groups to; a slave has its master's.
        """
        before = []
        if not slave:
            self.resets.pending.cut(self._end_of)
        for key, queues in (self._own if slave else self._offsets).items():
            topic, group = split(key)
            for queue_id, offset in queues.items():
                if offset > self._end_of(topic, queue_id):
                    before.append(OffsetCommit(topic, group, queue_id, offset))
        for commit in before:
            key, end = commit.key, self._end_of(commit.topic, commit.queue_id)
            self._set(key, commit.queue_id, end)
            if slave:
                self._own[key][commit.queue_id] = end
        return before

    # The whole table

    def table(self) -> OffsetTable:
        """To send; it is no copy."""
        return OffsetTable(self.version, self._offsets, self._pulled, self._committed.group_topics())

    def to_save(self) -> SavedOffsets:
        """For the file; it is no copy."""
        own = self._own or None
        return SavedOffsets(
            self.version, self._offsets, self._pulled, self._committed.group_topics(), own,
            self._own_resets if own else None,
        )  # fmt: skip

    def merge(self, table: OffsetTable, resets: ResetTable | None = None) -> OffsetMerge:
        """A slave takes its master's numbers verbatim, but for commits of its own that the master lacks: do its
        ``steps``, then ``become`` it. One that was begun before is given up.

        ``resets``: the master's counters; None: it is an original and has none. All are the slave's from now on: nobody
        else may change them.
        """
        self._merge = OffsetMerge(
            table, resets, self._offsets, self._pulled, self._own, self._own_resets, self.resets.table()
        )
        return self._merge

    def become(self, merge: OffsetMerge) -> Iterator[None]:
        """All at once. What there was before is freed in the steps that it returns."""
        assert merge is self._merge
        laid = merge.end()
        self._merge = None
        self.dirty = self.dirty or merge.changed or self.version != merge.version
        gone: list[dict[str, Any]] = [laid, self._offsets, self._pulled, self._own, self._own_resets]
        if merge.resets is not None:
            before = self.resets.replace(merge.resets)
            self.resets.dirty = self.resets.dirty or merge.resets_changed
            gone += [before.counts, before.waiting]
        gone += [*self._committed.tables, *self._others.tables]
        self._offsets, self._committed, self._count = merge.offsets, merge.keys, merge.count
        self._pulled, self._others, self._pulled_count = merge.pulled, merge.pulled_keys, merge.pulled_count
        self._own, self._own_resets, self.version = merge.own, merge.own_resets, merge.version
        self.replacements += 1
        return freeing(gone)

    def lacking(self, table: OffsetTable, resets: ResetTable | None = None) -> Iterator[OffsetCommit | None]:
        """Which of this slave's own commits the master's table lacks (``lacking_of``), and None behind each group and
        topic: there may be a million. Those that come meanwhile may be left out."""
        theirs = resets or ResetTable()
        for key in list(self._own):
            queues, counters = lacking_of(key, table.offsets.get(key), theirs, self._own, self._own_resets)
            for queue_id, offset in queues.items():
                yield OffsetCommit(*split(key), queue_id, offset, counters[queue_id])
            yield None

    def _touched(self, key: str) -> None:
        """What is committed here of a key has changed."""
        if self._merge is not None:
            self._merge.touched(key)

    def disown(self, commit: OffsetCommit) -> None:
        """The master has been told, or has no such topic or group. A later commit to the queue is still to be told."""
        key = commit.key
        queues = self._own.get(key, {})
        if queues.get(commit.queue_id) == commit.offset:
            self._touched(key)
            for table in (self._own, self._own_resets):
                table.get(key, {}).pop(commit.queue_id, None)
                if not table.get(key):
                    table.pop(key, None)
            self.dirty = True
