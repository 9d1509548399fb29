"""Messages as producers give them, as the CommitLog stores them, and as a batch carries them.

Properties are ``name \\x01 value \\x02`` one after another, without escaping. Sources: ``MessageDecoder``,
``MessageConst``; the record: codec/records.py.
"""

from __future__ import annotations

import enum
import functools
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import field

from tallystick.codec.checksum import crc32
from tallystick.codec.pulled import scan_pulled
from tallystick.codec.records import BORN_V6, CRC_MASK, STORE_V6, V1, V2, Buffer, Content
from tallystick.codec.uniform_records import split_uniform_batch
from tallystick.errors import RemoteProtocolError, UsageError
from tallystick.rocketmq.wire.message_ids import encode_message_id

KEYS, TAGS, UNIQ_KEY, WAIT = "KEYS", "TAGS", "UNIQ_KEY", "WAIT"
RETRY_TOPIC = "RETRY_TOPIC"  # of a message given back: where it was sent
KEY_SEPARATOR = " "
_IS, _END = "\x01", "\x02"
MAX_PROPERTIES_BYTES = 32767  # their length is a signed short
COMPRESSED = 1
_COMPRESSION = 0x700
_ZLIB = (0, 0x300)  # old clients name no kind
_UNREAD_COMPRESSIONS = {0x100: "LZ4", 0x200: "ZSTD"}
MAX_BODY_BYTES = 64 * 1024 * 1024  # of one that was compressed: a few bytes may stand for gigabytes

_HEAD = struct.Struct(">IIIiiqqiq")
_TIMES = struct.Struct(">iqi")
_LONG = struct.Struct(">q")
_BATCH_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


class IndexType(enum.Enum):
    """Which of its keys a message is looked up by; the values are those of a query's ``indexType``."""

    KEY = "K"
    UNIQUE = "U"
    TAG = "T"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties as a record has them, in the mapping's order."""
    return _text_of(properties).encode()


def _text_of(properties: Mapping[str, str]) -> str:
    return "".join([f"{name}{_IS}{value}{_END}" for name, value in properties.items()])


_WAITS = {True: "true", False: "false"}
# How the properties begin of a message without any of its own, by whether it waits; its id follows, and an end.
_PLAIN = {wait: f"{WAIT}{_IS}{text}{_END}{UNIQ_KEY}{_IS}" for wait, text in _WAITS.items()}


