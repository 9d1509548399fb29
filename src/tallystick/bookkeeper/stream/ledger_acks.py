"""What a cursor has acknowledged in one ledger behind its mark, and how that is written, encoded when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tallystick.bookkeeper.stream.acked_entries import AckedEntries
from tallystick.bookkeeper.wire.acked_bitmaps import MOST_WORDS
from tallystick.bookkeeper.wire.cursor_parts import WORD_BYTES, batch_part, bitmap_part, bitmap_words, word_count
from tallystick.bookkeeper.wire.stream_values import AckedRange, Position
from tallystick.bookkeeper.wire.values import EntryId, LedgerId

BATCH_BYTES = 100  # of memory for a batch, beside its bitmap
WORDS_OF_ONE = 256  # of a bitmap, which take as long to encode as a short batch


class LedgerAcks:
    """``batches`` are entries of which some messages are acknowledged: bit n is set while message n is not.

    ``words`` are those of all bitmaps of batches, ``memory`` about the bytes that they need.
    """

    def __init__(self, ledger: LedgerId) -> None:
        self.ledger = ledger
        self.entries = AckedEntries()
        self.batches: dict[EntryId, int] = {}
        self.words = 0
        self._bitmap: bytes | None = None  # both as they are written, None after a change
        self._batches: bytes | None = None
        self._encoded: dict[EntryId, bytes] = {}  # batches
        self._stale: dict[EntryId, None] = {}  # those that are not encoded
        self._batch_order: list[EntryId] | None = None

    @property
    def memory(self) -> int:
        return self.words * WORD_BYTES + len(self.batches) * BATCH_BYTES

    @property
    def is_empty(self) -> bool:
        return not self.entries.count and not self.batches

    def add(self, first: EntryId, last: EntryId) -> None:
        """All messages of these entries are acknowledged."""
        self._forget_batches(first, last)
        self.entries.add(first, last)
        self._bitmap = None

    def discard_before(self, end: EntryId) -> None:
        """The mark has moved over all entries before this one."""
        self._forget_batches(0, end - 1)
        self.entries.discard_before(end)
        self._bitmap = None

    def set_batch(self, entry: EntryId, unacked: int) -> None:
        """Some of its messages are acknowledged, and not all."""
        order = self._batch_order if entry in self.batches else None
        self._forget_batches(entry, entry)
        self.batches[entry], self._batch_order = unacked, order
        self.words += word_count(unacked)
        self._stale[entry] = None
        self._batches = None

    def _forget_batches(self, first: EntryId, last: EntryId) -> None:
        if last - first < len(self.batches):
            forgotten = [entry for entry in range(first, last + 1) if entry in self.batches]
        else:
            forgotten = [entry for entry in self.batches if first <= entry <= last]
        for entry in forgotten:
            self.words -= word_count(self.batches.pop(entry))
            self._encoded.pop(entry, None)
            self._stale.pop(entry, None)
            self._batches = self._batch_order = None

    # -- as it is written ---------------------------------------------------------------------------------------------

    def ranges(self, most: int) -> Iterator[AckedRange]:
        for first, last in islice(self.entries.ranges(), most):
            yield AckedRange(Position(self.ledger, first - 1), Position(self.ledger, last))

    def bitmap_words(self, most_ranges: int) -> int:
        """Returns how many words ``encoded_bitmap`` has."""
        end = self._end(most_ranges)
        return bitmap_words(end - 1) if end else 0

    def encoded_bitmap(self, most_ranges: int) -> bytes:
        if self.entries.runs > most_ranges:
            return self._encode_bitmap(self._end(most_ranges))
        if self._bitmap is None:
            self._bitmap = self._encode_bitmap(self.entries.end())
        return self._bitmap

    def _end(self, most_ranges: int) -> EntryId:
        if self.entries.runs <= most_ranges:
            return self.entries.end()
        return self.entries.end_of_run(most_ranges) if most_ranges > 0 else 0

    def _encode_bitmap(self, end: EntryId) -> bytes:
        if not end:
            return b""
        size = bitmap_words(end - 1) * WORD_BYTES
        return bitmap_part(self.ledger, self.entries.bitmap(end).ljust(size, b"\0"))

    def batch_order(self) -> list[EntryId]:
        """Returns the entries that are such batches, ascending."""
        if self._batch_order is None:
            self._batch_order = sorted(self.batches)
        return self._batch_order

    def prepare(self, most: int) -> int:
        """Encode some batches, ``most`` at once, and then the bitmap, before they are asked for. Returns how many it
        were; a long one counts as several."""
        done = 0
        for entry in [*islice(self._stale, most)]:
            done += 1 + word_count(self.batches[entry]) // WORDS_OF_ONE
            self._encode(entry)
            if done >= most:
                return done
        if self._bitmap is not None or (words := self.bitmap_words(self.entries.runs)) > MOST_WORDS:
            return done
        self._bitmap = self._encode_bitmap(self.entries.end())
        return done + 1 + words // WORDS_OF_ONE

    def _encode(self, entry: EntryId) -> None:
        self._encoded[entry] = batch_part(Position(self.ledger, entry), self.batches[entry])
        del self._stale[entry]

    def encoded_batches(self, entries: list[EntryId]) -> bytes:
        """Encode these batches: all of them, or the first ones."""
        if len(entries) == len(self.batches) and self._batches is not None:
            return self._batches
        for entry in entries:
            if entry in self._stale:
                self._encode(entry)
        joined = b"".join([self._encoded[entry] for entry in entries])
        if len(entries) == len(self.batches):
            self._batches = joined
        return joined
