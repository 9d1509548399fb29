"""The messages of many batches at once, by columns; see ``block.py``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallystick.bookkeeper.wire.pulsar_messages import LONGEST_METADATA
from tallystick.codec.messages import scan_members
from tallystick.pipeline.gather import Bytes, Numbers, Spans, first_false, view_of
from tallystick.pipeline.stream.fields import INT_BITS, Field, Fields, Kind, Table
from tallystick.pipeline.stream.group import Group

_KEY, _SIZE, _COMPACTED, _HAPPENED, _IS_BASE64, _SEQUENCE, _NO_VALUE, _NO_KEY = 2, 3, 4, 5, 6, 8, 9, 10
_METADATA = Table(  # SingleMessageMetadata
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
    starts, counts = batches.payloads.offsets, batches.counts
    good_count, contents, scan = scan_members(
        view_of(data), starts, starts + batches.payloads.sizes, counts, _METADATA.packed, _SIZE, LONGEST_METADATA
    )
    fields = Fields(_METADATA, scan)
    numbers = np.repeat(np.arange(len(counts)), counts)  # of the batch, by message
    unusual = first_false((fields.has(_SIZE) & (fields.number(_NO_KEY) == 0)) | (numbers >= good_count))
    if unusual < len(numbers):
        good_count = int(numbers[unusual])
    group = Group(
        batches.places[numbers],
        np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts),
        Spans(np.frombuffer(contents, np.int64), fields.number(_SIZE)),
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
