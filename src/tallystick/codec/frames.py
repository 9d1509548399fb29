"""Runs of version 2 frames in one buffer: requests to a bookie, and its responses.

Every function takes a buffer and the part of it that is filled, reads whole frames only, and says where it stopped, so
that one socket read is one call (design: batch before events). Lengths come from strangers: each is checked before use.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import lt

from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview

PLAIN_ADD = 0x02010000  # version 2, ADD, no flags
PLAIN_READ = 0x02020000
RECOVERY_FLAGS = 0x0006  # of an ADD that passes a fence (0x2), and goes before others (0x4)
DEFERRED_FLAG = 0x8000  # of an ADD that need not be durable: no bit of version 2, only version 3 can send it
ADD_PREFIX = 28  # length, header, master key: as long as the prefix of a READ response
_ADD_HEAD = struct.Struct(">II20sqq")
_STORED_ADD = struct.Struct(">II20s")  # and the entry
_ENTRY = struct.Struct(">qqqq")
_ACK = struct.Struct(">20sq")  # all that good responses of one ledger have in common, and the entry
_ACK_HEAD = struct.Struct(">IIiq")
_READ_BYTES = 24  # a plain READ: length and header, ledger, entry
_READ_HEAD = 20 << 32 | PLAIN_READ
_ID = struct.Struct(">q")
_ADD_START = {size: struct.Struct(f">II20s32s{size}s") for size in (0, 4, 8, 20)}  # all before the payload, by digest
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


@with_twin
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


@dataclass(slots=True)
class AddFrames:
    """ADD frames of consecutive entries. Frame i is ``parts[2 * i]``, everything before the payload, and the payload:
    they are joined when it is known what leaves together, so that a payload is copied once for all who get the same."""

    parts: list[Buffer] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.parts) // 2

    def length(self, index: int) -> int:
        """The ledger's length up to the entry of a frame, as that says it."""
        length: int = _ID.unpack_from(self.parts[2 * index], ADD_PREFIX + 24)[0]
        return length

    def joined(self, start: int, stop: int) -> bytes:
        """Frames ``start`` … ``stop`` - 1, one after another."""
        return b"".join(self.parts[2 * start : 2 * stop])

    def parts_of(self, indexes: Iterable[int]) -> list[Buffer]:
        """The frames with these indexes, one after another, in parts."""
        parts = self.parts
        return [part for index in indexes for part in (parts[2 * index], parts[2 * index + 1])]


@with_twin
def ack_adds(run: AddRun) -> bytes:
    """The responses to a run of ADDs that all succeeded."""
    ledger = run.ledgers[0] if run.ledgers else 0
    responses, columns = bytearray(_ACK.pack(ADD_OK + _ID.pack(ledger), 0) * len(run)), [(20, run.entries)]
    if run.ledgers.count(ledger) != len(run):
        columns.append((12, run.ledgers))
    for first_column, ids in columns:
        numbers = array("q", ids)
        if sys.byteorder == "little":
            numbers.byteswap()
        packed = numbers.tobytes()
        for column in range(8):  # a column of all responses at a time: no step in Python for each entry
            responses[first_column + column :: _ACK.size] = packed[column::8]
    return bytes(responses)


@with_twin
def scan_read_requests(buffer: Buffer, start: int, end: int) -> tuple[list[tuple[int, array[int]]], int]:
    """The plain READs from ``start`` as runs of ascending entries of one ledger: (ledger, entries). And where it
    stopped.

    Ids are not judged; a negative entry is a run of its own.
    """
    numbers = array("q")
    numbers.frombytes(memoryview(buffer)[start : start + (end - start) // _READ_BYTES * _READ_BYTES])
    if sys.byteorder == "little":
        numbers.byteswap()
    heads, ledgers, entries = numbers[0::3], numbers[1::3], numbers[2::3]
    count = len(heads)
    if heads.count(_READ_HEAD) < count:
        count = next(at for at, head in enumerate(heads) if head != _READ_HEAD)
        ledgers, entries = ledgers[:count], entries[:count]
    if count and ledgers.count(ledgers[0]) == count and entries[0] >= 0 and all(map(lt, entries, entries[1:])):
        return [(ledgers[0], entries)], start + count * _READ_BYTES
    runs: list[tuple[int, array[int]]] = []
    first = 0
    for at in range(1, count + 1):
        if at == count or ledgers[at] != ledgers[first] or not 0 <= entries[at - 1] < entries[at]:
            runs.append((ledgers[first], entries[first:at]))
            first = at
    return runs, start + count * _READ_BYTES


def encode_stored_add(master_key: bytes, entry: Buffer, flags: int) -> bytes:
    """The ADD frame of an entry as it is stored: header, digest and payload."""
    return b"".join((_STORED_ADD.pack(24 + len(entry), PLAIN_ADD | flags, master_key), entry))


@with_twin
def encode_adds(
    master_key: bytes,
    ledger: int,
    first: int,
    lac: int,
    length: int,
    payloads: Sequence[Buffer],
    digest: Callable[[Buffer, Buffer], bytes],
    digest_bytes: int,
    flags: int = 0,
) -> tuple[AddFrames, int]:
    """One ADD frame for each payload, entries ``first``, ``first`` + 1, …; and the ledger's length after the last.

    ``length`` is the ledger's length before ``first``; ``digest`` makes ``digest_bytes`` bytes of (header, payload).
    """
    frames = AddFrames()
    add, pack_entry, pack = frames.parts.append, _ENTRY.pack, _ADD_START[digest_bytes].pack
    word, overhead = PLAIN_ADD | flags, 24 + 32 + digest_bytes
    for entry, payload in enumerate(payloads, first):
        size = len(payload)
        length += size
        header = pack_entry(ledger, entry, lac, length)
        add(pack(overhead + size, word, master_key, header, digest(header, payload)))
        add(payload)
    return frames, length


@with_twin
def scan_acks(buffer: Buffer, start: int, end: int, ledger: int) -> tuple[list[int], int]:
    """Entry ids of the good ADD responses of one ledger from ``start``, and where the first other frame begins."""
    entries: list[int] = []
    add, good = entries.append, _ACK_HEAD.pack(24, PLAIN_ADD, 0, ledger)
    whole = start + max(0, end - start) // _ACK.size * _ACK.size
    for head, entry in _ACK.iter_unpack(memoryview(buffer)[start:whole]):
        if head != good:
            break
        add(entry)
    return entries, start + _ACK.size * len(entries)


def next_frame(buffer: Buffer, start: int, end: int) -> tuple[int, int] | None:
    """Bounds of the body of the frame at ``start``; None when it is not whole yet. The length is not judged."""
    if end - start < 4:
        return None
    size = int.from_bytes(buffer[start : start + 4], "big")
    return (start + 4, start + 4 + size) if end - start - 4 >= size else None
