"""Runs of version 3 frames in one buffer: plain ADDs to a bookie, and its good responses to them.

::

    ADD       length 4 | 0a header length | 08 3 10 2 18 request id
                       | aa 06 length | 08 ledger 10 entry 1a 20 master key 22 length body [28 write flags] [a0 06 1]
    response  length 4 | 0a header length | 08 3 10 2 18 request id | 10 0 | aa 06 length | 08 0 10 ledger 18 entry

The numbers are varints. What a bookie stores is an ADD of version 2 (``frames.py``), the same body with another head:
a scan gives the adds as such frames. ``bookkeeper.wire.v3`` is the reference for one frame.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.codec.frames import ADD_PREFIX, MIN_ADD_BODY, PLAIN_ADD, AddRun
from tallystick.codec.reads import response_entries
from tallystick.codec.v3_rows import (
    FEW,
    HEADER_BYTES,
    LEDGER,
    LENGTH,
    LENGTH_BYTES,
    NUMBER,
    ONE_BY_ONE,
    encode_heads,
    frame_of,
    header,
    heads_pattern,
    scan_heads,
    tries,
)
from tallystick.codec.varints import Buffer, Column, decode_varint, encode_varint, encode_varints, take_columns

_KEY_BYTES = 20
_MIN_BODY = MIN_ADD_BODY - 4 - _KEY_BYTES  # an entry's header
_ADD = header(2)
_IDS = struct.Struct(">qq")
_STORED_HEAD = struct.Struct(">II20s")  # of a stored frame: length, word, master key
_PLAIN_ADD = re.compile(
    rb"(.{4})\x0a(.)" + re.escape(_ADD) + NUMBER + rb"\xaa\x06" + LENGTH + rb"\x08" + LEDGER + rb"\x10" + NUMBER
    + rb"\x1a\x14(.{20})\x22" + LENGTH + rb"(.{16})",
    re.DOTALL,
)  # fmt: skip
_GOOD_RESPONSE = heads_pattern(_ADD, b"\x10\x00\xaa\x06", b"\x08\x00\x10", b"\x18")


@dataclass(slots=True)
class V3AddRun:
    """Plain ADDs: their request ids, and as stored frames, one after another in ``stored``, by the columns ``run``."""

    txn_ids: list[int] = field(default_factory=list)
    run: AddRun = field(default_factory=lambda: AddRun(bounds=[0]))
    stored: bytes = b""


def scan_v3_adds(buffer: Buffer, start: int, end: int, max_body: int) -> tuple[V3AddRun, int]:
    """The plain ADDs from ``start``; stops at the first frame that is another request, unusual, too long, or not whole.

    Returns the run and where it stopped in ``buffer``. Plain is an ADD of the form above without what is in brackets,
    with a key of 20 bytes, an entry of 32 at least, and ids that are those of the entry, and less than 2⁵⁶ but for the
    ledger's. Ids are not judged.
    """
    adds, stored = V3AddRun(), list[bytes]()
    position, before = start, -1
    while position > before:
        before = position
        position = _even_adds(buffer, position, end, max_body, adds, stored)
        position = _adds_one_by_one(buffer, position, end, max_body, adds, stored)
    adds.stored = stored[0] if len(stored) == 1 else b"".join(stored)
    return adds, position


@dataclass(slots=True)
class _Add:
    """The head of a plain ADD; places are in the buffer."""

    txn: tuple[int, int]
    entry: tuple[int, int]
    ledger: int
    key: bytes
    body: int  # its place
    stop: int  # of the frame


def _one_add(buffer: Buffer, start: int, end: int, max_body: int) -> _Add | None:
    """Return the plain ADD at ``start``, None if there is none."""
    match = _PLAIN_ADD.match(buffer, start, end)
    if match is None:
        return None
    length, header_length, txn, size, ledger, entry, key, body_size, ids = match.groups()
    stop, body = start + LENGTH_BYTES + int.from_bytes(length, "big"), match.start(9)
    number = decode_varint(ledger)
    if (
        stop > end
        or stop - start - LENGTH_BYTES > max_body
        or header_length[0] != HEADER_BYTES + len(txn)
        or decode_varint(size) != stop - match.end(4)
        or decode_varint(body_size) != stop - body
        or stop - body < _MIN_BODY
        or ids != _IDS.pack(number, decode_varint(entry))
    ):
        return None
    return _Add(match.span(3), match.span(6), number, bytes(key), body, stop)


def _even_adds(buffer: Buffer, start: int, end: int, max_body: int, adds: V3AddRun, stored: list[bytes]) -> int:
    """Take rows that differ in nothing but request id, entry and content; returns where it stopped."""
    add = _one_add(buffer, start, end, max_body)
    if add is None:
        return start
    row, position = add.stop - start, start
    head = add.body - start + 8  # of a row: up to the body's ledger
    size = add.stop - add.body
    stored_head = _STORED_HEAD.pack(4 + _KEY_BYTES + size, PLAIN_ADD, add.key) + add.ledger.to_bytes(8, "big")
    spans = [(low - start, high - start) for low, high in (add.txn, add.entry)]
    for stop in tries(buffer, row, start, end):
        rows = struct.iter_unpack(f"{head}s{row - head}s", memoryview(buffer)[position:stop])
        heads, tails = zip(*rows, strict=True)
        columns = take_columns(bytearray(b"".join(heads)), head, spans)
        if columns is None:
            break
        frames = stored_head.join((b"", *tails))
        if not _have_ids(frames, columns[1], len(stored_head) + row - head):
            break
        _extend(adds, columns[0].tolist(), columns[1].tolist(), add, len(stored_head) + row - head)
        stored.append(frames)
        position = stop
    return position


def _have_ids(frames: bytes, entries: array[int], row: int) -> bool:
    """Return whether the entries in stored frames have these ids."""
    ids = entries[:]
    if sys.byteorder == "little":
        ids.byteswap()
    packed = ids.tobytes()
    return all(frames[ADD_PREFIX + 8 + at :: row] == packed[at::8] for at in range(8))


def _extend(adds: V3AddRun, txn_ids: list[int], entries: list[int], add: _Add, row: int) -> None:
    run, count = adds.run, len(entries)
    first = run.bounds[-1]
    adds.txn_ids += txn_ids
    run.keys += [add.key] * count
    run.ledgers += [add.ledger] * count
    run.entries += entries
    run.bounds += range(first + row, first + row * count + 1, row)


def _adds_one_by_one(buffer: Buffer, start: int, end: int, max_body: int, adds: V3AddRun, stored: list[bytes]) -> int:
    """Take some plain ADDs of any sizes; returns where it stopped."""
    run, position, parts = adds.run, start, list[Buffer]()
    for _ in range(ONE_BY_ONE):
        add = _one_add(buffer, position, end, max_body)
        if add is None:
            break
        size = add.stop - add.body
        adds.txn_ids.append(decode_varint(buffer[slice(*add.txn)]))
        run.keys.append(add.key)
        run.ledgers.append(add.ledger)
        run.entries.append(decode_varint(buffer[slice(*add.entry)]))
        run.bounds.append(run.bounds[-1] + ADD_PREFIX + size)
        parts.append(_STORED_HEAD.pack(4 + _KEY_BYTES + size, PLAIN_ADD, add.key))
        parts.append(buffer[add.body : add.stop])
        position = add.stop
    if parts:
        stored.append(b"".join(parts))
    return position


# Responses


def _response(txn: bytes, ledger: bytes, entry: bytes) -> bytes:
    result = b"\x08\x00\x10%b\x18%b" % (ledger, entry)
    return frame_of(_ADD, txn, b"\x10\x00\xaa\x06%c%b" % (len(result), result))


def ack_v3_adds(txn_ids: Sequence[int], ledgers: Sequence[int], entries: Sequence[int]) -> bytes:
    """The good responses to ADDs with these request ids, ledgers and entries."""
    return encode_heads(_response, txn_ids, ledgers, entries)


def scan_v3_acks(buffer: Buffer, start: int, end: int) -> tuple[list[int], list[int], list[int], int]:
    """The good ADD responses from ``start``: request ids, ledgers, entries, and where the first other frame begins."""
    return scan_heads(_GOOD_RESPONSE, buffer, start, end)


# Requests of a client


@dataclass(slots=True)
class _Heads:
    """What stands before and behind the bodies of one ledger's ADDs."""

    ledger: bytes  # encoded
    key: bytes
    priority: bytes  # what follows the request id in a header
    flags: bytes  # what follows the body
    parts: dict[tuple[int, int, int], tuple[bytes, bytes, bytes]] = field(default_factory=dict)

    def around(self, txn_bytes: int, entry_bytes: int, body_bytes: int) -> tuple[bytes, bytes, bytes]:
        """Return what stands before an encoded request id, between it and the encoded entry, and behind that."""
        key = txn_bytes, entry_bytes, body_bytes
        if (found := self.parts.get(key)) is not None:
            return found
        before_entry, behind_entry = (
            b"\x08%b\x10" % self.ledger,
            b"\x1a\x14%b\x22%b" % (self.key, encode_varint(body_bytes)),
        )
        size = len(before_entry) + entry_bytes + len(behind_entry) + body_bytes + len(self.flags)
        between = b"%b\xaa\x06%b%b" % (self.priority, encode_varint(size), before_entry)
        before = b"\x0a%c%b" % (HEADER_BYTES + txn_bytes + len(self.priority), _ADD)
        total = len(before) + txn_bytes + len(between) - len(before_entry) + size
        parts = total.to_bytes(LENGTH_BYTES, "big") + before, between, behind_entry
        self.parts[key] = parts
        return parts


