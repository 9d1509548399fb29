"""Runs of CommitLog records in one buffer (H11), written for one append and read for one dispatch.

A record, integers big-endian; each host is 8 bytes, or 20 when its bit of the system flag says IPv6::

    size 4 | magic 4 | CRC32 of the body 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8 | system flag 4
    born time 8 | born host | store time 8 | store host | reconsume times 4 | prepared offset 8
    body size 4 | body | topic size 1 (2 in version 2) | topic | properties size 2 | properties

``size`` counts the whole record. A file without room for the next record ends with a blank: size (all that is left) 4,
magic 4, whatever follows. Source: ``MessageExtEncoder``, ``MessageDecoder``. Sizes come from disks and peers: each is
checked before use, and so is the physical offset: bytes that were written elsewhere are no record here.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.codec.checksum import crc32

Buffer = bytes | bytearray | memoryview

V1 = 0xDAA320A7
V2 = 0xDAA320AB
BLANK = 0xCBD43194
BLANK_BYTES = 8
SMALLEST = 91  # a record of IPv4 hosts without body, topic and properties
FIXED_BYTES = 74  # without hosts, topic field, body and properties
LONGEST_V1_TOPIC = 127
BORN_V6, STORE_V6 = 16, 32
_V6_EXTRA = 12
CRC_MASK = 0x7FFFFFFF

HEADS = {
    (born, store): struct.Struct(f">IIIiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}  # by the widths of the hosts
_COMMON = struct.Struct(">IIIi4xqqi8x8xq8x4x8xi")  # of a record with IPv4 hosts: up to the body's size
_COMMON_BYTES = _COMMON.size
_PREFIX = struct.Struct(">II")
_START = struct.Struct(">IIIi4xqqi")  # what lies before the first host
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_UNSIGNED_SHORT = struct.Struct(">H")

# A message of an append: topic field, queue id, queue offset, system flag, born time, born host, reconsume times,
# flag, body, properties.
Row = tuple[bytes, int, int, int, int, bytes, int, int, Buffer, bytes]


class Stop(enum.Enum):
    """Why a scan ended where it did."""

    END = enum.auto()  # of the buffer
    PARTIAL = enum.auto()  # the record there is not whole in this buffer
    BLANK = enum.auto()  # the rest of the file is unused
    NOTHING = enum.auto()  # zeros
    DAMAGED = enum.auto()  # no record, or not one of this place


@dataclass(slots=True)
class RecordRun:
    """Records that lie one after another, by columns; record i is ``buffer[positions[i] : positions[i] + sizes[i]]``.

    ``end`` is where the scan stopped. Topics and properties are the stored bytes.
    """

    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    queue_ids: list[int] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    sys_flags: list[int] = field(default_factory=list)
    store_timestamps: list[int] = field(default_factory=list)
    topics: list[bytes] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    end: int = 0
    stop: Stop = Stop.END

    def __len__(self) -> int:
        return len(self.positions)


def topic_field(topic: str) -> bytes:
    """A topic as a record has it: its length, in two bytes when one signed byte is too short, and the text."""
    text = topic.encode()
    return (bytes([len(text)]) if len(text) <= LONGEST_V1_TOPIC else _UNSIGNED_SHORT.pack(len(text))) + text


def record_size(topic: bytes, body: Buffer, properties: bytes, hosts: int) -> int:
    """Bytes of the record of a message; ``topic`` is its field, ``hosts`` the bytes of both hosts."""
    return FIXED_BYTES + hosts + len(body) + len(topic) + len(properties)


def encode_records(rows: Sequence[Row], offset: int, store_timestamp: int, store_host: bytes) -> list[bytes]:
    """One record for each row, the first at the physical ``offset``, each at the end of the one before.

    The host bits of the system flags are set here. The limits of all fields are the caller's to check.
    """
    records: list[bytes] = []
    add, join = records.append, b"".join
    for topic, queue_id, queue_offset, sys_flag, born, born_host, reconsumed, flag, body, properties in rows:
        if len(born_host) != 8:
            sys_flag |= BORN_V6
        if len(store_host) != 8:
            sys_flag |= STORE_V6
        body_size, properties_size = len(body), len(properties)
        size = FIXED_BYTES + len(born_host) + len(store_host) + body_size + len(topic) + properties_size
        magic = V1 if len(topic) <= LONGEST_V1_TOPIC + 1 else V2
        head = HEADS[len(born_host), len(store_host)].pack(
            size, magic, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, offset, sys_flag,
            born, born_host, store_timestamp, store_host, reconsumed, 0, body_size,
        )  # fmt: skip
        add(join((head, body, topic, _UNSIGNED_SHORT.pack(properties_size), properties)))
        offset += size
    return records


def encode_blank(size: int) -> bytes:
    """The mark of a file's unused rest of ``size`` bytes."""
    return _PREFIX.pack(size, BLANK)


