"""Runs of READs, and entries as readers get them: many checked in one call, their fields by columns.

An entry is a 32-byte header (ledger, entry, LAC, length), its digest, its payload (see ``bookkeeper.wire.digest``, the
reference for one entry; ``bookkeeper.wire.v2`` is that for frames). Most entries of a run have one size: those are cut
in one call too, with nothing done in Python for each.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from itertools import accumulate, pairwise, takewhile
from typing import overload

from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview
_Column = Sequence[bytes | memoryview]

PLAIN_READ = 0x02020000  # version 2, READ, no flags
READ_PREFIX = 28  # length, header, code, ledger, entry: what stands before the entry's bytes in a response

_LENGTH_BYTES = 4
_HEADER_BYTES = 32
_FEW = 4  # of fewer entries columns are not worth while
_COPIED_BYTES = 8 * 1024  # up to this size a copy of an entry costs less than a view of it
_HEADER = struct.Struct(">qqqq")
_READ = struct.Struct(">IIqq")
_READ_ENTRY_AT = 16
_RESPONSE = struct.Struct(">IIiqq")
_RESPONSE_HEAD = struct.Struct(">IIiq")  # all that good responses of one ledger and size have in common


@with_twin
def encode_reads(ledger: int, entries: Sequence[int]) -> bytes:
    """One READ frame for each entry."""
    frames, numbers = bytearray(_READ.pack(20, PLAIN_READ, ledger, 0) * len(entries)), array("q", entries)
    if sys.byteorder == "little":
        numbers.byteswap()
    packed = numbers.tobytes()
    for column in range(8):  # a column of all frames at a time: no step in Python for each entry
        frames[_READ_ENTRY_AT + column :: _READ.size] = packed[column::8]
    return bytes(frames)


@with_twin
def scan_reads(buffer: Buffer, start: int, end: int, ledger: int) -> tuple[list[int], Sequence[memoryview], int]:
    """The good READ responses of one ledger from ``start``: entry ids, the entries' bytes, and where it stopped.

    Stops at the first frame that is anything else or not whole. The bytes are copies, all in one piece.
    """
    even = _even_responses(buffer, start, end, ledger)
    if even is not None:
        ids, even_entries = even
        return ids, even_entries, start + len(even_entries.data)
    entries: list[int] = []
    bounds = [start]
    unpack, position, last = _RESPONSE.unpack_from, start, end - READ_PREFIX
    while position <= last:
        size, word, code, entry_ledger, entry = unpack(buffer, position)
        stop = position + 4 + size
        if word != PLAIN_READ or code or entry_ledger != ledger or size < READ_PREFIX - 4 or stop > end:
            break
        entries.append(entry)
        bounds.append(stop)
        position = stop
    frames = memoryview(bytes(memoryview(buffer)[start:position]))
    return entries, [frames[low + READ_PREFIX - start : high - start] for low, high in pairwise(bounds)], position


def _even_responses(buffer: Buffer, start: int, end: int, ledger: int) -> tuple[list[int], EvenEntries] | None:
    """Ids and entries where only good responses of one size fit between ``start`` and ``end``; else None."""
    size = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big")
    step = _LENGTH_BYTES + size
    count = (end - start) // step
    if count >= _FEW and READ_PREFIX <= step <= _COPIED_BYTES:
        head, stop = _RESPONSE_HEAD.pack(size, PLAIN_READ, 0, ledger), start + count * step
        if buffer[stop - step : stop - step + len(head)] == head:  # few others go on from here
            frames = memoryview(bytes(memoryview(buffer)[start:stop]))
            heads, ids = zip(*struct.iter_unpack(f">{len(head)}sq{step - READ_PREFIX}x", frames), strict=True)
            if heads.count(head) == count:
                return list(ids), EvenEntries(frames, step - READ_PREFIX, READ_PREFIX)
    return None


@dataclass(frozen=True, slots=True)
class EvenEntries(Sequence[memoryview]):
    """Entries, or their payloads, of one size as they lie in responses: no object each until asked."""

    data: memoryview
    size: int  # of an entry
    gap: int = _LENGTH_BYTES  # the bytes in front of each: its length, and in front of a payload the entry's header

    def __len__(self) -> int:
        return len(self.data) // (self.gap + self.size)

    def __iter__(self) -> Iterator[memoryview]:
        step, data, size = self.gap + self.size, self.data, self.size
        return iter([data[at : at + size] for at in range(self.gap, self.gap + len(data), step)])

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        gap, step = self.gap, self.gap + self.size
        place = range(0, len(self.data), step)[index]
        if isinstance(place, int):
            return self.data[place + gap : place + step]
        if place.step == step:
            return EvenEntries(self.data[place.start : place.stop], self.size, gap)
        return [self.data[at + gap : at + step] for at in place]


@dataclass(frozen=True, slots=True)
class PackedEntries(Sequence[memoryview]):
    """Payloads of any sizes, one after another: no object each until asked."""

    data: memoryview
    offsets: array[int]  # payload i is data[offsets[i] : offsets[i + 1]]

    @staticmethod
    def of(payloads: Sequence[Buffer]) -> PackedEntries:
        """The same payloads, copied."""
        offsets = array("q", accumulate(map(len, payloads), initial=0))
        return PackedEntries(memoryview(b"".join(payloads)), offsets)

    @property
    def bytes(self) -> memoryview:
        """Those of all payloads."""
        return self.data[self.offsets[0] : self.offsets[-1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[memoryview]:
        data = self.data
        return iter([data[start:end] for start, end in pairwise(self.offsets)])

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        place = range(len(self))[index]
        if isinstance(place, int):
            return self.data[self.offsets[place] : self.offsets[place + 1]]
        if place.step == 1:
            return PackedEntries(self.data, self.offsets[place.start : max(place.start, place.stop) + 1])
        return [self[at] for at in place]


def joined_entries(parts: Sequence[_Column]) -> _Column:
    """All entries of the parts, or their payloads, in order: as they lie there where all have one size."""
    if len(parts) == 1:
        return parts[0]
    even = [part for part in parts if isinstance(part, EvenEntries)]
    if len(even) == len(parts) and len({(part.size, part.gap) for part in even}) == 1:
        return EvenEntries(memoryview(b"".join(part.data for part in even)), even[0].size, even[0].gap)
    packed = [part for part in parts if isinstance(part, PackedEntries)]
    if len(packed) == len(parts):
        return _joined_packed(packed)
    return [entry for part in parts for entry in part]


def _joined_packed(parts: Sequence[PackedEntries]) -> PackedEntries:
    offsets = array("q", (0,))
    for part in parts:
        moved = offsets[-1] - part.offsets[0]
        offsets.extend(part.offsets[1:] if not moved else array("q", [end + moved for end in part.offsets[1:]]))
    return PackedEntries(memoryview(b"".join(part.bytes for part in parts)), offsets)


@dataclass(frozen=True, slots=True)
class SpreadEntries(Sequence[memoryview]):
    """Entries of one size, with the ids ``first``, ``first`` + 1, …, as they lie in several responses."""

    first: int
    parts: Sequence[tuple[Sequence[int], EvenEntries]]  # ids, and the entries; together they have each once

    @staticmethod
    def of(ids: range, parts: Sequence[tuple[Sequence[int], Sequence[Buffer]]]) -> SpreadEntries | None:
        """The entries with these ids, if ``parts``, which have no other ones, have all of them in one size."""
        even = [(part_ids, entries) for part_ids, entries in parts if isinstance(entries, EvenEntries)]
        if len(even) < len(parts) or len({entries.size for _, entries in even}) != 1:
            return None
        return SpreadEntries(ids[0], even) if sum(len(part_ids) for part_ids, _ in even) == len(ids) else None

    @property
    def size(self) -> int:
        """The bytes of an entry."""
        return self.parts[0][1].size

    def in_order(self) -> list[memoryview]:
        """The entries, each as an object."""
        by_id = {each: entry for ids, entries in self.parts for each, entry in zip(ids, entries, strict=True)}
        return [by_id[each] for each in range(self.first, self.first + len(by_id))]

    def __len__(self) -> int:
        return sum(len(ids) for ids, _ in self.parts)

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | Sequence[memoryview]:
        return self.in_order()[index]


def even_entries(data: memoryview) -> EvenEntries | None:
    """The entries of a batch response, where all lengths are the same one and fill it; None: look at each."""
    size = int.from_bytes(data[:_LENGTH_BYTES], "big")
    step = _LENGTH_BYTES + size
    count = len(data) // step
    if size > _COPIED_BYTES or count < _FEW or count * step != len(data):
        return None
    alike = all(data[at::step].tobytes() == bytes((data[at],)) * count for at in range(_LENGTH_BYTES))
    return EvenEntries(data, size) if alike else None


@with_twin
def response_entries(frames: bytes, count: int) -> list[bytes]:
    """The entries of ``count`` good READ responses, which fill the buffer. Lengths are not judged: they are our own."""
    step, head = len(frames) // count, frames[:_LENGTH_BYTES]
    if step <= _COPIED_BYTES and step * count == len(frames) and int.from_bytes(head, "big") == step - _LENGTH_BYTES:
        lengths, entries = zip(*struct.iter_unpack(f"4s24x{step - READ_PREFIX}s", frames), strict=True)
        if lengths.count(head) == count:
            return list(entries)
    parts, position = [], 0
    while position < len(frames):
        stop = position + _LENGTH_BYTES + int.from_bytes(frames[position : position + _LENGTH_BYTES], "big")
        parts.append(frames[position + READ_PREFIX : stop])
        position = stop
    return parts


@dataclass(slots=True)
class EntryRun:
    """Checked entries of one ledger with the ids ``first``, ``first`` + 1, …"""

    ledger: int
    first: int
    lacs: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    payloads: _Column = ()

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads."""
        payloads = self.payloads
        if isinstance(payloads, EvenEntries):
            return payloads.size * len(payloads)
        return len(payloads.bytes) if isinstance(payloads, PackedEntries) else sum(map(len, payloads))

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1


