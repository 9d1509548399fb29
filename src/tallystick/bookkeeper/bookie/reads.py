"""Reads of entries, from memory first, newest table first, then from the entry logs.

Three results are told apart: the entry, "no" (it is known never to have been stored), and an I/O error. An entry that
the index knows and the disk does not give back is an I/O error: a "no" would let recovery truncate the ledger (Q15).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.damages import Damages
from tallystick.bookkeeper.bookie.entry_log import EntryLogs
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.memtable import MemTables
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.reads import READ_PREFIX, response_entries
from tallystick.errors import StorageError
from tallystick.runtime.clock import Clock

_BATCH_HEAD = 36  # of a batch response
_LENGTH_BYTES = 4  # in front of each of its entries
_MOST_ENTRIES = 8192  # of a batch, and
_MOST_STEPS = 256  # parts that it is put together of: one that is shorter than asked is a whole response (Q17)
_NONE = (b"", 0)


class EntryReads:
    """Read entries; the methods are those of ``Storage``."""

    def __init__(self, ledgers: Ledgers, tables: MemTables, logs: EntryLogs, clock: Clock, damages: Damages) -> None:
        self._ledgers, self._tables, self._logs, self._clock, self._damages = ledgers, tables, logs, clock, damages

    def location(self, ledger: LedgerId, entry: EntryId) -> index.Location:
        """Return where in an entry log an entry is, 0 if it is in memory or nowhere."""
        held_ledger = self._ledgers.alive.get(ledger)
        if held_ledger is None or any(table.find(ledger, entry) for table in self._tables.newest_first()):
            return 0
        return index.get(held_ledger.pages, entry)

    def read(self, ledger: LedgerId, entry: EntryId) -> tuple[Code, bytes]:
        if ledger < 0 or entry < NO_ENTRY:
            return Code.BAD_REQUEST, b""
        held_ledger = self._ledgers.alive.get(ledger)
        if held_ledger is None:
            self._ledgers.touch(ledger, self._clock.wall_ms())
            return self._ledgers.absent(ledger), b""
        if entry == NO_ENTRY:
            entry = held_ledger.last
        for table in self._tables.newest_first():
            hit = table.find(ledger, entry)
            if hit is not None:
                return Code.OK, hit[0].entry_bytes(hit[1])
        location = index.get(held_ledger.pages, entry) if entry >= 0 else 0
        if not location:
            return Code.NO_ENTRY, b""
        try:
            return Code.OK, self._logs.entry(location, ledger, entry)
        except StorageError:
            self._damages.add(ledger, entry)
            return Code.IO_ERROR, b""

    def read_frames(self, ledger: LedgerId, entries: Sequence[EntryId], max_bytes: int) -> tuple[bytes, int]:
        held_ledger = self._ledgers.alive.get(ledger)
        if held_ledger is None or not entries or entries[0] < 0:
            return _NONE
        for table in self._tables.newest_first():
            rows = table.ledgers.get(ledger)
            if rows is None:
                continue
            if (hit := rows.find(entries[0])) is not None:
                return rows.read(hit, entries, max_bytes)
            # From its lowest entry on this table has newer versions than what follows.
            entries = entries[: max(1, bisect_left(entries, rows.lowest))]
        try:
            return self._logs.frames(held_ledger.pages, ledger, entries, max_bytes)
        except StorageError:
            return _NONE

    def known_lac(self, ledger: LedgerId) -> EntryId:
        explicit_lac, header = self._ledgers.explicit_lacs.lac(ledger), self._last_header(ledger) or b""
        if len(header) < ENTRY_HEADER.size:
            return explicit_lac
        lac: EntryId = ENTRY_HEADER.unpack(header)[2]
        return max(explicit_lac, lac)

    def stored_ids(self, ledger: LedgerId) -> StoredIds | None:
        held_ledger = self._ledgers.alive.get(ledger)
        if held_ledger is None:
            return None
        rows = (table.ledgers.get(ledger) for table in self._tables.newest_first())
        return StoredIds.of(held_ledger.pages, [each for each in rows if each is not None])

    def last_code(self, ledger: LedgerId) -> Code:
        if ledger not in self._ledgers.alive:
            self._ledgers.touch(ledger, self._clock.wall_ms())
            return self._ledgers.absent(ledger)
        return Code.IO_ERROR if self._last_header(ledger) is None else Code.OK

    def _last_header(self, ledger: LedgerId) -> bytes | None:
        """Return the header of the highest entry stored, b"" if there is none. Returns None if it cannot be read."""
        held_ledger = self._ledgers.alive.get(ledger)
        if held_ledger is None or held_ledger.last == NO_ENTRY:
            return b""
        last, size = held_ledger.last, ENTRY_HEADER.size
        for table in self._tables.newest_first():
            if (hit := table.find(ledger, last)) is not None:
                return hit[0].entry_head(hit[1], size)
        try:
            return self._logs.head(index.get(held_ledger.pages, last), ledger, last, size)
        except StorageError:
            return None

    def batch(self, ledger: LedgerId, first: EntryId, max_count: int, max_bytes: int) -> tuple[Code, list[bytes]]:
        entries, size = list[bytes](), _BATCH_HEAD
        count = min(max_count, _MOST_ENTRIES) if max_count > 0 else _MOST_ENTRIES
        frames, count_read = self.read_frames(ledger, range(first, first + count), max_bytes - size)
        if count_read:
            entries = response_entries(frames, count_read)
            size += len(frames) - (READ_PREFIX - _LENGTH_BYTES) * count_read
        else:
            code, data = self.read(ledger, first)
            if code != Code.OK:
                return code, []
            entries = [data]
            size += _LENGTH_BYTES + len(data)
        for _ in range(_MOST_STEPS):
            if size >= max_bytes or len(entries) == count:
                break
            following = self._following(ledger, first + len(entries), count - len(entries), max_bytes - size)
            size += _LENGTH_BYTES * len(following) + sum(map(len, following))
            if not following or size > max_bytes:
                break
            entries += following
        return Code.OK, entries

    def _following(self, ledger: LedgerId, first: EntryId, count: int, max_bytes: int) -> list[bytes]:
        """Return some entries from ``first`` on, more than one only if they fit; [] if ``first`` cannot be read."""
        # A READ response is longer than an entry in a batch: what fits as those fits.
        frames, count_read = self.read_frames(ledger, range(first, first + count), max_bytes)
        if count_read:
            return response_entries(frames, count_read)
        code, data = self.read(ledger, first)
        return [data] if code == Code.OK else []