def scan_records(buffer: bytes, base: int, *, verify: bool = False) -> RecordRun:
    """The records of ``buffer``, whose first byte has the physical offset ``base``; ``verify`` checks their CRCs."""
    run = RecordRun()
    limit, position = len(buffer), 0
    positions, rows, topics, properties = run.positions, [], run.topics, run.properties
    unpack, short = _COMMON.unpack_from, _UNSIGNED_SHORT.unpack_from
    last = limit - SMALLEST
    while position <= last:
        row = unpack(buffer, position)
        size, magic, crc, _, _, physical, sys_flag, _, body_size = row
        end = position + size
        topic_at = position + _COMMON_BYTES + body_size + 1
        if magic != V1 or sys_flag & (BORN_V6 | STORE_V6) or body_size < 0 or end > limit or topic_at + 2 > end:
            unusual = _scan_unusual(buffer, position)
            if isinstance(unusual, Stop):
                run.stop = unusual
                break
            row, topic_at, topic_end = unusual
            size, _, crc, _, _, physical, _, _, body_size = row
            end = position + size
            body_at = topic_at - body_size - (1 if row[1] == V1 else 2)
        else:
            body_at = topic_at - 1 - body_size
            topic_end = topic_at + buffer[topic_at - 1]
        properties_at = topic_end + 2
        if (
            physical != base + position
            or properties_at > end
            or properties_at + short(buffer, topic_end)[0] != end
            or (verify and crc32(buffer[body_at : body_at + body_size]) & CRC_MASK != crc)
        ):
            run.stop = Stop.DAMAGED
            break
        positions.append(position)
        rows.append(row)
        topics.append(buffer[topic_at:topic_end])
        properties.append(buffer[properties_at:end])
        position = end
    else:
        run.stop = _judge_rest(buffer, position)
    run.end = position
    if rows:
        sizes, _, _, queue_ids, queue_offsets, _, sys_flags, stored, _ = map(list, zip(*rows, strict=True))
        run.sizes, run.queue_ids, run.queue_offsets = sizes, queue_ids, queue_offsets
        run.sys_flags, run.store_timestamps = sys_flags, stored
    return run


def _judge_rest(buffer: bytes, position: int) -> Stop:
    """What the last bytes of a buffer are, too few for a record."""
    rest = len(buffer) - position
    if not rest:
        return Stop.END
    if rest < BLANK_BYTES:
        return Stop.PARTIAL
    size, magic = _PREFIX.unpack_from(buffer, position)
    if magic == BLANK:
        return Stop.BLANK
    if not size and not magic:
        return Stop.NOTHING
    return Stop.PARTIAL if magic in (V1, V2) and size >= SMALLEST else Stop.DAMAGED


_Unusual = tuple[tuple[int, ...], int, int]


def _scan_unusual(buffer: bytes, position: int) -> _Unusual | Stop:
    """A record with IPv6 hosts or a long topic: its columns, and where the topic begins and ends."""
    rest = _judge_rest(buffer, position)
    size, magic = _PREFIX.unpack_from(buffer, position)
    end = position + size
    if rest is not Stop.PARTIAL or end > len(buffer):
        return rest
    *start, sys_flag = _START.unpack_from(buffer, position)
    shift = _V6_EXTRA if sys_flag & BORN_V6 else 0
    stored_at = position + 56 + shift
    body_size_at = position + 84 + shift + (_V6_EXTRA if sys_flag & STORE_V6 else 0)
    topic_size_bytes = 1 if magic == V1 else 2
    if body_size_at + 4 > end:
        return Stop.DAMAGED
    body_size = _INT.unpack_from(buffer, body_size_at)[0]
    topic_at = body_size_at + 4 + body_size + topic_size_bytes
    if body_size < 0 or topic_at + 2 > end:
        return Stop.DAMAGED
    topic_end = topic_at + int.from_bytes(buffer[topic_at - topic_size_bytes : topic_at], "big")
    return (*start, sys_flag, _LONG.unpack_from(buffer, stored_at)[0], body_size), topic_at, topic_end


# A string's hash is a polynomial in 31 of its characters. C code that evaluates polynomials in 31 is at hand: int()
# of a number in base 31. A character above 30 is no digit, but two: c = 31 * high + low.
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_LOW = bytes(_DIGITS[character % 31] for character in range(256))
_HIGH = bytes(_DIGITS[character // 31] for character in range(256))
_CHUNK = 512  # int() needs quadratic time


def hash_latin(text: bytes, seed: int = 0) -> int:
    """Hash of Latin-1 text, as unsigned 32 bits, that follows a text with the hash ``seed``."""
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK]
        value = int(chunk.translate(_LOW), 31) + 31 * int(chunk.translate(_HIGH), 31)
        seed = (seed * 31 ** len(chunk) + value) & 0xFFFFFFFF
    return seed


def hash_utf8(text: bytes, seed: int = 0) -> int:
    """The same of UTF-8 text: over its UTF-16 units."""
    if text.isascii():
        return hash_latin(text, seed)
    for (unit,) in _UNSIGNED_SHORT.iter_unpack(text.decode("utf-8", "replace").encode("utf-16-be")):
        seed = (seed * 31 + unit) & 0xFFFFFFFF
    return seed


def signed(value: int) -> int:
    """Unsigned 32 bits as a signed number."""
    return value - ((value & 0x80000000) << 1)


def java_hash(text: str) -> int:
    """``String.hashCode``, signed 32 bits."""
    return signed(hash_utf8(text.encode("utf-8", "replace")))