@with_twin
def open_entries(
    entries: Sequence[Buffer],
    ledger: int,
    first: int,
    digests: Callable[[Sequence[Buffer], Sequence[Buffer]], bytes],
    digest_bytes: int,
) -> EntryRun:
    """The good entries from the front, up to the first that is too short, has another digest, or is not the next one.

    ``digests`` maps headers and payloads to their digests, joined, ``digest_bytes`` bytes each. Payloads are copies, or
    views where they are long.
    """
    headers, stored_digests, payloads = _columns(entries, digest_bytes)
    computed_digests, count = digests(headers, payloads), len(headers)
    fields = array("q", b"".join(headers))
    if sys.byteorder == "little":
        fields.byteswap()
    ledgers, ids = fields[0::4], fields[1::4]
    if not (
        compare_digest(b"".join(stored_digests), computed_digests)
        and ledgers.count(ledger) == count
        and ids == array("q", range(first, first + count))
    ):
        for at, digest in enumerate(stored_digests):
            computed_digest = computed_digests[at * digest_bytes : (at + 1) * digest_bytes]
            if ledgers[at] != ledger or ids[at] != first + at or not compare_digest(digest, computed_digest):
                count = at
                break
    return EntryRun(ledger, first, fields[2 : 4 * count : 4], fields[3 : 4 * count : 4], payloads[:count])


