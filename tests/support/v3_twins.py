"""Compare the two implementations of what scans and answers frames of version 3: see ``codec_twins``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from support.codec_twins import compare
from tallystick.codec import v3_adds
from tallystick.codec.varints import encode_varint

TWINNED = (v3_adds,)

_IDS = (0, 1, 127, 128, 1 << 21, (1 << 63) - 1)


def _id(random: Random) -> int:
    return random.choice(_IDS) if random.random() < 0.3 else random.randrange(1 << 62)


def _number(random: Random, number: int) -> bytes:
    """Seldom longer than need be, or another one."""
    odd, encoded = random.random(), encode_varint(number)
    if odd < 0.01:
        return encoded[:-1] + bytes((encoded[-1] | 0x80, 0))
    return encode_varint(number + random.choice((1, -1))) if odd < 0.02 else encoded


def _add(random: Random, txn: int, ledger: int, entry: int, key: bytes, size: int, flags: bytes) -> bytes:
    body = struct.pack(">qq", ledger, entry) + random.randbytes(size)
    message = b"\x08%b\x10%b\x1a%c%b" % (_number(random, ledger), _number(random, entry), len(key), key)
    message += b"\x22" + _number(random, len(body)) + body + flags
    if random.random() < 0.02:
        message += random.choice((b"\x28\x01", b"\x28\x00", b"\xa0\x06\x01"))
    header = b"\x08\x03\x10%c\x18%b" % (2 if random.random() < 0.98 else 1, _number(random, txn))
    if random.random() < 0.01:
        header += b"\x20\x01"
    rest = b"\x0a%c%b\xaa\x06%b%b" % (len(header), header, _number(random, len(message)), message)
    return (len(rest) + (random.choice((1, -1, 1 << 24)) if random.random() < 0.02 else 0)).to_bytes(4, "big") + rest


def _scan_v3_adds(random: Random) -> None:
    ledger, txn, entry = _id(random), random.randrange(1 << 40), random.randrange(1 << 40)
    key, size, uneven = random.randbytes(20), random.choice((16, 16, 40, 120, 300)), random.random() < 0.3
    parts, flags = [], random.choice((b"", b"\x28\x01"))
    for number in range(random.choice((0, 1, 3, 9, 20, 80))):
        if uneven and random.random() < 0.3:
            ledger, entry, size = _id(random), _id(random) >> 1, random.choice((0, 15, 16, 17, 100, 17_000))
            key = random.randbytes(random.choice((20, 20, 20, 19)))
        parts.append(_add(random, txn + number, ledger, entry + number, key, size, flags))
    stream, before = bytearray(b"".join(parts)), random.randbytes(random.choice((0, 0, 7)))
    if stream and random.random() < 0.2:
        stream[random.randrange(len(stream))] ^= 1 << random.randrange(8)
    end = len(before) + (len(stream) if random.random() < 0.7 else random.randrange(len(stream) + 1))
    buffer = random.choice((bytes, bytearray, memoryview))(before + bytes(stream))
    compare(
        "scan_v3_adds",
        buffer,
        len(before),
        end,
        random.choice((1 << 20, 1 << 20, len(parts[0]) - 4 if parts else 0, -1)),
    )


def _ack_v3_adds(random: Random) -> None:
    count, ledger = random.choice((0, 1, 2, 7, 8, 9, 60)), _id(random)
    first = random.choice((0, 100, 1 << 40, (1 << 64) - 70, -5))
    txn_ids = [first + at for at in range(count)] if random.random() < 0.7 else [_id(random) for _ in range(count)]
    ledgers = [ledger if random.random() < 0.99 else _id(random) for _ in range(count)]
    compare(
        "ack_v3_adds", txn_ids, ledgers, [_id(random) if random.random() < 0.1 else 300 + at for at in range(count)]
    )


COMPARISONS: dict[str, Callable[[Random], None]] = {"scan_v3_adds": _scan_v3_adds, "ack_v3_adds": _ack_v3_adds}
