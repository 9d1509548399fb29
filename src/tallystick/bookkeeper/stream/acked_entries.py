"""Which entries of one ledger are acknowledged, one by one: a bitmap in chunks, so that each costs the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.bookkeeper.wire.values import EntryId

CHUNK_BITS = 1024
_ALL = (1 << CHUNK_BITS) - 1


class AckedEntries:
    """A set of entries. ``count`` is how many they are, ``runs`` how many runs of neighbours."""

    def __init__(self) -> None:
        self.count = self.runs = 0
        self._chunks: dict[int, int] = {}  # by number; none is empty
        self._forgotten = 0  # chunks below this number

    def __contains__(self, entry: EntryId) -> bool:
        return self._chunks.get(entry // CHUNK_BITS, 0) >> entry % CHUNK_BITS & 1 == 1

    def add(self, first: EntryId, last: EntryId) -> None:
        """Add a run, both ends included; some of it may be there."""
        if first == last:
            self._add_one(first)
            return
        runs = self._begun(first, last + 1)  # those that begin in it, or behind it at once
        for number in range(first // CHUNK_BITS, last // CHUNK_BITS + 1):
            chunk = self._chunks.get(number, 0)
            self._chunks[number] = more = chunk | _mask(number, first, last)
            self.count += more.bit_count() - chunk.bit_count()
        self.runs += self._begun(first, last + 1) - runs

    def _add_one(self, entry: EntryId) -> None:
        """The same, as most are added."""
        number, offset = divmod(entry, CHUNK_BITS)
        chunk = self._chunks.get(number, 0)
        if not chunk >> offset & 1:
            self._chunks[number] = chunk | 1 << offset
            self.count += 1
            self.runs += 1 - (entry - 1 in self) - (entry + 1 in self)

    def discard_before(self, end: EntryId) -> None:
        """Forget all entries below ``end``; none of them is added again."""
        boundary = end // CHUNK_BITS
        numbers: Sequence[int] = range(self._forgotten, boundary + 1)
        if len(numbers) > len(self._chunks):
            numbers = sorted(self._chunks)
        for number in numbers:
            if number > boundary or number not in self._chunks:
                continue
            first = number * CHUNK_BITS
            last = min(first + CHUNK_BITS, end) - 1
            runs = self._begun(first, last + 1)
            chunk = self._chunks.pop(number)
            rest = chunk & ~_mask(number, first, last)
            if rest:
                self._chunks[number] = rest
            self.count -= chunk.bit_count() - rest.bit_count()
            self.runs += self._begun(first, last + 1) - runs
        self._forgotten = max(self._forgotten, boundary)

    def run_end(self, first: EntryId) -> EntryId:
        """Returns the first entry from ``first`` on that is not in the set."""
        number, offset = divmod(first, CHUNK_BITS)
        while (missing := ~self._chunks.get(number, 0) & _ALL & -1 << offset) == 0:
            number, offset = number + 1, 0
        return number * CHUNK_BITS + _lowest(missing)

    def ranges(self) -> Iterator[tuple[EntryId, EntryId]]:
        """Yields the first and the last entry of each run, ascending."""
        first: EntryId | None = None
        expected = -1  # the chunk at which an unfinished run goes on
        for number in sorted(self._chunks):
            chunk, start = self._chunks[number], number * CHUNK_BITS
            if first is not None and (number != expected or not chunk & 1):
                yield first, expected * CHUNK_BITS - 1
                first = None
            changes = chunk ^ (chunk << 1 | (first is not None)) & _ALL  # where an entry differs from the one before it
            while changes:
                at = start + _lowest(changes)
                changes &= changes - 1
                if first is None:
                    first = at
                else:
                    yield first, at - 1
                    first = None
            expected = number + 1
        if first is not None:
            yield first, expected * CHUNK_BITS - 1

    def end(self) -> EntryId:
        """Returns the entry after the last one, 0 if there is none."""
        if not self._chunks:
            return 0
        number = max(self._chunks)
        return number * CHUNK_BITS + self._chunks[number].bit_length()

    def end_of_run(self, number: int) -> EntryId:
        """Returns the entry after the run of this number, from 1 on; after the last run if there are not so many."""
        for chunk in sorted(self._chunks):
            starts = self._starts(chunk)
            if starts.bit_count() >= number:
                for _ in range(number - 1):
                    starts &= starts - 1
                return self.run_end(chunk * CHUNK_BITS + _lowest(starts))
            number -= starts.bit_count()
        return self.end()

    def bitmap(self, end: EntryId) -> bytes:
        """Returns a bit for each entry below ``end``, the lowest first, in as many bytes as they need."""
        parts = bytearray(-(-end // 8))
        for number, chunk in self._chunks.items():
            at = number * CHUNK_BITS // 8
            if at < len(parts):
                part = (chunk & _mask(number, number * CHUNK_BITS, end - 1)).to_bytes(CHUNK_BITS // 8, "little")
                parts[at : at + len(part)] = part[: len(parts) - at]
        return bytes(parts)

    def _begun(self, first: EntryId, last: EntryId) -> int:
        """Returns how many runs begin between these two, both included."""
        begun = 0
        for number in range(first // CHUNK_BITS, last // CHUNK_BITS + 1):
            begun += (self._starts(number) & _mask(number, first, last)).bit_count()
        return begun

    def _starts(self, number: int) -> int:
        """Returns the bits of a chunk with which runs begin."""
        chunk = self._chunks.get(number, 0)
        return chunk and chunk & ~(chunk << 1 | self._chunks.get(number - 1, 0) >> CHUNK_BITS - 1)


def _mask(number: int, first: EntryId, last: EntryId) -> int:
    """Returns the bits of a chunk that are between two entries, both included."""
    start = number * CHUNK_BITS
    low, high = max(first - start, 0), min(last - start, CHUNK_BITS - 1)
    return (1 << high + 1) - (1 << low) if high >= low else 0


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
