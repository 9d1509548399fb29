"""The body with which a broker registers: its topics, plain or compressed (``RegisterBrokerBody``).

The compressed form is a zlib stream of::

    version 4+n JSON | topics 4 | of each topic 4+n text | filter servers 4+n JSON [| mappings 4 | of each 4+n JSON]

A topic's text is ``name readQueues writeQueues perm filterType {attributes}``. Brokers before 5.0.0 have no mappings.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import field

from tallystick.codec.steps import Steps
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicTableResponse
from tallystick.rocketmq.wire.remoting import MAX_FRAME_BYTES
from tallystick.rocketmq.wire.split import split
from tallystick.rocketmq.wire.values import FIRST_MAPPING_VERSION, DataVersion, TopicConfig

MAX_ENTRIES = 100_000  # topics of a compressed body, and as many mappings: each costs some microseconds
MAX_PLAIN_BYTES = dialect.MAX_BYTES  # of a compressed body: a small one can stand for any number of bytes
WHOLE_BYTES = 1024 * 1024  # of a text that is read in one step: six thousand topics
PART_BYTES = 16 * 1024  # of a longer one
MAX_PART_BYTES = 64 * 1024  # of one topic, too
MAX_ESCAPES = 100_000  # in strings
CHECKED_BYTES = 512 * 1024  # of a text, in one step: a millisecond or two
PLACE_BYTES, PLACE_VALUES = 320, 19  # of a topic that takes one place: its name may have some 80 characters
FRAME_BYTES = MAX_FRAME_BYTES - 64 * 1024  # for topics: the rest is the header's, and the versions'
FRAME_VALUES = dialect.MAX_VALUES - 1000
INFLATED_BYTES = 512 * 1024  # in one step
STEP_ENTRIES = 100  # of a compressed body, and
STEP_BYTES = 64 * 1024  # of them: one takes as long as so many bytes of a long one
_INT = struct.Struct(">i")


class Registration(msgspec.Struct, frozen=True):
    """The body of REGISTER_BROKER."""

    table: TopicTableResponse = field(name="topicConfigSerializeWrapper")
    filter_servers: list[str] = field(default_factory=list, name="filterServerList")


class _TablePart(msgspec.Struct, frozen=True):
    """Some of a ``TopicTableResponse``: what is None is in another part."""

    version: DataVersion | None = field(default=None, name="dataVersion")
    topics: dict[str, TopicConfig] | None = field(default=None, name="topicConfigTable")
    mapping_version: DataVersion | None = field(default=None, name="mappingDataVersion")
    mapping_details: dict[str, Any] | None = field(default=None, name="topicQueueMappingDetailMap")
    mapping_infos: dict[str, Any] | None = field(default=None, name="topicQueueMappingInfoMap")


class _Part(msgspec.Struct, frozen=True):
    """Some of a ``Registration``."""

    table: _TablePart | None = field(default=None, name="topicConfigSerializeWrapper")
    filter_servers: list[str] | None = field(default=None, name="filterServerList")


def topic_size(topic: TopicConfig) -> tuple[int, int]:
    """Returns how many bytes, and values as a reader counts them, a topic adds to a plain registration."""
    text = dialect.write_strict(topic)
    values = sum(map(text.count, (b",", b":", b"[", b"{")))
    return len(text) + len(dialect.write_strict(topic.name)) + 2, values + 2


def topic_places(topic: TopicConfig) -> int:
    """Returns how many places a topic takes in a registration: 52,000 places fill one."""
    size, values = topic_size(topic)
    return max(-(-size // PLACE_BYTES), -(-values // PLACE_VALUES))


def body_crc(body: bytes) -> int:
    """Returns the checksum of a body, which the request's header has."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_registration(registration: Registration, *, compressed: bool = False) -> bytes:
    if not compressed:
        return dialect.write_strict(registration)
    table = registration.table
    parts = [_with_length(dialect.write(table.version)), _INT.pack(len(table.topics))]
    parts += [_with_length(_topic_text(topic).encode()) for topic in table.topics.values()]
    parts += [_with_length(dialect.write(registration.filter_servers)), _INT.pack(len(table.mapping_infos))]
    parts += [_with_length(dialect.write(info)) for info in table.mapping_infos.values()]
    return zlib.compress(b"".join(parts), 9)


def decode_registration(body: bytes, *, compressed: bool, version: int) -> Steps[Registration]:
    """Decode what ``encode_registration`` wrote, in steps of about a millisecond; ``version`` is that of the command.

    Raises RemoteProtocolError.
    """
    if not compressed:
        return (yield from _decode_plain(body))
    plain = yield from _inflate(body)
    yield from _check(plain, dialect.MAX_LOOSE_VALUES)
    try:
        return (yield from _Plain(plain).registration(version))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise RemoteProtocolError(f"a compressed registration is broken: {error}") from error