def encode_v3_adds(
    first_txn: int,
    entries: Sequence[int],
    pieces: Sequence[Buffer],
    *,
    priority: int = 0,
    write_flags: int = 0,
    recovery: bool = False,
) -> list[Buffer]:
    """ADD requests with the ids ``first_txn``, ``first_txn`` + 1, …, one for each of a ledger's entries.

    ``pieces`` are their frames of version 2 as ``frames.encode_adds`` makes them, in parts of any kind. Where these are
    heads and payloads in turn the payloads are returned as they are, between heads of version 3; else all is one part.
    """
    count = len(entries)
    if not count:
        return []
    flags = (b"\x28%b" % encode_varint(write_flags) if write_flags else b"") + (b"\xa0\x06\x01" if recovery else b"")
    in_turn = _are_in_turn(pieces, count)
    frames = pieces[0] if in_turn or len(pieces) == 1 else b"".join(pieces)
    heads = _Heads(
        encode_varint(int.from_bytes(frames[ADD_PREFIX : ADD_PREFIX + 8], "big")),
        bytes(frames[ADD_PREFIX - _KEY_BYTES : ADD_PREFIX]),
        b"\x20%b" % encode_varint(priority) if priority else b"",
        flags,
    )
    txn_ids = range(first_txn, first_txn + count)
    if in_turn:
        parts, numbers = list[Buffer](), zip(encode_varints(txn_ids), encode_varints(entries), strict=True)
        for (txn, entry), start, payload in zip(numbers, pieces[::2], pieces[1::2], strict=True):
            before, between, behind = heads.around(len(txn), len(entry), len(start) - ADD_PREFIX + len(payload))
            parts.append(b"".join((before, txn, between, entry, behind, start[ADD_PREFIX:])))
            parts.append(payload)
            if flags:
                parts.append(flags)
        return parts
    bodies = response_entries(bytes(frames), count)
    return [_even_requests(heads, txn_ids, entries, bodies) or _requests(heads, txn_ids, entries, bodies)]


