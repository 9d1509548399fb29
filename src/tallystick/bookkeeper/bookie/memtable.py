"""Entries that are in the journal and not yet in an entry log, by ledger, as *stored frames*: what is kept of an entry.

``codec.stored`` has their bytes: in the journal and here a plain ADD of version 2, in entry logs and for readers the
response to a READ. Both are as long, and what version 2 has on the way: so runs that come and go in that protocol are
kept and sent as they are; any other wire makes them, and takes the entries out of them.

Frames of one read stay one buffer: a run has the entry ids and where each frame starts, no object an entry. Ids that do
not ascend (a repeated add, an overwrite by recovery) go to a dictionary that is asked first: the newest wins.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from operator import lt

from tallystick.bookkeeper.bookie.places import Mark
from tallystick.bookkeeper.bookie.steps import sorted_in_parts
from tallystick.bookkeeper.wire.values import MAX_ID, NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import ADD_PREFIX, PLAIN_ADD, Buffer
from tallystick.codec.steps import Steps
from tallystick.codec.stored import StoredRun, responses_of_runs

_START = struct.Struct(">II")
_MOST_RUNS = 8  # that are read at once
_RUN_OVERHEAD = 400  # bytes of the objects of one run, roughly
_LATE_OVERHEAD = 200  # and of one entry in the dictionary
FREED_AT_ONCE = 5_000  # runs and late entries: some milliseconds


def stored_frame(master_key: bytes, entry: Buffer) -> bytes:
    """Return an entry as the journal has it."""
    return b"".join((_START.pack(ADD_PREFIX - 4 + len(entry), PLAIN_ADD), master_key, entry))


@dataclass(slots=True)
class Run:
    """Stored frames that lie one after another: frame i is ``bounds[i]:bounds[i + 1]`` and has ``entries[i]``."""

    entries: array[int]  # ascending
    bounds: array[int]
    data: bytes

    def find(self, entry: EntryId) -> int:
        """Return the place of an entry, -1 if there is none."""
        place = entry - self.entries[0]
        if not (place < len(self.entries) and self.entries[place] == entry):
            place = bisect_left(self.entries, entry)
            if place == len(self.entries) or self.entries[place] != entry:
                return -1
        return place

    def entry_bytes(self, place: int) -> bytes:
        return self.data[self.bounds[place] + ADD_PREFIX : self.bounds[place + 1]]

    def entry_head(self, place: int, size: int) -> bytes:
        """Return the first ``size`` of the entry bytes."""
        start = self.bounds[place] + ADD_PREFIX
        return self.data[start : min(start + size, self.bounds[place + 1])]

    def together(self, place: int, entries: Sequence[EntryId]) -> int:
        """Count how many of ascending entries, of which the first is at ``place``, lie together from there on."""
        count = len(entries)
        if count == 1 or self.entries[place + 1] != entries[1]:
            return 1
        stored = self.entries[place : place + count]
        if stored[-1] - stored[0] == entries[-1] - entries[0] == count - 1 or stored == entries:
            return count
        return next((at for at, ids in enumerate(zip(stored, entries, strict=True)) if ids[0] != ids[1]), count)


@dataclass(slots=True)
class Rows:
    """The entries of one ledger in memory."""

    firsts: list[EntryId] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    late: dict[EntryId, tuple[Run, int]] = field(default_factory=dict)
    lowest: EntryId = MAX_ID
    highest: EntryId = NO_ENTRY

    def find(self, entry: EntryId) -> tuple[Run, int] | None:
        """Return the run and place of an entry, None if there is none."""
        if self.late and (late := self.late.get(entry)):
            return late
        at = bisect_right(self.firsts, entry) - 1
        if at < 0:
            return None
        run = self.runs[at]
        place = run.find(entry)
        return (run, place) if place >= 0 else None

    def read(self, hit: tuple[Run, int], entries: Sequence[EntryId], max_bytes: int) -> tuple[bytes, int]:
        """Return the frames for readers of ascending entries, of which the first was found at ``hit``, and how many: as
        many as are here, and fit, but one at least. Where they lie in several runs there may be more: ask for the
        rest."""
        runs, at, room, end = list[StoredRun](), 0, max_bytes, 1 if self.late else len(entries)
        place: tuple[Run, int] | None = hit
        while place is not None and len(runs) < _MOST_RUNS:
            run, start = place
            stop = start + run.together(start, entries[at : min(end, at + len(run.entries) - start)])
            if (fits := bisect_right(run.bounds, run.bounds[start] + room, start, stop + 1) - 1) < stop:
                stop = fits if runs else max(fits, start + 1)
                end = at + stop - start
            if stop > start:
                runs.append((run.entries[start:stop], run.bounds[start : stop + 1], run.data))
            room -= run.bounds[stop] - run.bounds[start]
            at += stop - start
            place = self.find(entries[at]) if at < end else None
        return responses_of_runs(runs)[2], at

    def sorted_runs(self) -> Iterator[Run]:
        """Return all entries in order, each once, in the newest version."""
        if not self.late:
            yield from self.runs
            return
        # A thread does this, and no step of it may hold the interpreter for long, though all entries may be late ones.
        previous = NO_ENTRY
        for entry in merge(sorted_in_parts([*self.late]), chain.from_iterable(run.entries for run in self.runs)):
            if entry != previous and (place := self.find(entry)) is not None:
                yield _single(*place)
            previous = entry


def _single(run: Run, place: int) -> Run:
    """Return the run of one entry of a run."""
    data = run.data[run.bounds[place] : run.bounds[place + 1]]
    return Run(run.entries[place : place + 1], array("Q", (0, len(data))), data)


class MemTable:
    """All ledgers' entries since the last checkpoint."""

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, Rows] = {}
        self.bytes = 0
        self.entries = 0

    def add(self, ledger: LedgerId, run: Run) -> EntryId:
        """Take a run whose entries are all of one ledger and not below 0; they need not ascend. Returns the highest."""
        rows = self.ledgers.get(ledger)
        if rows is None:
            rows = self.ledgers[ledger] = Rows()
        entries = run.entries
        self.bytes += run.bounds[-1] - run.bounds[0] + _RUN_OVERHEAD
        self.entries += len(entries)
        # A run must lie above all that is here, also above the late ones: those are asked first and would hide it.
        if entries[0] > rows.highest and (len(entries) == 1 or all(map(lt, entries, entries[1:]))):
            rows.firsts.append(entries[0])
            rows.runs.append(run)
            lowest, highest = entries[0], entries[-1]
        else:
            self.bytes += len(entries) * _LATE_OVERHEAD
            rows.late.update((entry, (run, place)) for place, entry in enumerate(entries))
            lowest, highest = min(entries), max(entries)
        rows.lowest, rows.highest = min(rows.lowest, lowest), max(rows.highest, highest)
        return highest

    def find(self, ledger: LedgerId, entry: EntryId) -> tuple[Run, int] | None:
        rows = self.ledgers.get(ledger)
        return rows.find(entry) if rows is not None else None

    def clear(self) -> Steps[None]:
        """Free all entries, in steps; nobody may read them any more."""
        for count, _ in enumerate(self._taken_out(), 1):
            if not count % FREED_AT_ONCE:
                yield

    def _taken_out(self) -> Iterator[object]:
        while self.ledgers:
            _, rows = self.ledgers.popitem()
            while rows.late:
                yield rows.late.popitem()
            while rows.runs:
                yield rows.runs.pop()


class MemTables:
    """The table that takes adds, and the one that a checkpoint is writing or could not write yet."""

    def __init__(self) -> None:
        self.active = MemTable()
        self._frozen: MemTable | None = None
        self.mark = Mark(0, ())  # journal commits up to this one are in the frozen table or in entry logs

    def newest_first(self) -> tuple[MemTable, ...]:
        return (self.active,) if self._frozen is None else (self.active, self._frozen)

    def last(self, ledger: LedgerId) -> EntryId:
        """Return the highest entry of a ledger in memory, NO_ENTRY if there is none."""
        rows = (table.ledgers.get(ledger) for table in self.newest_first())
        return max((each.highest for each in rows if each is not None), default=NO_ENTRY)

    def freeze(self, mark: Mark) -> MemTable:
        """Let nothing more into the active table; ``mark`` is the last commit taken. One table at a time."""
        if self._frozen is None:
            self._frozen, self.active, self.mark = self.active, MemTable(), mark
        return self._frozen

    def drop_frozen(self) -> None:
        """Drop the frozen table: its entries are in an entry log."""
        self._frozen = None

    @property
    def entries(self) -> int:
        return sum(table.entries for table in self.newest_first())
