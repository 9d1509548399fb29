"""The messages of many batches at once, by columns; see ``block.py``."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from tallystick.bookkeeper.wire.pulsar_messages import LONGEST_METADATA
from tallystick.pipeline.gather import Bytes, Numbers, Spans, view_of, windows
from tallystick.pipeline.stream.fields import INT_BITS, Field, Kind, read_fields
from tallystick.pipeline.stream.group import Group

_LENGTH = struct.Struct(">I")
_LENGTH_BYTES = 4
_BYTES_TAGS, _SIZE_TAG = (0x0A, 0x12), 0x18
_MOST_SKIPPED = 64  # fields before the size of a message
_KEY, _SIZE, _COMPACTED, _HAPPENED, _IS_BASE64, _SEQUENCE, _NO_VALUE, _NO_KEY = 2, 3, 4, 5, 6, 8, 9, 10
_METADATA = (  # SingleMessageMetadata
    Field(1, Kind.PAIRS),
    Field(_KEY, Kind.BYTES),
    Field(_SIZE, Kind.NUMBER, INT_BITS),
    Field(_COMPACTED, Kind.NUMBER),
    Field(_HAPPENED, Kind.NUMBER),
    Field(_IS_BASE64, Kind.NUMBER),
    Field(7, Kind.BYTES),  # the key of an order
    Field(_SEQUENCE, Kind.NUMBER),
    Field(_NO_VALUE, Kind.NUMBER),
    Field(_NO_KEY, Kind.NUMBER),
)


class Batches(NamedTuple):
    """Batches by columns: their entries' places, where their payloads are, how many messages each has, and the number
    of its first one."""

    places: Numbers
    payloads: Spans
    counts: Numbers
    first_sequences: Numbers


def read_members(data: Bytes, batches: Batches) -> tuple[Group, int | None]:
    """Read the messages of batches up to the first one that is not usual.

    Returns them, but those that are compacted away, and the place of that batch's entry, if there is one.
    """
    starts = _starts_of_all(data, batches)
    counts = batches.counts[: len(starts)]
    numbers = np.repeat(np.arange(len(starts)), counts)  # of the batch, by message
    none = np.zeros(0, np.int64)
    at, indexes = np.concatenate([none, *starts]), np.concatenate([none, *map(np.arange, counts)])
    ends = (batches.payloads.offsets + batches.payloads.sizes)[numbers]
    lengths = windows(data, ">u4")[at].astype(np.int64)
    values_at = at + _LENGTH_BYTES + lengths
    good = (lengths <= LONGEST_METADATA) & (values_at <= ends)
    fields = read_fields(data, np.where(good, at + _LENGTH_BYTES, 0), np.where(good, values_at, 0), _METADATA)
    sizes = fields.number(_SIZE)
    stops, is_last = values_at + sizes, indexes == counts[numbers] - 1
    good &= fields.whole & fields.has(_SIZE) & (fields.number(_NO_KEY) == 0)
    good &= np.where(is_last, stops <= ends, stops == np.append(at[1:], 0)[: len(at)])
    good_count = len(starts) if good.all() else int(numbers[np.argmin(good)])  # of batches
    group = Group(
        batches.places[numbers],
        indexes,
        Spans(values_at, sizes),
        fields.number(_NO_VALUE) == 0,
        fields.span(_KEY),
        fields.has(_KEY),
        fields.number(_IS_BASE64) != 0,
        fields.number(_HAPPENED),
        fields.has(_HAPPENED),
        np.where(fields.has(_SEQUENCE), fields.number(_SEQUENCE), batches.first_sequences[numbers]),
        fields.pairs,
    )
    kept = (numbers < good_count) & (fields.number(_COMPACTED) == 0)  # of the others there is a newer one of their key
    bad = int(batches.places[good_count]) if good_count < len(batches.places) else None
    return group if kept.all() else group.chosen(np.flatnonzero(kept)), bad


def _starts_of_all(data: Bytes, batches: Batches) -> list[Numbers]:
    """Returns where the messages of each batch seem to begin, up to the first batch where that cannot be seen."""
    view = view_of(data)
    starts: list[Numbers] = []
    payloads = zip(batches.payloads.offsets.tolist(), batches.payloads.sizes.tolist(), strict=True)
    for (start, size), count in zip(payloads, batches.counts.tolist(), strict=True):
        of_batch = _starts(view, start, start + size, count)
        if of_batch is None:
            break
        starts.append(of_batch)
    return starts


def _starts(view: memoryview, start: int, end: int, count: int) -> Numbers | None:
    """Returns where ``count`` messages begin. That all are alike is a guess that ``read_members`` proves."""
    stop = _end_of_message(view, start, end)
    if stop is None:
        return None
    if (stop - start) * count == end - start:
        return np.arange(start, end, stop - start)
    starts = [start]
    for _ in range(count - 1):
        starts.append(stop)
        stop = _end_of_message(view, stop, end)
        if stop is None:
            return None
    return np.array(starts)


def _end_of_message(view: memoryview, at: int, end: int) -> int | None:
    """Returns where a message of a batch ends; None if it is not whole, or has more in front of its size than usual.

    Beyond ``end`` there is padding at least, so no byte is looked at that is not there.
    """
    if at + _LENGTH_BYTES > end:
        return None
    metadata_end = at + _LENGTH_BYTES + int(_LENGTH.unpack_from(view, at)[0])
    if metadata_end > end:
        return None
    at += _LENGTH_BYTES
    for _ in range(_MOST_SKIPPED):
        if at >= metadata_end:
            return None
        tag, number, place, shift = view[at], view[at + 1] & 0x7F, at + 2, 7
        while view[place - 1] >= 0x80:
            number |= (view[place] & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if place > metadata_end:
                return None
        if tag == _SIZE_TAG:
            return metadata_end + number if metadata_end + number <= end else None
        if tag not in _BYTES_TAGS:
            return None
        at = place + number
    return None
