"""What a master's store tells its slaves of queues, and what a slave's learns: where they end, and which topics were
deleted (rmq#8539).

A slave may have a part of the log only, so its own queues do not say it. It is noted with the queue state, for the day
on which the slave becomes a master.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from tallystick.errors import StorageError
from tallystick.rocketmq.store.appender import Appender
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.rocketmq.store.folder_names import may_be_folder
from tallystick.rocketmq.store.opening import StoreParts
from tallystick.rocketmq.store.queue_state import QueueState
from tallystick.rocketmq.store.sink_table import SinkBatch
from tallystick.rocketmq.store.upkeep import Upkeep
from tallystick.runtime.events import Events


class ReplicatedQueues:
    """Of one open store. All methods run on the loop, unless they say THREAD."""

    def __init__(self, parts: StoreParts, appender: Appender, upkeep: Upkeep, events: Events) -> None:
        self._parts, self._appender, self._upkeep, self._events = parts, appender, upkeep, events
        self._log, self._reput, self._queues = parts.log, parts.reput, parts.queues

    @property
    def next_offsets(self) -> Mapping[tuple[str, int], int]:
        """The next queue offset of each queue, in the order in which the queues came."""
        return self._appender.next_offsets

    @property
    def deletions(self) -> Mapping[str, int]:
        """The physical offset of the deletion, rising, by deleted topic."""
        return self._reput.deleted_topics.offsets

    @property
    def removals(self) -> int:
        """How many entries of ``next_offsets`` and ``deletions`` were removed, in this process."""
        return self._appender.removals + self._reput.deleted_topics.removals

    def delete(self, deletions: Mapping[str, int]) -> Deletion:
        """Delete topics, each at its physical offset: see ``MessageStore.delete_topics``."""
        deleted_topics = self._reput.deleted_topics
        deleted_topics.forget_before(self._log.first)
        deleted_topics.make_room(self._dispatched_for_good)
        deleted_topics.add(deletions)
        self._parts.sinks.forget(deletions)
        with self._reput.lock:
            detached_queues = self._queues.detach_topics(deletions)
        for topic in deletions:
            self._appender.forget(topic, self._queues.of_topic(topic))
        return Deletion(self._upkeep, self._queues, deletions, detached_queues)

    @property
    def is_full(self) -> bool:
        """Whether so many topics were deleted that the next deletion waits for a checkpoint."""
        return self._reput.deleted_topics.is_full(self._dispatched_for_good)

    def follow(self, master: str) -> None:
        """As a slave, copy the log from this process of a master from now on; empty if it did not name itself.

        Deletions that another one told of hold as far as the log's records go (H12).
        """
        with self._reput.lock:
            cut_count = self._reput.deleted_topics.follow(master, self._reput.offset)
        if cut_count:
            self._events.emit("deletions cut", topics=cut_count, end=self._reput.offset)

    def retreat(self) -> None:
        """As a slave from now on, end each queue where its last message here is: those behind it are the master's, and
        may come. What it had gone on behind as a master is noted as told, for the day on which it is one again."""
        advanced_queues = [queue for queue in self._queues if queue.end > queue.filled]
        if not advanced_queues:
            return
        ends = self._state.ends.copy()
        for queue in advanced_queues:
            ends[queue.topic, queue.queue_id] = max(queue.end, ends.get((queue.topic, queue.queue_id), 0))
        with contextlib.suppress(StorageError):  # the next batch has all of it, and none has the queues' new ends yet
            self._upkeep.note(ends=[(*queue, end) for queue, end in ends.items()])
        with self._reput.lock:
            for queue in advanced_queues:
                queue.retreat()
                self._queues.mark(queue)
        self._appender.learn({(queue.topic, queue.queue_id): queue.end for queue in advanced_queues})

    def learn_deletions(self, deletions: Mapping[str, int]) -> Deletion | None:
        """As a slave, take over which topics the master deleted, and where in the log. Returns None if all were
        known."""
        deleted_topics = self._reput.deleted_topics
        first = max(self._log.first, deleted_topics.forgotten_up_to)
        new = {topic: offset for topic, offset in deletions.items() if offset > max(first, deleted_topics.get(topic))}
        if not new:
            return None
        self._events.emit("deletions copied", topics=len(new))
        return self.delete(new)

    def learn_ends(self, ends: Mapping[tuple[str, int], int], at: int, first: int | None = None) -> None:
        """THREAD. As a slave, note where the master's queues end; all records before ``at`` count. ``first`` is where
        its log begins, None if it did not say so. Raises StorageError."""
        rows = [(*queue, end) for queue, end in ends.items() if may_be_folder(*queue)]
        self._upkeep.note(ends=rows, ends_at=at, master_first=first)

    @property
    def most_sinks(self) -> int:
        """Returns how many partitions of sinks there may be."""
        return self._parts.sinks.most

    def learn_sinks(self, rows: Iterable[SinkBatch]) -> None:
        """THREAD. As a slave, take over how far sinks have come, by messages that are here or were before its log."""
        deleted_topics = self._reput.deleted_topics
        kept = [row for row in rows if all(last.end > deleted_topics.get(row.topic) for last in row.partitions)]
        self._parts.sinks.learn(kept, self._reput.offset)

    @property
    def ends_known(self) -> bool:
        """Of a slave: whether it could be opened as a master without the ``ends_may_be_unknown`` setting."""
        return self._state.ends_known

    def lacks_beginning(self, topic: str, queue_id: int) -> bool:
        """Of a slave: whether the queue's first messages are, or may be, in a part of the master's log that it does not
        have: it was never copied, or was deleted here sooner. The master may still have what it had when it last said
        where its log begins."""
        state, first_byte = self._state, self._log.first
        master_has_more = (
            first_byte <= state.begin_offset if state.master_first is None else state.master_first < first_byte
        )
        if self._log.end and not (first_byte and master_has_more):
            return False
        queue = self._queues.find(topic, queue_id)
        if queue is not None and queue.end:
            return queue.first > 0
        if state.ends_at < state.begin_offset:  # what there was before is not known
            return True
        return state.ends.get((topic, queue_id), 0) > 0 and self._reput.deleted_topics.get(topic) < state.ends_at

    @property
    def _state(self) -> QueueState:
        state = self._parts.state.state
        assert state is not None, "a store opens with a batch"
        return state

    @property
    def _dispatched_for_good(self) -> int:
        """No start dispatches what is before this physical offset again; 0 while lost queues are built again."""
        sync_record = self._parts.sidecar.value
        return 0 if sync_record is None or not self._parts.rebuild.is_done else sync_record.dispatched