@with_twin
def open_singles(
    ids: Sequence[int],
    entries: Sequence[Buffer],
    ledger: int,
    digests: Callable[[Sequence[Buffer], Sequence[Buffer]], bytes],
    digest_bytes: int,
) -> list[tuple[bytes, int, int] | None]:
    """Payload, length and LAC of each of the entries with these ids, in any order. None stands for one that is too
    short, has another digest, or is another entry. ``digests``, ``digest_bytes``: as ``open_entries`` has them."""
    _check_even(entries)
    start, opened = _HEADER_BYTES + digest_bytes, list[tuple[bytes, int, int] | None]()
    for number, entry in zip(ids, entries, strict=True):
        header, payload, fields = bytes(entry[:_HEADER_BYTES]), bytes(entry[start:]), None
        if len(entry) >= start and compare_digest(bytes(entry[_HEADER_BYTES:start]), digests((header,), (payload,))):
            of_ledger, of_entry, lac, length = _HEADER.unpack(header)
            if of_ledger == ledger and of_entry == number:
                fields = payload, length, lac
        opened.append(fields)
    return opened


@with_twin
def open_together(
    entries: Sequence[Buffer],
    ledger: int,
    first: int,
    digests: Callable[[Sequence[Buffer], Sequence[Buffer]], bytes],
    digest_bytes: int,
) -> EntryRun:
    """As ``open_entries``, with no object for a payload: of EvenEntries they stay where they are, others are packed.

    Where entries are long, an object costs less than a copy: then it is ``open_entries``.
    """
    _check_even(entries)
    run, start = open_entries(entries, ledger, first, digests, digest_bytes), _HEADER_BYTES + digest_bytes
    if isinstance(entries, EvenEntries) and entries.size >= start:
        data = entries.data[: len(run) * (entries.gap + entries.size)]
        return replace(run, payloads=EvenEntries(data, entries.size - start, entries.gap + start))
    if not isinstance(entries, SpreadEntries) and sum(map(len, entries)) > len(entries) * _COPIED_BYTES:
        return run
    return replace(run, payloads=PackedEntries.of(run.payloads))


def _check_even(entries: Sequence[Buffer]) -> None:
    if isinstance(entries, EvenEntries) and len(entries.data) % (entries.gap + entries.size):
        raise ValueError("entries of one size do not fill their bytes")


def _columns(entries: Sequence[Buffer], digest_bytes: int) -> tuple[_Column, _Column, _Column]:
    """Headers, digests and payloads of the entries before the first that is too short to have them."""
    if isinstance(entries, SpreadEntries):
        entries = entries.in_order()
    start = _HEADER_BYTES + digest_bytes
    if isinstance(entries, EvenEntries):
        sizes, data, gap = {entries.size}, entries.data, entries.gap
    else:
        sizes, data, gap = set(map(len, entries)), None, 0
    if len(sizes) == 1 and entries and start <= (size := sizes.pop()) <= _COPIED_BYTES:
        rows = struct.iter_unpack(
            f"{gap}x{_HEADER_BYTES}s{digest_bytes}s{size - start}s", b"".join(entries) if data is None else data
        )
        headers, digests, payloads = zip(*rows, strict=True)
        return headers, digests, payloads
    views = [memoryview(entry) for entry in takewhile(lambda entry: len(entry) >= start, entries)]
    heads = [view[:_HEADER_BYTES] for view in views]
    return heads, [view[_HEADER_BYTES:start] for view in views], [view[start:] for view in views]
