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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import field

from tallystick.rocketmq.broker.offset_keys import STEP_KEYS, OffsetKeys, split
from tallystick.rocketmq.broker.offset_merge import NumbersByQueue, OffsetMerge, freeing, lacking_of
from tallystick.rocketmq.broker.resets import ResetsCore, ResetTable
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion, Int32, Int64
from tallystick.runtime.clock import Clock

MAX_OFFSETS = 1_000_000  # a fifth of a gigabyte
STEP_TOPICS = 100  # that are gone through in a step
COMMITS_PER_VERSION = 500  # the version steps once in so many commits, as the original's does

EndOf = Callable[[str, int], int]  # topic and queue id to the offset after the last message that is here


class SavedOffsets(OffsetTable, frozen=True):
    """The content of consumerOffset.json. Members that the original does not have are written only when a slave needs
    them."""

    own: dict[str, dict[Int32, Int64]] | None = field(default=None, name="ownOffsetTable")
    own_resets: dict[str, dict[Int32, Int64]] | None = field(default=None, name="ownResetTable")


@dataclass(frozen=True)
class OffsetCommit:
    """One group's offset in one queue. ``resets`` is the counter of resets when a slave took the commit
    (``resets.py``)."""

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
        self,
        clock: Clock,
        end_of: EndOf,
        saved: SavedOffsets | None = None,
        resets: ResetTable | None = None,
        *,
        most: int = MAX_OFFSETS,
        standing: Standing | None = None,
        save_now: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock, self._end_of, self.most, self._save_now = clock, end_of, most, save_now
        self._standing = standing or Standing()
        self.version = saved.version if saved else DataVersion(0, clock.wall_ms(), 0)
        self._offsets: NumbersByQueue = saved.offsets if saved else {}
        self._pull_offsets: NumbersByQueue = saved.pull_offsets if saved else {}
        # The other keys are those of the other tables, committed or not.
        self._committed_keys, self._other_keys = OffsetKeys(self._offsets), OffsetKeys(self._pull_offsets)
        self._count, self._pull_count = (sum(map(len, table.values())) for table in (self._offsets, self._pull_offsets))
        self._merge: OffsetMerge | None = None  # under way
        self._own: NumbersByQueue = (saved.own or {}) if saved else {}
        self._own_resets: NumbersByQueue = (saved.own_resets or {}) if saved else {}
        self.take_role()
        self.resets = ResetsCore(resets)
        # The offset of a reset may not have come to the disk, when the reset had: it goes with its topic, too.
        table = self.resets.table()
        self._keys_of_resets = {key: None for key in (*table.counts, *table.pending) if key not in self._offsets}
        for key in (*self._own, *self._own_resets, *self._keys_of_resets):
            self._other_keys.add(key)
        self._commits = 0
        self.removals = self.replacements = 0  # how many keys went, and how often all did
        self.dirty = False

    def take_role(self) -> None:
        """Take up a role: a master has no commits to pass on, and copies no table."""
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
        self._note_change(key)
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
        """Returns the counter of resets; a slave's is its master's, or more if a commit went back here and the master
        has not heard of it."""
        return max(self.resets.get(key, queue_id), self._own_resets.get(key, {}).get(queue_id, 0))

    def is_beyond(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the offset is behind messages that are not here: of a topic that was made anew, or of a log that lost
        its tail; at a slave perhaps of messages that it still lacks."""
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
        """Take a commit that was made at a slave. Returns False if it is overtaken, or if there is no room. One that is
        no further on than the offset here counts as taken, unless it went back at the slave."""
        if self.is_overtaken(commit):
            return False
        key, here = commit.key, self.get(commit.topic, commit.group, commit.queue_id)
        if here is not None and self.resets.takes_over(key, commit.queue_id, commit.resets):
            self.resets.raise_to(key, commit.queue_id, commit.resets)
            self._set(key, commit.queue_id, commit.offset)
            return True
        is_behind = here is not None and here >= commit.offset
        return is_behind or self.commit(commit.topic, commit.group, commit.queue_id, commit.offset)

    def _set(self, key: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._committed_keys.add(key)
        self._count += queue_id not in queues
        queues[queue_id] = offset
        self.dirty = True

    def set_pull_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Note how far a group has pulled. It is only shown, never resumed from, and dropped where there is no room."""
        key = f"{topic}@{group}"
        if queue_id not in self._pull_offsets.get(key, {}):
            if self._pull_count >= self.most:
                return
            self._pull_count += 1
        queues = self._pull_offsets.get(key)
        if queues is None:
            queues = self._pull_offsets[key] = {}
            self._other_keys.add(key)
        queues[queue_id] = offset
        self.dirty = True

    @property
    def committed_offsets(self) -> Mapping[str, dict[int, int]]:
        """Committed offsets by ``topic@group`` and queue id, in the order in which the keys came."""
        return self._offsets

    @property
    def pull_offsets(self) -> Mapping[str, dict[int, int]]:
        return self._pull_offsets

    @property
    def keys_of_resets(self) -> Collection[str]:
        """Keys that had resets and no committed offset when the table came from the disk, or from a master: a crash had
        come between the saves of the two. What is committed since is among both."""
        return self._keys_of_resets

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def get_pull_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        return self._pull_offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def queues(self, topic: str, group: str) -> Mapping[int, int]:
        """Returns the committed offsets by queue id."""
        return self._offsets.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> list[str]:
        return sorted(self._committed_keys.topics_of(group))

    def groups_of(self, topic: str) -> list[str]:
        return sorted(self._committed_keys.groups_of(topic))

    def knows_group(self, group: str) -> bool:
        """Whether a group has committed or pulled anything."""
        return bool(self._committed_keys.topics_of(group) or self._other_keys.topics_of(group))

    def first_committed(self, most: int) -> list[str]:
        """Returns at most ``most`` keys of committed offsets, in the order of topics, then of groups."""
        return self._committed_keys.first(most)

    def forget_topic(self, topic: str, *, was_there: bool = True) -> None:
        """A topic is deleted. Commits to it that only a slave has count no more either, unless the topic was not even
        there: any client can invent a name."""
        keys = [*self._committed_keys.of_topic(topic), *self._other_keys.of_topic(topic)]
        self._forget(keys)
        if keys or was_there:
            self.resets.forget_topic(topic, keys)
            self._save_now()

    def forgetting_group(self, group: str, *, was_there: bool = True) -> Iterator[None]:
        """Forget a deleted group, as ``forget_topic``; in steps, as it may have all topics. What it commits meanwhile
        may go too."""
        keys = [*self._committed_keys.of_group(group), *self._other_keys.of_group(group)]
        for start in range(0, len(keys), STEP_KEYS):
            self._forget(keys[start : start + STEP_KEYS])
            yield
        if keys or was_there:
            self.resets.forget_group(group, keys)
            self._save_now()

    def forgetting_resets(self, group: str) -> Iterator[None]:
        """Forget the resets of a deleted group, whose offsets stay: a new group of its name does not hear of them. In
        steps."""
        keys = [*self._committed_keys.of_group(group), *self._other_keys.of_group(group)]
        for start in range(0, len(keys), STEP_KEYS):
            self.resets.pending.forget(keys[start : start + STEP_KEYS])
            yield

    def _forget(self, keys: Sequence[str]) -> None:
        self.resets.pending.forget(keys)
        for key in keys:
            self._committed_keys.discard(key)
            self._other_keys.discard(key)
            self._count -= len(self._offsets.pop(key, ()))
            self._pull_count -= len(self._pull_offsets.pop(key, ()))
            self._own.pop(key, None)
            self._own_resets.pop(key, None)
            self._keys_of_resets.pop(key, None)
            self._note_change(key)
        if keys:
            self.removals += len(keys)
            self.dirty = True

    def cut(self, *, slave: bool) -> list[OffsetCommit]:
        """The end of the log is settled: move offsets that are beyond their queues' ends back to those; a slave moves
        only its own commits. Returns them as they were. Pending resets move back as well, but a slave has its master's.
        """
        cut_commits = []
        if not slave:
            self.resets.pending.cut(self._end_of)
        for key, queues in (self._own if slave else self._offsets).items():
            topic, group = split(key)
            for queue_id, offset in queues.items():
                if offset > self._end_of(topic, queue_id):
                    cut_commits.append(OffsetCommit(topic, group, queue_id, offset))
        for commit in cut_commits:
            key, end = commit.key, self._end_of(commit.topic, commit.queue_id)
            self._set(key, commit.queue_id, end)
            if slave:
                self._own[key][commit.queue_id] = end
        return cut_commits

    # The whole table

    def table(self) -> OffsetTable:
        """Returns the table to send; it is no copy."""
        return OffsetTable(self.version, self._offsets, self._pull_offsets, self._committed_keys.group_topics())

    def to_save(self) -> SavedOffsets:
        """Returns the table for the file; it is no copy."""
        own = self._own or None
        return SavedOffsets(
            self.version,
            self._offsets,
            self._pull_offsets,
            self._committed_keys.group_topics(),
            own,
            self._own_resets if own else None,
        )

    def merge(self, table: OffsetTable, resets: ResetTable | None = None) -> OffsetMerge:
        """A slave takes its master's numbers verbatim, but for commits of its own that the master lacks: do its
        ``steps``, then ``become`` it. One that was begun before is given up.

        ``resets``: the master's counters; None: it is an original and has none. All are the slave's from now on: nobody
        else may change them.
        """
        self._merge = OffsetMerge(
            table,
            resets=resets,
            slave_offsets=self._offsets,
            slave_pull_offsets=self._pull_offsets,
            slave_commits=self._own,
            slave_commit_resets=self._own_resets,
            slave_resets=self.resets.table(),
        )
        return self._merge

    def become(self, merge: OffsetMerge) -> Iterator[None]:
        """Become the merged table, all at once. The former one is freed in the steps that this returns."""
        assert merge is self._merge
        overlays = merge.end()
        self._merge = None
        self.dirty = self.dirty or merge.changed or self.version != merge.version
        former: list[dict[str, Any]] = [overlays, self._offsets, self._pull_offsets, self._own, self._own_resets]
        if merge.resets is not None:
            before = self.resets.replace(merge.resets)
            self.resets.dirty = self.resets.dirty or merge.resets_changed
            former += [before.counts, before.pending, self._keys_of_resets]
            self._keys_of_resets = merge.keys_of_resets
        former += [*self._committed_keys.tables, *self._other_keys.tables]
        self._offsets, self._committed_keys, self._count = merge.offsets, merge.keys, merge.count
        self._pull_offsets, self._other_keys, self._pull_count = merge.pull_offsets, merge.pull_keys, merge.pull_count
        self._own, self._own_resets, self.version = merge.own, merge.own_resets, merge.version
        self.replacements += 1
        return freeing(former)

    def lacking(self, table: OffsetTable, resets: ResetTable | None = None) -> Iterator[OffsetCommit | None]:
        """Yields this slave's own commits that the master's table lacks (``lacking_of``), and None behind each key, as
        there may be a million. Commits that come meanwhile may be left out."""
        master_resets = resets or ResetTable()
        for key in list(self._own):
            queues, counters = lacking_of(key, table.offsets.get(key), master_resets, self._own, self._own_resets)
            for queue_id, offset in queues.items():
                yield OffsetCommit(*split(key), queue_id, offset, counters[queue_id])
            yield None

    def _note_change(self, key: str) -> None:
        """Tell the merge that a commit here changed a key."""
        if self._merge is not None:
            self._merge.changed_here(key)

    def disown(self, commit: OffsetCommit) -> None:
        """The master took a commit, or has no such topic or group: forget that it is the slave's own. A later commit
        stays."""
        key = commit.key
        queues = self._own.get(key, {})
        if queues.get(commit.queue_id) == commit.offset:
            self._note_change(key)
            for table in (self._own, self._own_resets):
                table.get(key, {}).pop(commit.queue_id, None)
                if not table.get(key):
                    table.pop(key, None)
            self.dirty = True

    def disowning(self, topics: Iterable[str]) -> Iterator[None]:
        """The slave heard that topics were deleted: forget what was committed of them here until then. In steps."""
        for count, topic in enumerate(topics, 1):
            for key in (*self._committed_keys.of_topic(topic), *self._other_keys.of_topic(topic)):
                if self._own.pop(key, None) is not None:
                    self._own_resets.pop(key, None)
                    self._note_change(key)
                    self.dirty = True
            if count % STEP_TOPICS == 0:
                yield
