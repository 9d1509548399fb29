"""Compare the two implementations of the codec on bytes that strangers might send: same results, or both refuse.

``COMPARISONS`` has one for each function; a comparison draws all that it needs from a Random, so that hypothesis can
drive it as well as a loop under the sanitizers (``fuzzing.codec_sanitized``).
"""

from __future__ import annotations

import dataclasses
import struct
from array import array
from collections.abc import Callable, Sequence
from random import Random
from types import ModuleType
from typing import Any

import msgspec

from tallystick.bookkeeper.wire import digest as digests
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec import frames, reads, uniform
from tallystick.codec.checksum import crc32c
from tallystick.codec.implementation import REFERENCES, load

# All functions that have a twin are known when their modules are imported.
TWINNED = (frames, reads, uniform, digests)
COMPILED: ModuleType | None = load({})

_REFUSALS = (ArithmeticError, BufferError, LookupError, TypeError, ValueError, struct.error)
_IDS = (0, 1, -1, 2, 1 << 40, (1 << 63) - 1, -(1 << 63))
_LIES = (0, 3, 19, 23, 24, 55, 56, 91, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_MOST = 400  # the longest frame
_LEDGER = 5


def described(value: object) -> object:
    """All that a caller can see of a result: types, too."""
    if dataclasses.is_dataclass(value):
        fields = [described(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return type(value).__name__, fields
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, [described(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(each) for each in value]
    if isinstance(value, memoryview):
        return "memoryview", value.tobytes(), value.readonly, value.format
    if isinstance(value, array):
        return "array", value.typecode, value.tolist()
    return type(value).__name__, value


def outcome(function: Callable[..., Any], *arguments: object, **named: object) -> object:
    """What a function returns, or that it refuses."""
    try:
        return described(function(*arguments, **named))
    except _REFUSALS:
        return "refused"


def compare(name: str, *arguments: object, **named: object) -> object:
    """Call both; returns what both do."""
    expected = outcome(REFERENCES[name], *arguments, **named)
    twin_arguments = [_twin(argument) for argument in arguments]
    found = outcome(getattr(COMPILED, name), *twin_arguments, **named)
    assert found == expected, f"{name}{arguments!r}, {named}: {found!r}, not {expected!r}"
    let_go(arguments)
    return found


def let_go(value: object) -> None:
    """Change the size of all buffers that a call got: BufferError says that the call, which is over, still holds one.

    Views are of no use afterwards.
    """
    if isinstance(value, bytearray | array):
        value.append(0)
        value.pop()
    elif isinstance(value, memoryview):
        value.release()
    elif isinstance(value, list | tuple):
        for each in value:
            let_go(each)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            let_go(getattr(value, each.name, None))


def _twin(argument: object) -> object:
    """A digest function of the reference is one of the compiled codec for that."""
    known = [name for name in ("crc32c_digest", "crc32c_digests") if argument is REFERENCES[name]]
    return getattr(COMPILED, known[0]) if known else argument


def any_id(random: Random) -> int:
    return random.choice(_IDS) if random.random() < 0.3 else random.randrange(1 << 62)


def _ledger(random: Random) -> int:
    return _LEDGER if random.random() < 0.9 else any_id(random)


def any_size(random: Random, most: int = 80) -> int:
    return random.choice((0, 4, 10, 60)) if random.random() < 0.7 else random.randrange(most)


def any_count(random: Random, most: int) -> int:
    """How many parts a run has: a few, and now and then more than a byte can count."""
    return random.randrange(most) if random.random() < 0.97 else random.randrange(257, 300)


def damaged(random: Random, stream: bytes, starts: Sequence[int]) -> bytes:
    """The same bytes, often with a lie in them, mostly in a length."""
    changed, kind = bytearray(stream), random.randrange(8)
    if not stream or kind < 2:
        return stream
    if kind < 5:
        place = random.choice(starts) if starts and random.random() < 0.8 else random.randrange(len(stream))
        changed[place : place + 4] = random.choice((*_LIES, len(stream), max(0, len(stream) - place - 4))).to_bytes(
            4, "big"
        )
    elif kind == 5:
        changed[random.randrange(len(stream))] ^= 1 << random.randrange(8)
    elif kind == 6:
        del changed[random.randrange(len(stream)) :]
    else:
        place = random.randrange(len(stream))
        changed[place:place] = random.randbytes(random.randrange(40))
    return bytes(changed)


def _stream(random: Random, parts: Sequence[bytes]) -> bytes:
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    return damaged(random, b"".join(parts), starts)


def _placed(random: Random, parts: Sequence[bytes], kinds: Sequence[Callable[[bytes], Any]]) -> tuple[Any, int, int]:
    """A buffer of some kind, and which part of it is filled."""
    stream, before = _stream(random, parts), random.randbytes(random.choice((0, 0, 3, 29)))
    end = len(before) + len(stream)
    whole = before + stream + random.randbytes(random.choice((0, 0, 50)))
    if random.random() < 0.3:
        end = random.randrange(len(before), end + 1)
    return random.choice(kinds)(whole), len(before), end


def _exact(data: bytes) -> memoryview:
    """These bytes with none behind them, so that the sanitizers see it when one too many is read."""
    return memoryview(array("B", data))


ANY = (bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)), _exact)
OWNED = (bytes, bytearray)


def _adds(random: Random) -> list[bytes]:
    parts, size, key = [], 32 + any_size(random), random.randbytes(20)
    for number in range(any_count(random, 12)):
        if random.random() < 0.15:
            size, key = random.randrange(30, _MOST), random.randbytes(20)
        word = frames.PLAIN_ADD if random.random() < 0.95 else random.choice((0x02020000, 0x02010006, 0x03010000))
        head = struct.pack(">II20sqq", 24 + size, word, key, _ledger(random), number if size else any_id(random))
        parts.append(head[: 28 + size] + random.randbytes(max(0, size - 16)))
    return parts


def _scan_adds(random: Random) -> None:
    parts = _adds(random)
    size = len(random.choice(parts)) - 4 if parts else 0
    compare("scan_adds", *_placed(random, parts, ANY), random.choice((_MOST, size, size - 1, 0, -1, 1 << 40)))


def _scan_uniform_adds(random: Random) -> None:
    parts = _adds(random)
    size = len(parts[0]) - 4 if parts else 0
    most = random.choice((_MOST, size, size - 1, 0, 1 << 40))
    compare("scan_uniform_adds", *_placed(random, parts, OWNED), most)


def _ack_adds(random: Random) -> None:
    count = any_count(random, 6)
    ledgers, entries = [_ledger(random) for _ in range(count)], [any_id(random) for _ in range(count)]
    if count and random.random() < 0.1:
        random.choice((ledgers, entries))[-1] = 1 << 63
    elif count > 1 and random.random() < 0.05:
        random.choice((ledgers, entries)).pop()
    compare("ack_adds", frames.AddRun([b""] * count, ledgers, entries))


def _ack(random: Random) -> bytes:
    code = 0 if random.random() < 0.95 else 102
    return struct.pack(">IIiqq", 24, frames.PLAIN_ADD, code, _ledger(random), any_id(random))


def _scan_acks(random: Random) -> None:
    compare("scan_acks", *_placed(random, [_ack(random) for _ in range(any_count(random, 8))], ANY), _LEDGER)


def _encode_adds(random: Random) -> None:
    kind = random.choice((DigestType.CRC32C, DigestType.CRC32C, *DigestType))
    known = digests.Digest.of(kind, b"pw")
    compute = REFERENCES["crc32c_digest"] if kind is DigestType.CRC32C else known.compute
    payloads = [random.choice(ANY)(random.randbytes(any_size(random, 2000))) for _ in range(any_count(random, 6))]
    size = known.size if random.random() < 0.97 else random.choice((0, 4, 8, 20, 21))
    length = random.choice((0, 1000, (1 << 63) - 100, -(1 << 63)))
    flags = random.choice((0, 6, 0x8000, 0xFFFF, 0xFFFF_FFFF, 1 << 32, -1) if payloads else (0, 6))
    key = random.randbytes(random.choice((20, 20, 20, 0, 80)))
    named = {} if random.random() < 0.3 else {"flags": flags}
    first = random.choice((0, 7, (1 << 63) - 3, -5))
    compare("encode_adds", key, _ledger(random), first, any_id(random), length, payloads, compute, size, **named)


def _scan_read_requests(random: Random) -> None:
    entry, parts = 0, []
    for _ in range(any_count(random, 10)):
        entry = entry + random.randrange(1, 3) if random.random() < 0.8 else any_id(random)
        word = reads.PLAIN_READ if random.random() < 0.95 else 0x02020001
        parts.append(struct.pack(">IIqq", 20, word, _ledger(random), min(entry, (1 << 63) - 1)))
    compare("scan_read_requests", *_placed(random, parts, ANY))


def _encode_reads(random: Random) -> None:
    ids = [any_id(random) for _ in range(any_count(random, 6))]
    if ids and random.random() < 0.1:
        ids[-1] = 1 << 63
        kinds: Sequence[Callable[[list[int]], Any]] = (list, tuple)
    else:
        kinds = (list, tuple, lambda ids: array("q", ids), lambda ids: range(len(ids)))
    compare("encode_reads", any_id(random), random.choice(kinds)(ids))


def _response(random: Random, body: bytes) -> bytes:
    code = 0 if random.random() < 0.95 else 13
    word = reads.PLAIN_READ if random.random() < 0.95 else frames.PLAIN_ADD
    return struct.pack(">IIiqq", 24 + len(body), word, code, _ledger(random), any_id(random)) + body


def _bodies(random: Random, before: int) -> list[bytes]:
    """``before``: the bytes that are added to each, which with them are sometimes about as many as are copied."""
    size, alike = any_size(random), random.random() < 0.6
    if random.random() < 0.05:
        size, alike = 8 * 1024 - before + random.choice((-1, 0, 1)), True
    bodies = [random.randbytes(size if alike else any_size(random)) for _ in range(any_count(random, 9))]
    if len(bodies) > 1 and size > 4000 and random.random() < 0.5:
        bodies[-1] += b"."
    return bodies


def _scan_reads(random: Random) -> None:
    parts = [_response(random, body) for body in _bodies(random, reads.READ_PREFIX)]
    if random.random() < 0.01:  # about as long as are read by columns
        parts = [
            struct.pack(">IIiqq", 24 + size, reads.PLAIN_READ, 0, _LEDGER, 7) + bytes(size)
            for size in [8 * 1024 - reads.READ_PREFIX + random.choice((-1, 0, 1))] * random.randrange(3, 6)
        ]
    if random.random() < 0.1:  # no place for an entry's id, so often that they look alike
        size = random.randrange(16, 24)
        parts = [(size.to_bytes(4, "big") + _response(random, b"")[4:])[: 4 + size]] * random.randrange(1, 9)
    compare("scan_reads", *_placed(random, parts, ANY), _LEDGER)


def _response_entries(random: Random) -> None:
    data = _stream(random, [_response(random, body) for body in _bodies(random, reads.READ_PREFIX)])
    if len(data) < 4 or int.from_bytes(data[:4], "big") >= reads.READ_PREFIX - 4:  # they are our own
        compare("response_entries", data, random.choice((0, 1, 2, 4, 5, 8)))


def _entries(random: Random, kind: DigestType, password: bytes) -> list[bytes]:
    entries, known = [], digests.Digest.of(kind, password)
    for number, body in enumerate(_bodies(random, 32 + known.size)):
        entry = number if random.random() < 0.95 else any_id(random)
        header = digests.EntryHeader(_ledger(random), entry, any_id(random), any_id(random))
        data = known.encode(header, body)
        if random.random() < 0.1:
            data = damaged(random, data, [0, 28, 32])
        elif random.random() < 0.05:
            place = random.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
        entries.append(data)
    return entries


def _open_entries(random: Random) -> None:
    _open(random, "open_entries")


def _open_together(random: Random) -> None:
    _open(random, "open_together")


def _open_singles(random: Random) -> None:
    kind = random.choice((DigestType.CRC32C, DigestType.CRC32C, *DigestType))
    entries, compute, size = _stored(random, kind)
    ids = list(range(len(entries)))
    if random.random() < 0.2:
        random.shuffle(ids)
    if random.random() < 0.06:
        ids = random.choice((ids[:-1], [*ids, any_id(random)]))
    compare("open_singles", random.choice((list, tuple))(ids), entries, _LEDGER, compute, size)


def _open(random: Random, function: str) -> None:
    kind = random.choice((DigestType.CRC32C, DigestType.CRC32C, *DigestType))
    entries, compute, size = _stored(random, kind)
    compare(function, entries, _LEDGER, random.choice((0, 0, 0, 1, -1)), compute, size)


def _stored(random: Random, kind: DigestType) -> tuple[Any, Any, int]:
    """Entries of any kind, and what is said of their digests."""
    known = digests.Digest.of(kind, b"pw")
    compute = REFERENCES["crc32c_digests"] if kind is DigestType.CRC32C else known.compute_all
    entries: Any = _entries(random, kind, b"pw")
    if random.random() < 0.1:  # all too short
        entries = [entry[:35] for entry in entries]
    if len({*map(len, entries)}) == 1 and random.random() < 0.6:
        gap = random.choice((0, 4, 28)) if entries[0] else 4
        data = b"".join(random.randbytes(gap) + entry for entry in entries)
        if len(entries) > 1 and random.random() < 0.1:
            data = data[:-1]
        entries = reads.EvenEntries(random.choice((memoryview(data), _exact(data))), len(entries[0]), gap)
        if random.random() < 0.3 and len(entries):
            entries = _spread(random, entries)
    else:
        entries = random.choice((list, tuple))(random.choice(ANY)(entry) for entry in entries)
    return entries, compute, known.size if random.random() < 0.97 else random.choice((0, 4, 8, 20))


def _spread(random: Random, entries: reads.EvenEntries) -> reads.SpreadEntries:
    """The entries in two responses, seldom with a lie in their ids."""
    ids = list(range(len(entries)))
    random.shuffle(ids)
    step, cut = entries.gap + entries.size, random.randrange(len(ids) + 1)
    parts = []
    for part in (ids[:cut], ids[cut:]):
        data = b"".join(bytes(entries.data[each * step : (each + 1) * step]) for each in part)
        parts.append((part, reads.EvenEntries(_exact(data), entries.size, entries.gap)))
    if random.random() < 0.3:
        place = random.randrange(2)
        share_ids, share = parts[place]
        further = random.choice((1, 1 << 40))
        parts[place] = random.choice(([*share_ids, 3], share_ids[:-1], [each + further for each in share_ids])), share
        if share.size > 1 and random.random() < 0.2:  # entries of another size
            short = memoryview(bytes(len(share) * (share.gap + share.size - 1)))
            parts[place] = list(share_ids), reads.EvenEntries(short, share.size - 1, share.gap)
    return reads.SpreadEntries(random.choice((0, 0, 0, 0, 1)), parts)


def _crc32c_digest(random: Random) -> None:
    header, payload = (random.choice(ANY)(random.randbytes(random.randrange(most))) for most in (40, 5000))
    assert COMPILED is not None
    assert COMPILED.crc32c_table(payload, crc32c(header)) == crc32c(payload, crc32c(header))
    compare("crc32c_digest", header, payload)


def _crc32c_digests(random: Random) -> None:
    headers = [random.randbytes(32) for _ in range(random.randrange(5))]
    payloads = [random.choice(ANY)(random.randbytes(random.randrange(90))) for _ in headers]
    if random.random() < 0.05:
        random.choice((headers, payloads)).append(b"")
    compare("crc32c_digests", headers, payloads)


COMPARISONS: dict[str, Callable[[Random], None]] = {
    comparison.__name__.removeprefix("_"): comparison
    for comparison in (
        _scan_adds,
        _scan_uniform_adds,
        _ack_adds,
        _scan_acks,
        _encode_adds,
        _scan_read_requests,
        _encode_reads,
        _scan_reads,
        _response_entries,
        _open_entries,
        _open_together,
        _open_singles,
        _crc32c_digest,
        _crc32c_digests,
    )
}
