"""One store directory: what broker and replication use of it (H8, H11).

::

    commitlog/  consumequeue/TOPIC/QUEUE/  index/  config/ (the broker's)
    checkpoint  abort  lock  tally-synced

The loop appends, dispatches (``reput``) and reads; threads flush and maintain. After each put, append and flush the
loop calls ``reput``: with SYNC_FLUSH a master's message becomes readable with the flush. Whoever opens a directory of
the real disk holds its lock first (``runtime.disk.ByteLock`` on ``checkpoint.LOCK``).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.appender import Appender
from tallystick.rocketmq.store.checkpoint import (
    Checkpoint,
    CheckpointFile,
    mark_running,
    mark_stopped,
    stopped_in_order,
)
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queue import UNIT, ConsumeQueues
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.index_file import Index
from tallystick.rocketmq.store.reads import Reads
from tallystick.rocketmq.store.recovery import recover_log
from tallystick.rocketmq.store.reput import Reput
from tallystick.rocketmq.store.retention import files_to_drop, used_percent
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.synced import SyncedFile
from tallystick.rocketmq.store.values import Arrival, Draft, Found, Put, TimeBoundary
from tallystick.rocketmq.wire.record import IndexType
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Buffer, Disk
from tallystick.runtime.events import Events

COMMIT_LOG, CONSUME_QUEUES, INDEX = "commitlog", "consumequeue", "index"
_REPUT_BYTES = 1024 * 1024
_BORDER_STEP_BYTES = 1024 * 1024
_BORDER_MARGIN_BYTES = 16 * 1024 * 1024  # how much of what is durable is checked after a start


class MessageStore:
    """Open with ``open``. All methods run on the loop, unless they say THREAD: then one call of it at a time."""

    def __init__(
        self, disk: Disk, directory: str, settings: StoreSettings, clock: Clock, events: Events,
        log: CommitLog, queues: ConsumeQueues, index: Index | None, reput: Reput,
        checkpoint: CheckpointFile, sidecar: SyncedFile,
    ) -> None:  # fmt: skip
        self._disk, self._directory, self._settings, self._clock, self._events = (
            disk,
            directory,
            settings,
            clock,
            events,
        )
        self._log, self._queues, self._index, self._reput = log, queues, index, reput
        self._checkpoint, self._sidecar = checkpoint, sidecar
        self._appender = Appender(log, settings)
        self._appender.next_offsets.update({(q.topic, q.queue_id): q.end for q in queues if q.end})
        self._reads = Reads(log, queues, index, settings)
        self._borders = deque([reput.offset])  # where records begin, about a step apart
        self.slave = False  # settable: a slave dispatches all it has, and leaves the offsets of its readers alone
        self.disk_full = False
        self.disk_used_percent = 0.0

    @classmethod
    def open(cls, disk: Disk, directory: str, settings: StoreSettings, clock: Clock, events: Events) -> MessageStore:
        """Load, recover, dispatch what is not dispatched. May take seconds after a crash.

        Raises CorruptRecord for damage (it names file and offset), UsageError when the settings do not fit the files.
        """
        folders = {name: os.path.join(directory, name) for name in (COMMIT_LOG, CONSUME_QUEUES, INDEX)}
        for folder in folders.values():
            disk.makedirs(folder)
        disk.sync_dir(directory)
        disk.sync_dir(os.path.dirname(directory))
        clean = stopped_in_order(disk, directory)
        sidecar, checkpoint = SyncedFile(disk, directory), CheckpointFile(disk, directory)
        ours = sidecar.value is not None
        handles = Handles(disk, settings.max_open_files)
        files = FileQueue(disk, folders[COMMIT_LOG], settings.commit_log_file_bytes, handles, mapped=True)
        files.load(tail=sidecar.value.synced if sidecar.value else None)
        index = Index(disk, folders[INDEX], settings, handles) if settings.index else None
        discard = None if clean or ours else checkpoint.value.index_ms
        lost_from = index.lost_from(discard) if index is not None and discard is not None else None
        recovered = recover_log(
            disk, files, folders[CONSUME_QUEUES], settings.consume_queue_file_units * UNIT.size,
            sidecar, checkpoint.value, lost_from, clean=clean, events=events,
        )  # fmt: skip
        mark_running(disk, directory)
        log = CommitLog(files, recovered.end, recovered.start, sidecar)
        queues = ConsumeQueues(disk, folders[CONSUME_QUEUES], settings.consume_queue_file_units, handles)
        queues.load(recovered.dispatch_from, log, repair=not clean)
        if index is not None:
            index.load(recovered.dispatch_from, discard_after_ms=discard)
        reput = Reput(log, queues, index, events, recovered.dispatch_from)
        reput.run(log.end, log.end - reput.offset, clock.wall_ms())
        for queue in queues:
            queue.forget_before(log.first)
        events.emit(
            "store opened", directory=directory, clean=clean, first=log.first, end=log.end,
            dispatched_again=log.end - recovered.dispatch_from,
        )  # fmt: skip
        return cls(disk, directory, settings, clock, events, log, queues, index, reput, checkpoint, sidecar)

    # Where it stands: physical offsets.

    @property
    def end(self) -> int:
        """After the last byte."""
        return self._log.end

    @property
    def flushed(self) -> int:
        """After the last synced byte."""
        return self._log.flushed

    @property
    def first(self) -> int:
        """Of the oldest byte kept."""
        return self._log.first

    @property
    def reput_offset(self) -> int:
        """What is before it is dispatched."""
        return self._reput.offset

    @property
    def indexed(self) -> tuple[int, int]:
        """The index is made up to this record, and its store time in ms."""
        return (self._index.end_offset, self._index.end_ms) if self._index else (0, 0)

    @property
    def earliest_ms(self) -> int:
        """The store time of the oldest message kept; -1 without any."""
        return self._log.stored_ms(self._log.first) if self._log.end > self._log.first else -1

    @property
    def writeable(self) -> bool:
        return self.refusal is None

    @property
    def failure(self) -> StorageError | None:
        """What ended it: it takes nothing more before it is opened again, by another process."""
        return self._log.failed

    @property
    def refusal(self) -> str | None:
        """Why it takes no messages; None when it does."""
        if self._log.failed:
            return "the disk failed"
        if self.disk_full:
            return f"the disk is {self.disk_used_percent:.0f} % full"
        return self._reput.stuck

    # Writing.

    def put(self, drafts: Sequence[Draft]) -> list[Put]:
        """Append all drafts of a tick at once; what became of each. Nothing is durable before a flush."""
        if not self.writeable:
            return [Put(PutStatus.SERVICE_NOT_AVAILABLE) for _ in drafts]
        return self._appender.put(drafts, self._clock.wall_ms())

    def append_raw(self, offset: int, data: Buffer) -> int:
        """As a slave: bytes of the master's log, exactly at the end; an empty store begins anywhere. The new end.

        Raises OffsetMismatch, or StorageError.
        """
        start = self._log.start
        try:
            return self._log.append_raw(offset, data)
        finally:
            if self._log.start != start:  # whatever became of the bytes
                self._reput.offset = offset
                self._borders = deque([offset])

    def reput(self, limit_bytes: int = _REPUT_BYTES) -> list[Arrival]:
        """Dispatch what may be read: all of the log, with SYNC_FLUSH on a master what is flushed. What became readable.

        Call it again when ``reput_offset`` is still behind.
        """
        held = self._settings.sync_flush and not self.slave
        limit = min(self._log.flushed, self._log.end) if held else self._log.end
        if self._reput.offset >= limit:
            return []
        arrivals = self._reput.run(limit, limit_bytes, self._clock.wall_ms())
        self._log.parsed(self._reput.offset)
        known = self._appender.next_offsets
        for arrival in arrivals:
            queue = arrival.topic, arrival.queue_id
            if known.get(queue, 0) < arrival.next_offset:
                known[queue] = arrival.next_offset
        if self._reput.offset >= self._borders[-1] + _BORDER_STEP_BYTES:
            self._borders.append(self._reput.offset)
        return arrivals

    def delete_topic(self, topic: str) -> None:
        """Its queues go, from the disk too; its messages go with their files. A topic made anew begins at offset 0."""
        self._queues.delete_topic(topic)
        known = self._appender.next_offsets
        for queue in [queue for queue in known if queue[0] == topic]:
            del known[queue]

    # Reading.

    def slice(self, offset: int, limit: int) -> memoryview:
        """At most ``limit`` bytes of the log, never over the border of a file; empty at the end and outside."""
        return self._log.slice(offset, limit)

    def record(self, offset: int) -> bytes | None:
        """The whole record at a physical offset."""
        found = self._log.record(offset)
        return None if found is None else bytes(found)

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, tags: frozenset[int] | None = None
    ) -> Found:
        """Messages of a queue from ``offset``, of those with one of the ``tags`` codes if given."""
        correct = not self.slave or self._settings.offset_check_in_slave
        return self._reads.get(topic, queue_id, offset, max_count, max_bytes, tags, correct=correct)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Its first queue offset, and the one after its last; (0, 0) for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return (queue.first, queue.end) if queue else (0, 0)

    def queues(self) -> dict[str, list[int]]:
        """The queues with messages, by topic."""
        found: dict[str, list[int]] = {}
        for queue in self._queues:
            found.setdefault(queue.topic, []).append(queue.queue_id)
        return found

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: TimeBoundary) -> int:
        """The queue offset that a store time stands for."""
        return self._reads.offset_at(topic, queue_id, timestamp_ms, boundary)

    def stored_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message in ms; -1 when it is not there."""
        return self._reads.stored_at(topic, queue_id, offset)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, index_type: IndexType = IndexType.KEY
    ) -> list[bytes]:
        """Records of the messages with that key, newest first."""
        return self._reads.query(topic, key, max_count, begin_ms, end_ms, index_type)

    # On threads.

    def flush(self) -> int:
        """THREAD. Sync what is written; the new ``flushed``. Raises StorageError: then no more messages are taken."""
        return self._log.flush()

    def maintain(self, now_ms: int) -> None:
        """THREAD, about once a second: queues and index to the disk, checkpoint, a file in reserve, old files away.

        Raises StorageError when the disk fails; a full one is no failure.
        """
        try:
            self._save()
            self._log.prepare_next()
        except DiskFull as error:
            self._events.emit("disk full", error=error)
        self._sidecar.settle()  # whatever became of the queues
        self._clean(now_ms)

    def _save(self) -> None:
        # What is dispatched now is in the queues' lists of things to sync, so it is durable after them.
        dispatched, last_ms, synced = self._reput.offset, self._reput.last_ms, self._log.flushed
        while len(self._borders) > 1 and self._borders[1] <= min(synced, dispatched) - _BORDER_MARGIN_BYTES:
            self._borders.popleft()
        self._queues.sync()
        index_ms = self._index.sync() if self._index else 0
        known, border = self._sidecar.value, min(self._borders[0], dispatched)
        if known is None or (known.dispatched, known.border) != (dispatched, border) or self._sidecar.in_doubt:
            self._checkpoint.write(Checkpoint(last_ms, last_ms, index_ms, dispatch_from=min(dispatched, synced)))
            self._sidecar.note(dispatched, border)

    def _clean(self, now_ms: int) -> None:
        self.disk_used_percent = used_percent(self._disk.usage(self._directory))
        full = self.disk_used_percent > self._settings.disk_refuse_ratio
        if full != self.disk_full:
            self.disk_full = full
            self._events.emit("disk full" if full else "disk has room", used_percent=round(self.disk_used_percent, 1))
        files = self._log.files.files
        # What follows a deleted file is durable, else a crash could leave nothing at all. So are the units of what was
        # in it, else the queues' offsets could be given out again.
        saved = self._sidecar.value
        durable = min(saved.dispatched, saved.synced) if saved else 0
        newest_ms = [self._log.stored_ms(file.start) for file in files[1:] if file.start < durable]
        count = files_to_drop(newest_ms, self.disk_used_percent, now_ms, self._settings)
        if count:
            self._log.files.drop_before(files[count].start)
            for queue in self._queues:
                queue.forget_before(self._log.first)
                queue.drop_files(durable)
            if self._index is not None:
                self._index.drop_before(self._log.first)
            self._events.emit("files deleted", count=count, first=self._log.first)

    def close(self) -> None:
        """THREAD, when nothing else uses it any more. The stop is an orderly one if all could be synced."""
        try:
            self._log.flush()
            self._reput.run(self._log.end, self._log.end - self._reput.offset, self._clock.wall_ms())
            self._save()
            if self.flushed == self.end == self.reput_offset:
                mark_stopped(self._disk, self._directory)
        except StorageError as error:
            self._events.emit("store not closed in order", error=error)
        for part in (self._log.files, self._queues, self._index, self._checkpoint, self._sidecar):
            if part is not None:
                part.close()
