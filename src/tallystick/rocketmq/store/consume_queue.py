"""ConsumeQueues: for each queue of each topic, where its messages are in the CommitLog. Reput builds them.

A queue is a run of files of 20-byte units; the unit's number is the queue offset. Integers big-endian::

    physical offset 8 | record size 4 | tags code 8

A queue that begins above 0 has fillers before its first unit: offset 0, size 0x7FFFFFFF, tags code 0. Bytes never
written are zeros: no unit has size 0. Source: ``ConsumeQueue``, ``ConsumeQueueStore``.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import starmap

from tallystick.codec.records import RecordRun, scan_records
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.handles import Handles
from tallystick.runtime.disk import Disk

UNIT = struct.Struct(">qiq")
FILLER_SIZE = 0x7FFFFFFF
_FILLER = UNIT.pack(0, FILLER_SIZE, 0)
_FILL_AT_ONCE = _READ_AT_ONCE = 4096

Queue = tuple[str, int]
Unit = tuple[int, int, int]  # physical offset, record size, tags code


class ConsumeQueue:
    """One queue. ``first`` and ``end`` are queue offsets: of the oldest message still in the log, and of the next."""

    def __init__(
        self, disk: Disk, root: str, topic: str, queue_id: int, file_units: int, handles: Handles | None = None
    ) -> None:
        self.topic, self.queue_id, self._root, self._disk = topic, queue_id, root, disk
        self._directory = os.path.join(root, topic, str(queue_id))
        self._named = False  # whether its folders are known to be durable: a process that was killed may have made them
        disk.makedirs(self._directory)
        self._files = FileQueue(disk, self._directory, file_units * UNIT.size, handles)
        self.first = self.end = 0
        self.last_physical = -1  # of the last message
        self._synced = 0
        self.dirty = False
        self._removing = threading.Lock()  # the topic does not go while a thread looks at its files

    def load(self, dispatched: int, log: CommitLog, *, repair: bool) -> None:
        """Keep the units of records before the physical offset ``dispatched``.

        ``repair``: after a crash the other ones may be torn, so that only those count which the log confirms; and they
        go from the disk too, so that no later crash brings them back.
        """
        self._files.load(tail=0 if repair else None)
        self.first = self._files.first // UNIT.size
        self.end = self._limit()
        self.end = self._search(dispatched, log if repair else None, self._deleted(log) if repair else self.first)
        self.end = self._without_fillers(self.end)
        if self.end == self.first:  # nothing is left: where it begins was not durable either
            self._files.clear()
            self.first = self.end = 0
        self._synced = self.end * UNIT.size
        if repair and not self._files.is_blank_from(self._synced):
            self._files.cut(self._synced)
        if self.end > self.first:
            self.last_physical = self.unit(self.end - 1)[0]

    def _limit(self) -> int:
        return self._files.limit // UNIT.size

    def write(self, queue_offset: int, units: Sequence[Unit]) -> None:
        """Units from ``queue_offset``, which is ``end`` or above it. Raises DiskFull: then nothing changed."""
        if queue_offset != self.end or not self._files.files:
            self._fill(queue_offset)
        position, file_bytes = queue_offset * UNIT.size, self._files.file_bytes
        data = b"".join(starmap(UNIT.pack, units))
        while len(data) > (room := file_bytes - position % file_bytes):
            self._files.write([data[:room]], position)
            position, data = position + room, data[room:]
        self._files.write([data], position)
        self.end, self.last_physical = queue_offset + len(units), units[-1][0]

    def _fill(self, queue_offset: int) -> None:
        if not self._files.files:  # as the original: from the start of the file that has the first unit
            self.end = queue_offset - queue_offset % (self._files.file_bytes // UNIT.size)
            self.first, self._synced = queue_offset, self.end * UNIT.size
        while self.end < queue_offset:
            in_file = self._files.file_bytes // UNIT.size
            count = min(queue_offset - self.end, _FILL_AT_ONCE, in_file - self.end % in_file)
            self._files.write([_FILLER * count], self.end * UNIT.size)
            self.end += count

    def read(self, queue_offset: int, count: int) -> bytes:
        """Units from ``queue_offset``, which is not before ``first``."""
        return self._files.read(queue_offset * UNIT.size, max(0, min(count, self.end - queue_offset)) * UNIT.size)

    def unit(self, queue_offset: int) -> Unit:
        """Physical offset, size and tags code; the queue must have it."""
        found: Unit = UNIT.unpack(self._files.read(queue_offset * UNIT.size, UNIT.size))
        return found

    def _deleted(self, log: CommitLog) -> int:
        """After the leading units whose messages went with their files: these rise, and nothing else confirms them.

        A torn unit may have such an offset, too, but not in its place.
        """
        queue_offset, last = self.first, log.start - 1
        while units := self.read(queue_offset, _READ_AT_ONCE):
            for physical, size, _ in UNIT.iter_unpack(units):
                if size != FILLER_SIZE and (size <= 0 or not last < physical < log.first):
                    return queue_offset
                queue_offset, last = queue_offset + 1, max(last, physical)
        return queue_offset

    def _without_fillers(self, end: int) -> int:
        """Fillers at the end were made for a unit that is gone: the next message may come from anywhere."""
        while end > self.first:
            start = max(self.first, end - _READ_AT_ONCE)
            units = UNIT.iter_unpack(self._files.read(start * UNIT.size, (end - start) * UNIT.size))
            for _, size, _ in reversed(list(units)):
                if size != FILLER_SIZE:
                    return end
                end -= 1
        return end

    def _search(self, physical: int, log: CommitLog | None, low: int) -> int:
        """The first queue offset from ``low`` of a message not before ``physical``; ``log`` confirms those before."""
        high = self.end
        while low < high:
            middle = (low + high) // 2
            if self._is_before(middle, physical, log):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_before(self, queue_offset: int, physical: int, log: CommitLog | None) -> bool:
        offset, size, _ = self.unit(queue_offset)
        if size == FILLER_SIZE or (size > 0 and 0 <= offset < physical and log is None):
            return True
        if log is None or size <= 0 or not 0 <= offset < physical:
            return False
        record = log.record(offset, size)
        run = scan_records(bytes(record), offset) if record else RecordRun()
        found = zip(run.topics, run.queue_ids, run.queue_offsets, strict=True)
        return (self.topic.encode(), self.queue_id, queue_offset) in found

    def restart(self) -> None:
        """The topic was deleted and made anew: what the queue has belongs to messages of the old one."""
        self.delete()
        self.last_physical = -1

    def forget_before(self, physical: int) -> None:
        """The log begins at ``physical`` now."""
        with self._removing:
            self.first = max(self.first, self._search(physical, None, self.first))

    def drop_files(self, durable: int) -> None:
        """Delete the files whose messages are all gone. On a thread.

        The last message before the physical offset ``durable`` keeps its unit: when a crash takes all later ones, that
        unit tells which queue offset is next.
        """
        with self._removing:
            kept = max(0, self._search(durable, None, self._files.first // UNIT.size) - 1)
            self._files.drop_before(min(self.first, kept) * UNIT.size)

    def sync(self) -> None:
        """Make all units written so far durable, and the queue's folders. On a thread."""
        self.dirty = False  # before the sync: a later write says so again
        with self._removing:
            end = self.end * UNIT.size
            self._files.sync(self._synced, end)
            self._synced = end
        if not self._named:
            self._disk.sync_dir(os.path.join(self._root, self.topic))
            self._disk.sync_dir(self._root)
            self._named = True

    def delete(self) -> None:
        """Remove the queue from the disk; the folders stay."""
        with self._removing:
            self._files.clear()
            self.first = self.end = self._synced = 0

    def close(self) -> None:
        self._files.close()


