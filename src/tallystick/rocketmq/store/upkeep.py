"""Upkeep of an open store, on a thread: checkpoints, the next file of the log, old files away.

A checkpoint takes, in one moment of reput, which queues and index files changed, and how far the log was dispatched
then; makes them durable; and notes it: ``tally-queues`` first, then the other two. So whatever a note says is durable,
and what is not noted is dispatched again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.checkpoint import Checkpoint
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.index_file import IndexFile
from tallystick.rocketmq.store.opening import StoreParts
from tallystick.rocketmq.store.queue_state import Queue
from tallystick.rocketmq.store.retention import files_to_drop, used_percent
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events

_BORDER_MARGIN_BYTES = 16 * 1024 * 1024  # how much of what is durable is checked after a start
_FORGET_AT_ONCE = 1024  # deletions
# One for what an earlier checkpoint took and could not note yet, one that takes the rest, which may have messages that
# came meanwhile, and one behind which those are durable.
_SINK_NOTES = 3


class Upkeep:
    """``save`` and ``clean`` run on one thread at a time, ``note`` on the loop or any thread."""

    def __init__(
        self,
        disk: Disk,
        *,
        directory: str,
        settings: StoreSettings,
        events: Events,
        parts: StoreParts,
        borders: deque[int],
    ) -> None:
        """``borders``: where records begin, in order."""
        self._disk, self._directory, self._settings, self._events = disk, directory, settings, events
        self._parts, self._borders = parts, borders
        self._noting = threading.Lock()  # a batch is made and appended
        self._closed = False
        self._noted_cuts = 0  # of ``DeletedTopics.cuts``
        self._removed_index_files: list[str] = []
        self._log_first = parts.log.first
        self.disk_full = False
        self.disk_used_percent = 0.0
        self.disk_bytes = (0, 0)  # all, and free
        self.deletion_asked = False  # settable: expired files go whatever the hour

    def save(self, **fields: object) -> None:
        """A checkpoint, and with it other ``fields`` of a ``Batch``. Raises StorageError; DiskFull: what could not be
        noted is tried again."""
        parts = self._parts
        with parts.reput.lock:
            dispatched, last_ms, flushed_end = parts.reput.offset, parts.reput.last_ms, parts.log.flushed
            queues, rebuild_offset, holes = parts.queues.take(), parts.rebuild.offset, parts.rebuild.holes()
            rows = [(queue, queue.row()) for queue in queues]
            files = parts.index.take() if parts.index else []
            index_rows = [file.row() for file in files if file.lost_records is None]
            lost_index_files = [file.name for file in parts.index.lost_files()] if parts.index else []
            index_ms = parts.index.end_ms if parts.index else 0
        borders = self._borders
        while len(borders) > 1 and borders[1] <= min(flushed_end, dispatched) - _BORDER_MARGIN_BYTES:
            borders.popleft()
        try:
            parts.queues.sync(queues)
            if parts.index is not None:
                parts.index.sync(files)
            with self._noting:
                # The queue of a topic that was deleted meanwhile must not come back.
                alive = [row for queue, row in rows if parts.queues.find(*row.key) is queue]
                if parts.has_told_ends:
                    fields.setdefault("ends", [])
                fields |= self._sink_fields(flushed_end)
                self._append(
                    dispatched=dispatched,
                    log_first=self._log_first,
                    queues=alive,
                    index=index_rows if parts.index else None,
                    removed_index_files=self._removed_index_files,
                    holes=holes,
                    index_holes=lost_index_files,
                    rebuild_offset=rebuild_offset,
                    **fields,
                )
                self._removed_index_files, parts.has_told_ends = [], False
        except StorageError:
            self._mark(queues, files)
            raise
        self._note_log(dispatched, last_ms, flushed_end, index_ms)

    def _sink_fields(self, flushed_end: int) -> dict[str, object]:
        """What is to be noted of sinks, if it is durable. A slave's table has what was dispatched, a master's what was
        appended."""
        parts = self._parts
        changes = parts.sinks.changes(
            lambda: parts.log.end if parts.reput.sinks is None else parts.reput.offset, flushed_end
        )
        if changes is None:
            return {}
        return {"sinks": changes.rows, "removed_sinks": changes.removed_keys, "sinks_end": changes.end}

    def note(self, **fields: object) -> None:
        """What else changes, durably: fields of a ``Batch``. On the loop or any thread. Raises StorageError."""
        with self._noting:
            if "ends" in fields:  # of another master, or of what this one was: no checkpoint has those queues
                self._parts.has_told_ends = False
            if not self._closed:
                self._append(**fields)

    def note_deleted(self, deletions: Mapping[str, int], queues: Sequence[ConsumeQueue]) -> None:
        """Which topics were deleted, where in the log, and that these queues went; durably. On a thread.

        Raises StorageError.
        """
        with self._noting:
            state = self._parts.state.state
            if self._closed or state is None:
                return
            # A checkpoint may have the queue of a topic of the same name already, which was made meanwhile.
            rows = [(queue, state.queues.get((queue.topic, queue.queue_id))) for queue in queues]
            removed_queues = [
                row.key for queue, row in rows if row is not None and row.last_physical <= queue.last_physical
            ]
            deleted_topics = self._parts.reput.deleted_topics
            many = len(state.deletions) > 2 * len(deleted_topics.offsets) + _FORGET_AT_ONCE
            self._append_deletions({} if many else deletions, removed_queues)
            self._parts.sidecar.note_queues(self._parts.state.durable)

    def note_sinks(self) -> None:
        """What an operator had forgotten of sinks before this call, durably. On a thread. Raises StorageError."""
        parts = self._parts
        for _ in range(_SINK_NOTES):
            parts.log.flush()
            with self._noting:
                if self._closed:
                    return
                self._append(**self._sink_fields(parts.log.flushed))
                parts.sidecar.note_queues(parts.state.durable)

    @property
    def lacks_cut(self) -> bool:
        """Whether deletions were cut, and no batch says so."""
        return self._noted_cuts != self._parts.reput.deleted_topics.cuts

    def note_cut(self) -> None:
        """Note that deletions were cut, durably, before the log grows: else a crash would bring them back, and they
        would hide what came since. Raises StorageError."""
        with self._noting:
            if not self._closed:
                self._append_deletions({}, [])

    def _append_deletions(self, new_deletions: Mapping[str, int], removed_queues: list[Queue]) -> None:
        """``new_deletions`` beside those that were noted; without any, or where some were cut since, all there are."""
        deleted_topics = self._parts.reput.deleted_topics
        with self._parts.reput.lock:
            cuts, told_by, offsets = deleted_topics.cuts, deleted_topics.told_by, dict(deleted_topics.offsets)
            forgotten_up_to = deleted_topics.forgotten_up_to
        whole = not new_deletions or cuts != self._noted_cuts
        self._append(
            removed_queues=removed_queues,
            deletions=offsets if whole else None,
            new_deletions={} if whole else dict(new_deletions),
            forgotten_up_to=forgotten_up_to,
            deletions_told_by=told_by,
        )
        self._noted_cuts = cuts

    def close(self) -> None:
        """Nothing is noted any more."""
        with self._noting:
            self._closed = True

    def _append(self, **fields: object) -> None:
        state = self._parts.state.state
        assert state is not None, "a store opens with a batch"
        self._parts.state.append(state.change(**fields))

    def _note_log(self, dispatched: int, last_ms: int, flushed_end: int, index_ms: int) -> None:
        parts, sync_record = self._parts, self._parts.sidecar.value
        border = min(self._borders[0], dispatched)
        # Of a log that was dispatched before it was synced the sync alone changes it.
        checkpoint = Checkpoint(last_ms, last_ms, index_ms, dispatch_from=min(dispatched, flushed_end))
        if sync_record is None or checkpoint != parts.checkpoint.value:
            parts.checkpoint.write(checkpoint)
        if (
            sync_record is None
            or (sync_record.dispatched, sync_record.border) != (dispatched, border)
            or parts.sidecar.in_doubt
        ):
            parts.sidecar.note(dispatched, border, parts.state.durable)
        parts.sidecar.note_queues(parts.state.durable)

    def _mark(self, queues: list[ConsumeQueue], files: list[IndexFile]) -> None:
        with self._parts.reput.lock:
            for queue in queues:
                self._parts.queues.mark(queue)
            if self._parts.index is not None:
                self._parts.index.mark(files)

    def clean(self, now_ms: int) -> None:
        """Old files away, as retention says."""
        parts = self._parts
        self._look_at_disk()
        files = parts.log.files.files
        # What follows a deleted file is durable, else a crash could leave nothing at all. So are the units of what was
        # in it, else the queues' offsets could be given out again.
        sync_record = parts.sidecar.value
        durable = min(sync_record.dispatched, sync_record.synced) if sync_record else 0
        newest_ms = [parts.log.stored_ms(file.start) for file in files[1:] if file.start < durable]
        is_requested = self.deletion_asked
        count = files_to_drop(newest_ms, self.disk_used_percent, now_ms, self._settings, any_hour=is_requested)
        self.deletion_asked = is_requested and count > 0  # some at a time, until none is left
        if count:
            self._drop_before(files[count].start, durable)
            self._events.emit("files deleted", count=count, first=parts.log.first)

    def _look_at_disk(self) -> None:
        usage = self._disk.usage(self._directory)
        self.disk_bytes, self.disk_used_percent = (usage.total, usage.free), used_percent(usage)
        full = self.disk_used_percent > self._settings.disk_refuse_ratio
        if full != self.disk_full:
            self.disk_full = full
            kind = "disk above its limit" if full else "disk below its limit"
            self._events.emit(kind, used_percent=round(self.disk_used_percent, 1))

    def _drop_before(self, first: int, durable: int) -> None:
        """Noted before it happens: a start that misses files would look for their messages in the log, and one behind a
        kill goes on with it. Noted when it is done: what somebody puts back then stays."""
        parts, changed_queues = self._parts, []
        for queue in parts.queues:
            if queue.forget_before(first) | queue.detach_files(durable):
                changed_queues.append(queue)
        self._log_first = first
        self._mark(changed_queues, [])
        with parts.reput.lock:
            index_files = parts.index.detach_before(first) if parts.index is not None else []
        self._removed_index_files += [file.name for file in index_files]
        with contextlib.suppress(DiskFull):  # the deletion makes room
            self.save(drop_from=parts.log.files.first)
        parts.log.files.drop_before(first)
        for queue in changed_queues:
            queue.delete_files()
        if parts.index is not None:
            parts.index.delete(index_files)
        with contextlib.suppress(DiskFull):  # the next checkpoint says it
            self.note(drop_from=-1)
