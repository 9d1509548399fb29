"""Messages as Pulsar's producers write them into entries (``Commands``, ``MessageMetadata``).

::

    entry    [0e 02 | length (4) | BrokerEntryMetadata] [0e 01 | CRC32C (4)] length (4) | MessageMetadata | payload
    payload  what the producer gave, or a batch; compressed as a whole, if at all
    batch    per message: length (4) | SingleMessageMetadata | its bytes

The CRC is of all behind it. One entry has one message, a batch, or a chunk of a message that is too long for an entry.
A batch may have a million messages: they are decoded in steps, and ``open_entry`` shows what is in front of them alone.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from google.protobuf.message import DecodeError, EncodeError

from tallystick.bookkeeper.wire.compression import Compression, compress, decompress
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES, Position
from tallystick.bookkeeper.wire.streams_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptEntry, UsageError

if TYPE_CHECKING:
    from tallystick.bookkeeper.wire.streams_pb2 import KeyValue

Buffer = bytes | memoryview

MOST_FIELDS = 1_000_000  # of an entry: its messages and their properties
MOST_BYTES = 128 << 20  # of the payload of an entry, when it is decompressed
MOST_PROPERTIES = 16_384  # of a message
LONGEST_METADATA = 1 << 20  # bytes in front of a message
MESSAGE_BYTES, _PROPERTY_BYTES = 64, 8  # about what they take beside what the caller gave
STEP_FIELDS = 512  # messages and properties that are decoded without a stop: two ms
STEP_BYTES = 256 * 1024  # and of their data, about

_BROKER_MAGIC, _CRC_MAGIC = b"\x0e\x02", b"\x0e\x01"
_LENGTH = struct.Struct(">I")
_KINDS = {each.value: each for each in Compression}


@dataclass(frozen=True, slots=True)
class OutMessage:
    """What a producer gives. A key of bytes is stored in base64, as Pulsar does."""

    data: bytes
    key: str | bytes | None = None
    event_time_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)

    @property
    def size(self) -> int:
        """About how many bytes it takes, of an entry or of the memory: an empty one too."""
        size = MESSAGE_BYTES + len(self.data) + (0 if self.key is None else len(self.key))
        if self.properties:
            size += sum([_PROPERTY_BYTES + len(name) + len(value) for name, value in self.properties.items()])
        return size


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which part of a message an entry is. All ``count`` of them joined have ``total_bytes``, and ``size`` when that is
    decompressed."""

    uuid: str
    index: int
    count: int
    total_bytes: int
    compression: Compression
    size: int


class InMessage(NamedTuple):
    """A message that was read. The data of a chunk are its part, as it is stored."""

    position: Position
    data: bytes
    key: str | bytes | None
    properties: Mapping[str, str]
    publish_time_ms: int
    event_time_ms: int | None
    producer: str
    sequence: int
    batch_size: int = 0  # messages of the batch that it is one of; 0: it is alone in its entry
    is_null: bool = False  # it has no value: what was under its key is to be forgotten
    ordering_key: bytes = b""
    schema_version: bytes = b""
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """What is in front of the messages of an entry. ``payload`` is theirs, as it is stored."""

    position: Position
    producer: str
    sequence: int  # of the first message
    last_sequence: int
    publish_time_ms: int
    broker_time_ms: int | None  # when its broker stored it, where that notes it
    count: int  # of messages; 0 for a marker of a broker
    compression: Compression
    size: int  # bytes of the payload when it is decompressed; of a chunk as it is stored
    chunk: Chunk | None
    payload: memoryview = field(repr=False)
    metadata: MessageMetadata = field(repr=False)

    @property
    def is_batch(self) -> bool:
        return self.metadata.HasField("num_messages_in_batch")


# -- to bytes ---------------------------------------------------------------------------------------------------------


