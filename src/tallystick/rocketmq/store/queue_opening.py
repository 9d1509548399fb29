"""The queues and the index when a store is opened: as its last batch has them, as their files have them, or from the
log.

The first way reads no file of a queue. The second is for a store that only an original broker had; the third for one
whose notes are lost, damaged or older than its log.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queues import ConsumeQueues, remove_files
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.notes import Notes
from tallystick.rocketmq.store.queue_state import QueueState
from tallystick.rocketmq.store.rebuild import Rebuild
from tallystick.rocketmq.store.recovery import LogRecovery
from tallystick.rocketmq.store.reput import Reput
from tallystick.rocketmq.store.synced import SyncRecord
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events


class QueueOpening:
    """Call ``take_up``, and then ``rebuild`` for what is missing."""

    def __init__(
        self, disk: Disk, root: str, events: Events, check: Callable[[QueueState], None], *, clean: bool
    ) -> None:
        """``root``: of the queues' files. ``check`` raises UsageError where the store may not be what it is opened as.
        ``clean``: it was stopped in order."""
        self._disk, self._root, self._events, self._check, self._clean = disk, root, events, check, clean

    def take_up(
        self,
        notes: Notes,
        queues: ConsumeQueues,
        index: Index | None,
        log: CommitLog,
        recovery: LogRecovery,
        *,
        discard_after_ms: int | None,
    ) -> int:
        """Returns from where records are to be dispatched. ``discard_after_ms``: see ``Index.load``."""
        queue_state = notes.queue_state
        if notes.are_trusted:
            return self._adopt(queue_state, queues, index, log, min(queue_state.dispatched, log.end))
        dispatch_from = self._dispatch_from_files(
            queue_state, queues, log, recovery, repair=notes.are_there or not self._clean
        )
        if notes.are_there:
            dispatch_from = self._empty(queue_state, queues, log, notes.sync_record)
        if index is not None:
            index.load(dispatch_from, discard_after_ms=discard_after_ms)
        return dispatch_from

    # By the last batch

    def _adopt(
        self, queue_state: QueueState, queues: ConsumeQueues, index: Index | None, log: CommitLog, dispatch_from: int
    ) -> int:
        """Returns from where records are to be dispatched."""
        _forget_deleted(queue_state)
        queues.adopt(queue_state.queues.values())
        for hole in queue_state.holes:
            queues.of(hole.topic, hole.queue_id).open_hole(hole.next, hole.stop)
        power_loss = not self._clean and queue_state.epoch != self._disk.epoch()
        for queue in queues if power_loss else ():
            queue.distrust()
        interrupted = {(hole.topic, hole.queue_id) for hole in queue_state.holes}
        for queue in queues:
            if (queue.topic, queue.queue_id) not in interrupted:  # else ``Rebuild`` asks the log
                queue.learn_born()
        queues.remove_unknown()
        for queue in queues if queue_state.drop_from >= 0 else ():
            queue.remove_expired_files()
        for queue in queues:
            queue.delete_files()  # those before a lost one whose messages have expired
        for queue in queues:
            queue.forget_deleted(queue_state.deletions.get(queue.topic, 0))  # noted, but not yet what it took
        shortened_queues = [queue for queue in queues if queue.last_physical >= log.end or queue.born > log.end]
        dispatch_from = max(log.first, min([dispatch_from, *[queue.cut_behind(log.end) for queue in shortened_queues]]))
        unsettled = shortened_queues or power_loss
        queue_state.epoch = "" if unsettled else self._disk.epoch()
        for queue in queues if log.first > queue_state.log_first else shortened_queues:
            queue.forget_before(max(log.first, queue.born))
        if index is not None and queue_state.index is not None:
            index.adopt(queue_state.index, queue_state.index_holes, dispatch_from)
        elif index is not None:
            index.load(dispatch_from, discard_after_ms=None)
        return dispatch_from

    # By reading

    def _dispatch_from_files(
        self, queue_state: QueueState, queues: ConsumeQueues, log: CommitLog, recovery: LogRecovery, *, repair: bool
    ) -> int:
        """Returns from where records are to be dispatched. ``repair``: see ``ConsumeQueue.load``."""
        for hole in queue_state.holes:  # nothing else tells what is missing in the files of such a queue
            remove_files(self._disk, self._root, hole.topic, hole.queue_id)
        queues.load(recovery.dispatch_from, log, repair=repair)
        for queue in queues.detach_topics(queue_state.deletions):
            queues.delete(queue)
        for queue in queues:
            queue.forget_before(log.first)
        self._disk.sync_all(self._root)
        queue_state.epoch, queue_state.index = self._disk.epoch(), None
        queue_state.holes, queue_state.index_holes = [], []
        return recovery.dispatch_from

    # By the log

    def _empty(
        self, queue_state: QueueState, queues: ConsumeQueues, log: CommitLog, sync_record: SyncRecord | None
    ) -> int:
        """Empty all queues. Returns from where records are to be dispatched, which is the start of the log: nothing
        tells which queues lost files, or went as a whole, so their files tell where each queue goes on, and no more."""
        if (
            sync_record is not None and sync_record.start > queue_state.dispatched and not queue_state.begin_offset
        ):  # no batch saw it begin there
            was_here = any(0 <= queue.last_physical < sync_record.start for queue in queues)
            queue_state.begin_offset, queue_state.master_first = 0 if was_here else sync_record.start, None
            self._check(queue_state)
        _forget_deleted(queue_state)
        for row in queue_state.queues.values():
            queues.of(*row.key).advance(row.end)
        for queue in queues:
            queue.empty()
        return log.first

    def rebuild(
        self, queue_state: QueueState, log: CommitLog, queues: ConsumeQueues, index: Index | None, reput: Reput
    ) -> Rebuild:
        """Returns the ``Rebuild`` that makes lost units and index files again, in the background."""
        interrupted = {(hole.topic, hole.queue_id): hole for hole in queue_state.holes}
        starts = []
        for queue in queues:
            hole = interrupted.get((queue.topic, queue.queue_id))
            if queue.has_hole:
                same = hole is not None and queue.born and (hole.next, hole.stop) == (queue.hole_next, queue.hole_stop)
                starts.append(queue_state.rebuild_offset if same else queue.hole_physical())
        starts += (
            [file.lost_records.start for file in index.lost_files() if file.lost_records] if index is not None else []
        )
        start = max(log.first, min(starts, default=reput.offset))
        # Where reput begins earlier, units that are noted and lost are of later records, which it passes over.
        lasts = [queue.last_physical for queue in queues if queue.has_hole]
        lasts += (
            [file.lost_records.stop - 1 for file in index.lost_files() if file.lost_records]
            if index is not None
            else []
        )
        stop = log.end if max(lasts, default=-1) >= reput.offset else reput.offset
        return Rebuild(log, queues=queues, index=index, reput=reput, events=self._events, start=start, stop=stop)


def _forget_deleted(queue_state: QueueState) -> None:
    """Forget the queues whose last message is from before the deletion of their topic."""
    rows = [
        row for row in queue_state.queues.values() if 0 <= row.last_physical < queue_state.deletions.get(row.topic, 0)
    ]
    queue_state.forget(row.key for row in rows)
