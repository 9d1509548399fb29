"""Reput: from the CommitLog to the ConsumeQueues and the index, in the log's order (H8).

It reads what was appended, whoever appended it, and may begin again anywhere: units and index entries that are there
already are not made twice. A record that is damaged, or not of its place, stops it: nothing behind it is readable.
Source: ``DefaultMessageStore.ReputMessageService``, ``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, pairwise
from operator import ne

from tallystick.codec.dispatched import encode_units
from tallystick.codec.records import RecordRun, Stop, scan_records
from tallystick.codec.uniform_records import scan_uniform_records
from tallystick.errors import DiskFull
from tallystick.rocketmq.store.alike_dispatch import AlikeDispatch
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.deleted_topics import DeletedTopics
from tallystick.rocketmq.store.folder_names import may_be_folder
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.keys import KeyHashes, RunKeys, TopicKeys
from tallystick.rocketmq.store.sink_table import SinkTable
from tallystick.rocketmq.store.units import UNIT
from tallystick.rocketmq.store.values import Arrival
from tallystick.runtime.events import Events

TRANSACTION = 12  # of the system flag
COMMITTED = (0, 8)  # no transaction, or its commit: these have units
ROLLBACK = 12  # all others are in the index
RECORD_COST_BYTES = 512  # so many records are a slice, however short: of a megabyte 2,000
KEY_COST_BYTES = 200  # a key takes as much time as so many bytes of usual records
QUEUE_COST_BYTES = 64 * 1024  # and a queue that is made: a folder and a file
FILL_UNITS = 64 * 1024  # fillers that are written in one turn
MOST_MISSING = 1 << 27  # queue offsets that may be missing in all, of what one process dispatches: 2.7 GB of fillers
_LOOK_BYTES, _LEAST_LOOK_BYTES = 1024 * 1024, 64 * 1024  # at a time: what is not taken is looked at again
_FREE_KEYS = 1000  # that no slice is shortened for


@dataclass(slots=True)
class _Group:
    """New units of one queue, packed and not yet written. ``last_physical`` and ``tags``, their tags codes, are of
    those that were, too."""

    topic: TopicKeys
    queue_id: int
    first: int
    next: int
    last_physical: int
    units: list[bytes] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)


class Reput:
    """Dispatches records; all records before ``offset`` are dispatched."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, index: Index | None, events: Events, offset: int) -> None:
        self._log, self._queues, self._index, self._events = log, queues, index, events
        self.offset = offset
        self.last_ms = 0  # the store time of the last one
        self.hold = False  # settable: files of queues get their units with the next checkpoint, for somebody waits
        self.stuck: str | None = None  # why it cannot go on
        self.sinks: SinkTable | None = None  # settable: which learns of each record; a master's knows already
        self.deleted_topics = DeletedTopics({})
        self.lock = threading.Lock()  # held while queues and ``offset`` do not fit each other
        self._hashes = KeyHashes()
        self._alike = AlikeDispatch(self._hashes, queues, index)
        self._homeless_is_told = False
        self._look_bytes = _LOOK_BYTES
        self.filling = False  # it came no further, but its next call does
        self._may_miss = MOST_MISSING
        self._gap_at = -1  # the record behind fillers that take several calls

    def run(self, limit: int, max_bytes: int, now_ms: int) -> list[Arrival]:
        """Dispatch records that end at ``limit`` or before, about ``max_bytes`` of them, or as many short ones as cost
        the same; keys and new queues count as more."""
        with self.lock:
            return self._run(limit, max_bytes, now_ms)

    def _run(self, limit: int, max_bytes: int, now_ms: int) -> list[Arrival]:
        arrivals: list[Arrival] = []
        try:
            self._run_pieces(arrivals, limit, max_bytes, now_ms)
        except DiskFull as error:
            self._stop("the disk is full", error=error)
        return arrivals

    def _run_pieces(self, arrivals: list[Arrival], limit: int, max_bytes: int, now_ms: int) -> None:
        want, start, budget = max_bytes if self.hold else min(max_bytes, self._look_bytes), self.offset, max_bytes
        records_left = max(1, max_bytes // RECORD_COST_BYTES)  # records
        self.filling = False
        while records_left > 0 and self.offset < min(limit, start + budget):
            data = bytes(self._log.slice(self.offset, min(limit - self.offset, want)))
            if alike_count := self._dispatch_alike(arrivals, data, len(data) if self.hold else records_left, now_ms):
                records_left -= 0 if self.hold else alike_count
                continue
            run = _scan(data, self.offset)
            if len(run):
                scanned_count = len(run)
                run, cost = _affordable(run, data, self.offset, start + budget - self.offset)
                budget -= cost
                if not self.hold:  # nobody has a turn in between
                    run, cost = self._with_few_new_queues(run, data, start + budget - self.offset)
                    budget -= cost
                    run = _scan(data[: run.positions[records_left]], self.offset) if len(run) > records_left else run
                    records_left -= len(run)
                    self._look_bytes = self._look_bytes * 2 if len(run) == scanned_count else self._look_bytes // 4
                    self._look_bytes = max(_LEAST_LOOK_BYTES, min(self._look_bytes, _LOOK_BYTES))
                new_arrivals, dispatched_count = self._dispatch(run, now_ms)
                arrivals += new_arrivals
                if not dispatched_count:
                    self._fill(run)
                    break
                self.stuck = None
                self.offset += run.end if dispatched_count == len(run) else run.positions[dispatched_count]
            elif run.stop is Stop.PARTIAL and len(data) == want < limit - self.offset:
                want *= 2  # a record longer than all of what was looked at
            elif not self._pass_blank(run.stop, data, limit):
                break

    def _dispatch_alike(self, arrivals: list[Arrival], data: bytes, most: int, now_ms: int) -> int:
        """Dispatch the first records, if they are like the last ones and the next of their queues; how many were."""
        if self.deleted_topics.last > self.offset:
            return 0
        dispatched = self._alike.take(data, self.offset, most, now_ms, hold=self.hold)
        if dispatched is None:
            return 0
        arrivals += dispatched.arrivals
        self.stuck, self.last_ms, self.offset = None, dispatched.last_ms, self.offset + dispatched.end
        return dispatched.record_count

    def _pass_blank(self, stop: Stop, data: bytes, limit: int) -> bool:
        """Whether the next file is reached. False: nothing more can be dispatched now."""
        size = self._log.files.file_bytes
        end = self.offset + size - self.offset % size
        if stop is Stop.BLANK and int.from_bytes(data[:4], "big") == end - self.offset:
            if end <= limit:
                self.offset = end
            return end <= limit
        if stop is not Stop.PARTIAL or self.offset + int.from_bytes(data[:4], "big") > end:
            self._stop("no record of this place")
        return False

    def _stop(self, reason: str, **fields: object) -> None:
        if self.stuck != reason:
            self.stuck = reason
            self._events.emit("reput stopped", offset=self.offset, reason=reason, **fields)

    def _with_few_new_queues(self, run: RecordRun, data: bytes, budget: int) -> tuple[RecordRun, int]:
        """As many of a run's records as there is time to make queues for, at least one; and what these cost."""
        cost = 0
        firsts = dict[tuple[bytes, int], int]()  # the first record of each queue
        for number, _ in _stretches(run):
            firsts.setdefault((run.topics[number], run.queue_ids[number]), number)
        for (topic, queue_id), number in firsts.items():
            if self._queues.find(self._hashes.of_topic(topic).name, queue_id) is None:
                more = QUEUE_COST_BYTES + self._queues.fillers_of_new(run.queue_offsets[number]) * UNIT.size
                if cost and cost + more > budget:
                    return scan_records(data[: run.positions[number]], self.offset), cost
                cost += more
        return run, cost

    def _fill(self, run: RecordRun) -> None:
        """Some of the fillers that the run's first record needs before it; the rest in further calls."""
        topic, queue_id = self._hashes.of_topic(run.topics[0]).name, run.queue_ids[0]
        queue_offset = run.queue_offsets[0]
        queue = self._queues.of(topic, queue_id)
        first = queue.filled
        if queue_offset - first > self._may_miss:
            return self._stop("queue offsets jump too far", topic=topic, queue=queue_id, first=first, end=queue_offset)
        if self._gap_at != self.offset:
            self._gap_at = self.offset
            self._tell_missing(topic, queue_id, first, queue_offset)
        queue.fill(min(queue_offset, first + FILL_UNITS))
        self._queues.mark(queue)
        self._may_miss -= queue.filled - first
        self.filling, self.stuck = True, None

    def _tell_missing(self, topic: str, queue_id: int, first: int, end: int) -> None:
        self._events.emit("queue offsets missing", topic=topic, queue=queue_id, first=first, end=end)

    def _dispatch(self, run: RecordRun, now_ms: int) -> tuple[list[Arrival], int]:
        """All records of a run, or those before the first that needs more fillers than one call writes; how many."""
        groups: dict[tuple[bytes, int], _Group] = {}
        keys = self._hashes.of_run(run)
        physicals = [self.offset + position for position in run.positions]
        units = encode_units(physicals, run.sizes, keys.tags_codes)
        transactions = any(sys_flag & TRANSACTION for sys_flag in set(run.sys_flags))
        has_deletions, dispatched_count = self.deleted_topics.last > physicals[0], len(run)
        for start, end in _stretches(run):
            topic, queue_id, offsets = run.topics[start], run.queue_ids[start], run.queue_offsets[start:end]
            if (
                has_deletions
                and (deletion_offset := self.deleted_topics.get(self._hashes.of_topic(topic).name)) > physicals[start]
            ):
                start = bisect_left(physicals, deletion_offset, start, end)
                offsets = run.queue_offsets[start:end]
                if not offsets:
                    continue
            group = groups.get((topic, queue_id))
            if group is None:
                if not may_be_folder(name := self._hashes.of_topic(topic).name, queue_id):
                    self._tell_homeless(name, queue_id, physicals[start])
                    continue
                group = groups[topic, queue_id] = self._group(topic, queue_id)
            if not transactions and offsets == list(range(group.next, group.next + end - start)):
                group.units.append(units[start * UNIT.size : end * UNIT.size])
                group.tags += keys.tags_codes[start:end]
                group.next, group.last_physical = group.next + end - start, physicals[end - 1]
                continue
            dispatched_count = self._take(group, run, physicals, keys.tags_codes, start, end)
            if dispatched_count < end:
                count = bisect_left(keys.records, dispatched_count)
                keys = RunKeys(keys.tags_codes, keys.records[:count], keys.hashes[:count])
                break
            dispatched_count = len(run)
        arrivals = [self._write(group) for group in groups.values() if group.units]
        if self._index is not None and dispatched_count:
            self._add_keys(self._index, run, keys, physicals, now_ms)
        self.last_ms = run.store_timestamps[dispatched_count - 1] if dispatched_count else self.last_ms
        if self.sinks is not None:
            self.sinks.dispatched(run, self.offset)
        return arrivals, dispatched_count

    def _take(
        self, group: _Group, run: RecordRun, physicals: list[int], tags_codes: list[int], start: int, end: int
    ) -> int:
        """Records from ``start`` up to ``end``, one by one; the first that is not taken."""
        for number in range(start, end):
            queue_offset, physical = run.queue_offsets[number], physicals[number]
            if run.sys_flags[number] & TRANSACTION not in COMMITTED:
                continue
            if queue_offset > group.next and self._is_far(group, queue_offset, physical):
                return number
            if queue_offset == group.next or self._fits(group, queue_offset, physical):
                group.units.append(UNIT.pack(physical, run.sizes[number], tags_codes[number]))
                group.tags.append(tags_codes[number])
                group.next, group.last_physical = queue_offset + 1, physical
        return end

    def _is_far(self, group: _Group, queue_offset: int, physical: int) -> bool:
        """Whether a record needs more fillers before it than one call writes."""
        filler_count = queue_offset - group.next
        if filler_count <= min(FILL_UNITS, self._may_miss) or physical <= group.last_physical:
            return False
        queue = self._queues.find(group.topic.name, group.queue_id)
        begins = not group.units and (queue is None or not queue.has_files)
        return not begins and (filler_count > self._may_miss or not self.hold)

    def _tell_homeless(self, topic: str, queue_id: int, physical: int) -> None:
        """Once: whoever writes such a log may write thousands."""
        if not self._homeless_is_told:
            self._homeless_is_told = True
            self._events.emit("record without a queue", topic=topic, queue=queue_id, physical=physical)

    def _add_keys(self, index: Index, run: RecordRun, keys: RunKeys, physicals: list[int], now_ms: int) -> None:
        records, hashes, end, flags = keys.records, keys.hashes, index.end_offset, run.sys_flags
        if physicals[0] < end or any(flag & TRANSACTION for flag in set(flags)):
            entries = [
                (number, code)
                for number, code in zip(records, hashes, strict=True)
                if physicals[number] >= end and flags[number] & TRANSACTION != ROLLBACK
            ]
            records, hashes = [number for number, _ in entries], [code for _, code in entries]
        stored_ms = run.store_timestamps
        if records != list(range(len(physicals))):  # mostly each record has one
            physicals, stored_ms = [physicals[number] for number in records], [stored_ms[number] for number in records]
        index.put(hashes, physicals, stored_ms, now_ms)

    def _group(self, topic: bytes, queue_id: int) -> _Group:
        keys = self._hashes.of_topic(topic)
        queue = self._queues.find(keys.name, queue_id)
        end, last_physical = (queue.filled, queue.last_physical) if queue else (0, -1)
        return _Group(keys, queue_id, end, end, last_physical)

    def _fits(self, group: _Group, queue_offset: int, physical: int) -> bool:
        """A record that is not the queue's next one: whether it gets a unit all the same."""
        if physical <= group.last_physical:
            return False  # it has one already
        if group.units:
            self._write(group)
        if queue_offset < group.next:
            # Nobody told of it, but the topic was deleted and made anew: a log has no other reason to step back. Where
            # a slave became master in between, it goes on behind what its master gave out, and not at 0.
            self._queues.of(group.topic.name, group.queue_id).restart(physical)
            self._events.emit(
                "queue begins anew",
                topic=group.topic.name,
                queue=group.queue_id,
                offset=queue_offset,
                expected=group.next,
                physical=physical,
            )
        elif group.next:
            self._may_miss -= queue_offset - group.next
            if self._gap_at != physical:
                self._tell_missing(group.topic.name, group.queue_id, group.next, queue_offset)
        group.first = group.next = queue_offset
        return True

    def _write(self, group: _Group) -> Arrival:
        queue = self._queues.of(group.topic.name, group.queue_id)
        queue.write(group.first, b"".join(group.units), hold=self.hold)
        self._queues.mark(queue)
        group.first, group.units = group.next, []
        return Arrival(queue.topic, queue.queue_id, group.next, group.tags)


def _scan(data: bytes, base: int) -> RecordRun:
    return scan_uniform_records(data, base) or scan_records(data, base)


def _affordable(run: RecordRun, data: bytes, base: int, budget: int) -> tuple[RecordRun, int]:
    """As many of a run's records as there is time for, at least one; and how many bytes fewer their keys leave.

    A record may have thousands of keys, and each is hashed and put into the index: the time of many bytes.
    """
    free = budget // KEY_COST_BYTES
    if b"".join(run.properties).count(b" ") <= _FREE_KEYS:  # not of all data: each byte of bodies costs as much
        return run, 0
    blanks = list(accumulate(properties.count(b" ") for properties in run.properties))  # what keys have between them
    if blanks[-1] <= _FREE_KEYS:
        return run, 0
    count = max(1, bisect_right(blanks, free))
    if count < len(run):
        run = scan_records(data[: run.positions[count]], base)
    return run, blanks[count - 1] * KEY_COST_BYTES


def _stretches(run: RecordRun) -> list[tuple[int, int]]:
    """Where records of one queue lie one after another: a batch, or what one producer sent to a queue meanwhile."""
    topics, count = run.topics, len(run)
    queues: Sequence[object] = run.queue_ids
    if topics.count(topics[0]) != count:
        queues = list(zip(topics, run.queue_ids, strict=True))
    return list(pairwise([0, *compress(range(1, count), map(ne, queues, queues[1:])), count]))