def encode_entry(
    messages: Sequence[OutMessage],
    *,
    producer: str,
    sequence: int,
    publish_time_ms: int,
    compression: Compression | None = None,
) -> bytes:
    """Encode one message, or several as a batch whose sequences ascend from ``sequence``.

    Raises UsageError for what the format cannot hold. Compressing megabytes takes many milliseconds.
    """
    if not messages:
        raise UsageError("an entry has at least one message")
    how = compression or Compression.NONE
    try:
        metadata = MessageMetadata(producer_name=producer, sequence_id=sequence, publish_time=publish_time_ms)
        first, count = messages[0], len(messages)
        if count == 1:
            _describe(metadata, first)
            payload = first.data
        else:
            payload = _batch(messages, sequence)
            metadata.num_messages_in_batch, metadata.highest_sequence_id = count, sequence + count - 1
            _set_key(metadata, first.key)  # by which consumers share the batches of a topic
        if how is not Compression.NONE:
            if len(payload) > MOST_BYTES:  # compressed it may be short enough for a ledger, and nobody would read it
                raise ValueError(f"it has {len(payload)} bytes before it is compressed, and {MOST_BYTES} are the most")
            metadata.compression, metadata.uncompressed_size = how.value, len(payload)
            payload = compress(payload, how)
        front = metadata.SerializeToString()
        if len(front) > LONGEST_METADATA:
            raise ValueError(f"key and properties have more than {LONGEST_METADATA} bytes")
        body = b"".join((_LENGTH.pack(len(front)), front, payload))
    except (ValueError, TypeError, EncodeError) as error:
        raise UsageError(f"the message cannot be stored: {error}") from error
    return b"".join((_CRC_MAGIC, _LENGTH.pack(crc32c(body)), body))


def _batch(messages: Sequence[OutMessage], sequence: int) -> bytes:
    if len(messages) + sum(len(each.properties) for each in messages) > MOST_FIELDS:
        raise ValueError(f"a batch has more than {MOST_FIELDS} messages and properties")
    parts: list[bytes] = []
    for at, message in enumerate(messages, sequence):
        single = SingleMessageMetadata(payload_size=len(message.data), sequence_id=at)
        _describe(single, message)
        front = single.SerializeToString()
        if len(front) > LONGEST_METADATA:
            raise ValueError(f"key and properties have more than {LONGEST_METADATA} bytes")
        parts += (_LENGTH.pack(len(front)), front, message.data)
    return b"".join(parts)


def _describe(metadata: MessageMetadata | SingleMessageMetadata, message: OutMessage) -> None:
    if len(message.properties) > MOST_PROPERTIES:
        raise ValueError(f"a message has more than {MOST_PROPERTIES} properties")
    for key, value in message.properties.items():
        metadata.properties.add(key=key, value=value)
    _set_key(metadata, message.key)
    if message.event_time_ms is not None:
        metadata.event_time = message.event_time_ms


def _set_key(metadata: MessageMetadata | SingleMessageMetadata, key: str | bytes | None) -> None:
    if isinstance(key, bytes):
        metadata.partition_key, metadata.partition_key_b64_encoded = base64.b64encode(key).decode(), True
    elif key is not None:
        metadata.partition_key = key


# -- from bytes -------------------------------------------------------------------------------------------------------


def open_entry(data: Buffer, *, position: Position) -> OpenEntry:
    """Check an entry, and decode what is in front of its messages. Raises CorruptEntry.

    Next: ``iter_messages`` with its ``plain_payload``, which a worker may make where it has megabytes.
    """
    view, at, broker_time_ms = memoryview(data), 0, None
    try:
        if view[:2] == _BROKER_MAGIC:
            at = 6 + _length(view, 2)
            note = BrokerEntryMetadata.FromString(bytes(view[6:at]))
            broker_time_ms = note.broker_timestamp if note.HasField("broker_timestamp") else None
        if view[at : at + 2] == _CRC_MAGIC:
            at += 6
            if crc32c(view[at:]) != int.from_bytes(view[at - 4 : at], "big"):
                raise ValueError("its CRC is wrong")
        size = _length(view, at)
        if size > LONGEST_METADATA:
            raise ValueError(f"it has more than {LONGEST_METADATA} bytes of metadata")
        metadata = MessageMetadata.FromString(bytes(view[at + 4 : at + 4 + size]))
        if not metadata.IsInitialized():
            raise ValueError("fields are missing")
        return _opened(position, metadata, view[at + 4 + size :], broker_time_ms)
    except (ValueError, DecodeError) as error:
        _refuse(position, error)


