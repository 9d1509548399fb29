"""Opening a store: the log recovered, and queues and index as ``tally-queues`` has them, unread.

::

    log recovered ─► names and sizes compared with the last batch ─► records behind it dispatched ─► ready
                                     └─► what is missing: ``Rebuild``, in the background

A store that only an original broker had has no batch: its queues and index are read once. Where there was one that is
lost, damaged or older than the log, no file of a queue is taken for whole: all is dispatched again from the log, before
the start is over, and queues go on behind the ends that their files had. A store that was a slave's and is opened as a
master's becomes one here (``promotion``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tallystick.rocketmq.store.checkpoint import CheckpointFile, mark_running, stopped_in_order
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.deleted_topics import DeletedTopics
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.notes import Notes, read_notes
from tallystick.rocketmq.store.promotion import advance, check_promotion, promote
from tallystick.rocketmq.store.queue_opening import QueueOpening
from tallystick.rocketmq.store.queue_state import Batch, QueueState, QueueStateFile
from tallystick.rocketmq.store.rebuild import Rebuild
from tallystick.rocketmq.store.recovery import LogRecovery, recover_log
from tallystick.rocketmq.store.reput import Reput
from tallystick.rocketmq.store.scan import chunks, find_record
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.sink_table import SinkTable
from tallystick.rocketmq.store.synced import SyncedFile, SyncRecord
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events

_DISPATCH_BYTES = 16 * 1024 * 1024  # at a time, so that memory is bounded
_CLOCK_SLACK_MS = 1000
_TELL_BYTES = 1024 * 1024 * 1024  # of the log: how often a long start says how far it is

COMMIT_LOG, CONSUME_QUEUES, INDEX = "commitlog", "consumequeue", "index"


@dataclass
class StoreParts:
    """The parts of an open store."""

    log: CommitLog
    queues: ConsumeQueues
    index: Index | None
    reput: Reput
    rebuild: Rebuild
    checkpoint: CheckpointFile
    sidecar: SyncedFile
    state: QueueStateFile
    sinks: SinkTable
    has_told_ends: bool  # of a master's: the next checkpoint has the queues that go on behind them


class StoreOpening:
    """``open`` does it all.

    ``slave``: what the store is opened for. It is asked for here, and not when all is open: a copy that may be no
    master's is refused before anything is marked or noted in its folder, and what power loss took of the log's
    beginning must be noted with the first batch. A slave misses those messages, for its master has them; at a master
    there are none.
    """

    def __init__(
        self, disk: Disk, directory: str, settings: StoreSettings, clock: Clock, events: Events, *, slave: bool
    ) -> None:
        self._disk, self._directory, self._settings, self._clock = disk, directory, settings, clock
        self._events, self._slave = events, slave
        self._handles = Handles(disk, settings.max_open_files)
        self._roots = {name: os.path.join(directory, name) for name in (COMMIT_LOG, CONSUME_QUEUES, INDEX)}

    def open(self) -> StoreParts:
        disk, settings = self._disk, self._settings
        for folder in self._roots.values():
            disk.makedirs(folder)
        disk.sync_dir(self._directory)
        disk.sync_dir(os.path.dirname(self._directory))
        self._clean = stopped_in_order(disk, self._directory)
        notes = read_notes(disk, self._directory, settings, self._events)
        queue_state, sidecar = notes.queue_state, notes.sidecar
        log, index, recovery = self._recover(notes)
        if self._begins_earlier(queue_state, log):
            notes = replace(notes, are_trusted=False)
        queues = ConsumeQueues(disk, self._roots[CONSUME_QUEUES], settings.consume_queue_file_units, self._handles)
        opening = QueueOpening(disk, self._roots[CONSUME_QUEUES], self._events, self._check, clean=self._clean)
        dispatch_from = opening.take_up(notes, queues, index, log, recovery, discard_after_ms=self._discard)
        told_ends = {} if self._slave else dict(queue_state.ends)
        if not self._slave:
            promote(queue_state, queues, log.end, self._events)
        if dispatch_from < log.end:  # a topic that was made anew may begin its queues again
            queue_state.ends = told_ends or queue_state.ends
        reput = Reput(log, queues, index, self._events, dispatch_from)
        queue_state.forgotten_up_to = min(queue_state.forgotten_up_to, log.end)
        reput.deleted_topics = DeletedTopics(
            queue_state.deletions, queue_state.forgotten_up_to, queue_state.deletions_told_by
        )
        rebuild = opening.rebuild(queue_state, log, queues, index, reput)
        sinks = self._sinks(notes, log)
        if sidecar.value is not None and dispatch_from < sidecar.value.dispatched:  # first: see ``Notes.are_trusted``
            sidecar.note(dispatch_from, min(sidecar.value.border, dispatch_from))
        notes.state_file.append(self._batch(queue_state, queues, index, rebuild, log, dispatch_from))
        self._blank(notes.state_file, queues)
        sidecar.note_queues(notes.state_file.durable)
        if not notes.are_trusted and notes.are_there:
            queues.remove_unknown()  # not before it is noted where they ended
        reput.last_ms = max(0, log.stored_ms(max((queue.last_physical for queue in queues), default=-1)))
        self._dispatch(reput, log.end)
        for queue in advance(told_ends, queues):
            queues.mark(queue)
        if index is not None:
            index.read_slots()
        self._compare_clock(reput.last_ms)
        self._events.emit(
            "store opened",
            directory=self._directory,
            clean=self._clean,
            first=log.first,
            end=log.end,
            dispatched_again=log.end - dispatch_from,
            queues_read=not notes.are_trusted and not notes.are_there,
        )
        state_file, checkpoint = notes.state_file, notes.checkpoint
        return StoreParts(log, queues, index, reput, rebuild, checkpoint, sidecar, state_file, sinks, bool(told_ends))

    # The log

    def _recover(self, notes: Notes) -> tuple[CommitLog, Index | None, LogRecovery]:
        """The log, and the index, of which nothing was loaded yet."""
        disk, settings, queue_state, sync_record = self._disk, self._settings, notes.queue_state, notes.sync_record
        files = FileQueue(disk, self._roots[COMMIT_LOG], settings.commit_log_file_bytes, self._handles, mapped=True)
        files.load(tail=sync_record.synced if sync_record else None, begin=sync_record.start if sync_record else 0)
        self._tell_of_missing_files(queue_state, sync_record, files)
        index = Index(disk, self._roots[INDEX], settings, self._handles) if settings.index else None
        self._discard = None if self._clean or sync_record is not None else notes.checkpoint.value.index_ms
        first_discarded = (
            index.first_discarded(self._discard) if index is not None and self._discard is not None else None
        )
        recovery = recover_log(
            disk,
            files,
            self._roots[CONSUME_QUEUES],
            settings.consume_queue_file_units * UNIT.size,
            notes.sidecar,
            notes.checkpoint.value,
            first_discarded,
            slave=self._slave,
            clean=self._clean,
            events=self._events,
        )
        if not recovery.start:
            queue_state.begin_offset = (
                0  # power loss took the log that began there, and the next one may begin anywhere
            )
        elif sync_record is not None and recovery.start > sync_record.start and self._slave:
            queue_state.begin_offset, queue_state.master_first = recovery.start, None  # or it took the first file
        self._check(queue_state)
        mark_running(disk, self._directory)
        if notes.are_trusted:
            self._finish_deletion(queue_state, files)
        return CommitLog(files, recovery.end, recovery.start, notes.sidecar), index, recovery

    def _check(self, queue_state: QueueState) -> None:
        if not self._slave:
            check_promotion(queue_state, self._settings, self._directory)

    def _tell_of_missing_files(self, queue_state: QueueState, sync_record: SyncRecord | None, files: FileQueue) -> None:
        """Retention notes where the log begins before files go. It is no damage for sure: an original broker that ran
        on this directory notes nothing, and a full disk may keep ours from it."""
        if sync_record is None or not queue_state.file_units or not files.files:
            return
        first, end = max(queue_state.log_first, sync_record.start), min(files.first, sync_record.synced)
        if first < end:
            self._events.emit(
                "log files missing",
                directory=self._roots[COMMIT_LOG],
                first=first,
                end=end,
                effect="their messages are gone: unless an original broker, or this one with a full disk, deleted the "
                "files as expired, stop it and put them back, or start it on a copy that has them",
            )

    def _finish_deletion(self, queue_state: QueueState, files: FileQueue) -> None:
        """Go on with a deletion of log files in which retention was interrupted: no queue has units of their messages
        any more. Only files that it named go, and none where older ones are there, which somebody put back: see
        ``_begins_earlier``. What follows them is there: it was durable, and a log that lacks it was refused."""
        stop = queue_state.log_first
        if 0 <= queue_state.drop_from <= files.first < stop:
            deleted_files = files.drop_before(stop)
            reason = "retention was interrupted"
            self._events.emit("files deleted", count=len(deleted_files), first=files.first, reason=reason)

    def _begins_earlier(self, queue_state: QueueState, log: CommitLog) -> bool:
        """Whether log files are there again that were gone: somebody put back what was missing, or what retention had
        deleted. The queues have no units of their messages any more."""
        earlier = log.first < queue_state.log_first <= log.end
        if earlier:
            self._events.emit(
                "log files came back",
                directory=self._roots[COMMIT_LOG],
                first=log.first,
                end=queue_state.log_first,
                effect="their messages are read again; all queues are built again from the log",
            )
        return earlier

    def _sinks(self, notes: Notes, log: CommitLog) -> SinkTable:
        """The table of sinks as the last checkpoint has it, with what the log has behind that. A table that says more
        than the log has is none: the log is read from its beginning. Only a store that knew of no sinks is not."""
        queue_state, sinks = notes.queue_state, SinkTable(self._settings)
        start = queue_state.sinks_end if notes.are_trusted else 0 if notes.are_there else -1
        if start < 0:
            start = log.end
        elif start > log.end or not notes.are_trusted or not sinks.load(queue_state.sinks.values(), log.end):
            start, sinks = log.first, SinkTable(self._settings)
        start = max(start, log.first)
        if not sinks.count:
            queue_state.sinks = {}
        queue_state.sinks_end = start
        while start < log.end:
            for chunk in chunks(log.files, start):
                sinks.dispatched(chunk.run, chunk.offset, queue_state.deletions)
                start = chunk.end
            next_record = find_record(log.files, start) if start < log.end else None
            start = log.end if next_record is None else next_record
        sinks.forget(queue_state.deletions)
        return sinks

    def _dispatch(self, reput: Reput, end: int) -> None:
        """Records that no batch noted. Their units are on the disk with the first checkpoint: to write to each of very
        many queues takes longer than all else here."""
        reput.hold, before, announced_offset = True, -1, reput.offset
        while before < reput.offset < end:
            before = reput.offset
            reput.run(end, _DISPATCH_BYTES, self._clock.wall_ms())
            if reput.offset >= announced_offset + _TELL_BYTES:
                announced_offset = reput.offset
                self._events.emit("log dispatched again", offset=announced_offset, end=end)
        reput.hold = False

    def _compare_clock(self, last_ms: int) -> None:
        behind_ms = last_ms - self._clock.wall_ms()
        if behind_ms > _CLOCK_SLACK_MS:
            self._events.emit(
                "clock behind the log",
                behind_ms=behind_ms,
                effect="messages have the store time of the last one until the clock has come so far",
            )

    def _blank(self, state_file: QueueStateFile, queues: ConsumeQueues) -> None:
        """What power loss left behind the ends of queues goes: nothing may take it for messages once the log has come
        so far. Noted when it is done."""
        state = state_file.state
        if state is not None and not state.epoch:
            for queue in queues:
                queue.blank_behind()
            self._disk.sync_all(self._roots[CONSUME_QUEUES])
            state_file.append(state.change(epoch=self._disk.epoch()))

    def _batch(
        self,
        queue_state: QueueState,
        queues: ConsumeQueues,
        index: Index | None,
        rebuild: Rebuild,
        log: CommitLog,
        dispatch_from: int,
    ) -> Batch:
        names = [file.name for file in index.lost_files()] if index is not None else []
        kept_rows = [row for name, row in (queue_state.index or {}).items() if name in names]
        return replace(
            queue_state,
            file_units=self._settings.consume_queue_file_units,
            dispatched=dispatch_from,
            log_first=log.first,
            drop_from=-1,
            holes=rebuild.holes(),
            index_holes=names,
            rebuild_offset=rebuild.offset,
            queues={row.key: row for row in [queue.row() for queue in queues]},
            index=None if index is None else {row.name: row for row in [*index.rows(), *kept_rows]},
        ).whole()
