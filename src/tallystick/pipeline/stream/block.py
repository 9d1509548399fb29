"""The messages of many usual entries at once, by columns: no step in Python for each entry.

What is usual: entries with a CRC, of one message or a batch, whose fields ``fields.py`` reads. ``usual.py`` reads what
has more to it, one entry after another, and what that leaves ``pulsar_messages`` reads, the reference of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tallystick.bookkeeper.stream.reader import MAX_MESSAGE_BYTES
from tallystick.bookkeeper.wire.compression import Compression, decompress
from tallystick.bookkeeper.wire.pulsar_messages import LONGEST_METADATA, Buffer
from tallystick.codec.messages import scan_messages
from tallystick.codec.reads import EvenEntries, PackedEntries
from tallystick.codec.spans import crc32c_of_spans
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.gather import Bytes, Flags, Numbers, Spans, first_false, joined, view_of, windows
from tallystick.pipeline.stream.fields import INT_BITS, Field, Fields, Kind, Table
from tallystick.pipeline.stream.group import Group
from tallystick.pipeline.stream.members import Batches, read_members
from tallystick.pipeline.stream.usual import USUAL_FIELDS

MOST_BYTES, MOST_ROWS = 2 * BATCH_BYTES, 2 * BATCH_ROWS  # and one entry: what is given is seldom more than one batch
_HEAD: Final = np.dtype([("magic", ">u2"), ("crc", ">u4"), ("length", ">u4")])
_CRC_MAGIC, _CRC_FROM = 0x0E01, 6
_PRODUCER, _SEQUENCE, _PUBLISHED, _KEY, _COMPRESSION, _SIZE = 1, 2, 3, 6, 8, 9
_COUNT, _HAPPENED, _IS_BASE64, _NO_VALUE, _NO_KEY = 11, 12, 17, 25, 30
_METADATA = Table(  # MessageMetadata, without what is not usual: encryption, markers, chunks
    Field(_PRODUCER, Kind.BYTES),
    Field(_SEQUENCE, Kind.NUMBER),
    Field(_PUBLISHED, Kind.NUMBER),
    Field(4, Kind.PAIRS),
    Field(_KEY, Kind.BYTES),
    Field(_COMPRESSION, Kind.NUMBER, INT_BITS),
    Field(_SIZE, Kind.NUMBER, INT_BITS),
    Field(_COUNT, Kind.NUMBER, INT_BITS),
    Field(_HAPPENED, Kind.NUMBER),
    Field(16, Kind.BYTES),  # the version of the schema
    Field(_IS_BASE64, Kind.NUMBER),
    Field(18, Kind.BYTES),  # the key of an order
    Field(24, Kind.NUMBER),  # the highest sequence
    Field(_NO_VALUE, Kind.NUMBER),
    Field(_NO_KEY, Kind.NUMBER),
)


@dataclass(slots=True)
class Block:
    """The messages of some entries, in order, and what entries say of theirs. ``size``: the bytes of their values."""

    data: Bytes
    first: int  # the id of the entry with the place 0
    messages: Group
    producers: Spans  # by the place of an entry
    published: Numbers
    size: int

    def __len__(self) -> int:
        return len(self.messages.entries)

    def part(self, start: int, stop: int) -> Block:
        """Returns some of the messages."""
        messages = self.messages.chosen(np.arange(start, stop))
        return replace(self, messages=messages, size=int(messages.values.sizes.sum()))


class _Payloads(NamedTuple):
    """Where the payloads of some entries are, decompressed."""

    data: Bytes
    spans: Spans


def take_block(payloads: Sequence[Buffer], at: int, first: int) -> tuple[int, Block | None]:
    """Read entries from ``payloads[at]`` on, until one is not usual, or there are enough messages for a batch.

    Returns the place of the next entry, and the messages; None if the first one is not usual. ``first`` is the id of
    the first payload's entry.
    """
    data, entries = _taken(payloads, at)
    ends = entries.offsets + entries.sizes
    entries = entries.at(slice(first_false(entries.sizes >= _HEAD.itemsize)))
    metadata_ends, crcs, fields, good = _metadata(data, entries)
    count = min(first_false(good), _enough(fields))
    count = first_false(crcs[:count] == _crcs(data, entries.at(slice(count))))
    stored = Spans(metadata_ends, ends[: len(metadata_ends)] - metadata_ends).at(slice(count))
    plain = _plain(data, stored, fields)
    messages, count = _messages(plain, fields)
    if not count:
        return at, None
    return at + count, Block(
        plain.data,
        first + at,
        messages,
        fields.span(_PRODUCER).at(slice(count)),
        fields.number(_PUBLISHED)[:count],
        int(messages.values.sizes.sum()),
    )


def _taken(payloads: Sequence[Buffer], at: int) -> tuple[Bytes, Spans]:
    """Returns some payloads from a place on, in one piece."""
    if isinstance(payloads, EvenEntries):
        step, most = payloads.gap + payloads.size, min(MOST_ROWS, MOST_BYTES // max(1, payloads.size) + 1)
        even = payloads[at : at + most]
        assert isinstance(even, EvenEntries)
        offsets = np.arange(payloads.gap, len(even.data), step)
        return np.frombuffer(even.data, np.uint8), Spans(offsets, np.full(len(offsets), payloads.size))
    if isinstance(payloads, PackedEntries):
        ends = np.frombuffer(payloads.offsets, np.int64)[at : at + MOST_ROWS + 1]
        count = 1 + int(np.searchsorted(ends[1:-1] - ends[0], MOST_BYTES))
        data = np.frombuffer(payloads.data, np.uint8)[ends[0] : ends[count]]
        return data, Spans(ends[:count] - ends[0], ends[1 : count + 1] - ends[:count])
    taken, size = list[Buffer](), 0
    while at + len(taken) < len(payloads) and size < MOST_BYTES and len(taken) < MOST_ROWS:
        taken.append(payloads[at + len(taken)])
        size += len(taken[-1])
    sizes = np.fromiter(map(len, taken), np.int64, len(taken))
    return joined(taken), Spans(np.cumsum(sizes) - sizes, sizes)


def _metadata(data: Bytes, entries: Spans) -> tuple[Numbers, Numbers, Fields, Flags]:
    """Returns of entries where their metadata end, their CRCs, the metadata, and which of them are usual."""
    heads = windows(data, f"V{_HEAD.itemsize}")[entries.offsets].view(_HEAD)
    lengths = heads["length"].astype(np.int64)
    starts = entries.offsets + _HEAD.itemsize
    ends = starts + lengths
    good = heads["magic"] == _CRC_MAGIC
    good &= (lengths <= LONGEST_METADATA) & (ends <= entries.offsets + entries.sizes)
    scan = scan_messages(view_of(data), np.where(good, starts, 0), np.where(good, ends, 0), _METADATA.packed)
    fields = Fields(_METADATA, scan)
    counts, has_count = fields.number(_COUNT), fields.has(_COUNT)
    good &= fields.whole & (fields.span(_PRODUCER).sizes > 0) & fields.has(_SEQUENCE) & (fields.number(_PUBLISHED) > 0)
    good &= (fields.number(_NO_KEY) == 0) & (fields.number(_SIZE) <= MAX_MESSAGE_BYTES)
    good &= ~has_count | ((counts > 0) & (counts <= USUAL_FIELDS))
    return ends, heads["crc"].astype(np.int64), fields, good


def _enough(fields: Fields) -> int:
    """Returns how many entries have the messages of a batch for Spark."""
    counts = np.where(fields.has(_COUNT), fields.number(_COUNT), 1)
    return 1 + first_false(np.cumsum(counts) < MOST_ROWS)


def _crcs(data: Bytes, entries: Spans) -> Numbers:
    return np.frombuffer(
        crc32c_of_spans(view_of(data), entries.offsets + _CRC_FROM, entries.sizes - _CRC_FROM), np.int64
    )


def _plain(data: Bytes, stored: Spans, fields: Fields) -> _Payloads:
    """Returns the payloads up to the first that cannot be decompressed, or until these are enough for a batch; what is
    decompressed is behind the data."""
    compressions, sizes = fields.number(_COMPRESSION)[: len(stored.sizes)], fields.number(_SIZE)
    if not compressions.any():
        return _Payloads(data, stored)
    view = view_of(data)
    parts: list[bytes | memoryview] = [view]
    offsets, lengths, end = stored.offsets.copy(), stored.sizes.copy(), len(data)
    for place in np.flatnonzero(compressions).tolist():
        start, stop = int(offsets[place]), int(offsets[place] + lengths[place])
        try:
            if end >= len(data) + BATCH_BYTES:
                raise ValueError("enough")
            plain = decompress(view[start:stop], Compression(int(compressions[place])), size=int(sizes[place]))
        except ValueError:
            offsets, lengths = offsets[:place], lengths[:place]
            break
        parts.append(plain)
        offsets[place], lengths[place] = end, len(plain)
        end += len(plain)
    return _Payloads(joined(parts), Spans(offsets, lengths))


def _messages(plain: _Payloads, fields: Fields) -> tuple[Group, int]:
    """Returns the messages of the entries before the first one that is not usual, and how many entries these are."""
    count = len(plain.spans.sizes)
    is_batch = fields.has(_COUNT)[:count]
    alone = _alone(plain.spans, fields)
    if not is_batch.any():
        return alone, count
    places = np.flatnonzero(is_batch)
    batches = Batches(places, plain.spans.at(places), fields.number(_COUNT)[places], fields.number(_SEQUENCE)[places])
    members, bad = read_members(plain.data, batches)
    if bad is not None:
        count, is_batch = bad, is_batch[:bad]
    if is_batch.all():
        return members, count
    both = members.with_others(alone.chosen(np.flatnonzero(~is_batch)))
    return both.chosen(np.argsort(both.entries, kind="stable")), count


def _alone(payloads: Spans, fields: Fields) -> Group:
    """Returns all entries as if each were one message."""
    count = len(payloads.sizes)
    cut = slice(count)
    return Group(
        np.arange(count),
        np.full(count, -1),
        payloads,
        fields.number(_NO_VALUE)[cut] == 0,
        fields.span(_KEY).at(cut),
        fields.has(_KEY)[cut],
        fields.number(_IS_BASE64)[cut] != 0,
        fields.number(_HAPPENED)[cut],
        fields.has(_HAPPENED)[cut],
        fields.number(_SEQUENCE)[cut],
        fields.pairs.of_rows_before(count),
    )
