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
from collections.abc import Sequence
from dataclasses import dataclass, field

from tallystick.codec.frames import ADD_PREFIX, MIN_ADD_BODY, PLAIN_ADD, AddRun
from tallystick.codec.implementation import with_twin
from tallystick.codec.reads import response_entries
from tallystick.codec.v3_rows import (
    FIXED_BYTES,
    HEADER_BYTES,
    LENGTH,
    LENGTH_BYTES,
    NUMBER,
    ONE_BY_ONE,
    cut_rows,
    encode_heads,
    even_bodies,
    frame_of,
    header,
    heads_pattern,
    scan_heads,
    tries,
)
from tallystick.codec.varints import (
    Buffer,
    Column,
    Numbers,
    decode_short_varint,
    decode_varint,
    encode_short_varint,
    encode_varint,
    encode_varints,
    take_columns,
)

_KEY_BYTES, _MAX_ID = 20, (1 << 63) - 1
_MIN_BODY = MIN_ADD_BODY - 4 - _KEY_BYTES  # an entry's header
_ADD = header(2)
_IDS = struct.Struct(">qq")
_STORED_HEAD = struct.Struct(">II20s")  # of a stored frame: length, word, master key
_PLAIN_ADD = re.compile(
    rb"(.{4})\x0a(.)" + re.escape(_ADD) + NUMBER + rb"\xaa\x06" + LENGTH + rb"\x08" + NUMBER + rb"\x10" + NUMBER
    + rb"\x1a\x14(.{20})\x22" + LENGTH + rb"(.{16})",
    re.DOTALL,
)  # fmt: skip
_DEFERRED = b"\x28\x01"  # the write flags of a deferred add
_GOOD_RESPONSE = heads_pattern(_ADD, b"\x10\x00\xaa\x06", b"\x08\x00\x10", b"\x18")


@dataclass(slots=True)
class V3AddRun:
    """Plain ADDs: their request ids, and as stored frames, one after another in ``stored``, by the columns ``run``.
    Either all of them are ``deferred`` or none is."""

    txn_ids: list[int] = field(default_factory=list)
    run: AddRun = field(default_factory=lambda: AddRun(bounds=[0]))
    stored: bytes = b""
    deferred: bool = False


@with_twin
def scan_v3_adds(buffer: Buffer, start: int, end: int, max_body: int) -> tuple[V3AddRun, int]:
    """The plain ADDs from ``start``; stops at the first frame that is another request, unusual, too long, or not whole.

    Returns the run and where it stopped in ``buffer``. Plain is an ADD of the form above without what is in brackets,
    but for the write flags of a deferred add, with a key of 20 bytes, an entry of 32 at least, and ids that are those
    of the entry. No id is negative. A run ends where deferred adds begin or end.
    """
    adds, stored = V3AddRun(), list[bytes]()
    position, before = start, -1
    while position > before:
        before = position
        position = _even_adds(buffer, position, end, max_body, adds, stored)
        position = _adds_one_by_one(buffer, position, end, max_body, adds, stored)
    adds.stored = stored[0] if len(stored) == 1 else b"".join(stored)
    return adds, position


# An ADD's head, its request id, ledger, entry and key, where its body begins and ends, and where the frame ends.
_Add = tuple[re.Match[bytes], int, int, int, bytes, int, int, int]
_TXN, _ENTRY = 3, 6  # groups of the head


def _one_add(buffer: Buffer, start: int, end: int, max_body: int, adds: V3AddRun) -> _Add | None:
    """Return the plain ADD at ``start`` that may be the next of ``adds``, None if there is none."""
    match = _PLAIN_ADD.match(buffer, start, end)
    if match is None:
        return None
    length, header_length, txn, size, encoded_ledger, encoded_entry, key, body_size, ids = match.groups()
    stop, body = start + LENGTH_BYTES + int.from_bytes(length, "big"), match.start(9)
    ledger, entry = decode_short_varint(encoded_ledger), decode_varint(encoded_entry)
    deferred = body_size != encode_short_varint(stop - body)
    body_stop = stop - len(_DEFERRED) if deferred else stop
    if (
        stop > end
        or stop - start - LENGTH_BYTES > max_body
        or header_length[0] != HEADER_BYTES + len(txn)
        or size != encode_short_varint(stop - match.end(4))
        or body_stop - body < _MIN_BODY
        or (deferred and (body_size != encode_short_varint(body_stop - body) or buffer[body_stop:stop] != _DEFERRED))
        or (adds.txn_ids and deferred != adds.deferred)
        or ids != _IDS.pack(ledger, entry)
    ):
        return None
    adds.deferred = deferred
    return match, decode_varint(txn), ledger, entry, key, body, body_stop, stop


