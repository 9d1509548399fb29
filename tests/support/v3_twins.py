"""Compare the two implementations of what scans and answers frames of version 3: see ``codec_twins``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from support.codec_twins import ANY, compare
from tallystick.codec import reads, v3_adds, v3_reads
from tallystick.codec.frames import PLAIN_ADD
from tallystick.codec.varints import encode_varint

TWINNED = (v3_adds, v3_reads)

_IDS = (0, 1, 127, 128, 1 << 21, (1 << 63) - 1)


def _id(random: Random) -> int:
    return random.choice(_IDS) if random.random() < 0.3 else random.randrange(1 << 62)


def _number(random: Random, number: int) -> bytes:
    """Seldom longer than need be, or another one."""
    odd, encoded = random.random(), encode_varint(number)
    if odd < 0.01:
        return encoded[:-1] + bytes((encoded[-1] | 0x80, *[0x80] * random.randrange(9), 0))
    return encode_varint(number + random.choice((1, -1))) if odd < 0.02 else encoded


def _add(random: Random, txn: int, ledger: int, entry: int, key: bytes, size: int, flags: bytes) -> bytes:
    body = struct.pack(">qq", ledger, entry) + random.randbytes(size)
    message = b"\x08%b\x10%b\x1a%c%b" % (_number(random, ledger), _number(random, entry), len(key), key)
    message += b"\x22" + _number(random, len(body)) + body + flags
    if random.random() < 0.02:
        message += random.choice((b"\x28\x01", b"\x28\x00", b"\xa0\x06\x01"))
    return _frame(random, 2, txn, b"\xaa\x06%b%b" % (_number(random, len(message)), message))


def _scan_v3_adds(random: Random) -> None:
    ledger, txn, entry = _id(random), random.randrange(1 << 40), random.randrange(1 << 40)
    key, size, uneven = random.randbytes(20), random.choice((16, 16, 40, 120, 300)), random.random() < 0.3
    parts, flags = [], random.choice((b"", b"\x28\x01"))
    for number in range(random.choice((0, 1, 3, 9, 20, 80))):
        if uneven and random.random() < 0.3:
            ledger, entry, size = _id(random), _id(random) >> 1, random.choice((0, 15, 16, 17, 100, 17_000))
            key = random.randbytes(random.choice((20, 20, 20, 19)))
        parts.append(_add(random, txn + number, ledger, entry + number, key, size, flags))
    most = random.choice((1 << 20, 1 << 20, len(parts[0]) - 4 if parts else 0, -1))
    compare("scan_v3_adds", *_placed(random, parts), most)


def _placed(random: Random, parts: list[bytes]) -> tuple[Any, int, int]:
    """A buffer of some kind, seldom with a lie in it, and which part of it is filled."""
    stream, before = bytearray(b"".join(parts)), random.randbytes(random.choice((0, 0, 7)))
    if stream and random.random() < 0.2:
        stream[random.randrange(len(stream))] ^= 1 << random.randrange(8)
    end = len(before) + (len(stream) if random.random() < 0.7 else random.randrange(len(stream) + 1))
    return random.choice(ANY)(before + bytes(stream)), len(before), end


def _ack_v3_adds(random: Random) -> None:
    count, ledger = random.choice((0, 1, 2, 7, 8, 9, 60)), _id(random)
    first = random.choice((0, 100, 1 << 40, (1 << 64) - 70, -5))
    txn_ids = [first + at for at in range(count)] if random.random() < 0.7 else [_id(random) for _ in range(count)]
    ledgers = [ledger if random.random() < 0.99 else _id(random) for _ in range(count)]
    entries = [_id(random) if random.random() < 0.1 else 300 + at for at in range(count)]
    if count and random.random() < 0.03:
        random.choice((txn_ids, ledgers, entries)).pop()
    compare("ack_v3_adds", txn_ids, ledgers, entries)


def _frame(random: Random, operation: int, txn: int, rest: bytes) -> bytes:
    """A frame that is seldom another operation's, has a longer header, or another length."""
    header = b"\x08\x03\x10%c\x18%b" % (operation if random.random() < 0.98 else 1, _number(random, txn))
    if random.random() < 0.01:
        header += b"\x20\x01"
    body = b"\x0a%c%b%b" % (len(header), header, rest)
    return (len(body) + (random.choice((1, -1, 1 << 8, 1 << 16, 1 << 24)) if random.random() < 0.02 else 0)).to_bytes(
        4, "big"
    ) + body


def _heads(random: Random, operation: int, before: bytes, tag: bytes, entry_tag: bytes) -> list[bytes]:
    """Frames that end with a ledger and an entry, mostly of one ledger and in order."""
    ledger, txn, entry, uneven = _id(random), _id(random) >> 1, _id(random) >> 1, random.random() < 0.3
    parts = list[bytes]()
    for number in range(random.choice((0, 1, 3, 9, 20, 80))):
        if uneven and random.random() < 0.2:
            ledger, entry = random.choice((ledger, _id(random))), _id(random)
        message = b"%b%b%b%b" % (tag, _number(random, ledger), entry_tag, _number(random, entry))
        size = len(message) + (random.choice((1, -1)) if random.random() < 0.01 else 0)
        parts.append(_frame(random, operation, txn + number, b"%b%c%b" % (before, size, message)))
        entry += random.choice((1, 1, 1, 2)) if uneven else 1
    return parts


def _scan_v3_acks(random: Random) -> None:
    compare("scan_v3_acks", *_placed(random, _heads(random, 2, b"\x10\x00\xaa\x06", b"\x08\x00\x10", b"\x18")))