def decode_properties(data: Buffer | str) -> dict[str, str]:
    """Decode names and values; a part without a name or a value is left out, as in the original."""
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    pairs = (part.partition("\x01") for part in text.split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


class Message(msgspec.Struct, frozen=True):
    """What a producer sends. ``wait_stored`` False: the broker answers without waiting for disk and slaves (H9)."""

    topic: str
    body: Buffer
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_stored: bool = True

    def all_properties(self) -> dict[str, str]:
        """Returns ``properties`` with those that the other fields stand for."""
        properties = dict(self.properties)
        if self.keys:
            properties[KEYS] = KEY_SEPARATOR.join(self.keys)
        if self.tags:
            properties[TAGS] = self.tags
        properties[WAIT] = _WAITS[self.wait_stored]
        return properties

    def encode_with_id(self, message_id: str) -> str:
        """Returns all properties as a record has them, with an id. Raises UsageError for properties that no broker
        takes."""
        if not (self.properties or self.keys or self.tags):
            return _PLAIN[self.wait_stored] + message_id + _END
        properties = self.all_properties()
        properties[UNIQ_KEY] = message_id
        text = _text_of(properties)
        # Their separators cannot be escaped. As many as there should be means none in a name or value.
        count = len(properties)
        if text.count(_IS) != count or text.count(_END) != count or "" in properties:
            raise UsageError("names and values of properties must not have the bytes 1 and 2; names must not be empty")
        size = len(text) if text.isascii() else len(text.encode())
        if size > MAX_PROPERTIES_BYTES:
            raise UsageError("the properties are too long", bytes=size, limit=MAX_PROPERTIES_BYTES)
        return text


class StoredMessage(msgspec.Struct, frozen=True, dict=True):
    """A record, decoded. ``stored_body`` may be compressed, ``body()`` is not."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_crc: int
    stored_body: bytes
    stored_properties: bytes
    size: int

    def __repr__(self) -> str:
        return f"{self.topic}:{self.queue_id}:{self.queue_offset}, {self.size} bytes at {self.physical_offset}"

    @functools.cached_property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.stored_properties)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(KEYS, "").split()

    @property
    def unique_key(self) -> str | None:
        """The id that the producer's client made; None if it made none."""
        return self.properties.get(UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        """The id that says where the broker stored the message."""
        return encode_message_id(self.store_host, self.physical_offset)

    def body(self) -> bytes:
        """What the producer sent. Raises as ``sent_body``, and RemoteProtocolError if the record has the checksum of
        another body."""
        if crc32(self.stored_body) & CRC_MASK != self.body_crc:
            raise RemoteProtocolError("the body of a message does not match its checksum", offset=self.physical_offset)
        return sent_body(self.stored_body, self.sys_flag, self.physical_offset)


def sent_body(stored_body: bytes, sys_flag: int, physical_offset: int) -> bytes:
    """Returns a body as it was before a producer compressed it.

    Raises UsageError for a compression that is not read here, RemoteProtocolError for a damaged body, or for one that
    would be longer than ``MAX_BODY_BYTES``.
    """
    if not sys_flag & COMPRESSED:
        return stored_body
    kind = sys_flag & _COMPRESSION
    if kind not in _ZLIB:
        raise UsageError(
            "the message's body is compressed in a way that is not read: only zlib is; let its producer use that",
            compression=_UNREAD_COMPRESSIONS.get(kind, "unknown"),
            offset=physical_offset,
        )
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(stored_body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise RemoteProtocolError("a compressed body is damaged", offset=physical_offset) from error
    if len(body) > MAX_BODY_BYTES:
        raise RemoteProtocolError(
            "a compressed body is longer than any that is read", offset=physical_offset, limit_bytes=MAX_BODY_BYTES
        )
    if not inflater.eof:
        raise RemoteProtocolError("a compressed body is damaged: its end is missing", offset=physical_offset)
    return body


def decode_messages(buffer: Buffer) -> list[StoredMessage]:
    """Decode records one after another, as a pull's response has them. Raises RemoteProtocolError for anything else."""
    run = scan_pulled(bytes(buffer), verify=False)
    if run.end != len(buffer):
        raise RemoteProtocolError("no record of the CommitLog", position=run.end)
    try:
        topics = {topic: topic.decode() for topic in set(run.topics)}
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a topic that is no text") from error
    return list(
        map(
            StoredMessage,
            map(topics.__getitem__, run.topics),
            run.queue_ids,
            run.queue_offsets,
            run.physical_offsets,
            run.flags,
            run.sys_flags,
            run.born_timestamps,
            run.born_hosts,
            run.store_timestamps,
            run.store_hosts,
            run.reconsume_times,
            run.prepared_offsets,
            run.body_crcs,
            map(bytes, run.bodies),
            run.properties,
            run.sizes,
        )
    )


def decode_message(data: bytes, position: int = 0) -> StoredMessage:
    """Decode the record at ``position``. Raises RemoteProtocolError when there is no whole one."""
    try:
        size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born = _HEAD.unpack_from(data, position)
        end = position + size
        if magic not in (V1, V2) or end > len(data):
            raise ValueError
        born_at = position + _HEAD.size
        stored_at = born_at + (20 if sys_flag & BORN_V6 else 8)
        store_host_at = stored_at + _LONG.size
        times_at = store_host_at + (20 if sys_flag & STORE_V6 else 8)
        reconsume_times, prepared_offset, body_size = _TIMES.unpack_from(data, times_at)
        body_at = times_at + _TIMES.size
        topic_size_bytes = 1 if magic == V1 else 2
        topic_at = body_at + body_size + topic_size_bytes
        topic_end = topic_at + int.from_bytes(data[topic_at - topic_size_bytes : topic_at], "big")
        if body_size < 0 or topic_end + 2 > end or topic_end + 2 + _SHORT.unpack_from(data, topic_end)[0] != end:
            raise ValueError
        return StoredMessage(
            data[topic_at:topic_end].decode(),
            queue_id,
            queue_offset,
            physical,
            flag,
            sys_flag,
            born,
            data[born_at:stored_at],
            _LONG.unpack_from(data, stored_at)[0],
            data[store_host_at:times_at],
            reconsume_times,
            prepared_offset,
            crc,
            data[body_at : body_at + body_size],
            data[topic_end + 2 : end],
            size,
        )
    except (struct.error, ValueError) as error:
        raise RemoteProtocolError("no record of the CommitLog", position=position) from error


def encode_batch(messages: Sequence[Content]) -> bytes:
    """Encode the body of a batch: its members without topic, hosts and checksums."""
    parts: list[Buffer] = []
    fixed = _BATCH_HEAD.size + _SHORT.size
    head, short = _BATCH_HEAD.pack, _SHORT.pack
    for flag, body, properties in messages:
        body_size, properties_size = len(body), len(properties)
        size = fixed + body_size + properties_size
        parts += (head(size, 0, 0, flag, body_size), body, short(properties_size), properties)
    return b"".join(parts)


def encode_plain_batch(bodies: Sequence[bytes], id_start: bytes, id_ends: Sequence[bytes]) -> bytes:
    """Encode as ``encode_batch``, in a fraction of its time, members that have nothing but a body and an id.

    The ids begin with ``id_start`` and end with ``id_ends``, which are of one length.
    """
    before = _PLAIN[True].encode() + id_start
    properties_size = len(before) + len(id_ends[0]) + 1
    fixed, count, sizes = _BATCH_HEAD.size + _SHORT.size + properties_size, len(bodies), list(map(len, bodies))
    heads = {size: _BATCH_HEAD.pack(fixed + size, 0, 0, 0, size) for size in set(sizes)}
    parts = [_END.encode()] * (5 * count)
    parts[0::5] = map(heads.__getitem__, sizes)
    parts[1::5] = bodies
    parts[2::5] = [_SHORT.pack(properties_size) + before] * count
    parts[3::5] = id_ends
    return b"".join(parts)


def decode_batch(body: Buffer, most: int = sys.maxsize) -> list[Content]:
    """Decode the members of a batch, at most the first ``most``: what is behind those is not looked at.

    Raises RemoteProtocolError for anything else, also for one without members.
    """
    data, position = bytes(body), 0
    first_size = int.from_bytes(data[:4], "big")
    members = split_uniform_batch(data) if len(data) <= first_size * most else None
    if members is not None:
        return members
    members = []
    try:
        while position < len(data) and len(members) < most:
            size, _, _, flag, body_size = _BATCH_HEAD.unpack_from(data, position)
            body_at, end = position + _BATCH_HEAD.size, position + size
            properties_at = body_at + body_size + _SHORT.size
            properties_size = _SHORT.unpack_from(data, properties_at - _SHORT.size)[0] if body_size >= 0 else -1
            if properties_size < 0 or properties_at + properties_size != end or end > len(data):
                raise ValueError
            members.append((flag, data[body_at : body_at + body_size], data[properties_at:end]))
            position = end
    except (struct.error, ValueError) as error:
        raise RemoteProtocolError("the body is no batch of messages", position=position) from error
    if not members:
        raise RemoteProtocolError("the batch is empty")
    return members
