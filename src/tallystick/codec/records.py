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
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tallystick.codec.checksum import crc32
from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview

V1 = 0xDAA320A7
V2 = 0xDAA320AB
BLANK = 0xCBD43194
BLANK_BYTES = 8
SMALLEST = 91  # a record of IPv4 hosts without body, topic and properties
FIXED_BYTES = 74  # without hosts, topic field, body and properties
LONGEST_V1_TOPIC = 127
BORN_V6, STORE_V6 = 16, 32
_V6 = BORN_V6 | STORE_V6
_V6_EXTRA = 12
CRC_MASK = 0x7FFFFFFF

HEADS = {
    (born, store): struct.Struct(f">IIIiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}  # by the widths of the hosts
# What a producer's messages of one request share, from the system flag to the prepared offset; and all before a body.
_HOSTS = {(born, store): struct.Struct(f">iq{born}sq{store}siq") for born in (8, 20) for store in (8, 20)}
_BEFORE_BODY = {hosts.size: struct.Struct(f">IIIiiqq{hosts.size}si") for hosts in _HOSTS.values()}
_COMMON = struct.Struct(">IIIi4xqqi8x8xq8x4x8xi")  # of a record with IPv4 hosts: up to the body's size
_COMMON_BYTES = _COMMON.size
_PREFIX = struct.Struct(">II")
_START = struct.Struct(">IIIi4xqqi")  # what lies before the first host
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_UNSIGNED_SHORT = struct.Struct(">H")

Content = tuple[int, Buffer, bytes]  # flag, body, properties as they are stored
# Messages of one queue in an append: topic field, queue id, queue offset of the first, system flag, born time, born
# host, reconsume times, contents.
Row = tuple[bytes, int, int, int, int, bytes, int, Sequence[Content]]


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


@with_twin
def encode_records(rows: Sequence[Row], offset: int, store_timestamp: int, store_host: bytes) -> bytes:
    """One record for each message, the first at the physical ``offset``, each at the end of the one before.

    The host bits of the system flags are set here. The limits of all fields are the caller's to check.
    """
    parts: list[Buffer] = []
    short, checksum, mask = _UNSIGNED_SHORT.pack, crc32, CRC_MASK
    store_bit = STORE_V6 if len(store_host) != 8 else 0
    for topic, queue_id, queue_offset, sys_flag, born, born_host, reconsumed, contents in rows:
        hosts = _HOSTS[len(born_host), len(store_host)]
        sys_flag |= store_bit | (BORN_V6 if len(born_host) != 8 else 0)
        origin = hosts.pack(sys_flag, born, born_host, store_timestamp, store_host, reconsumed, 0)
        pack = _BEFORE_BODY[len(origin)].pack
        fixed = FIXED_BYTES + len(born_host) + len(store_host) + len(topic)
        magic = V1 if len(topic) <= LONGEST_V1_TOPIC + 1 else V2
        for flag, body, properties in contents:
            body_size, properties_size = len(body), len(properties)
            size, crc = fixed + body_size + properties_size, checksum(body) & mask
            head = pack(size, magic, crc, queue_id, flag, queue_offset, offset, origin, body_size)
            parts += (head, body, topic, short(properties_size), properties)
            queue_offset, offset = queue_offset + 1, offset + size
    return b"".join(parts)


def encode_blank(size: int) -> bytes:
    """The mark of a file's unused rest of ``size`` bytes."""
    return _PREFIX.pack(size, BLANK)


@with_twin
def scan_records(buffer: bytes, base: int, *, verify: bool = False) -> RecordRun:
    """The records of ``buffer``, whose first byte has the physical offset ``base``; ``verify`` checks their CRCs."""
    run = RecordRun()
    limit, position = len(buffer), 0
    positions, rows, topics, properties = run.positions, [], run.topics, run.properties
    unpack, short, common, v1, v6 = _COMMON.unpack_from, _UNSIGNED_SHORT.unpack_from, _COMMON_BYTES + 1, V1, _V6
    last = limit - SMALLEST
    while position <= last:
        row = unpack(buffer, position)
        size, magic, crc, _, _, physical, sys_flag, _, body_size = row
        end = position + size
        topic_at = position + common + body_size
        if magic != v1 or sys_flag & v6 or body_size < 0 or end > limit or topic_at + 2 > end:
            unusual = _scan_unusual(buffer, position)
            if isinstance(unusual, Stop):
                run.stop = unusual
                break
            row, topic_at, topic_end = unusual
            size, magic, crc, _, _, physical, _, _, body_size = row
            end = position + size
        else:
            topic_end = topic_at + buffer[topic_at - 1]
        properties_at = topic_end + 2
        if (
            physical != base + position
            or properties_at > end
            or properties_at + short(buffer, topic_end)[0] != end
            or (verify and crc32(_body(buffer, topic_at - (1 if magic == v1 else 2), body_size)) & CRC_MASK != crc)
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
        sizes, _, _, queue_ids, queue_offsets, _, sys_flags, store_timestamps, _ = map(list, zip(*rows, strict=True))
        run.sizes, run.queue_ids, run.queue_offsets = sizes, queue_ids, queue_offsets
        run.sys_flags, run.store_timestamps = sys_flags, store_timestamps
    return run


def _body(buffer: bytes, end: int, size: int) -> bytes:
    return buffer[end - size : end]


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


# A string's hash is a polynomial in 31 of its characters. For many strings it is computed at once, in one long integer:
# each string ends a lane of 32 bytes, and neighbours are joined, first bytes to pairs, then pairs to fours, and so on.
# Leading zeros add nothing. No joint overflows its place: 255 * 32 < 2**16, that * 962 < 2**32, that * 923522 < 2**64,
# and from there on the factors are taken modulo 2**32.
_LANE = 32
_LANES = 256  # so many at once
_LONGEST = 4 * _LANE  # what is longer is hashed alone: the others are as wide as the widest
_WORD = 0xFFFFFFFF
_POWERS = [pow(31, power, 1 << 32) for power in range(_LONGEST + 1)]
_POWER_2, _POWER_4, _POWER_8, _POWER_16, _POWER_32 = (_POWERS[1 << step] for step in range(1, 6))


def _odd_places(width: int) -> int:
    """Ones in each second place of ``width`` bytes, the last included, over all lanes."""
    return int.from_bytes((bytes(width) + b"\xff" * width) * (_LANES * _LANE // width // 2), "big")


_BYTES, _PAIRS, _FOURS, _EIGHTS, _SIXTEENS = (_odd_places(1 << step) for step in range(5))


def _polynomials(data: bytes) -> list[int]:
    """For each 32 bytes their polynomial, in 32 bits."""
    polynomials: list[int] = []
    for start in range(0, len(data), _LANE * _LANES):
        part = data[start : start + _LANE * _LANES]
        value = int.from_bytes(part, "big")
        value -= (256 - 31) * (value >> 8 & _BYTES)
        value -= (65536 - _POWER_2) * (value >> 16 & _PAIRS)
        value = (value & _FOURS) + _POWER_4 * (value >> 32 & _FOURS)
        value = (value & _EIGHTS) + _POWER_8 * (value >> 64 & _EIGHTS)
        value = (value & _SIXTEENS) + _POWER_16 * (value >> 128 & _SIXTEENS)
        words = array("I", value.to_bytes(len(part), sys.byteorder))
        polynomials += words[7::8] if sys.byteorder == "big" else reversed(words[0::8])
    return polynomials


def hash_texts(texts: Sequence[bytes], seeds: Sequence[int]) -> list[int]:
    """``hash_utf8`` of each text with its seed, at once."""
    longest = max(map(len, texts), default=0)
    if longest > _LONGEST or not all(map(bytes.isascii, texts)):
        return list(map(hash_utf8, texts, seeds))
    columns = -(-longest // _LANE) or 1
    lanes = _polynomials(b"".join([text.rjust(columns * _LANE, b"\0") for text in texts]))
    values = lanes[::columns]
    for column in range(1, columns):
        values = [value * _POWER_32 + lane & _WORD for value, lane in zip(values, lanes[column::columns], strict=True)]
    return [value + seed * _POWERS[len(text)] & _WORD for value, seed, text in zip(values, seeds, texts, strict=True)]


def hash_alike(texts: Sequence[bytes], seed: int) -> list[int]:
    """``hash_texts`` of texts of one length that all have one seed."""
    data, length = b"".join(texts), len(texts[0])
    if length != _LANE or not data.isascii():
        return hash_texts(texts, [seed] * len(texts))
    seed = seed * _POWERS[length] & _WORD
    return [lane + seed & _WORD for lane in _polynomials(data)]


def hash_latin(text: bytes, seed: int = 0) -> int:
    """Hash of Latin-1 text, as unsigned 32 bits, that follows a text with the hash ``seed``."""
    value = 0
    for lane in _polynomials(text.rjust(-(-len(text) // _LANE) * _LANE, b"\0")):
        value = value * _POWER_32 + lane & _WORD
    return value + seed * pow(31, len(text), 1 << 32) & _WORD


def hash_utf8(text: bytes, seed: int = 0) -> int:
    """The same of UTF-8 text: over its UTF-16 units."""
    if text.isascii():
        return hash_latin(text, seed)
    for (unit,) in _UNSIGNED_SHORT.iter_unpack(text.decode("utf-8", "replace").encode("utf-16-be")):
        seed = seed * 31 + unit & _WORD
    return seed


def signed(value: int) -> int:
    """Unsigned 32 bits as a signed number."""
    return value - ((value & 0x80000000) << 1)


def java_hash(text: str) -> int:
    """``String.hashCode``, signed 32 bits."""
    return signed(hash_utf8(text.encode("utf-8", "replace")))


def java_hashes(texts: Iterable[str]) -> frozenset[int]:
    """``java_hash`` of each: of many short ones in a tenth of the time."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    short = [text for text in encoded if len(text) <= _LONGEST and text.isascii()]
    long = [text for text in encoded if len(text) > _LONGEST or not text.isascii()]
    return frozenset(map(signed, [*hash_texts(short, [0] * len(short)), *map(hash_utf8, long)]))