def _scan_v3_read_requests(random: Random) -> None:
    compare("scan_v3_read_requests", *_placed(random, _heads(random, 1, b"\xa2\x06", b"\x08", b"\x10")))


def _numbers(random: Random, count: int) -> Any:
    """Some ids in order, or any, in what callers may have them in."""
    first = random.choice((0, 100, 1 << 40, (1 << 63) - 70, -5))
    numbers = range(first, first + count)
    if random.random() < 0.5:
        return random.choice((list, tuple))(numbers) if random.random() < 0.7 else numbers
    return [random.choice((_id(random), -1, 1 << 63)) if random.random() < 0.1 else _id(random) for _ in numbers]


def _encode_v3_reads(random: Random) -> None:
    count, first = random.choice((0, 1, 2, 7, 8, 9, 60)), random.choice((0, 100, (1 << 63) - 5, (1 << 64) - 5, -3))
    compare("encode_v3_reads", first, _id(random), _numbers(random, count))


def _scan_v3_reads(random: Random) -> None:
    ledger, txn, entry, uneven = _id(random), _id(random) >> 1, _id(random) >> 1, random.random() < 0.3
    size, lac, parts = random.choice((0, 5, 120, 130, 300)), random.choice((None, None, -1, 0, 5, 1 << 40)), []
    for number in range(random.choice((0, 1, 3, 9, 20, 80))):
        if uneven and random.random() < 0.3:
            ledger, entry, size = _id(random), _id(random) >> 1, random.choice((0, 100, 17_000))
            lac = random.choice((None, -1, _id(random), -(1 << 63)))
        body = random.randbytes(size)
        message = b"\x08\x00\x10%b\x18%b\x22" % (_number(random, ledger), _number(random, entry + number))
        message += _number(random, size) + body + (b"" if lac is None else b"\x28" + _number(random, lac))
        if random.random() < 0.02:
            message += random.choice((b"\x28\x01", b"\x28" + b"\xff" * 9 + b"\x7f", b"\x28" + b"\xff" * 10 + b"\x01"))
        rest = b"\x10\x00\xa2\x06%b%b" % (_number(random, len(message)), message)
        parts.append(_frame(random, 1, txn + number, rest))
    compare("scan_v3_reads", *_placed(random, parts))


def _stored(random: Random, count: int, head: bytes, least: int) -> list[bytes]:
    """Stored frames with this between their length and their ledger, the body of each in order."""
    ledger, size, uneven = _id(random), random.choice((0, 16, 100, 130)), random.random() < 0.3
    frames = []
    for at in range(count):
        if uneven and random.random() < 0.3:
            size = random.choice((0, 90, 17_000))
        body = struct.pack(">qq", ledger, at) + random.randbytes(size)
        rest = head + (body if least else body[:16] + body)
        frames.append(len(rest).to_bytes(4, "big") + rest)
    if frames and random.random() < 0.1:  # one that is no frame, or is cut
        place = random.randrange(count)
        size = len(frames[place]) - 4 + random.choice((1, -1, 200, -200))
        lie = max(0, random.choice((size, 0, 23, 31, 0xFFFFFFFF))).to_bytes(4, "big") + frames[place][4:]
        short = random.choice((19, 23, 24, 31))
        short_frame = short.to_bytes(4, "big") + frames[place][4 : 4 + short]
        frames[place] = random.choice((lie, short_frame, frames[place][:-1], frames[place] + b"."))
    return frames


def _encode_v3_read_responses(random: Random) -> None:
    count = random.choice((0, 1, 2, 7, 8, 9, 60))
    frames = b"".join(_stored(random, count, struct.pack(">Ii", reads.PLAIN_READ, 0), 0))
    lac = random.choice((None, None, -1, 0, 300, (1 << 63) - 1, -(1 << 63), 1 << 63))
    txn_ids = _numbers(random, count + random.choice((0, 0, 0, 0, 0, 0, 0, 1)))
    if frames or not txn_ids:
        compare("encode_v3_read_responses", txn_ids, frames, lac)


def _encode_v3_adds(random: Random) -> None:
    count = random.choice((0, 1, 2, 7, 8, 9, 60))
    frames: Any = _stored(random, count, PLAIN_ADD.to_bytes(4, "big") + random.randbytes(20), 1)
    kind, cut = random.randrange(4), random.choice((28, 36, 64, 35))
    if kind == 0:
        frames = [b"".join(frames)]
    elif kind < 3:
        heads = random.choice((bytes, bytes, bytes, bytearray))
        frames = [
            part for each in frames for part in (heads(each[:cut]), random.choice((bytes, memoryview))(each[cut:]))
        ]
    named: Any = {"priority": random.choice((0, 100, 300)), "write_flags": random.choice((0, 1)), "recovery": True}
    named = {name: value for name, value in named.items() if random.random() < 0.4}
    first = random.choice((0, 100, (1 << 63) - 5, (1 << 64) - 5))
    compare("encode_v3_adds", first, _numbers(random, count), random.choice((list, tuple))(frames), **named)


COMPARISONS: dict[str, Callable[[Random], None]] = {
    comparison.__name__.removeprefix("_"): comparison
    for comparison in (
        _scan_v3_adds,
        _ack_v3_adds,
        _scan_v3_acks,
        _encode_v3_adds,
        _scan_v3_read_requests,
        _encode_v3_reads,
        _scan_v3_reads,
        _encode_v3_read_responses,
    )
}