class ConsumeQueues:
    """All queues of a store."""

    def __init__(self, disk: Disk, root: str, file_units: int, handles: Handles | None = None) -> None:
        self._disk, self._root, self._file_units, self._handles = disk, root, file_units, handles
        self._queues: dict[Queue, ConsumeQueue] = {}
        self._dirty: deque[ConsumeQueue] = deque()

    def load(self, dispatched: int, log: CommitLog, *, repair: bool) -> None:
        """All that are on the disk; see ``ConsumeQueue.load``."""
        for topic, queue_id in list_queues(self._disk, self._root):
            queue = ConsumeQueue(self._disk, self._root, topic, queue_id, self._file_units, self._handles)
            queue.load(dispatched, log, repair=repair)
            self._queues[topic, queue_id] = queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(tuple(self._queues.values()))

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if it is missing."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = ConsumeQueue(self._disk, self._root, topic, queue_id, self._file_units, self._handles)
            self._queues[topic, queue_id] = queue
        return queue

    def mark(self, queue: ConsumeQueue) -> None:
        """It has units that are not synced."""
        if not queue.dirty:
            queue.dirty = True
            self._dirty.append(queue)

    def sync(self) -> None:
        """All that was marked before. On a thread."""
        for _ in range(len(self._dirty)):
            self._dirty[0].sync()
            self._dirty.popleft()  # not before: a full disk may have stopped it

    def delete_topic(self, topic: str) -> list[Queue]:
        """Remove its queues; which they were."""
        gone = [key for key in self._queues if key[0] == topic]
        for key in gone:
            self._queues.pop(key).delete()
        return gone

    def close(self) -> None:
        for queue in self:
            queue.close()


def list_queues(disk: Disk, root: str) -> Iterator[Queue]:
    """The queues that have a folder."""
    for topic in disk.listdir(root):
        for queue_id in disk.listdir(os.path.join(root, topic)):
            if queue_id.isdecimal():
                yield topic, int(queue_id)
