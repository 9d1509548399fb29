"""The messages of usual entries, as rows: one message or a batch of some thousands, with a CRC, whole and good.

``pulsar_messages.open_entry`` and ``iter_messages`` read any entry and are the reference; this takes a fourth of their
time, and leaves to them whatever has more to it: chunks, markers, encrypted or faulty entries, huge batches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.stream.reader import MAX_MESSAGE_BYTES
from tallystick.bookkeeper.wire.compression import Compression, decompress
from tallystick.bookkeeper.wire.pulsar_messages import (
    LONGEST_METADATA,
    Buffer,
    key_of,
    properties_of,
)
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata, SingleMessageMetadata
from tallystick.codec.checksum import crc32c
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.stream.rows import Row

USUAL_FIELDS = 4096  # messages and properties of a batch, at most

_HEAD = struct.Struct(">HII")  # magic, CRC, length of the metadata
_LENGTH = struct.Struct(">I")
_CRC_MAGIC, _CRC_FROM = 0x0E01, 6
_KINDS = {each.value: each for each in Compression}


def take_usual(rows: list[Row], payloads: Sequence[Buffer], at: int, first: int) -> tuple[int, int]:
    """Append the rows of entries from ``payloads[at]`` on, until one is not usual, or there are enough for a batch.

    Returns the place of the next entry, and the bytes of the values. ``first`` is the id of the first payload's entry.
    """
    size = 0
    for place in range(at, len(payloads)):
        if size >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
            return place, size
        try:
            taken = _take(rows, first + place, memoryview(payloads[place]))
        except (ValueError, DecodeError, struct.error):
            taken = -1
        if taken < 0:
            return place, size
        size += taken
    return len(payloads), size


def _take(rows: list[Row], entry: int, view: memoryview) -> int:
    """Returns the bytes of the values; -1 if the entry is not usual, and nothing is appended then."""
    magic, crc, length = _HEAD.unpack_from(view)
    start = _HEAD.size + length
    if magic != _CRC_MAGIC or start > len(view) or length > LONGEST_METADATA or crc32c(view[_CRC_FROM:]) != crc:
        return -1
    metadata = MessageMetadata.FromString(view[_HEAD.size : start])  # type: ignore[arg-type]  # it takes any buffer
    producer, published, sequence = metadata.producer_name, metadata.publish_time, metadata.sequence_id
    if not isinstance(producer, str) or not (producer and published) or metadata.num_chunks_from_msg > 1:
        return -1
    if metadata.encryption_keys or metadata.HasField("marker_type"):
        return -1
    payload: Buffer = view[start:]
    if how := metadata.compression:
        payload = _decompressed(view[start:], how, metadata.uncompressed_size)
    properties = metadata.properties
    if (properties or not sequence) and not metadata.IsInitialized():
        return -1
    if metadata.HasField("num_messages_in_batch"):
        batch = _batch(entry, metadata, memoryview(payload))
        if batch is None:
            return -1
        rows += batch
        return len(payload)
    happened = metadata.event_time
    row: Row = (
        entry,
        None,
        None if metadata.null_value else payload,
        key_of(metadata),
        properties_of(properties) if properties else NO_PROPERTIES,
        published,
        happened if happened or metadata.HasField("event_time") else None,
        producer,
        sequence,
    )
    rows.append(row)
    return len(payload)


def _batch(entry: int, metadata: MessageMetadata, payload: memoryview) -> list[Row] | None:
    """Returns the rows of a batch; None if there is more to it than usual."""
    if not 0 < metadata.num_messages_in_batch <= USUAL_FIELDS:
        return None
    producer, published, first_sequence = metadata.producer_name, metadata.publish_time, metadata.sequence_id
    length_at, parse = _LENGTH.unpack_from, SingleMessageMetadata.FromString
    rows: list[Row] = []
    at, end, fields = 0, len(payload), 0
    for index in range(metadata.num_messages_in_batch):
        (length,) = length_at(payload, at)
        start = at + 4 + length
        if length > LONGEST_METADATA or start > end:
            return None
        single = parse(payload[at + 4 : start])  # type: ignore[arg-type]
        size, properties = single.payload_size, single.properties
        at = start + size
        if size < 0 or at > end or ((properties or not size) and not single.IsInitialized()):
            return None
        if properties:
            fields += len(properties)
            if fields > USUAL_FIELDS:
                return None
        if single.compacted_out:  # there is a newer one of this key
            continue
        sequence, happened = single.sequence_id, single.event_time
        row: Row = (
            entry,
            index,
            None if single.null_value else payload[start:at],
            key_of(single),
            properties_of(properties) if properties else NO_PROPERTIES,
            published,
            happened if happened or single.HasField("event_time") else None,
            producer,
            sequence if sequence or single.HasField("sequence_id") else first_sequence,
        )
        rows.append(row)
    return rows


def _decompressed(data: memoryview, how: int, size: int) -> bytes:
    """Raises ValueError for an unknown way, and for what is longer than a message may be."""
    kind = _KINDS.get(how)
    if kind is None or size > MAX_MESSAGE_BYTES:
        raise ValueError("not usual")
    return decompress(data, kind, size=size)