def _even_adds(buffer: Buffer, start: int, end: int, max_body: int, adds: V3AddRun, stored: list[bytes]) -> int:
    """Take rows that differ in nothing but request id, entry and content; returns where it stopped."""
    add = _one_add(buffer, start, end, max_body, adds)
    if add is None:
        return start
    match, _, ledger, _, key, body, body_stop, first_stop = add
    row, position = first_stop - start, start
    head = body - start + 8  # of a row: up to the body's ledger
    sizes = (head, body_stop - start - head, *((len(_DEFERRED),) if adds.deferred else ()))
    stored_head = _STORED_HEAD.pack(4 + _KEY_BYTES + body_stop - body, PLAIN_ADD, key) + ledger.to_bytes(8, "big")
    stored_row = len(stored_head) + sizes[1]
    spans = [(match.start(group) - start, match.end(group) - start) for group in (_TXN, _ENTRY)]
    for stop in tries(buffer, row, start, end):
        heads, tails, *flags = cut_rows(memoryview(buffer)[position:stop], sizes)
        columns = take_columns(bytearray(b"".join(heads)), head, spans)
        if columns is None or any(each.count(_DEFERRED) != len(tails) for each in flags):
            break
        frames = stored_head.join((b"", *tails))
        if not _have_ids(frames, stored_row, columns[1]):
            break
        entries, run = columns[1].to_list(), adds.run
        adds.txn_ids += columns[0].to_list()
        run.keys += [key] * len(entries)
        run.ledgers += [ledger] * len(entries)
        run.entries += entries
        bounds = run.bounds
        bounds += range(bounds[-1] + stored_row, bounds[-1] + stored_row * len(entries) + 1, stored_row)
        stored.append(frames)
        position = stop
    return position


def _have_ids(frames: bytes, row: int, entries: Numbers) -> bool:
    """Return whether the entries in stored frames have these ids."""
    planes, lowest, blank = entries.planes, ADD_PREFIX + 15, bytes(len(entries.planes[0]))
    return all(frames[lowest - at :: row] == (planes[at] if at < len(planes) else blank) for at in range(8))


def _adds_one_by_one(buffer: Buffer, start: int, end: int, max_body: int, adds: V3AddRun, stored: list[bytes]) -> int:
    """Take some plain ADDs of any sizes; returns where it stopped."""
    run, position, parts = adds.run, start, list[Buffer]()
    for _ in range(ONE_BY_ONE):
        add = _one_add(buffer, position, end, max_body, adds)
        if add is None:
            break
        _, txn, ledger, entry, key, body, body_stop, position = add
        size = body_stop - body
        adds.txn_ids.append(txn)
        run.keys.append(key)
        run.ledgers.append(ledger)
        run.entries.append(entry)
        run.bounds.append(run.bounds[-1] + ADD_PREFIX + size)
        parts.append(_STORED_HEAD.pack(4 + _KEY_BYTES + size, PLAIN_ADD, key))
        parts.append(buffer[body:body_stop])
    if parts:
        stored.append(b"".join(parts))
    return position


# Responses


def _response(txn: bytes, ledger: bytes, entry: bytes) -> bytes:
    result = b"\x08\x00\x10%b\x18%b" % (ledger, entry)
    return frame_of(_ADD, txn, b"\x10\x00\xaa\x06%c%b" % (len(result), result))


@with_twin
def ack_v3_adds(txn_ids: Sequence[int], ledgers: Sequence[int], entries: Sequence[int]) -> bytes:
    """The good responses to ADDs with these request ids, ledgers and entries."""
    return encode_heads(_response, txn_ids, ledgers, entries)


@with_twin
def scan_v3_acks(buffer: Buffer, start: int, end: int) -> tuple[list[int], list[int], list[int], int]:
    """The good ADD responses from ``start``: request ids, ledgers, entries, and where the first other frame begins."""
    return scan_heads(_GOOD_RESPONSE, buffer, start, end)


# Requests of a client


