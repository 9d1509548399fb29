"""What a cursor has acknowledged, how far it is, and what of that is written (``ManagedCursorImpl``).

All up to the *mark* is acknowledged. Behind it are entries that were acknowledged one by one, and batches of which some
messages were. The mark moves as soon as what follows it is acknowledged, over ledgers without entries, and over those
that are gone. Only a reset moves it back.

What is written is bounded, as Pulsar's is: by what is next to the mark. What lies beyond stays in memory alone, and is
delivered again after a crash.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from itertools import islice

from tallystick.bookkeeper.stream.entry_counts import EntryCounts
from tallystick.bookkeeper.stream.ledger_acks import LedgerAcks
from tallystick.bookkeeper.wire.acked_bitmaps import MOST_WORDS
from tallystick.bookkeeper.wire.cursor_parts import (
    bits_of,
    mark_part,
    properties_part,
    ranges_part,
    word_count,
    words_of,
)
from tallystick.bookkeeper.wire.stream_values import AckedRange, CursorState, Position
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.steps import Steps
from tallystick.errors import NoSuchPosition, StreamFull

MOST_RANGES = 10_000  # that are written (maxUnackedRangesToPersist)
MOST_BATCHES = 10_000  # that are written (maxBatchDeletedIndexToPersist)
MOST_BATCH_WORDS = 32_768  # of their bitmaps: together with all else less than a node of ZooKeeper may have
MOST_BATCH_BYTES = 64 << 20  # of memory for batches
STEP_PARTS = 256  # batches and bitmaps that are encoded without a stop: some ms
STEP_RESTORED = 512  # ranges and batches that are restored without a stop
MOST_AHEAD = 65_536  # entries beyond the last one that is known to be confirmed: another saw them confirmed


class CursorCore:
    """See the module. ``changes`` counts what there was to write, ``resets`` the seeks; ``counts`` are those of the
    newest list."""

    def __init__(self, counts: EntryCounts, mark: Position, properties: Mapping[str, int] | None = None) -> None:
        self.counts, self.mark, self.changes, self.resets = counts, mark, 0, 0
        self.properties = dict(properties or {})  # written beside the mark, and kept as they are
        self._ends: dict[LedgerId, EntryId] = {}  # of open ledgers, as far as is known: the entry after the last one
        self._acks: dict[LedgerId, LedgerAcks] = {}
        self._order: list[LedgerId] = []  # of these, ascending
        self._acked = self._batch_bytes = 0  # all of them together
        self.listed(counts)

    @classmethod
    def restored(cls, counts: EntryCounts, ends: Mapping[LedgerId, EntryId], state: CursorState) -> Steps[CursorCore]:
        """Returns a cursor as it was written, in steps. ``ends``: of open ledgers the entry after the last known one.

        What it says of places that the stream does not have is left out. A mark ahead of the end is moved there.
        """
        core = cls(counts, _clamped(counts, ends, state.mark), state.properties)
        for ledger, end in ends.items():
            core.learned(ledger, end)
        core.learned(core.mark.ledger, core.mark.entry + 1)
        yield from core._restore_ranges(state)
        for number, (position, words) in enumerate(sorted(state.batches.items()), 1):
            core._restore_batch(position, bits_of(words))
            if number % STEP_RESTORED == 0:
                yield
        core._absorb()
        core.changes = 0
        return core

    # -- what the stream has ------------------------------------------------------------------------------------------

    def listed(self, counts: EntryCounts) -> None:
        """The list has changed."""
        self.counts = counts
        for ledger in [ledger for ledger in self._order if ledger not in counts]:
            self._drop(ledger)
        listed = counts.listed_from(self.mark.ledger)
        if listed is not None and listed != self.mark.ledger:
            self._move(Position(listed, -1))
        self._absorb()

    def learned(self, ledger: LedgerId, end: EntryId) -> None:
        """An open ledger has confirmed entries up to ``end``, excluded."""
        self._ends[ledger] = max(end, self._end(ledger))

    def exists(self, position: Position) -> bool:
        """Returns whether there is such an entry, as far as is known by now."""
        return position.ledger in self.counts and 0 <= position.entry < self._end(position.ledger)

    def after(self, position: Position) -> Position:
        """Returns the entry after this one, which may be yet to come."""
        ledger, entry = position.ledger, position.entry + 1
        end = self.counts.end(ledger)
        if ledger not in self.counts or (end is not None and entry >= end):
            following = self.counts.ledger_after(ledger)
            if following is not None:
                return Position(following, 0)
        return Position(ledger, entry)

    @property
    def backlog(self) -> int:
        """Returns how many entries are not acknowledged, as far as is known: a batch is one entry."""
        count = self.counts.closed_after(self.mark.ledger)
        count += sum(self._end(ledger) for ledger in self.counts.open_ledgers if ledger > self.mark.ledger)
        if self.mark.ledger in self.counts:
            count += max(0, self._end(self.mark.ledger) - self.mark.entry - 1)
        return max(0, count - self._acked)

    def _end(self, ledger: LedgerId) -> EntryId:
        end = self.counts.end(ledger)
        return self._ends.get(ledger, 0) if end is None else end

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def is_acked(self, position: Position) -> bool:
        """Returns whether an entry is acknowledged, or a message of a batch."""
        if position.of_entry <= self.mark:
            return True
        acks = self._acks.get(position.ledger)
        if acks is None:
            return False
        unacked = acks.batches.get(position.entry)
        if unacked is not None and position.batch_index >= 0:
            return not unacked >> position.batch_index & 1
        return position.entry in acks.entries

    def first_unacked(self, at: Position) -> Position:
        """Returns the first entry from ``at`` on that is not acknowledged; it may be yet to come."""
        at = max(self.after(at.of_entry._replace(entry=at.entry - 1)), self.after(self.mark))
        while (acks := self._acks.get(at.ledger)) is not None:
            end = acks.entries.run_end(at.entry)
            if end == at.entry:
                break
            at = self.after(Position(at.ledger, end - 1))
        return at

    def require(self, position: Position, batch_size: int = 0) -> None:
        """Raises NoSuchPosition for an entry or a message that there is not, as far as is known."""
        if position.of_entry <= self.mark:
            return
        if not self.exists(position):
            raise NoSuchPosition("there is no entry at this position that is known to be confirmed", position=position)
        if position.batch_index >= max(batch_size, 1):
            raise NoSuchPosition("this entry has not so many messages", position=position, messages=max(batch_size, 1))

    def ack(self, position: Position, batch_size: int = 0) -> None:
        """Acknowledge an entry, or one message of a batch of this size; a second time is no error.

        Raises NoSuchPosition, and StreamFull when too many batches are acknowledged in part.
        """
        entry = position.of_entry
        if self.is_acked(entry):
            return
        self.require(position, batch_size)
        if self.is_acked(position):
            return
        if position.batch_index >= 0 and batch_size > 1:
            unacked = self._unacked(entry, batch_size) & ~(1 << position.batch_index)
            if unacked:
                self._set_batch(entry, unacked)
                self.changes += 1
                return
        self._add(entry)
        self.changes += 1

    def ack_up_to(self, position: Position, batch_size: int = 0) -> None:
        """Acknowledge this entry or message, and all before it. Entry -1 is the beginning of a ledger.

        Raises as ``ack``.
        """
        is_beginning = position.entry < 0 and position.ledger in self.counts
        if not is_beginning:
            self.require(position, batch_size)
        index = position.batch_index
        is_part = 0 <= index < batch_size - 1 and not self.is_acked(position.of_entry)
        mark = position.of_entry if not is_part else Position(position.ledger, position.entry - 1)
        if mark > self.mark:
            self._move(mark)
            self._absorb()
            self.changes += 1
        if is_part:
            unacked = self._unacked(position.of_entry, batch_size)
            rest = unacked & ~((1 << index + 1) - 1)
            if not rest:
                self._add(position.of_entry)
            else:
                self._set_batch(position.of_entry, rest)
            self.changes += rest != unacked

    def reset(self, at: Position, batch_size: int = 0) -> None:
        """Make this entry or message the first that is not acknowledged, and forget all else (a seek). Where the list
        has its ledger no more, as that was trimmed just now, it is the first one behind it."""
        self.changes += 1
        self.resets += 1
        for ledger in tuple(self._order):
            self._drop(ledger)
        self.mark = Position(at.ledger, at.entry - 1)
        if 0 < at.batch_index < batch_size:
            self._set_batch(at.of_entry, ((1 << batch_size) - 1) & ~((1 << at.batch_index) - 1))
        self.listed(self.counts)

    def _unacked(self, entry: Position, batch_size: int) -> int:
        acks, full = self._acks.get(entry.ledger), (1 << batch_size) - 1
        return full if acks is None else acks.batches.get(entry.entry, full) & full

    def _set_batch(self, entry: Position, unacked: int) -> None:
        acks = self._acks_of(entry.ledger)
        before = acks.memory
        if entry.entry not in acks.batches and self._batch_bytes + word_count(unacked) * 8 > MOST_BATCH_BYTES:
            raise StreamFull(
                "too many batches are acknowledged in part: acknowledge the rest of the oldest ones",
                position=entry,
                bytes=self._batch_bytes,
            )
        acks.set_batch(entry.entry, unacked)
        self._batch_bytes += acks.memory - before

    def _add(self, entry: Position) -> None:
        if entry == self.after(self.mark):
            self._move(entry)
            self._absorb()
        else:
            self._add_run(entry.ledger, entry.entry, entry.entry)

    def _add_run(self, ledger: LedgerId, first: EntryId, last: EntryId) -> None:
        acks = self._acks_of(ledger)
        self._without(acks)
        acks.add(first, last)
        self._with(acks)

    def _absorb(self) -> None:
        """Move the mark over what follows it and is acknowledged."""
        while self._order:
            following = self.after(self.mark)
            acks = self._acks.get(following.ledger)
            end = following.entry if acks is None else acks.entries.run_end(following.entry)
            if end == following.entry:
                return
            self._move(Position(following.ledger, end - 1))

    def _move(self, mark: Position) -> None:
        self.mark = mark
        while self._order and self._order[0] < mark.ledger:
            self._drop(self._order[0])
        if (acks := self._acks.get(mark.ledger)) is not None:
            self._without(acks)
            acks.discard_before(mark.entry + 1)
            self._with(acks)
            if acks.is_empty:
                self._drop(mark.ledger)

    def _acks_of(self, ledger: LedgerId) -> LedgerAcks:
        acks = self._acks.get(ledger)
        if acks is None:
            acks = self._acks[ledger] = LedgerAcks(ledger)
            insort(self._order, ledger)
        return acks

    def _drop(self, ledger: LedgerId) -> None:
        self._without(self._acks.pop(ledger))
        del self._order[bisect_left(self._order, ledger)]

    def _without(self, acks: LedgerAcks) -> None:
        self._acked -= acks.entries.count
        self._batch_bytes -= acks.memory

    def _with(self, acks: LedgerAcks) -> None:
        self._acked += acks.entries.count
        self._batch_bytes += acks.memory

    # -- what is written ----------------------------------------------------------------------------------------------

    @property
    def ranges(self) -> int:
        """Returns how many ranges of entries are acknowledged behind the mark."""
        return sum(acks.entries.runs for acks in self._acks.values())

    @property
    def is_beyond(self) -> bool:
        """Returns whether more is acknowledged than is written."""
        batches = sum(len(acks.batches) for acks in self._acks.values())
        words = sum(acks.words for acks in self._acks.values())
        return self.ranges > MOST_RANGES or batches > MOST_BATCHES or words > MOST_BATCH_WORDS

    def state(self) -> CursorState:
        """Returns what is written, as a value."""
        batches = {
            Position(acks.ledger, entry): words_of(acks.batches[entry])
            for acks, entries in self._written_batches()
            for entry in entries
        }
        return CursorState(self.mark, tuple(self._written_ranges()), batches, self.properties)

    def snapshot(self, most_ranges: int) -> CursorState:
        """Returns the mark, and some of what is acknowledged behind it."""
        return CursorState(self.mark, tuple(islice(self._written_ranges(), most_ranges)), properties=self.properties)

    def prepare(self) -> Iterator[None]:
        """Encode what has changed, for a while between any two steps; it may change on meanwhile."""
        free = STEP_PARTS
        for ledger in tuple(self._order):
            while (acks := self._acks.get(ledger)) is not None and (done := acks.prepare(free)):
                free -= done
                if free <= 0:
                    free = STEP_PARTS
                    yield

    def encoded(self) -> bytes:
        """Returns what is written, as an entry of a cursor ledger: what has not changed is not encoded again."""
        ranges, bitmaps = self._encoded_ranges()
        batches = [acks.encoded_batches(entries) for acks, entries in self._written_batches()]
        return b"".join((mark_part(self.mark), ranges, properties_part(self.properties), *batches, bitmaps))

    def _encoded_ranges(self) -> tuple[bytes, bytes]:
        """Returns all as ranges or all as bitmaps: who reads both looks at one of them."""
        words = sum(acks.bitmap_words(most) for acks, most in self._room())
        if words > MOST_WORDS:
            return ranges_part(self._written_ranges()), b""
        return b"", b"".join([acks.encoded_bitmap(most) for acks, most in self._room()])

    def _written_ranges(self) -> Iterator[AckedRange]:
        for acks, most in self._room():
            yield from acks.ranges(most)

    def _room(self) -> Iterator[tuple[LedgerAcks, int]]:
        """Yields the ledgers, and how many ranges of each are written."""
        free = MOST_RANGES
        for ledger in self._order:
            if free <= 0:
                return
            yield self._acks[ledger], free
            free -= self._acks[ledger].entries.runs

    def _written_batches(self) -> Iterator[tuple[LedgerAcks, list[EntryId]]]:
        """Yields the ledgers, and which batches of each are written."""
        free, words = MOST_BATCHES, MOST_BATCH_WORDS
        for ledger in self._order:
            acks = self._acks[ledger]
            entries = acks.batch_order()[:free]
            if acks.words > words:
                entries = _fitting(acks, entries, words)
            free, words = free - len(entries), words - acks.words
            yield acks, entries
            if free <= 0 or words <= 0:
                return

    # -- restoring ----------------------------------------------------------------------------------------------------

    def _restore_ranges(self, state: CursorState) -> Steps[None]:
        reached, number = self.mark, 0
        for each in sorted(state.acked, key=lambda each: each.after):
            at = max(self.after(max(each.after, reached)), Position(each.after.ledger, 0))
            while at <= each.to and at.ledger in self.counts:
                number += 1
                if number % STEP_RESTORED == 0:
                    yield
                most = self._believed_end(at.ledger)
                last = min(each.to.entry, most - 1) if at.ledger == each.to.ledger else self._end(at.ledger) - 1
                if last >= at.entry:
                    self._add_run(at.ledger, at.entry, last)
                following = self.counts.ledger_after(at.ledger)
                if at.ledger == each.to.ledger or following is None:
                    break
                at = Position(following, 0)
            reached = max(reached, each.to)

    def _restore_batch(self, position: Position, unacked: int) -> None:
        if self.is_acked(position) or position.ledger not in self.counts:
            return
        if 0 <= position.entry < self._believed_end(position.ledger):
            if not unacked:
                self._add_run(position.ledger, position.entry, position.entry)
            elif self._batch_bytes < MOST_BATCH_BYTES:
                self._set_batch(position, unacked)

    def _believed_end(self, ledger: LedgerId) -> EntryId:
        end = self.counts.end(ledger)
        return self._ends.get(ledger, 0) + MOST_AHEAD if end is None else end


def _clamped(counts: EntryCounts, ends: Mapping[LedgerId, EntryId], mark: Position) -> Position:
    """Returns the mark, or the last position if it is ahead of that."""
    newest = counts.newest
    if newest is None:
        return mark
    end = counts.end(newest)
    if mark.ledger < newest:
        own = counts.end(mark.ledger)
        return mark if own is None else min(mark, Position(mark.ledger, own - 1))
    if mark.ledger == newest and mark.entry < (ends.get(newest, 0) + MOST_AHEAD if end is None else end):
        return mark
    return Position(newest, (ends.get(newest, 0) if end is None else end) - 1)


def _fitting(acks: LedgerAcks, entries: list[EntryId], words: int) -> list[EntryId]:
    """Returns the first of these batches: whose bitmaps have so many words at most."""
    for index, entry in enumerate(entries):
        words -= word_count(acks.batches[entry])
        if words < 0:
            return entries[:index]
    return entries
