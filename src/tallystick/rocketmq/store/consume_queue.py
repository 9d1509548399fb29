"""ConsumeQueues: for each queue of each topic, where its messages are in the CommitLog. Reput builds them.

A queue is a run of files of units (``UnitFiles``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from tallystick.codec.records import RecordRun, scan_records
from tallystick.errors import StorageError
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.files import FileQueue, StoreFile
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.queue_state import QueueRow
from tallystick.rocketmq.store.units import FILL_AT_ONCE, FILLER, FILLER_SIZE, UNIT, Unit, UnitFiles
from tallystick.runtime.disk import Disk

_ALWAYS = -1  # born before the first record


class ConsumeQueue:
    """One queue. ``first`` and ``end`` are queue offsets: of the oldest message still in the log, and of the next.

    Files have units up to ``filled``; from there to ``end`` reads find fillers. Of units that were lost those from
    ``hole_next`` up to ``hole_stop`` are not there yet: ``Rebuild`` makes them again, in order.
    """

    def __init__(
        self, disk: Disk, *, root: str, topic: str, queue_id: int, file_units: int, handles: Handles | None = None
    ) -> None:
        self.topic, self.queue_id, self._root, self._disk = topic, queue_id, root, disk
        self._is_named = (
            False  # whether its folders are known to be durable: a process that was killed may have made them
        )
        self._files = FileQueue(disk, f"{root}/{topic}/{queue_id}", file_units * UNIT.size, handles)
        self._units = UnitFiles(self._files)
        self.first = self.end = 0
        self.last_physical = -1  # of the last message
        self.born = 0  # records before this physical offset are those of a deleted topic; 0: unknown
        self.hole_next = self.hole_stop = 0
        self._synced_bytes = 0
        self._rewritten: tuple[int, int] | None = None  # bytes that a rebuild wrote and nobody synced
        self._detached: list[StoreFile] = []
        self.dirty = False
        self._removing = threading.Lock()  # the topic does not go while a thread looks at its files

    @property
    def filled(self) -> int:
        """Files have units up to here."""
        return self._units.filled

    def load(self, dispatched: int, log: CommitLog, *, repair: bool) -> None:
        """Keep the units of records before the physical offset ``dispatched``, found by reading them.

        ``repair``: after a crash the other ones may be torn, so that only those count which the log confirms; and they
        go from the disk too, so that no later crash brings them back.
        """
        self._files.load(tail=0 if repair else None)
        units = self._units
        self.first, units.filled = units.first, units.limit
        confirmable = units.behind_expired(self.first, log.start, log.first) if repair else self.first
        units.filled = units.search(dispatched, confirmable, confirms=self._confirms(log) if repair else None)
        self._settle(self._files.clear)
        if repair and not self._files.is_blank_from(self._synced_bytes):
            self._files.cut(self._synced_bytes)
        self.learn_born()

    def _settle(self, forget_files: Callable[[], None]) -> None:
        """``filled`` was found by what the log has: it is the end, but for fillers."""
        self.end = self._units.filled = self._units.without_fillers(self.first, self.filled)
        if self.end == self.first:  # nothing is left: where it begins was not durable either
            forget_files()
            self.first = self.end = self._units.filled = 0
        self._synced_bytes = self.filled * UNIT.size
        self.last_physical = self.unit(self.filled - 1)[0] if self.filled > self.first else -1

    def adopt(self, row: QueueRow) -> None:
        """Be what a checkpoint noted, unread. Files that are missing or short make a hole."""
        self.first, self.end, self._units.filled = row.first, row.end, row.filled
        self.last_physical, self.born, self._synced_bytes = row.last_physical, row.born, row.filled * UNIT.size
        if row.start < 0:
            return
        self._files.adopt(row.start * UNIT.size, self._synced_bytes)
        self._files.lacking(self._synced_bytes)
        self._drop_lost_expired()
        lost_files = self._files.absent
        self._is_named = not lost_files
        if lost_files:
            in_file = self._units.in_file
            start = max(self.first, lost_files[0].start // UNIT.size)
            self.open_hole(start, max(start, min(self.filled, lost_files[-1].start // UNIT.size + in_file)))

    def _drop_lost_expired(self) -> None:
        """Do without lost files that have expired messages alone: nobody reads these, and nothing brings them back."""
        in_file = self._units.in_file
        stops = [min(file.start // UNIT.size + in_file, self.filled) for file in self._files.absent]
        stop = max((stop for stop in stops if stop <= self.first), default=0)
        if not stop:
            return
        nothing_is_left = stop == self.filled
        detached = self._files.detach_before(self._files.limit if nothing_is_left else stop * UNIT.size)
        # The next message may begin a file of the same name as the last lost one, which is gone as it is.
        self._detached += [file for file in detached if file.start // UNIT.size + in_file <= self.end]
        self._files.absent = [file for file in self._files.absent if file not in detached]
        if nothing_is_left:  # the next message begins a new file
            self.first, self._units.filled, self._synced_bytes = self.end, 0, 0

    def distrust(self) -> None:
        """After power loss: files may be those of a topic that was made anew, which the log lost, under the names of
        the ones noted. What is not the queue's own is lost."""
        in_file = self._units.in_file
        for file in tuple(self._files.files):
            start = max(self.first, file.start // UNIT.size)
            stop = end = min(file.start // UNIT.size + in_file, self.filled)
            if self.has_hole and start < self.hole_next:
                stop = min(end, self.hole_next)
            last = self._units.last_message(start, stop - 1) if start < stop and not self.lacks(start) else None
            if last is not None:
                physical, size, _ = self.unit(last)
                if size <= 0 or not self.born <= physical <= self.last_physical:
                    self.open_hole(start, end)

    def learn_born(self) -> None:
        """A queue that nobody noted, or not since when it is there, begins with the first message that it has."""
        if self.born or self.first >= self.filled or self.lacks(self.first):
            return
        stop = self.hole_next if self.has_hole and self.first < self.hole_next else self.filled
        for _, (physical, size, _) in self._units.units(self.first, stop):
            if size != FILLER_SIZE:
                if size > 0 and 0 <= physical <= self.last_physical:
                    self.born = physical or _ALWAYS
                return

    def begin(self, physical: int) -> None:
        """The topic of a queue with a hole was made anew at ``physical``, says the log: what was built again of older
        messages is lost again. Where ``born`` is known it stays."""
        with self._removing:
            if self.has_hole and not self.born:
                if self.first < self.hole_next and self.unit(self.first)[0] < physical:
                    self.hole_next = self.first
                self.born = physical or _ALWAYS

    def open_hole(self, start: int, stop: int) -> None:
        """Units from ``start`` up to ``stop`` are lost, beside those that are known to be."""
        if self.has_hole:
            start, stop = min(start, self.hole_next), max(stop, self.hole_stop)
        assert stop <= self.filled, "what was never written is not lost"
        self.hole_next, self.hole_stop = start, stop

    @property
    def has_hole(self) -> bool:
        return self.hole_next < self.hole_stop

    def lacks(self, queue_offset: int) -> bool:
        """Whether the unit is lost, and not yet made again."""
        return self.hole_next <= queue_offset < self.hole_stop

    def hole_physical(self) -> int:
        """No record of a lost unit is before this physical offset."""
        at, files = self.hole_next * UNIT.size, self._files
        before = files.find(at - 1) if at > files.first and not at % files.file_bytes else None
        is_behind_a_file = before is not None and before not in files.absent  # of which all messages may have expired
        return self.unit(self.hole_next - 1)[0] if is_behind_a_file else 0

    def row(self) -> QueueRow:
        """What a checkpoint notes."""
        start = self._units.first if self._files.files else -1
        return QueueRow(
            self.topic, self.queue_id, self.first, self.end, self.filled, start, self.last_physical, self.born
        )

    def cut_behind(self, physical: int) -> int:
        """The log lost its end: forget the units of records from ``physical`` on; ``blank_behind`` when it is noted.

        Returns from where the log is to be dispatched again: nobody knows how many of lost units were before that.
        """
        self.born = min(self.born, physical)
        if self.last_physical < physical:
            return physical
        again = min(physical, max(self.born, self.hole_physical())) if self.has_hole else physical
        first = end = self.first
        if self.has_hole:  # the file with ``first`` may be lost, and what is before it
            end = self._units.search(physical, self.hole_stop)  # the log may have begun behind all of these since
            self._units.filled, self.hole_next, self.hole_stop = self.hole_next, 0, 0
        else:
            self.first = self._units.first
        self._units.filled = self._units.search(physical, self.first)
        end = max(end, self.filled)  # the offsets of fillers before the first lost message were given out elsewhere
        self._settle(self._files.close)
        if not self._files.files:  # messages before the first are gone for good, and nobody gets their offsets again
            self.first = self.end = first
        self.advance(end)
        return again

    def blank_behind(self) -> None:
        """What is on the disk behind the end was never durable; see ``FileQueue.blank``."""
        self._files.blank(self.filled * UNIT.size)

    def advance(self, end: int) -> None:
        """The next message gets at least this queue offset: those before it were given out elsewhere."""
        if end > self.end:
            if not self._files.files:
                self.first = end
            self.end = end

    def retreat(self) -> None:
        """End where the last unit is: what ``advance`` passed over may still come."""
        self.end = self.filled
        self.first = min(self.first, self.end)

    def write(self, queue_offset: int, units: bytes, *, hold: bool = False) -> None:
        """Packed units from ``queue_offset``, which is ``end`` or above it. Raises DiskFull: then nothing changed.

        ``hold``: the file gets them with the next ``sync``, ``flush`` or ``write``.
        """
        if queue_offset < max(self.filled, self.hole_stop):
            raise self._misplaced(queue_offset)
        if queue_offset != self.filled or not self._files.files:
            self._fill(queue_offset)
        if not self.born and self.last_physical < 0:
            self.born = UNIT.unpack_from(units)[0] or _ALWAYS
        self._units.append(units, hold=hold)
        self.last_physical = UNIT.unpack_from(units, len(units) - UNIT.size)[0]
        self.end = max(self.end, self.filled)

    def rebuild(self, units: Sequence[tuple[int, Unit]], stop: int = 0) -> bool:
        """Units of the hole, by rising queue offset; where none is given before one, or before ``stop``, are fillers.

        Returns False when there is no hole any more: the topic was deleted meanwhile.
        """
        with self._removing:
            if not self.has_hole:
                return False
            if self._rewritten is None:
                if self.hole_next == self.first:  # zeros before it in its file are no message of any place in the log
                    self.hole_next -= self.first % self._units.in_file
                self._rewritten = self.hole_next * UNIT.size, self.hole_next * UNIT.size
            packed: list[bytes] = []
            for queue_offset, unit in units:
                if queue_offset != self.hole_next + len(packed):
                    self._rewrite(packed)
                    self._rewrite_fillers(queue_offset)
                    packed = []
                packed.append(UNIT.pack(*unit))
            self._rewrite(packed)
            self._rewrite_fillers(stop)
            return True

    def _rewrite_fillers(self, stop: int) -> None:
        while self.hole_next < stop:
            self._rewrite([FILLER] * min(FILL_AT_ONCE, stop - self.hole_next))

    def _rewrite(self, packed: Sequence[bytes]) -> None:
        start, stop = self.hole_next, self.hole_next + len(packed)
        if stop > self.hole_stop:
            raise self._misplaced(start)
        self._units.write(b"".join(packed), start * UNIT.size)
        self.hole_next = stop  # not before they are written: from here on they are read
        assert self._rewritten is not None
        self._rewritten = self._rewritten[0], stop * UNIT.size

    def _misplaced(self, queue_offset: int) -> StorageError:
        """Two writers for one unit: units that are lost are made by ``rebuild`` alone, all others by ``write``."""
        return StorageError(
            "a unit of a queue would be written over: the store stops before messages are hidden. The log has all: "
            "stop the broker, delete the folder of that queue, and start again",
            path=self._files.directory,
            offset=queue_offset,
            hole=(self.hole_next, self.hole_stop),
            filled=self.filled,
        )

    def _fill(self, queue_offset: int) -> None:
        if not self._files.files:  # as the original: from the start of the file that has the first unit
            self._units.filled = queue_offset - queue_offset % self._units.in_file
            self.first, self._synced_bytes = queue_offset, self.filled * UNIT.size
            if any(file.start >= self._synced_bytes for file in self._detached):
                self.delete_files()  # it steps back to where it began: those have the names of what comes
        self.fill(queue_offset)

    def fill(self, queue_offset: int) -> None:
        """Fillers up to there, of a queue that has files. May raise DiskFull."""
        self._units.fill(queue_offset)
        self.end = max(self.end, self.filled)

    def read(self, queue_offset: int, count: int) -> bytes:
        """Units from ``queue_offset``, which is not before ``first``, up to those that are lost."""
        stop = min(queue_offset + count, self.end)
        if self.has_hole and queue_offset < self.hole_stop:
            stop = min(stop, self.hole_next)
        units, missing = self._units.read(queue_offset, min(stop, self.filled)), stop - max(queue_offset, self.filled)
        return units + FILLER * missing if missing > 0 else units

    def last_message(self, low: int, last: int) -> int | None:
        """Returns the last queue offset from ``low`` to ``last`` that has a message; None if none has."""
        last = min(last, self.filled - 1)
        return self._units.last_message(low, last) if low <= last else None

    def unit(self, queue_offset: int) -> Unit:
        """Physical offset, size and tags code; the queue must have it."""
        return self._units.unit(queue_offset)

    def _confirms(self, log: CommitLog) -> Callable[[int, Unit], bool]:
        """Whether the log has the message of a unit."""

        def confirm(queue_offset: int, unit: Unit) -> bool:
            physical, size, _ = unit
            record = log.record(physical, size)
            run = scan_records(bytes(record), physical) if record else RecordRun()
            messages = zip(run.topics, run.queue_ids, run.queue_offsets, strict=True)
            return (self.topic.encode(), self.queue_id, queue_offset) in messages

        return confirm

    def restart(self, physical: int) -> None:
        """The topic was deleted and made anew, from ``physical`` on: what the queue has are messages of the old one."""
        self.delete()
        self.last_physical, self.born = -1, physical

    def empty(self) -> None:
        """Nobody knows what its files lack: all units are to be dispatched again, into new ones. The next message gets
        no queue offset that was given out."""
        self._files.close()
        self.first, self._units.filled, self._synced_bytes = self.end, 0, 0
        self.last_physical, self.born, self.hole_next, self.hole_stop = -1, 0, 0, 0

    @property
    def has_files(self) -> bool:
        return bool(self._files.files)

    def forget_deleted(self, physical: int) -> bool:
        """The topic was deleted at ``physical``, and made anew; whether that is news. What is behind a hole waits."""
        if physical <= max(self.born, 0):
            return False
        self.born = physical
        self.forget_before(physical)
        return True

    def forget_before(self, physical: int) -> bool:
        """The log begins at ``physical`` now; whether that changes ``first``. What is behind a hole waits."""
        with self._removing:
            before, whole = self.first, self.hole_next if self.has_hole else self.filled
            if before < whole:
                self.first = max(before, self._units.search(physical, before, whole))
            return self.first != before

    def detach_files(self, durable: int) -> bool:
        """Count the files whose messages are all gone as gone, before a checkpoint notes it; whether there are any.

        The last message before the physical offset ``durable`` keeps its unit: when a crash takes all later ones, that
        unit tells which queue offset is next. On a thread.
        """
        with self._removing:
            if not self.has_hole and self._files.files:
                keep_from = max(0, self._units.search(durable, self._units.first) - 1)
                self._detached += self._files.detach_before(min(self.first, keep_from) * UNIT.size)
            return bool(self._detached)

    def delete_files(self) -> None:
        """Delete those that were detached. On a thread."""
        with self._removing:  # a queue that is made anew has files of the same names
            self._delete_detached()

    def _delete_detached(self) -> None:
        self._files.delete(self._detached)
        self._detached = []  # not before: what fails is tried again

    def remove_expired_files(self) -> None:
        """Delete those that were detached, as a checkpoint noted, when a kill came."""
        self._files.remove_before_first()

    def sync(self) -> None:
        """Make all units written so far durable, and the queue's folders. On a thread."""
        with self._removing:
            end, whole, rewritten = self.filled * UNIT.size, not self.has_hole, self._rewritten
            self._files.sync(self._synced_bytes, end)
            if rewritten is not None:
                self._files.sync(*rewritten)
                self._rewritten = None if whole else self._rewritten
            self._synced_bytes = end
            if not self._is_named and self._files.files and not self._files.absent:
                self._disk.sync_dir(os.path.join(self._root, self.topic))
                self._disk.sync_dir(self._root)
                self._is_named = True

    def flush(self) -> None:
        """Write what is held. On a thread."""
        with self._removing:
            self._files.flush()

    def synced(self, filled: int, born: int) -> None:
        """The whole file system was synced when the files had units up to ``filled``, of the topic ``born`` there."""
        with self._removing:
            if self.born == born:
                self._synced_bytes, self._is_named = max(self._synced_bytes, filled * UNIT.size), True

    def delete(self) -> None:
        """Remove the queue's files from the disk."""
        with self._removing:
            self._delete_detached()
            self._files.clear()
            self.first = self.end = self._units.filled = 0
            self._synced_bytes = self.hole_next = self.hole_stop = 0
            self._rewritten = None

    def close(self) -> None:
        self._files.close()
