"""Stored frames of a bookie: adds as the journal has them become the responses that entry logs have and readers get.

::

    add         length 4 | 0x02010000 4 | master key 20            | entry    big-endian
    response    length 4 | 0x02020000 4 | 0 4 | ledger 8 | entry 8 | entry    length: of what follows

An entry begins with its ledger and id, so both are as long.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import TypeAlias

from tallystick.codec.frames import ADD_PREFIX, PLAIN_READ
from tallystick.codec.implementation import with_twin

# Entries, the bounds of the frame of each, and the bytes that these are in.
StoredRun: TypeAlias = "tuple[array[int], array[int], bytes]"

# A part of an entry log with whole responses: its bytes, the location of the first of them, and how many of the entries
# that are asked for are in it.
LogPiece: TypeAlias = "tuple[bytes, int, int]"

_RESPONSE = struct.Struct(">III")
_IDENTITY = struct.Struct(">qq")
_LENGTH_BYTES = 4
_IDS = 12  # of a response: they begin here
_FEW = 16  # below this many frames the strided way costs more than it saves


@with_twin
def responses_of_runs(runs: Sequence[StoredRun]) -> tuple[array[int], array[int], bytes]:
    """The entries of all runs of adds, where the response with each begins, and the responses, one after another."""
    entries, starts, parts, size = array("q"), array("Q"), list[bytes](), 0
    for run_entries, bounds, data in runs:
        entries.extend(run_entries)
        starts.extend([bound - bounds[0] + size for bound in bounds[:-1]])
        parts.append(_responses_of_adds(data, bounds))
        size += len(parts[-1])
    return entries, starts, parts[0] if len(parts) == 1 else b"".join(parts)


def _responses_of_adds(data: bytes, bounds: array[int]) -> bytes:
    """The responses with the entries of adds, of which add i is ``data[bounds[i]:bounds[i + 1]]``. They are good ones:
    nothing is judged."""
    count, size = len(bounds) - 1, bounds[1] - bounds[0]
    if count >= _FEW and bounds == array("Q", range(bounds[0], bounds[0] + size * count + 1, size)):
        return _even_responses(data[bounds[0] : bounds[-1]], size, count)
    pack = _RESPONSE.pack
    parts: list[bytes] = []
    for at in range(count):
        entry = data[bounds[at] + ADD_PREFIX : bounds[at + 1]]
        parts += (pack(ADD_PREFIX - 4 + len(entry), PLAIN_READ, 0), entry[:16], entry)
    return b"".join(parts)


def _even_responses(frames: bytes, size: int, count: int) -> bytes:
    """Make responses of adds of one size, a column of bytes at a time: the opcode, 0, then the ids of the entry."""
    out = bytearray(frames)
    out[5::size] = PLAIN_READ.to_bytes(4, "big")[1:2] * count
    for column in range(8, 12):
        out[column::size] = bytes(count)
    for column in range(12, ADD_PREFIX):
        out[column::size] = out[column + 16 :: size]
    return bytes(out)


@with_twin
def picked_responses(
    pieces: Sequence[LogPiece], locations: array[int], ledger: int, entries: array[int], max_bytes: int
) -> tuple[bytes, int]:
    """The responses with entries that lie in pieces of entry logs, at these locations, and how many: as many as fit,
    but one at least, and none from the first one on that is not where it should be."""
    parts, place, room = list[bytes](), 0, max_bytes
    for data, begin, count in pieces:
        ids = entries[place : place + count]
        offsets = [location - begin for location in locations[place : place + count]]
        if (size := _even_size(data, offsets, ledger, ids)) and size * len(ids) <= room:
            parts.append(data[offsets[0] : offsets[0] + size * len(ids)])
            place, room = place + len(ids), room - size * len(ids)
            continue
        for start, entry in zip(offsets, ids, strict=True):
            stop = start + _LENGTH_BYTES + int.from_bytes(data[start : start + _LENGTH_BYTES], "big")
            is_here = data[start + _IDS : start + ADD_PREFIX] == _IDENTITY.pack(ledger, entry)
            if (
                start < 0
                or not is_here
                or not start + ADD_PREFIX <= stop <= len(data)
                or (stop - start > room and place)
            ):
                return b"".join(parts), place
            parts.append(data[start:stop])
            place, room = place + 1, room - (stop - start)
    return b"".join(parts), place


def _even_size(data: bytes, offsets: Sequence[int], ledger: int, entries: Sequence[int]) -> int:
    """The size of each response, if nothing but these lies from the first to the last and all are as long, as on a
    bookie of a striped ledger, which has only some of its entries; else 0."""
    if len(offsets) < 2 or offsets[0] < 0:
        return 0
    start, count, size = offsets[0], len(offsets), offsets[1] - offsets[0]
    stop = start + size * count
    if size < ADD_PREFIX or stop > len(data) or offsets != list(range(start, stop, size)):
        return 0
    heads = list(struct.iter_unpack(f">I8xqq{size - ADD_PREFIX}x", memoryview(data)[start:stop]))
    return size if heads == [(size - _LENGTH_BYTES, ledger, entry) for entry in entries] else 0