def _decode_plain(body: bytes) -> Steps[Registration]:
    escapes = yield from _check(body, dialect.MAX_VALUES)
    if len(body) <= WHOLE_BYTES:
        with suppress(RemoteProtocolError):  # if only since it is not strict JSON
            return dialect.read_short(body, Registration, most_bytes=WHOLE_BYTES)
    if escapes > MAX_ESCAPES:
        raise RemoteProtocolError(f"a registration has at most {MAX_ESCAPES} escapes")
    table: dict[str, Any] = {}
    filter_servers: list[str] = []
    for text in split(body, PART_BYTES, depth=3, most=MAX_PART_BYTES):
        part = dialect.read_short(text, _Part)
        filter_servers = part.filter_servers or filter_servers
        for name in _TablePart.__struct_fields__ if part.table is not None else ():
            value = getattr(part.table, name)
            if isinstance(value, dict):
                table.setdefault(name, {}).update(value)
            elif value is not None:
                table[name] = value
        yield
    if not {"version", "topics"} <= table.keys():
        raise RemoteProtocolError("a registration has no version or no topics")
    return Registration(TopicTableResponse(**table), filter_servers)


def _check(text: bytes, most_values: int) -> Steps[int]:
    """Check the bounds of ``dialect.check_bounds`` in steps. Returns how many escapes there are at most.

    Raises RemoteProtocolError.
    """
    values = escapes = 0
    for start in range(0, len(text), CHECKED_BYTES):
        piece = text[start : start + CHECKED_BYTES]
        values += dialect.count_values(piece)
        escapes += piece.count(b"\\")
        if len(text) > dialect.MAX_BYTES or values > most_values:
            raise RemoteProtocolError("a text is too large", bytes=len(text))
        yield
    return escapes


def _inflate(body: bytes) -> Steps[bytes]:
    inflater, parts, size = zlib.decompressobj(), [], 0
    try:
        while body and size < MAX_PLAIN_BYTES:
            parts.append(inflater.decompress(body, min(INFLATED_BYTES, MAX_PLAIN_BYTES - size)))
            body, size = inflater.unconsumed_tail, size + len(parts[-1])
            yield
    except zlib.error as error:
        raise RemoteProtocolError(f"a compressed registration is broken: {error}") from error
    if body:
        raise RemoteProtocolError("a compressed registration is too large", bytes=size)
    return b"".join(parts)


def _with_length(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> str:
    attributes = dialect.write(topic.attributes).decode()
    return f"{topic.name} {topic.read_queues} {topic.write_queues} {int(topic.perm)} {topic.filter_type} {attributes}"


def _read_topic(text: str) -> TopicConfig:
    name, read_queues, write_queues, perm, filter_type, *rest = text.split(" ", 5)
    attributes = dialect.read_strict(rest[0].encode(), dict[str, str]) if rest and rest[0] else {}
    return TopicConfig(
        name, _int32(read_queues), _int32(write_queues), _int32(perm), filter_type, attributes=attributes
    )


def _int32(text: str) -> int:
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError("a number of more than 32 bits")
    return number


class _Plain:
    """A decompressed body, read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def registration(self, version: int) -> Steps[Registration]:
        data_version = dialect.read_strict(self.text(), DataVersion)
        topics: dict[str, TopicConfig] = {}
        step = 0
        for _ in range(self.entries()):
            text = self.text()
            topic = _read_topic(text.decode())
            topics[topic.name] = topic
            step += max(len(text), STEP_BYTES // STEP_ENTRIES)
            if step >= STEP_BYTES:
                yield
                step = 0
        filter_servers = dialect.read_strict(self.text(), list[str])
        infos: dict[str, Any] = {}
        for _ in range(self.entries() if version >= FIRST_MAPPING_VERSION else 0):
            info = dialect.read_strict(self.text(), dict[str, Any])
            infos[str(info.get("topic"))] = info
            yield
        return Registration(TopicTableResponse(data_version, topics, mapping_infos=infos), filter_servers)

    def number(self) -> int:
        (number,) = _INT.unpack_from(self.data, self.at)
        self.at += _INT.size
        if not 0 <= number <= len(self.data) - self.at:  # whatever is counted takes a byte at least
            raise RemoteProtocolError("an impossible count in a registration", count=number)
        return int(number)

    def entries(self) -> int:
        count = self.number()
        if count > MAX_ENTRIES:
            raise RemoteProtocolError(f"a registration has at most {MAX_ENTRIES} topics", count=count)
        return count

    def text(self) -> bytes:
        size = self.number()
        if size > MAX_PART_BYTES:
            raise RemoteProtocolError(f"an entry of a registration has at most {MAX_PART_BYTES} bytes", bytes=size)
        self.at += size
        return self.data[self.at - size : self.at]