def plain_payload(entry: OpenEntry, *, max_bytes: int) -> Buffer:
    """Returns the payload decompressed; that of a chunk as it is stored. Raises CorruptEntry, also for more than
    ``max_bytes``; UsageError where a library is missing."""
    if entry.chunk is not None or entry.compression is Compression.NONE:
        return entry.payload
    return _decompressed(entry.payload, entry.compression, entry.size, entry.position, max_bytes)


def plain_chunks(parts: Sequence[bytes], chunk: Chunk, *, position: Position, max_bytes: int) -> bytes:
    """Returns the data of a message that came in chunks. Raises as ``plain_payload`` does."""
    joined = b"".join(parts)
    if len(joined) != chunk.total_bytes:
        _refuse(position, f"its chunks have {len(joined)} bytes, and should have {chunk.total_bytes}")
    return _decompressed(joined, chunk.compression, chunk.size, position, max_bytes)


def iter_messages(entry: OpenEntry, payload: Buffer) -> Iterator[list[InMessage]]:
    """Yields the messages of a decompressed payload, some thousands at most in each list. Raises CorruptEntry."""
    try:
        if entry.is_batch:
            yield from _of_batch(entry, memoryview(payload))
        elif entry.count:
            yield [_alone(entry, bytes(payload))]
    except (ValueError, DecodeError) as error:
        _refuse(entry.position, error)


def _opened(
    position: Position, metadata: MessageMetadata, payload: memoryview, broker_time_ms: int | None
) -> OpenEntry:
    if metadata.encryption_keys:
        raise ValueError("its producer has encrypted it")
    how = _KINDS.get(metadata.compression)
    if how is None:
        raise ValueError(f"it is compressed in a way that this version does not know: {metadata.compression}")
    is_batch = metadata.HasField("num_messages_in_batch")
    size = len(payload) if how is Compression.NONE else metadata.uncompressed_size
    count = metadata.num_messages_in_batch if is_batch else 1
    if count < 1 or count > MOST_FIELDS:
        raise ValueError(f"a batch of {count} messages is not taken: {MOST_FIELDS} are the most")
    return OpenEntry(
        position.of_entry,
        _text(metadata.producer_name),
        metadata.sequence_id,
        max(metadata.sequence_id, metadata.highest_sequence_id),  # as a broker sees it
        metadata.publish_time,
        broker_time_ms,
        0 if metadata.HasField("marker_type") else count,
        how,
        size,
        None if is_batch else _chunk(metadata, how, size),
        payload,
        metadata,
    )


def _chunk(metadata: MessageMetadata, how: Compression, size: int) -> Chunk | None:
    count, index, total_bytes = metadata.num_chunks_from_msg, metadata.chunk_id, metadata.total_chunk_msg_size
    if count <= 1:
        return None
    if not 0 <= index < count or total_bytes < 0:
        raise ValueError(f"it is chunk {index} of {count} with {total_bytes} bytes")
    return Chunk(_text(metadata.uuid), index, count, total_bytes, how, total_bytes if how is Compression.NONE else size)


def _alone(entry: OpenEntry, data: bytes) -> InMessage:
    metadata = entry.metadata
    return InMessage(
        entry.position,
        data,
        key_of(metadata),
        properties_of(metadata.properties),
        entry.publish_time_ms,
        metadata.event_time if metadata.HasField("event_time") else None,
        entry.producer,
        entry.sequence,
        0,
        metadata.null_value,
        metadata.ordering_key,
        metadata.schema_version,
        entry.chunk,
    )


class BatchPlace(NamedTuple):
    """Where decoding a batch goes on: the number of a message, where it is in the payload, and the fields before it."""

    number: int = 0
    at: int = 0
    fields: int = 0


def batch_step(entry: OpenEntry, payload: Buffer, place: BatchPlace) -> tuple[list[InMessage], BatchPlace | None]:
    """Returns some messages of a batch, from ``place`` on, and where it goes on; None: these are the last. Raises
    CorruptEntry."""
    try:
        return _step(entry, memoryview(payload), place)
    except (ValueError, DecodeError) as error:
        _refuse(entry.position, error)


