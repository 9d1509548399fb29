"""Runs of version 2 frames in one buffer: requests to a bookie, and its answers.

Every function takes a buffer and the part of it that is filled, reads whole frames only, and says where it stopped, so
that one socket read is one call (design: batch before events). Lengths come from strangers: each is checked before use.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Buffer = bytes | bytearray | memoryview

PLAIN_ADD = 0x02010000  # version 2, ADD, no flags
PLAIN_READ = 0x02020000
ADD_PREFIX = 28  # length, header, master key: as long as the prefix of a READ answer
_ADD_HEAD = struct.Struct(">II20sqq")
_PREFIX = struct.Struct(">II20s")
_ENTRY = struct.Struct(">qqqq")
_ACK = struct.Struct(">IIiqq")
_READ = struct.Struct(">IIqq")
ADD_OK = struct.pack(">III", 24, PLAIN_ADD, 0)
MIN_ADD_BODY = 24 + 32  # shorter ones have no whole entry header: the slow path refuses them


@dataclass(slots=True)
class AddRun:
    """Plain ADD frames that lie one after another in a buffer, by columns. ``bounds[i]:bounds[i + 1]`` is frame i."""

    keys: list[bytes] = field(default_factory=list)
    ledgers: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ledgers)


def scan_adds(buffer: Buffer, start: int, end: int, max_frame: int) -> tuple[AddRun, int]:
    """The plain ADDs from ``start``; stops at the first frame that is another request, unusual, too long, or not whole.

    Returns the run and where it stopped. Ids are not judged.
    """
    run = AddRun(bounds=[start])
    keys, ledgers, entries, bounds = run.keys.append, run.ledgers.append, run.entries.append, run.bounds.append
    unpack, last = _ADD_HEAD.unpack_from, end - MIN_ADD_BODY - 4
    position = start
    while position <= last:
        size, word, key, ledger, entry = unpack(buffer, position)
        stop = position + 4 + size
        if word != PLAIN_ADD or size < MIN_ADD_BODY or size > max_frame or stop > end:
            break
        keys(key)
        ledgers(ledger)
        entries(entry)
        bounds(stop)
        position = stop
    return run, position


def ack_adds(run: AddRun) -> bytes:
    """The answers to a run of ADDs that all succeeded."""
    answers = bytearray((ADD_OK + bytes(16)) * len(run))
    for first_column, ids in ((12, run.ledgers), (20, run.entries)):
        numbers = array("q", ids)
        if sys.byteorder == "little":
            numbers.byteswap()
        packed = numbers.tobytes()
        for column in range(8):  # a column of all answers at a time: no step in Python for each entry
            answers[first_column + column :: _ACK.size] = packed[column::8]
    return bytes(answers)


def scan_read_requests(buffer: Buffer, start: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """The plain READs from ``start`` as runs of consecutive entries: (ledger, first, count). And where it stopped.

    Ids are not judged; a negative entry is a run of its own.
    """
    runs: list[tuple[int, int, int]] = []
    whole = start + (end - start) // _READ.size * _READ.size
    position, current, first, following = start, -1, 0, 0
    for size, word, ledger, entry in _READ.iter_unpack(memoryview(buffer)[start:whole]):
        if size != 20 or word != PLAIN_READ:
            break
        if entry != following or ledger != current or entry <= 0:
            if following > first:
                runs.append((current, first, following - first))
            current, first = ledger, entry
        following = entry + 1
        position += _READ.size
    if position > start:
        runs.append((current, first, following - first))
    return runs, position


def encode_adds(
    master_key: bytes, ledger: int, first: int, lac: int, length: int, payloads: Sequence[Buffer],
    digest: Callable[[Buffer, Buffer], bytes], digest_bytes: int, flags: int = 0,
) -> tuple[list[bytes], int]:  # fmt: skip
    """One ADD frame for each payload, entries ``first``, ``first`` + 1, …; and the ledger's length after the last.

    ``length`` is the ledger's length before ``first``; ``digest`` makes ``digest_bytes`` bytes of (header, payload).
    """
    frames: list[bytes] = []
    add, join, pack_entry, pack_prefix = frames.append, b"".join, _ENTRY.pack, _PREFIX.pack
    word, overhead = PLAIN_ADD | flags, 24 + 32 + digest_bytes
    for entry, payload in enumerate(payloads, first):
        size = len(payload)
        length += size
        header = pack_entry(ledger, entry, lac, length)
        add(join((pack_prefix(overhead + size, word, master_key), header, digest(header, payload), payload)))
    return frames, length


def scan_acks(buffer: Buffer, start: int, end: int, ledger: int) -> tuple[list[int], int]:
    """Entry ids of the good ADD answers of one ledger from ``start``; stops at the first frame that is no such one."""
    entries: list[int] = []
    add, unpack = entries.append, _ACK.unpack_from
    position, last = start, end - 28
    while position <= last:
        size, word, code, found, entry = unpack(buffer, position)
        if size != 24 or word != PLAIN_ADD or code or found != ledger:
            break
        add(entry)
        position += 28
    return entries, position


def next_frame(buffer: Buffer, start: int, end: int) -> tuple[int, int] | None:
    """Bounds of the body of the frame at ``start``; None when it is not whole yet. The length is not judged."""
    if end - start < 4:
        return None
    size = int.from_bytes(buffer[start : start + 4], "big")
    return (start + 4, start + 4 + size) if end - start - 4 >= size else None