def _are_in_turn(pieces: Sequence[Buffer], count: int) -> bool:
    """Return whether each two pieces are the head and the payload of one frame."""
    return len(pieces) == 2 * count and all(
        len(head) >= ADD_PREFIX + 8
        and LENGTH_BYTES + int.from_bytes(head[:LENGTH_BYTES], "big") == len(head) + len(payload)
        for head, payload in zip(pieces[::2], pieces[1::2], strict=True)
    )


def _even_requests(
    heads: _Heads, txn_ids: Sequence[int], entries: Sequence[int], bodies: Sequence[bytes]
) -> bytearray | None:
    """Return the requests if they are rows that differ in numbers and bodies alone."""
    size = len(bodies[0])
    if len(bodies) < FEW or list(map(len, bodies)).count(size) != len(bodies):
        return None
    txn, entry = Column.of(txn_ids), Column.of(entries)
    if txn is None or entry is None:
        return None
    before, between, behind = heads.around(txn.width, entry.width, size)
    entry_at = len(before) + txn.width + len(between)
    head = b"".join((before, bytes(txn.width), between, bytes(entry.width), behind))
    requests, row = bytearray(heads.flags + head).join((b"", *bodies, b"")), len(head) + size + len(heads.flags)
    del requests[: len(heads.flags)], requests[-len(head) :]
    txn.write(requests, row, len(before))
    entry.write(requests, row, entry_at)
    return requests


def _requests(heads: _Heads, txn_ids: Sequence[int], entries: Sequence[int], bodies: Sequence[bytes]) -> bytes:
    parts = list[bytes]()
    for txn, entry, body in zip(encode_varints(txn_ids), encode_varints(entries), bodies, strict=True):
        before, between, behind = heads.around(len(txn), len(entry), len(body))
        parts += (before, txn, between, entry, behind, body, heads.flags)
    return b"".join(parts)
