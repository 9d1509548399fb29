"""Acknowledged entries of a ledger as bitmaps: bit n of word n // 64 is entry n (``LongPairRangeSet.toRanges``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tallystick.bookkeeper.wire.stream_values import AckedRange
from tallystick.bookkeeper.wire.values import EntryId, LedgerId

WORD_BITS = 64
ALL = (1 << WORD_BITS) - 1
MOST_WORDS = 65_536  # of all bitmaps together: half a megabyte


def bitmaps_of(acked: Iterable[AckedRange]) -> Mapping[LedgerId, list[int]] | None:
    """Returns the words by ledger, ledgers ascending. Returns None where bitmaps cannot say it, or not in little room:
    a range that begins in another ledger, entries far from the first one."""
    bitmaps: dict[LedgerId, list[int]] = {}
    free = MOST_WORDS
    for each in acked:
        ledger, last = each.to.ledger, each.to.entry
        first = each.after.entry + 1
        if each.after.ledger != ledger or first < 0:
            return None
        words = bitmaps.setdefault(ledger, [])
        more = _word_count(last) - len(words)
        if more > 0:
            free -= more
            if free < 0:
                return None
            words += [0] * more
        _set(words, first, last)
    return dict(sorted(bitmaps.items()))


def _word_count(last: EntryId) -> int:
    """Returns how many words the original writes (RoaringBitmap's ``BitSetUtil``): two, where one would do."""
    return max(last, WORD_BITS) // WORD_BITS + 1


def _set(words: list[int], first: EntryId, last: EntryId) -> None:
    low, high = first // WORD_BITS, last // WORD_BITS
    head, tail = ALL << first % WORD_BITS & ALL, ALL >> WORD_BITS - 1 - last % WORD_BITS
    if low == high:
        words[low] |= head & tail
        return
    words[low] |= head
    words[low + 1 : high] = [ALL] * (high - low - 1)
    words[high] |= tail


def runs_of(words: Iterable[int], *, most: int) -> list[tuple[EntryId, EntryId]]:
    """Returns first and last entry of each run of ones; words may have a sign. Raises ValueError beyond ``most``."""
    runs: list[tuple[EntryId, EntryId]] = []
    carry, first, end = 0, -1, 0
    for word in words:
        if not word and not carry:  # as most are in a long bitmap
            end += WORD_BITS
            continue
        word &= ALL
        changes = word ^ (word << 1 & ALL | carry)  # a one wherever it differs from the bit before it
        while changes:
            at = end + (changes & -changes).bit_length() - 1
            changes &= changes - 1
            if first < 0:
                first = at
                continue
            runs.append((first, at - 1))
            first = -1
            if len(runs) > most:
                raise ValueError("too many ranges are acknowledged")
        carry = word >> WORD_BITS - 1
        end += WORD_BITS
    if first >= 0:
        runs.append((first, end - 1))
    return runs