class _Heads:
    """What stands before the bodies of one ledger's ADDs; ``flags`` behind them, ``priority`` behind the request id."""

    __slots__ = ("_before_entry", "_behind_entry", "_fixed_bytes", "_priority", "flags")

    def __init__(self, ledger: int, key: bytes, priority: int, write_flags: int, recovery: bool) -> None:
        self._priority = b"\x20" + encode_varint(priority) if priority else b""
        self._before_entry, self._behind_entry = b"\x08%b\x10" % encode_varint(ledger), b"\x1a\x14%b\x22" % key
        self.flags = b"\x28" + encode_varint(write_flags) if write_flags else b""
        self.flags += b"\xa0\x06\x01" if recovery else b""
        self._fixed_bytes = len(self._before_entry) + len(self._behind_entry) + len(self.flags)

    def parts(self, txn: bytes, entry: bytes, body_bytes: int) -> tuple[bytes, ...]:
        """Return the head of a body of so many bytes in parts; the entry is the third from the end."""
        body_size = encode_short_varint(body_bytes)
        message_bytes = self._fixed_bytes + len(entry) + len(body_size) + body_bytes
        message_size, header_bytes = encode_short_varint(message_bytes), HEADER_BYTES + len(txn) + len(self._priority)
        size = 4 + header_bytes + len(message_size) + message_bytes
        start = b"%b\x0a%c%b" % (size.to_bytes(LENGTH_BYTES, "big"), header_bytes, _ADD)
        message_start = b"%b\xaa\x06%b%b" % (self._priority, message_size, self._before_entry)
        return start, txn, message_start, entry, self._behind_entry, body_size


def most_head_bytes(*, priority: int, write_flags: int) -> int:
    """Return how many bytes of an ADD are not its body, at most and without its length: those of the highest ids, of a
    body of up to 256 MiB, of recovery."""
    heads = _Heads(_MAX_ID, bytes(_KEY_BYTES), priority, write_flags, recovery=True)
    parts = heads.parts(encode_varint(-1), encode_varint(_MAX_ID), (1 << 28) - 1)
    return sum(map(len, parts)) + len(heads.flags) - LENGTH_BYTES


@with_twin
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
    in_turn = _are_in_turn(pieces, count)
    frames = pieces[0] if in_turn or len(pieces) == 1 else b"".join(pieces)
    ledger, key = frames[ADD_PREFIX : ADD_PREFIX + 8], bytes(frames[ADD_PREFIX - _KEY_BYTES : ADD_PREFIX])
    heads = _Heads(int.from_bytes(ledger, "big"), key, priority, write_flags, recovery)
    txn_ids = range(first_txn, first_txn + count)
    if in_turn:
        parts, numbers = list[Buffer](), zip(encode_varints(txn_ids), encode_varints(entries), strict=True)
        for (txn, entry), start, payload in zip(numbers, pieces[::2], pieces[1::2], strict=True):
            head = heads.parts(txn, entry, len(start) - ADD_PREFIX + len(payload))
            parts += (b"".join((*head, start[ADD_PREFIX:])), payload)
            if heads.flags:
                parts.append(heads.flags)
        return parts
    bodies = even_bodies(frames, count)
    return [
        (bodies and _even_requests(heads, txn_ids, entries, bodies))
        or _requests(heads, txn_ids, entries, bodies or response_entries(bytes(frames), count))
    ]


def _are_in_turn(pieces: Sequence[Buffer], count: int) -> bool:
    """Return whether each two pieces are the head and the payload of one frame."""
    return len(pieces) == 2 * count and all(
        len(head) >= ADD_PREFIX + 8
        and LENGTH_BYTES + int.from_bytes(head[:LENGTH_BYTES], "big") == len(head) + len(payload)
        for head, payload in zip(pieces[::2], pieces[1::2], strict=True)
    )


def _even_requests(
    heads: _Heads, txn_ids: Sequence[int], entries: Sequence[int], bodies: Sequence[bytes]
) -> bytes | None:
    """Return the requests of bodies of one size if their numbers are columns."""
    size = len(bodies[0])
    txn, entry = Column.of(txn_ids), Column.of(entries)
    if txn is None or entry is None:
        return None
    parts = heads.parts(bytes(txn.width), bytes(entry.width), size)
    head, behind_entry = b"".join(parts), len(parts[-2]) + len(parts[-1])
    requests, row = bytearray(heads.flags + head).join((b"", *bodies, b"")), len(head) + size + len(heads.flags)
    del requests[: len(heads.flags)], requests[-len(head) :]
    txn.write(requests, row, FIXED_BYTES)
    entry.write(requests, row, len(head) - behind_entry - entry.width)
    return bytes(requests)


def _requests(heads: _Heads, txn_ids: Sequence[int], entries: Sequence[int], bodies: Sequence[bytes]) -> bytes:
    parts = list[bytes]()
    for txn, entry, body in zip(encode_varints(txn_ids), encode_varints(entries), bodies, strict=True):
        parts += (*heads.parts(txn, entry, len(body)), body, heads.flags)
    return b"".join(parts)
