"""One store directory: what broker and replication use of it (H8, H11).

::

    commitlog/  consumequeue/TOPIC/QUEUE/  index/  config/ (the broker's)
    checkpoint  abort  lock  tally-synced

The loop appends, dispatches (``reput``) and reads; threads flush and maintain. After each put, append and flush the
loop calls ``reput``: with SYNC_FLUSH a master's message becomes readable with the flush. Whoever opens a directory of
the real disk holds its lock first (``Disk.lock_file`` of ``checkpoint.LOCK``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.appender import Appender
from tallystick.rocketmq.store.checkpoint import mark_stopped
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.rocketmq.store.opening import StoreOpening, StoreParts
from tallystick.rocketmq.store.promotion import check_promotion
from tallystick.rocketmq.store.reads import Reads
from tallystick.rocketmq.store.replicated_queues import ReplicatedQueues
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.takeover import take_over
from tallystick.rocketmq.store.units import UNIT
from tallystick.rocketmq.store.upkeep import Upkeep
from tallystick.rocketmq.store.values import Arrival, GetResult, PutRequest, PutResult, TimeBoundary
from tallystick.rocketmq.wire.record import IndexType
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Buffer, Disk
from tallystick.runtime.events import Events
from tallystick.runtime.lasting import LastingTrouble

_REPUT_BYTES = 1024 * 1024
_BORDER_STEP_BYTES = 1024 * 1024
_REBUILD_BYTES = 256 * 1024


class MessageStore:
    """Open with ``open``. All methods run on the loop, unless they say THREAD: then one call of it at a time."""

    def __init__(
        self, disk: Disk, *, directory: str, settings: StoreSettings, clock: Clock, events: Events, parts: StoreParts
    ) -> None:
        self._disk, self._directory, self._settings, self._clock, self._events = (
            disk,
            directory,
            settings,
            clock,
            events,
        )
        self._parts, self._rebuild = parts, parts.rebuild
        self._log, self._queues, self._index, self._reput = parts.log, parts.queues, parts.index, parts.reput
        self._appender = Appender(parts.log, settings, parts.reput.last_ms)
        self._reads = Reads(parts.log, parts.queues, parts.index, settings)
        self._borders = deque([parts.reput.offset])  # where records begin, about a step apart
        self._upkeep = Upkeep(
            disk, directory=directory, settings=settings, events=events, parts=parts, borders=self._borders
        )
        self.replicated = ReplicatedQueues(parts, self._appender, self._upkeep, events)
        self.sinks = parts.sinks
        self._full_disk = LastingTrouble()
        self._slave = False  # see ``take_role``

    @classmethod
    def open(
        cls, disk: Disk, directory: str, settings: StoreSettings, clock: Clock, events: Events, *, slave: bool = False
    ) -> MessageStore:
        """Load, recover, dispatch what is not dispatched. Queues that are lost are built again by ``rebuild``.

        Raises CorruptRecord for damage (it names file and offset), UsageError when the settings do not fit the files,
        or when this was a slave's store and the ends of its master's queues are not known.
        """
        parts = StoreOpening(disk, directory, settings, clock, events, slave=slave).open()
        store = cls(disk, directory=directory, settings=settings, clock=clock, events=events, parts=parts)
        store.take_role(slave=slave)
        return store

    # Whose it is.

    @property
    def slave(self) -> bool:
        """Whether it is a slave's, else a master's."""
        return self._slave

    def take_role(self, *, slave: bool) -> None:
        """From now on: a slave dispatches all it has, ends its queues where its last messages are, and leaves the
        offsets of its readers alone. A slave's store is ``promote``d before it is a master's."""
        self._slave = slave
        self._reput.sinks = self.sinks if slave else None
        if slave:
            self.replicated.retreat()
        self._appender.not_before(self._reput.last_ms)
        self._appender.learn({(queue.topic, queue.queue_id): queue.end for queue in self._queues if queue.end})

    def promote(self) -> list[Arrival]:
        """THREAD, that of ``maintain``, while nobody appends: what a slave's store needs to be a master's, durably;
        ``take_role`` comes next. Returns what became readable.

        Raises UsageError when the ends of its master's queues are not known: nothing changed; else see ``take_over``.
        """
        state = self._parts.state.state
        assert state is not None, "a store opens with a batch"
        check_promotion(state, self._settings, self._directory)
        return take_over(self._parts, state, self._upkeep, self._clock, self._events)

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
    def reput_goes_on(self) -> bool:
        """Whether ``reput`` is to be called again though ``reput_offset`` did not move."""
        return self._reput.filling

    @property
    def indexed(self) -> tuple[int, int]:
        """The index is made up to this record, and its store time in ms."""
        return (self._index.end_offset, self._index.end_ms) if self._index else (0, 0)

    @property
    def has_whole_index(self) -> bool:
        """Whether there is an index, and none of its files is being built again."""
        return self._index is not None and not self._index.lost_files()

    @property
    def earliest_ms(self) -> int:
        """The store time of the oldest message kept; -1 without any."""
        return self._log.stored_ms(self._log.first) if self._log.end > self._log.first else -1

    @property
    def disk_full(self) -> bool:
        return self._upkeep.disk_full

    @property
    def disk_used_percent(self) -> float:
        return self._upkeep.disk_used_percent

    @property
    def disk_bytes(self) -> tuple[int, int]:
        """Of the file system: all, and what is free."""
        return self._upkeep.disk_bytes

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

    def put(self, put_requests: Sequence[PutRequest], sink: SinkIdentity | None = None) -> list[PutResult]:
        """Append all messages of a tick at once. Returns a result for each request; a flush makes them durable.

        ``sink`` is the identity of the last message, where it is one of a sink.
        """
        if not self.writeable:
            return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE) for _ in put_requests]
        if sink is None:
            return self._appender.put(put_requests, self._clock.wall_ms())
        with self.sinks.lock:
            puts = self._appender.put(put_requests, self._clock.wall_ms())
            if (put := puts[-1]).status is PutStatus.PUT_OK:
                last = put_requests[-1]
                place = last.queue_id, put.queue_offset + len(put.offsets) - 1, put.end
                self.sinks.put(last.topic, sink, place, put.store_timestamp)
        return puts

    def append_raw(self, offset: int, data: Buffer) -> int:
        """As a slave: bytes of the master's log, exactly at the end; an empty store begins anywhere. The new end.

        Raises OffsetMismatch, or StorageError.
        """
        if self._upkeep.lacks_cut:
            self._upkeep.note_cut()
        start = self._log.start
        try:
            return self._log.append_raw(offset, data)
        finally:
            if self._log.start != start:  # whatever became of the bytes
                self._reput.offset = offset
                self._borders.clear()
                self._borders.append(offset)
                self._upkeep.note(dispatched=offset, begin_offset=offset, ends_at=-1, master_first=None)

    def reput(self, limit_bytes: int = _REPUT_BYTES) -> list[Arrival]:
        """Dispatch what may be read: all of the log, with SYNC_FLUSH on a master what is flushed. What became readable.

        Call it again when ``reput_offset`` is still behind, and moved or ``reput_goes_on``.
        """
        waits_for_flush = self._settings.sync_flush and not self._slave
        limit = min(self._log.flushed, self._log.end) if waits_for_flush else self._log.end
        if self._reput.offset >= limit:
            return []
        arrivals = self._reput.run(limit, limit_bytes, self._clock.wall_ms())
        self._log.record_parsed(self._reput.offset)
        next_offsets = self._appender.next_offsets
        ends = {(arrival.topic, arrival.queue_id): arrival.next_offset for arrival in arrivals}
        self._appender.learn({queue: end for queue, end in ends.items() if next_offsets.get(queue, 0) < end})
        if self._reput.offset >= self._borders[-1] + _BORDER_STEP_BYTES:
            self._borders.append(self._reput.offset)
        return arrivals

    def delete_topics(self, topics: Iterable[str]) -> Deletion:
        """Delete topics: their queues are gone at once, and durably when the deletion is noted; their messages go with
        their files. A topic that is made anew begins at queue offset 0."""
        return self.replicated.delete(dict.fromkeys(topics, self.end))

    def lacks_beginning(self, topic: str, queue_id: int) -> bool:
        """Whether this is a slave's and lacks first messages of the queue: see ``ReplicatedQueues.lacks_beginning``."""
        return self._slave and self.replicated.lacks_beginning(topic, queue_id)

    def may_hold(self, topic: str) -> bool:
        """Whether there is a queue of a topic, a deletion of it, or the log has records that are not dispatched."""
        is_behind = self._reput.offset < self.end
        return is_behind or topic in self._reput.deleted_topics.offsets or self._queues.has_topic(topic)

    # What was lost.

    @property
    def rebuilding(self) -> bool:
        """Whether queues or index files that were lost are not whole again; ``rebuild`` them."""
        return not self._rebuild.is_done

    def rebuild(self, max_bytes: int = _REBUILD_BYTES) -> list[Arrival]:
        """THREAD. A part of it, by that many bytes of the log; which messages became readable. Raises StorageError."""
        return self._rebuild.step(max_bytes)

    # Reading.

    def slice(self, offset: int, limit: int) -> memoryview:
        """At most ``limit`` bytes of the log, never over the border of a file; empty at the end and outside."""
        return self._log.slice(offset, limit)

    def record(self, offset: int) -> bytes | None:
        """The whole record at a physical offset."""
        record = self._log.record(offset)
        return None if record is None else bytes(record)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        tags: frozenset[int] | None = None,
        *,
        mark: str | None = None,
    ) -> GetResult:
        """Messages of a queue from ``offset``, of those with one of the ``tags`` codes if given. ``mark``: see
        ``Reads.get``."""
        return self._reads.get(topic, queue_id, offset, max_count, max_bytes, tags, is_slave=self._slave, mark=mark)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Its first queue offset, and the one after its last; (0, 0) for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return (queue.first, queue.end) if queue else (0, 0)

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]] | None:
        """Physical offset, size and tags code of messages from ``offset`` on; None if there is no such queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        if not queue.first <= offset < queue.end:
            return []
        return list(UNIT.iter_unpack(queue.read(offset, min(count, queue.end - offset))))

    def queues(self) -> dict[str, list[int]]:
        """The queues with messages, by topic."""
        queues: dict[str, list[int]] = {}
        for queue in self._queues:
            queues.setdefault(queue.topic, []).append(queue.queue_id)
        return queues

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: TimeBoundary) -> int:
        """The queue offset that a store time stands for."""
        return self._reads.offset_at(topic, queue_id, timestamp_ms, boundary)

    def mark_before(self, topic: str, queue_id: int, offset: int) -> str | None:
        """Names the message before this queue offset: see ``Reads.mark``."""
        return self._reads.mark(topic, queue_id, offset - 1)

    def knows_other(self, topic: str, queue_id: int, mark: str) -> bool:
        """Whether whoever has the mark read another log: see ``Reads.knows_other``."""
        return self._reads.knows_other(topic, queue_id, mark, is_slave=self._slave)

    def stored_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of a message in ms; -1 when it is not there."""
        return self._reads.stored_at(topic, queue_id, offset)

    def look_for(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, index_type: IndexType = IndexType.KEY
    ) -> Iterator[bytes]:
        """Records of the messages with that key, newest first, with ``b""`` in between: each comes in a millisecond or
        so, but all together may take a minute."""
        return self._reads.look_for(topic, key, max_count, begin_ms, end_ms, index_type)

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, index_type: IndexType = IndexType.KEY
    ) -> list[bytes]:
        """The same records, for those that can wait for all."""
        return [record for record in self.look_for(topic, key, max_count, begin_ms, end_ms, index_type) if record]

    # On threads.

    def flush(self) -> int:
        """THREAD. Sync what is written; the new ``flushed``. Raises StorageError: then no more messages are taken."""
        return self._log.flush()

    def maintain(self, now_ms: int) -> None:
        """THREAD, about once a second: queues and index to the disk, checkpoint, a file in reserve, old files away.

        Raises StorageError when the disk fails; a full one is no failure.
        """
        try:
            self.sinks.expire(now_ms)
            if refused_count := self.sinks.refusals():
                self._events.emit("no room for sinks", partitions=refused_count, most=self.sinks.most)
            self._upkeep.save()
            self._log.prepare_next()
            self._full_disk.ended()
        except DiskFull as error:
            if self._full_disk.is_due(now_ms / 1000):
                self._events.emit("disk full", reason=str(error))
        self._parts.sidecar.settle()  # whatever became of the queues
        self._upkeep.clean(now_ms)

    def note_sinks(self) -> None:
        """THREAD. Make durable what an operator had forgotten of sinks. Raises StorageError: then a crash may bring it
        back."""
        self._upkeep.note_sinks()

    def delete_expired(self) -> None:
        """Expired files go with the next ``maintain``, whatever the hour."""
        self._upkeep.deletion_asked = True

    def close(self) -> None:
        """THREAD, when nothing else uses it any more. The stop is an orderly one if all could be synced."""
        try:
            self._log.flush()
            self._reput.hold, before = True, -1
            while before < self._reput.offset < self._log.end:
                before = self._reput.offset
                self._reput.run(self._log.end, self._log.end - before, self._clock.wall_ms())
            self._upkeep.save()
            self._upkeep.close()
            if self.flushed == self.end == self.reput_offset:
                mark_stopped(self._disk, self._directory)
        except StorageError as error:
            self._events.emit("store not closed in order", error=error)
        parts = self._parts
        for part in (self._log.files, self._queues, self._index, parts.checkpoint, parts.sidecar, parts.state):
            if part is not None:
                part.close()
