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
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tallystick.codec.dispatched import PAGE_BITS, add_index_entries
from tallystick.errors import StorageError
from tallystick.rocketmq.store.files import sync_for_good
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.queue_state import IndexRow
from tallystick.rocketmq.store.settings import StoreSettings

_HEADER = struct.Struct(">4q2i")
HEADER_BYTES = _HEADER.size
ENTRY = struct.Struct(">iqii")
SLOT_BYTES = 4
_PAGE_SLOTS = 1 << PAGE_BITS
_INT_MAX = 0x7FFFFFFF
_READ_ENTRIES = 1024
_STEP_ENTRIES = 128  # of a chain: well under a millisecond
PASSED = -1  # no physical offset, but as many entries that were looked at


@dataclass
class IndexHeader:
    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1

    def pack(self) -> bytes:
        return _HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, self.count)


def index_hash(code: int) -> int:
    """Returns the absolute value of a hash code, which is given as unsigned 32 bits."""
    return code if code <= _INT_MAX else (1 << 32) - code & _INT_MAX


def index_hashes(codes: Sequence[int]) -> list[int]:
    """Returns ``index_hash`` of each hash code."""
    return [code if code <= _INT_MAX else -code & _INT_MAX for code in codes]


class IndexFile:
    """One file. ``put`` runs on the loop, ``sync`` on a thread."""

    def __init__(self, handles: Handles, path: str, settings: StoreSettings, header: IndexHeader | None = None) -> None:
        """``header`` is that of an existing file, if it is known; else it is read, and a missing file is made."""
        self.path, self._slot_count, self._capacity = path, settings.index_slots, settings.index_entries
        self._file = handles.open(path, create=header is None)
        self._entries_at = HEADER_BYTES + self._slot_count * SLOT_BYTES
        self.header = header or self._read_header(self.size_of(settings))
        self.lost_records: range | None = None  # physical offsets of the records whose entries were lost and come again
        self._slots: array[int] | None = None
        self.dirty = False
        self._dirty_pages = bytearray(-(-self._slot_count // _PAGE_SLOTS))
        self._putting = threading.Lock()  # no slot is copied that points to an entry not yet written

    def _read_header(self, size: int) -> IndexHeader:
        if self._file.size() < size:
            self._file.truncate(size)
        header = IndexHeader(*_HEADER.unpack(self._file.read(HEADER_BYTES, 0)))
        header.count = max(1, header.count)
        return header

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def row(self) -> IndexRow:
        """Returns the row that a checkpoint notes."""
        header = self.header
        return IndexRow(
            self.name,
            header.begin_ms,
            header.end_ms,
            header.begin_offset,
            header.end_offset,
            header.used_slots,
            header.count,
        )

    @staticmethod
    def size_of(settings: StoreSettings) -> int:
        return HEADER_BYTES + settings.index_slots * SLOT_BYTES + settings.index_entries * ENTRY.size

    def goes_on_from(self, noted: IndexHeader) -> bool:
        """Returns whether the header may be a later one of the file that was noted; else it is damaged."""
        header = self.header
        same_begin = (header.begin_ms, header.begin_offset) == (noted.begin_ms, noted.begin_offset)
        return noted.count <= header.count <= self._capacity and (same_begin or noted.count == 1)

    @property
    def room(self) -> int:
        return self._capacity - self.header.count

    def put(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int]) -> None:
        """Add keys, given by columns; there must be room for all. Raises DiskFull: then nothing changed."""
        with self._putting:
            self._put(hashes, physicals, stored_ms)

    def put_some(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int]) -> None:
        """Do as ``put`` for as many as there is room for; the others go to the next file."""
        room = self.room
        if hashes[:room]:
            self.put(hashes[:room], physicals[:room], stored_ms[:room])

    def _put(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int]) -> None:
        slots, header, count = self._memory(), self.header, self.header.count
        begin_ms = header.begin_ms if count > 1 else stored_ms[0]
        entries, free_slots = add_index_entries(hashes, physicals, stored_ms, begin_ms, count, slots, self._dirty_pages)
        try:
            self._file.write([entries], self.entry_position(count))
        except BaseException:
            previous = [before for *_, before in ENTRY.iter_unpack(entries)]
            for key_hash, before in zip(reversed(hashes), reversed(previous), strict=True):
                slots[key_hash % self._slot_count] = before
            raise
        if count == 1:
            header.begin_ms, header.begin_offset = begin_ms, physicals[0]
        header.used_slots += free_slots
        header.end_offset, header.end_ms, header.count = physicals[-1], stored_ms[-1], count + len(hashes)

    def read_slots(self) -> None:
        with self._putting:
            self._memory()

    def _memory(self) -> array[int]:
        if self._slots is None:
            size = self._slot_count * SLOT_BYTES
            new = self.header.count == 1
            self._slots = array("i", bytes(size) if new else self._file.read(size, HEADER_BYTES))
            _big_endian(self._slots)
        return self._slots

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Returns hash, physical offset, seconds, and the number of the entry before."""
        entry: tuple[int, int, int, int] = ENTRY.unpack(self._file.read(ENTRY.size, self.entry_position(number)))
        return entry

    def entry_position(self, number: int) -> int:
        return self._entries_at + number * ENTRY.size

    def slot(self, number: int) -> int:
        if self._slots is not None:
            return self._slots[number]
        return int.from_bytes(self._file.read(SLOT_BYTES, HEADER_BYTES + number * SLOT_BYTES), "big", signed=True)

    def select(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yields physical offsets of the messages with that hash and a store time in between, newest first; and PASSED
        after each step, as a chain may have millions of entries that are none of these."""
        number, steps_left = self.slot(key_hash % self._slot_count), _STEP_ENTRIES
        while 0 < number < self.header.count:
            if not (steps_left := steps_left - 1):
                yield PASSED
                steps_left = _STEP_ENTRIES
            entry_hash, physical, seconds, previous = self.entry(number)
            stored_ms = self.header.begin_ms + seconds * 1000  # whole seconds: rounded down
            if entry_hash == key_hash and begin_ms - 1000 < stored_ms <= end_ms:
                yield physical
            if previous >= number or stored_ms + 1000 <= begin_ms:
                return
            number = previous

    def sync(self) -> None:
        """Sync entries, then slots, then the header. The slots are those from before the entries are synced."""
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
        keep, end = self._first_from(dispatched), self._first_unwritten()
        if keep == end and self.header.count == keep:
            return
        for number in range(end - 1, keep - 1, -1):
            key_hash, _, _, previous = self.entry(number)
            slot = key_hash % self._slot_count
            if self.slot(slot) == number:
                self._set_slot(slot, previous if previous < number else 0)
        if keep == 1:
            self.header = IndexHeader()
        else:
            _, physical, seconds, _ = self.entry(keep - 1)
            self.header.end_offset, self.header.end_ms = physical, self.header.begin_ms + seconds * 1000
            self.header.count = keep
            self.header.used_slots = min(self.header.used_slots, keep - 1)
        self._file.write([self.header.pack()], 0)
        self._file.sync()
        self._file.write([bytes((end - keep) * ENTRY.size)], self.entry_position(keep))
        self._file.sync()

    def _set_slot(self, slot: int, number: int) -> None:
        self._file.write([number.to_bytes(SLOT_BYTES, "big")], HEADER_BYTES + slot * SLOT_BYTES)

    def _first_from(self, dispatched: int) -> int:
        """Returns the first entry of a record that is not before ``dispatched``."""
        low, high = 1, self.header.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < dispatched:
                low = middle + 1
            else:
                high = middle
        return low

    def _first_unwritten(self) -> int:
        """Returns the first entry, from the header's count on, that was never written."""
        number = self.header.count
        while number < self._capacity:
            data = self._file.read(
                min(_READ_ENTRIES, self._capacity - number) * ENTRY.size, self.entry_position(number)
            )
            for entry in ENTRY.iter_unpack(data):
                if entry == (0, 0, 0, 0):
                    return number
                number += 1
        return number

    def close(self) -> None:
        self._file.close()


def _big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()
