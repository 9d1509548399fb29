"""The index: messages by key, in files of a hash table and the chains behind its slots. Integers big-endian::

    header   begin time 8 | end time 8 | begin physical offset 8 | end physical offset 8 | used slots 4 | entries 4
    slots    number of the slot's newest entry 4 each; 0 for none
    entries  hash 4 | physical offset 8 | seconds after the begin time 4 | number of the slot's entry before 4

Entry 0 is never used and counted all the same. The hash is the absolute value of ``String.hashCode`` of ``topic#key``,
or ``topic#T#tags``. Different keys may have one hash: whoever asks compares. Source: ``IndexFile``, ``IndexService``.

Entries are written as they come, slots are kept in memory until a sync. A sync makes the entries durable before the
slots that point to them; so after a crash each slot's lost past is found by going back through the chains.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tallystick.errors import StorageError
from tallystick.rocketmq.store.files import sync_for_good
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.disk import Disk

_HEADER = struct.Struct(">4q2i")
HEADER_BYTES = _HEADER.size
ENTRY = struct.Struct(">iqii")
SLOT_BYTES = 4
_PAGE_BITS = 10
_PAGE_SLOTS = 1 << _PAGE_BITS
_INT_MAX = 0x7FFFFFFF


@dataclass
class Header:
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1

    def pack(self) -> bytes:
        return _HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, self.count)


_NONE = Header(end_offset=-1)


def index_hash(code: int) -> int:
    """What the index makes of a hash code, given as unsigned 32 bits: the absolute value of the signed number."""
    return code if code <= _INT_MAX else (1 << 32) - code & _INT_MAX


def index_hashes(codes: Sequence[int]) -> list[int]:
    """``index_hash`` of each."""
    return [code if code <= _INT_MAX else -code & _INT_MAX for code in codes]


class IndexFile:
    """One file. ``put`` runs on the loop, ``sync`` on a thread."""

    def __init__(self, handles: Handles, path: str, settings: StoreSettings) -> None:
        self.path, self._slot_count, self._capacity = path, settings.index_slots, settings.index_entries
        self._file = handles.open(path, create=True)
        self._entries_at = HEADER_BYTES + self._slot_count * SLOT_BYTES
        if self._file.size() < self.size_of(settings):
            self._file.truncate(self.size_of(settings))
        data = self._file.read(HEADER_BYTES, 0)
        self.header = Header(*_HEADER.unpack(data))
        self.header.count = max(1, self.header.count)
        self._slots: array[int] | None = None
        self.dirty = False
        self._dirty_pages = bytearray(-(-self._slot_count // _PAGE_SLOTS))
        self._putting = threading.Lock()  # no slot is copied that points to an entry not yet written

    @staticmethod
    def size_of(settings: StoreSettings) -> int:
        return HEADER_BYTES + settings.index_slots * SLOT_BYTES + settings.index_entries * ENTRY.size

    @property
    def room(self) -> int:
        return self._capacity - self.header.count

    def put(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int]) -> None:
        """Keys by columns, not more than there is room for. Raises DiskFull: then nothing changed."""
        with self._putting:
            self._put(hashes, physicals, stored_ms)

    def _put(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int]) -> None:
        slots, header, count = self._memory(), self.header, self.header.count
        begin_ms = header.begin_ms if count > 1 else stored_ms[0]
        slot_count, dirty, previous = self._slot_count, self._dirty_pages, []
        places = [key_hash % slot_count for key_hash in hashes]
        for number, place in enumerate(places, count):
            previous.append(slots[place])
            slots[place] = number
            dirty[place >> _PAGE_BITS] = 1
        after = {ms: min(max(0, ms - begin_ms) // 1000, _INT_MAX) for ms in set(stored_ms)}
        seconds = [after[ms] for ms in stored_ms]
        try:
            self._file.write(
                [b"".join(map(ENTRY.pack, hashes, physicals, seconds, previous))], self.entry_position(count)
            )
        except BaseException:
            for place, number in zip(reversed(places), reversed(previous), strict=True):
                slots[place] = number
            raise
        if count == 1:
            header.begin_ms, header.begin_offset = begin_ms, physicals[0]
        header.used_slots += previous.count(0)
        header.end_offset, header.end_ms, header.count = physicals[-1], stored_ms[-1], count + len(hashes)

    def _memory(self) -> array[int]:
        if self._slots is None:
            size = self._slot_count * SLOT_BYTES
            new = self.header.count == 1
            self._slots = array("i", bytes(size) if new else self._file.read(size, HEADER_BYTES))
            _big_endian(self._slots)
        return self._slots

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds, the entry before."""
        found: tuple[int, int, int, int] = ENTRY.unpack(self._file.read(ENTRY.size, self.entry_position(number)))
        return found

    def entry_position(self, number: int) -> int:
        return self._entries_at + number * ENTRY.size

    def slot(self, number: int) -> int:
        if self._slots is not None:
            return self._slots[number]
        return int.from_bytes(self._file.read(SLOT_BYTES, HEADER_BYTES + number * SLOT_BYTES), "big", signed=True)

    def select(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of the messages with that hash and a store time in between, newest first."""
        number = self.slot(key_hash % self._slot_count)
        while 0 < number < self.header.count:
            found, physical, seconds, previous = self.entry(number)
            stored_ms = self.header.begin_ms + seconds * 1000  # whole seconds: rounded down
            if found == key_hash and begin_ms - 1000 < stored_ms <= end_ms:
                yield physical
            if previous >= number or stored_ms + 1000 <= begin_ms:
                return
            number = previous

    def sync(self) -> None:
        """Entries, then slots, then the header. The slots are those of moments before the entries are synced."""
        self.dirty = False  # before all else: a later entry says so again
        header, pages = replace(self.header), []
        if self._slots is not None:
            page = -1
            while (page := self._dirty_pages.find(1, page + 1)) >= 0:
                with self._putting:
                    self._dirty_pages[page] = 0
                    copy = self._slots[page * _PAGE_SLOTS : (page + 1) * _PAGE_SLOTS]
                _big_endian(copy)
                pages.append((page, copy))
        try:
            if pages:
                sync_for_good(self._file)
            for page, copy in pages:
                self._file.write([copy.tobytes()], HEADER_BYTES + page * _PAGE_SLOTS * SLOT_BYTES)
            self._file.write([header.pack()], 0)
            sync_for_good(self._file)
        except StorageError:
            for page, _ in pages:
                self._dirty_pages[page] = 1
            raise

    def cut(self, dispatched: int) -> None:
        """Forget the entries of records from the physical offset ``dispatched`` on, durably.

        They are wiped last: until slots and header are durable, they tell the next start what is to be mended. Only
        those that a slot points to are sure to be whole.
        """
        keep, stale = self._first_from(dispatched), self._written()
        if keep == stale and self.header.count == keep:
            return
        for number in range(stale - 1, keep - 1, -1):
            key_hash, _, _, previous = self.entry(number)
            slot = key_hash % self._slot_count
            if self.slot(slot) == number:
                self._set_slot(slot, previous if previous < number else 0)
        if keep == 1:
            self.header = Header()
        else:
            _, physical, seconds, _ = self.entry(keep - 1)
            self.header.end_offset, self.header.end_ms = physical, self.header.begin_ms + seconds * 1000
            self.header.count = keep
            self.header.used_slots = min(self.header.used_slots, keep - 1)
        self._file.write([self.header.pack()], 0)
        self._file.sync()
        self._file.write([bytes((stale - keep) * ENTRY.size)], self.entry_position(keep))
        self._file.sync()

    def _set_slot(self, slot: int, number: int) -> None:
        self._file.write([number.to_bytes(SLOT_BYTES, "big")], HEADER_BYTES + slot * SLOT_BYTES)

    def _first_from(self, dispatched: int) -> int:
        """The first entry of a record that is not before ``dispatched``."""
        low, high = 1, self.header.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < dispatched:
                low = middle + 1
            else:
                high = middle
        return low

    def _written(self) -> int:
        """The first entry, from what the header knows on, that was never written."""
        number = self.header.count
        while number < self._capacity and self.entry(number) != (0, 0, 0, 0):
            number += 1
        return number

    def close(self) -> None:
        self._file.close()


class Index:
    """All files, oldest first. ``enabled`` False: nothing is added, nothing found."""

    def __init__(self, disk: Disk, directory: str, settings: StoreSettings, handles: Handles | None = None) -> None:
        self._disk, self._directory, self._settings = disk, directory, settings
        self._handles = handles or Handles(disk, settings.max_open_files)
        self._files: list[IndexFile] = []
        self._unsynced: deque[IndexFile] = deque()

    def load(self, dispatched: int, *, discard_after_ms: int | None) -> None:
        """Keep the entries of records before ``dispatched``. Files with later times than ``discard_after_ms`` go."""
        for name in self._disk.listdir(self._directory):
            path = os.path.join(self._directory, name)
            file = IndexFile(self._handles, path, self._settings)
            late = _is_late(file, discard_after_ms)
            if not late:
                file.cut(dispatched)
            if late or file.header.count == 1:
                file.close()
                self._disk.unlink(path)
            else:
                self._files.append(file)
        self._disk.sync_dir(self._directory)

    def lost_from(self, discard_after_ms: int) -> int | None:
        """Where the first record is whose entries ``load`` would discard; None: it would keep all."""
        lost = []
        for name in self._disk.listdir(self._directory):
            file = IndexFile(self._handles, os.path.join(self._directory, name), self._settings)
            if _is_late(file, discard_after_ms):
                lost.append(file.header.begin_offset)
            file.close()
        return min(lost, default=None)

    @property
    def end_ms(self) -> int:
        return self._newest.end_ms

    @property
    def end_offset(self) -> int:
        """Records before this one are in it."""
        return self._newest.end_offset

    @property
    def _newest(self) -> Header:
        """Of the last file with entries: the one after it was made for some that a full disk did not take."""
        for file in self._files[:-3:-1]:
            if file.header.count > 1:
                return file.header
        return _NONE

    def put(
        self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int], now_ms: int
    ) -> None:  # fmt: skip
        """Keys by columns. Raises DiskFull; what is in it then is skipped by the next attempt."""
        while hashes:
            if not self._files or not self._files[-1].room:
                self._add_file(now_ms)
            file = self._files[-1]
            room = file.room
            file.put(hashes[:room], physicals[:room], stored_ms[:room])
            if not file.dirty:
                file.dirty = True
                self._unsynced.append(file)
            hashes, physicals, stored_ms = hashes[room:], physicals[room:], stored_ms[room:]

    def _add_file(self, now_ms: int) -> None:
        name = index_name(now_ms)
        while self._disk.exists(os.path.join(self._directory, name)):
            now_ms += 1
            name = index_name(now_ms)
        self._files = [*self._files, IndexFile(self._handles, os.path.join(self._directory, name), self._settings)]

    def select(self, key_hash: int, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of candidates, newest first."""
        found: list[int] = []
        for file in reversed(self._files):
            if file.header.begin_ms <= end_ms and file.header.end_ms + 1000 > begin_ms:
                for physical in file.select(key_hash, begin_ms, end_ms):
                    found.append(physical)
                    if len(found) == max_count:
                        return found
        return found

    def sync(self) -> int:
        """Durable up to the time that is returned. On a thread."""
        end_ms = self.end_ms
        for _ in range(len(self._unsynced)):
            self._unsynced[0].sync()
            self._disk.sync_dir(self._directory)
            self._unsynced.popleft()  # not before: a full disk may have stopped it
        return end_ms

    def drop_before(self, physical: int) -> None:
        """Delete the files whose messages are all gone, but never the last. On a thread."""
        gone = [file for file in self._files[:-1] if file.header.end_offset < physical]
        self._files = self._files[len(gone) :]
        for file in gone:
            self._disk.unlink(file.path)
            file.close()
        if gone:
            self._disk.sync_dir(self._directory)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _is_late(file: IndexFile, discard_after_ms: int | None) -> bool:
    return discard_after_ms is not None and file.header.end_ms > discard_after_ms


def index_name(now_ms: int) -> str:
    """Local time to the millisecond."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03}"


def _big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()
