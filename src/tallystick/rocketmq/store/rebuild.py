"""Rebuild: units and index entries that were lost are made again from the log, beside all other work.

Somebody deleted ``consumequeue``, a folder or a file of it, or of the index. A start sees that by names and sizes and
leaves a hole, whose readers wait as for a message to come. Rebuild goes once through the log, from where the first loss
may begin or where it was interrupted, and fills holes in order. What a deletion took gets nothing. Of a queue that is
lost as a whole, and of which nobody noted since when it is there, the log is asked first: the last of its records that
has queue offset 0 or steps back tells where its topic was made anew.
"""

from __future__ import annotations

from tallystick.codec.records import RecordRun, Stop, scan_records
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.keys import KeyHashes, RunKeys
from tallystick.rocketmq.store.queue_state import Hole
from tallystick.rocketmq.store.reput import COMMITTED, ROLLBACK, TRANSACTION, Reput
from tallystick.rocketmq.store.scan import find_record
from tallystick.rocketmq.store.units import Unit
from tallystick.rocketmq.store.values import Arrival
from tallystick.runtime.events import Events


class Rebuild:
    """``step`` until ``is_done``, on one thread. Records from ``stop`` on are those that reput dispatches.

    ``offset``: records before it are looked at. What others read on their threads changes with reput's lock held.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        queues: ConsumeQueues,
        index: Index | None,
        reput: Reput,
        events: Events,
        start: int,
        stop: int,
    ) -> None:
        self._log, self._queues, self._index, self._reput, self._events = log, queues, index, reput, events
        self.offset, self._stop = start, stop
        self._hashes = KeyHashes()
        self._holes = {(queue.topic.encode(), queue.queue_id): queue for queue in queues if queue.has_hole}
        self._files = index.lost_files() if index is not None else []
        self._unknown = {key for key, queue in self._holes.items() if not queue.born}
        self._begin_offsets: dict[tuple[bytes, int], int] = {}  # of these: the last record with which the queue began
        self._next: dict[tuple[bytes, int], int] = {}  # and what a record gets that goes on
        self._scan_offset = start  # records before it are looked at for that
        if not self.is_done:
            events.emit(
                "queues built again",
                queues=len(self._holes),
                index_files=len(self._files),
                first=start,
                end=stop,
                reason="their files are missing or short",
            )

    @property
    def is_done(self) -> bool:
        return not self._holes and not self._files

    def holes(self) -> list[Hole]:
        """Returns the holes that a checkpoint notes; call it with reput's lock held. A queue that was made anew has
        none."""
        lacking = [queue for queue in self._holes.values() if queue.has_hole]
        return [
            Hole(queue.topic, queue.queue_id, queue.hole_next, queue.hole_stop)
            for queue in lacking
            if self._queues.find(queue.topic, queue.queue_id) in (queue, None)
        ]

    def step(self, max_bytes: int) -> list[Arrival]:
        """Go through about ``max_bytes`` of the log. Returns which units became readable. Raises StorageError,
        DiskFull."""
        if self._unknown:
            self._look(max_bytes)
            return []
        self.offset = max(self.offset, self._log.first)
        run, offset = self._scan(self.offset, max_bytes)
        arrivals = self._take(run) if len(run) else []
        with self._reput.lock:
            self.offset = offset
        self._pass_files(offset)
        return arrivals + self._end() if offset >= self._stop else arrivals

    def _scan(self, offset: int, max_bytes: int) -> tuple[RecordRun, int]:
        """Returns records from ``offset`` on, and where the next ones may be."""
        data = bytes(self._log.slice(offset, max(0, min(max_bytes, self._stop - offset))))
        run = scan_records(data, offset)
        end, file_bytes = offset + run.end, self._log.files.file_bytes
        if run.stop is Stop.BLANK:
            return run, end + file_bytes - end % file_bytes
        if run.end or end >= self._stop:
            return run, end
        if run.stop is Stop.PARTIAL and len(data) == max_bytes:
            return self._scan(offset, 2 * max_bytes)
        return run, self._behind_damage(end)

    def _look(self, max_bytes: int) -> None:
        offset = max(self._scan_offset, self._log.first)
        run, self._scan_offset = self._scan(offset, max_bytes)
        for number, key in enumerate(zip(run.topics, run.queue_ids, strict=True)):
            if key in self._unknown and run.sys_flags[number] & TRANSACTION in COMMITTED:
                queue_offset = run.queue_offsets[number]
                if queue_offset < self._next.get(key, 1):
                    self._begin_offsets[key] = offset + run.positions[number]
                self._next[key] = queue_offset + 1
        if self._scan_offset >= self._stop:
            for key in self._unknown:
                self._holes[key].begin(self._begin_offsets.get(key, 0))
            self._unknown = set()

    def _behind_damage(self, offset: int) -> int:
        next_record = find_record(self._log.files, offset)
        self._events.emit("record damaged", offset=offset, next=next_record, reason="its queue goes on without it")
        return self._stop if next_record is None else next_record

    def _take(self, run: RecordRun) -> list[Arrival]:
        keys = self._hashes.of_run(run)
        physicals = [self.offset + position for position in run.positions]
        numbers_by_queue: dict[tuple[bytes, int], list[int]] = {}
        for number, key in enumerate(zip(run.topics, run.queue_ids, strict=True)):
            if key in self._holes:
                numbers_by_queue.setdefault(key, []).append(number)
        arrivals = []
        for key, numbers in numbers_by_queue.items():
            queue = self._holes[key]
            units = self._units(queue, run, keys, physicals, numbers)
            if units and queue.rebuild(units):
                arrivals.append(Arrival(queue.topic, queue.queue_id, queue.hole_next, [unit[2] for _, unit in units]))
                self._mark(queue)
            if not queue.has_hole:
                self._close(key)
        if self._index is not None:
            self._refill(self._index, run, keys, physicals)
        return arrivals

    def _units(
        self, queue: ConsumeQueue, run: RecordRun, keys: RunKeys, physicals: list[int], numbers: list[int]
    ) -> list[tuple[int, Unit]]:
        """Returns the units of the hole, by queue offset."""
        born = max(queue.born, self._reput.deleted_topics.get(queue.topic))
        next_offset, units = queue.hole_next, []
        for number in numbers:
            queue_offset = run.queue_offsets[number]
            if physicals[number] < born or run.sys_flags[number] & TRANSACTION not in COMMITTED:
                continue
            if next_offset <= queue_offset < queue.hole_stop:
                units.append((queue_offset, (physicals[number], run.sizes[number], keys.tags_codes[number])))
                next_offset = queue_offset + 1
        return units

    def _refill(self, index: Index, run: RecordRun, keys: RunKeys, physicals: list[int]) -> None:
        for file in self._files:
            lost_records = file.lost_records or range(0)
            if physicals[-1] < lost_records.start or physicals[0] >= lost_records.stop:
                continue
            entries = [
                (number, code)
                for number, code in zip(keys.records, keys.hashes, strict=True)
                if physicals[number] in lost_records and run.sys_flags[number] & TRANSACTION != ROLLBACK
            ]
            numbers = [number for number, _ in entries]
            times = [run.store_timestamps[number] for number in numbers]
            file.put_some([code for _, code in entries], [physicals[number] for number in numbers], times)

    def _pass_files(self, offset: int) -> None:
        """Index files whose records were all seen are whole again."""
        for file in [
            file for file in self._files if file.lost_records is not None and file.lost_records.stop <= offset
        ]:
            self._files.remove(file)
            if self._index is not None:
                with self._reput.lock:
                    file.lost_records = None
                    self._index.mark([file])

    def _mark(self, queue: ConsumeQueue) -> None:
        with self._reput.lock:
            self._queues.mark(queue)

    def _close(self, key: tuple[bytes, int]) -> None:
        queue = self._holes.pop(key)
        queue.forget_before(max(self._log.first, queue.born))
        self._mark(queue)

    def _end(self) -> list[Arrival]:
        """The log has no more records: units of a queue that are still missing had no message any more."""
        arrivals = []
        for key, queue in tuple(self._holes.items()):
            first, stop = queue.hole_next, queue.hole_stop
            if queue.rebuild([], stop) and queue.first < stop:
                self._events.emit(
                    "queue offsets missing", topic=queue.topic, queue=queue.queue_id, first=first, end=stop
                )
            self._close(key)
            arrivals.append(Arrival(queue.topic, queue.queue_id, stop))
        self._pass_files(1 << 62)
        self._events.emit("queues complete", end=self._stop)
        return arrivals
