"""Compare the two implementations of what a bookie does for each entry and part on the way to its disk: see
``codec_twins``."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any

from support.codec_twins import ANY, COMPILED, compare, let_go, outcome
from tallystick.codec import chunks, pages, parts, stored
from tallystick.codec.checksum import crc32c
from tallystick.codec.frames import PLAIN_ADD, PLAIN_READ
from tallystick.codec.implementation import REFERENCES

TWINNED = (chunks, pages, parts, stored)

_LEDGER = 5
_LIES = (0, 1, 28, 43, 1 << 40, (1 << 64) - 1)


def _run(random: Random) -> tuple[array[int], array[int], bytes]:
    """Adds somewhere in a buffer, mostly of one size; seldom with a lie in their bounds or their bytes."""
    size, uneven = random.choice((0, 16, 100)), random.random() < 0.3
    count = random.choice((1, 1, 2, 15, 16, 17, 60))
    frames = [random.randbytes(random.choice((0, 0, 9)))]
    for entry in range(count):
        size = random.choice((0, 90, 5000)) if uneven and random.random() < 0.3 else size
        body = struct.pack(">qq", _LEDGER, entry) + random.randbytes(16 + size)
        body = body[:8] if random.random() < 0.003 else body
        frames.append(struct.pack(">II20s", 24 + len(body), PLAIN_ADD, random.randbytes(20)) + body)
    bounds = array("Q", accumulate(map(len, frames)))
    data = bytearray(b"".join(frames) + random.randbytes(random.choice((0, 9))))
    if random.random() < 0.1:
        at = random.randrange(len(bounds))
        bounds[at] = random.choice((*_LIES, len(data), bounds[at] + 1))
    if random.random() < 0.1:
        data[random.choice(range(8)) + len(frames[0])] ^= 1 << random.randrange(8)
    if random.random() < 0.03:
        del data[-1:]
    return array("q", range(count)), bounds, bytes(data)


def _responses_of_runs(random: Random) -> None:
    runs: list[Any] = [_run(random) for _ in range(random.choice((0, 1, 1, 2, 5)))]
    if runs and random.random() < 0.1:  # another count of entries than of frames
        entries, bounds, data = runs[-1]
        runs[-1] = random.choice(((entries[:-1], bounds, data), (entries, bounds[:-1], data)))
    compare("responses_of_runs", runs)


def _page_pieces(random: Random) -> None:
    """Mostly entries that ascend, with gaps up to those that end a piece or a page."""
    entry, entries = random.choice((0, 4000, 1 << 40, (1 << 63) - 2_000_000)), list[int]()
    gaps = random.choice(((1,), (1, 2), (1, 16, 17, 18, 19), (1, 4095, 4096, 5000), (1, 1, 1, 0, -1)))
    for _ in range(random.choice((0, 1, 2, 20, 200))):
        entries.append(entry if random.random() < 0.99 else random.choice((-1, -5, max(0, entry - 1))))
        entry += random.choice(gaps)
    if random.random() < 0.1:
        entries.append((1 << 63) - 1)
    starts = [
        random.choice((0, random.randrange(1 << 40))) if random.random() < 0.999 else (1 << 64) - 1 for _ in entries
    ]
    if random.random() < 0.05 and starts:
        starts.pop()
    base = random.choice((0, 1 << 40, (1 << 63) - 1, (1 << 63) - 1, -1))
    compare("page_pieces", array("q", entries), array("Q", starts), base)


def _parts(random: Random) -> list[Any]:
    sizes = [random.choice((0, 5, 100, 3000)) for _ in range(random.choice((0, 1, 3, 20)))]
    return [random.choice(ANY)(random.randbytes(size)) for size in sizes]


def _crc32c_of_parts(random: Random) -> None:
    parts = random.choice((list, tuple))(_parts(random))
    compare("crc32c_of_parts", parts, random.choice((0, 7, 0xFFFFFFFF, *((1 << 32, -1) if parts else ()))))


def _copy_parts(random: Random) -> None:
    assert COMPILED is not None
    from_parts = _parts(random)
    room = max(0, sum(map(len, from_parts)) + random.choice((0, 0, 50, -1, -60)))
    before = random.randbytes(room)
    overlapping = slice(random.randrange(room + 1), room) if random.random() < 0.3 else slice(0)
    results = []
    for function in (REFERENCES["copy_parts"], COMPILED.copy_parts):
        memory = bytearray(before)
        whole = memoryview(memory)
        results.append((outcome(function, [whole[overlapping], *from_parts], whole), memory))
        whole.release()
        let_go(memory)
    let_go(from_parts)
    assert results[0][0] == results[1][0]
    assert results[0][0] == "refused" or results[0] == results[1]


def _dense_locations(random: Random) -> None:
    """Mostly ascending entries that are there; seldom with a page that is none."""
    dense: dict[int, Any] = {}
    for number in random.sample((0, 1, 2, 3, -1, 1 << 50), random.choice((0, 1, 3, 6))):
        dense[number] = array("Q", (1 << 41,) * random.choice((0, 1, 50, 99)))
        if dense[number] and random.random() < 0.5:
            dense[number][random.randrange(len(dense[number]))] = random.choice((0, 1 << 40, (1 << 64) - 1))
    if dense and random.random() < 0.05:
        dense[next(iter(dense))] = random.choice((array("I", (1, 2, 3)), array("B", b"12345678"), 7))
    pages_of, slots = random.choice(([0], [0, 1], [0, 1, 2, 3], [1 << 50], [-1, 0])), random.choice((5, 60, 4096))
    entries = sorted(
        (number << 12) + random.randrange(slots) for number in pages_of for _ in range(random.choice((0, 1, 9)))
    )
    if random.random() < 0.1:
        random.shuffle(entries)
    column: Any = array("q", entries) if random.random() < 0.95 else random.choice((entries, array("i", (1, 2)), 5))
    compare("dense_locations", dense, column)


def _picked_responses(random: Random) -> None:
    """Responses in several pieces, of which some are asked for; seldom with a lie in where they are, or in them."""
    size, uneven, entry, begin = (
        random.choice((0, 16, 100)),
        random.random() < 0.3,
        random.choice((0, 1 << 62)),
        1 << 41,
    )
    pieces, locations, entries = list[Any](), list[int](), list[int]()
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        data, count, every = bytearray(random.randbytes(random.choice((0, 0, 9)))), 0, random.choice((1, 1, 2, 3))
        for at in range(random.choice((0, 1, 2, 7, 30))):
            body = bytes(random.choice((0, 90, 5000)) if uneven and random.random() < 0.3 else size)
            if not at % every:
                locations.append(begin + len(data))
                entries.append(entry)
                count += 1
            data += struct.pack(">IIIqq", 24 + len(body), PLAIN_READ, 0, _LEDGER, entry) + body
            entry += 1
        if random.random() < 0.1 and data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        pieces.append((bytes(data), begin, count if random.random() < 0.97 else random.choice((-1, 0, count + 1))))
        begin = random.choice((begin + len(data), begin + (1 << 40), 1 << 40))
    if random.random() < 0.1 and pieces:
        data, begin, count = random.choice(pieces)
        pieces[-1] = random.choice(
            ((data, begin + 1, count), (data, -1, count), (data, 1 << 64, count), (data, begin), 5)
        )
    if random.random() < 0.1 and locations:
        locations[random.randrange(len(locations))] = random.choice((*_LIES, begin))
        (entries if random.random() < 0.3 else locations).pop()
    most = random.choice((1 << 20, 1 << 62, 500, 44, 1, 0, -1, -(1 << 63)))
    compare("picked_responses", pieces, array("Q", locations), _LEDGER, array("q", entries), most)


def _cut_chunks(random: Random) -> None:
    sizes = [random.choice((1, 30, 44, 500)) for _ in range(random.choice((0, 1, 2, 20)))]
    starts = array("Q", list(accumulate(sizes, initial=0))[:-1])
    if random.random() < 0.1 and starts:
        starts[random.randrange(len(starts))] = random.choice((*_LIES, sum(sizes)))
    starts = starts if random.random() < 0.95 else array("Q")
    chunk_bytes, size = random.choice((1, 44, 100, 1000, 1 << 40)), random.choice((0, 0, 5, 99))
    crc = random.choice((0, 7, 0xFFFFFFFF)) if random.random() < 0.95 else random.choice((-1, 1 << 32))
    compare("cut_chunks", random.randbytes(sum(sizes)), starts, chunk_bytes, size, crc)


def _count_good_chunks(random: Random) -> None:
    chunks_of = [random.randbytes(random.choice((0, 1, 30, 500))) for _ in range(random.choice((0, 1, 2, 9)))]
    bounds = array("Q", accumulate(map(len, chunks_of), initial=random.choice((0, 32, 1 << 40))))
    checksums = array("I", map(crc32c, chunks_of))
    data = b"".join(chunks_of)
    data = data[: random.randrange(len(data) + 1)] if random.random() < 0.2 else data + bytes(random.choice((0, 9)))
    if random.random() < 0.3 and checksums:
        checksums[random.randrange(len(checksums))] ^= 1
    if random.random() < 0.1:
        bounds[random.randrange(len(bounds))] = random.choice(_LIES)
    if random.random() < 0.05:
        bounds.pop()
    compare("count_good_chunks", data, bounds, checksums)


COMPARISONS: dict[str, Callable[[Random], None]] = {
    comparison.__name__.removeprefix("_"): comparison
    for comparison in (
        _responses_of_runs,
        _page_pieces,
        _dense_locations,
        _picked_responses,
        _cut_chunks,
        _count_good_chunks,
        _crc32c_of_parts,
        _copy_parts,
    )
}