def _of_batch(entry: OpenEntry, payload: memoryview) -> Iterator[list[InMessage]]:
    place: BatchPlace | None = BatchPlace()
    while place is not None:
        step, place = _step(entry, payload, place)
        if step:
            yield step


def _step(entry: OpenEntry, payload: memoryview, place: BatchPlace) -> tuple[list[InMessage], BatchPlace | None]:
    ledger, number, _ = entry.position
    producer, publish_time_ms, schema_version = entry.producer, entry.publish_time_ms, entry.metadata.schema_version
    step: list[InMessage] = []
    start, at, fields = place
    of_step = step_bytes = 0
    for index in range(start, entry.count):
        size = _length(payload, at)
        if size > LONGEST_METADATA:
            raise ValueError(f"message {index} has more than {LONGEST_METADATA} bytes of metadata")
        at += 4 + size
        single = SingleMessageMetadata.FromString(bytes(payload[at - size : at]))
        stop = at + single.payload_size
        if not single.IsInitialized() or not at <= stop <= len(payload):
            raise ValueError(f"message {index} of its batch is not whole")
        if not single.compacted_out:  # there is a newer one of this key
            message = InMessage(
                Position(ledger, number, index),
                bytes(payload[at:stop]),
                key_of(single),
                properties_of(single.properties) if single.properties else NO_PROPERTIES,
                publish_time_ms,
                single.event_time if single.HasField("event_time") else None,
                producer,
                single.sequence_id if single.HasField("sequence_id") else entry.sequence,
                entry.count,
                single.null_value,
                single.ordering_key,
                schema_version,
            )
            step.append(message)
        step_bytes += single.payload_size
        at, of_step = stop, of_step + 1 + len(single.properties)
        if of_step >= STEP_FIELDS or step_bytes >= STEP_BYTES:
            if (fields := fields + of_step) > MOST_FIELDS:
                raise ValueError(f"it has more than {MOST_FIELDS} messages and properties")
            return step, BatchPlace(index + 1, at, fields) if index + 1 < entry.count else None
    return step, None


def _decompressed(data: Buffer, how: Compression, size: int, position: Position, max_bytes: int) -> bytes:
    if size > max_bytes:
        _refuse(position, f"it has {size} bytes when it is decompressed, and {max_bytes} are the most")
    try:
        return decompress(data, how, size=size)
    except ValueError as error:
        _refuse(position, f"{how.name} does not decompress it: {error}")


def _refuse(position: Position, reason: object) -> NoReturn:
    cause = reason if isinstance(reason, Exception) else None
    text = f"the bytes of this entry are no messages: {reason}"
    raise CorruptEntry(text, position=position.of_entry) from cause


def _length(view: memoryview, at: int) -> int:
    """Returns a length that is followed by so many bytes."""
    length = int.from_bytes(view[at : at + 4], "big")
    if at + 4 + length > len(view):
        raise ValueError("it is cut off")
    return length


def key_of(metadata: MessageMetadata | SingleMessageMetadata) -> str | bytes | None:
    """Returns the key of a message: bytes if it is stored in base64."""
    key = metadata.partition_key
    if not (key or metadata.HasField("partition_key")) or metadata.null_partition_key:
        return None
    if not isinstance(key, str):
        key = _text(key)
    if not metadata.partition_key_b64_encoded:
        return key
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return key


def properties_of(properties: Sequence[KeyValue]) -> Mapping[str, str]:
    """Returns the properties of a message; of two with one name the last. Raises ValueError for too many."""
    if len(properties) > MOST_PROPERTIES:
        raise ValueError(f"a message has more than {MOST_PROPERTIES} properties")
    return MappingProxyType({_text(each.key): _text(each.value) for each in properties})


def _text(value: str | bytes) -> str:
    """Returns a text; of one that is not UTF-8, which is given as bytes, what Java would show."""
    return value if isinstance(value, str) else value.decode(errors="replace")
