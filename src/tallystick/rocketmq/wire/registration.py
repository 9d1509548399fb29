"""What a broker tells a name server: its topics, plain or compressed (``RegisterBrokerBody``).

The compressed form is a zlib stream of::

    version 4+n JSON | topics 4 | of each topic 4+n text | filter servers 4+n JSON [| mappings 4 | of each 4+n JSON]

A topic's text is ``name readQueues writeQueues perm filterType {attributes}``. Brokers before 5.0.0 have no mappings.
"""

from __future__ import annotations

import struct
import zlib

import msgspec
from msgspec import field

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicTableAnswer
from tallystick.rocketmq.wire.values import FIRST_MAPPING_VERSION, DataVersion, TopicConfig

MAX_ENTRIES = 100_000  # topics of a compressed body, and as many mappings: each costs some microseconds
MAX_PLAIN_BYTES = dialect.MAX_BYTES  # of a compressed body: a small one can stand for any number of bytes
_INT = struct.Struct(">i")


class Registration(msgspec.Struct, frozen=True):
    """The body of REGISTER_BROKER."""

    table: TopicTableAnswer = field(name="topicConfigSerializeWrapper")
    filter_servers: list[str] = field(default_factory=list, name="filterServerList")


def body_crc(body: bytes) -> int:
    """The check sum that goes with a body in the request's header."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_registration(registration: Registration, *, compressed: bool = False) -> bytes:
    if not compressed:
        return dialect.write_strict(registration)
    table = registration.table
    parts = [_counted(dialect.write(table.version)), _INT.pack(len(table.topics))]
    parts += [_counted(_topic_text(topic).encode()) for topic in table.topics.values()]
    parts += [_counted(dialect.write(registration.filter_servers)), _INT.pack(len(table.mapping_infos))]
    parts += [_counted(dialect.write(info)) for info in table.mapping_infos.values()]
    return zlib.compress(b"".join(parts), 9)


def decode_registration(body: bytes, *, compressed: bool, version: int) -> Registration:
    """``version`` is that of the command. Raises RemoteProtocolError."""
    if not compressed:
        return dialect.read_as(body, Registration)
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(body, MAX_PLAIN_BYTES)
    except zlib.error as error:
        raise RemoteProtocolError(f"a compressed registration is broken: {error}") from error
    if inflater.unconsumed_tail:
        raise RemoteProtocolError("a compressed registration is too large", bytes=len(body))
    dialect.check_bounds(plain, dialect.MAX_LOOSE_VALUES)
    try:
        return _Plain(plain).registration(version)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise RemoteProtocolError(f"a compressed registration is broken: {error}") from error


def _counted(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> str:
    attributes = dialect.write(topic.attributes).decode()
    return f"{topic.name} {topic.read_queues} {topic.write_queues} {int(topic.perm)} {topic.filter_type} {attributes}"


def _read_topic(text: str) -> TopicConfig:
    name, read_queues, write_queues, perm, filter_type, *rest = text.split(" ", 5)
    attributes = dialect.read_as(rest[0], dict[str, str]) if rest and rest[0] else {}
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

    def registration(self, version: int) -> Registration:
        data_version = dialect.read_as(self.text(), DataVersion)
        topics = [_read_topic(self.text().decode()) for _ in range(self.entries())]
        filter_servers = dialect.read_as(self.text(), list[str])
        count = self.entries() if version >= FIRST_MAPPING_VERSION else 0
        infos = [dialect.read(self.text()) for _ in range(count)]
        table = TopicTableAnswer(
            version=data_version,
            topics={topic.name: topic for topic in topics},
            mapping_infos={str(info.get("topic")): info for info in infos if isinstance(info, dict)},
        )
        return Registration(table, filter_servers)

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
        self.at += size
        return self.data[self.at - size : self.at]
