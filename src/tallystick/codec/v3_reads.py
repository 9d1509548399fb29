"""Runs of version 3 frames in one buffer: plain READs to a bookie, and its good responses to them.

::

    READ      length 4 | 0a header length | 08 3 10 1 18 request id | a2 06 length | 08 ledger 10 entry
    response  length 4 | 0a header length | 08 3 10 1 18 request id | 10 0
                       | a2 06 length | 08 0 10 ledger 18 entry 22 length body [28 LAC]

The numbers are varints. A bookie's storage gives entries as responses of version 2 (``reads.py``), which get another
head. ``bookkeeper.wire.v3`` is the reference for one frame.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import lt

from tallystick.codec.implementation import with_twin
from tallystick.codec.reads import READ_PREFIX, response_entries
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
    decode_short_varint,
    decode_varint,
    encode_short_varint,
    encode_varint,
    encode_varints,
    take_columns,
)

_READ = header(1)
_ID = struct.Struct(">q")
_LEDGER_AT, _ENTRY_AT = READ_PREFIX - 16, READ_PREFIX - 8  # in a response of version 2
_PLAIN_READ = heads_pattern(_READ, b"\xa2\x06", b"\x08", b"\x10")
_GOOD_RESPONSE = re.compile(
    rb"(.{4})\x0a(.)" + re.escape(_READ) + NUMBER + rb"\x10\x00\xa2\x06" + LENGTH + rb"\x08\x00\x10" + NUMBER
    + rb"\x18" + NUMBER + rb"\x22" + LENGTH,
    re.DOTALL,
)  # fmt: skip
_LAC = re.compile(rb"\x28[\x80-\xff]{0,9}[\x00-\x7f]")  # -1 has ten bytes
_SIGN = 1 << 63


# Requests


def _request(txn: bytes, ledger: bytes, entry: bytes) -> bytes:
    read = b"\x08%b\x10%b" % (ledger, entry)
    return frame_of(_READ, txn, b"\xa2\x06%c%b" % (len(read), read))


@with_twin
def encode_v3_reads(first_txn: int, ledger: int, entries: Sequence[int]) -> bytes:
    """One READ with the id ``first_txn``, ``first_txn`` + 1, … for each entry."""
    return encode_heads(_request, range(first_txn, first_txn + len(entries)), [ledger] * len(entries), entries)


@with_twin
def scan_v3_read_requests(buffer: Buffer, start: int, end: int) -> tuple[list[int], list[tuple[int, array[int]]], int]:
    """The plain READs from ``start``: request ids, runs of ascending entries of one ledger (ledger, entries), and where
    it stopped. Entry -1 is not plain; other ids are not judged.
    """
    txn_ids, ledgers, numbers, stop = scan_heads(_PLAIN_READ, buffer, start, end)
    count, entries = len(numbers), array("q", numbers)
    if count and ledgers.count(ledgers[0]) == count and all(map(lt, entries, entries[1:])):
        return txn_ids, [(ledgers[0], entries)], stop
    runs: list[tuple[int, array[int]]] = []
    first = 0
    for at in range(1, count + 1):
        if at == count or ledgers[at] != ledgers[first] or entries[at - 1] >= entries[at]:
            runs.append((ledgers[first], entries[first:at]))
            first = at
    return txn_ids, runs, stop


# Responses


@with_twin
def encode_v3_read_responses(txn_ids: Sequence[int], frames: bytes, max_lac: int | None) -> bytes:
    """The good responses to READs with these ids.

    ``frames``: their entries, of one ledger, as good READ responses of version 2, which fill the buffer. With
    ``max_lac``, the highest LAC known of the ledger, unless it is None.
    """
    if not txn_ids:
        return b""
    count, lac = len(txn_ids), b"" if max_lac is None else b"\x28" + encode_varint(max_lac)
    ledger = encode_varint(int.from_bytes(frames[_LEDGER_AT:_ENTRY_AT], "big"))
    bodies = even_bodies(frames, count)
    if bodies:
        entries = _entries(frames, range(_ENTRY_AT, len(frames), len(frames) // count))
        if responses := _even_responses(txn_ids, ledger, entries, bodies, lac):
            return responses
    bodies = bodies or response_entries(frames, count)
    entries = _entries(frames, accumulate((READ_PREFIX + len(body) for body in bodies[:-1]), initial=_ENTRY_AT))
    return b"".join(
        b"".join((_response_head(txn, ledger, entry, len(body), lac), body, lac))
        for txn, entry, body in zip(encode_varints(txn_ids), encode_varints(entries), bodies, strict=True)
    )


def _entries(frames: bytes, places: Iterable[int]) -> list[int]:
    """Return the entry ids that stand in these places."""
    unpack = _ID.unpack_from
    return [entry for at in places for (entry,) in (unpack(frames, at),)]


def _response_head(txn: bytes, ledger: bytes, entry: bytes, size: int, lac: bytes) -> bytes:
    """Return what stands before a body of ``size`` bytes, and ``lac`` behind it."""
    result = b"".join((b"\x08\x00\x10", ledger, b"\x18", entry, b"\x22", encode_short_varint(size)))
    message_bytes = len(result) + size + len(lac)
    message_size, header_bytes = encode_short_varint(message_bytes), HEADER_BYTES + len(txn)
    length = (6 + header_bytes + len(message_size) + message_bytes).to_bytes(LENGTH_BYTES, "big")
    return b"%b\x0a%c%b%b\x10\x00\xa2\x06%b%b" % (length, header_bytes, _READ, txn, message_size, result)


def _even_responses(
    txn_ids: Sequence[int], ledger: bytes, entries: Sequence[int], bodies: Sequence[bytes], lac: bytes
) -> bytes | None:
    """Return the responses with bodies of one size if their numbers are columns."""
    size, txn, entry = len(bodies[0]), Column.of(txn_ids), Column.of(entries)
    if txn is None or entry is None:
        return None
    head = _response_head(bytes(txn.width), ledger, bytes(entry.width), size, lac)
    responses, row = bytearray(lac + head).join((b"", *bodies, b"")), len(head) + size + len(lac)
    del responses[: len(lac)], responses[-len(head) :]
    txn.write(responses, row, FIXED_BYTES)
    entry.write(responses, row, len(head) - len(encode_varint(size)) - 1 - entry.width)
    return bytes(responses)


# A response's head, where its body begins and ends, and where the frame ends.
_Response = tuple[re.Match[bytes], int, int, int]
_TXN, _ENTRY = 3, 6  # groups of the head


def _one_response(buffer: Buffer, start: int, end: int) -> _Response | None:
    """Return the good response with a body at ``start``, None if there is none."""
    match = _GOOD_RESPONSE.match(buffer, start, end)
    if match is None:
        return None
    length, header_length, txn, size, _, _, body_size = match.groups()
    body = match.end()
    stop, body_end = start + LENGTH_BYTES + int.from_bytes(length, "big"), body + decode_short_varint(body_size)
    if (
        stop > end
        or body_end > stop
        or header_length[0] != HEADER_BYTES + len(txn)
        or size != encode_short_varint(stop - match.end(4))
        or (body_end < stop and not _LAC.fullmatch(buffer, body_end, stop))
    ):
        return None
    return match, body, body_end, stop


@with_twin
def scan_v3_reads(buffer: Buffer, start: int, end: int) -> tuple[list[int], list[int], list[bytes], int, int]:
    """The good READ responses with a body from ``start``, of any ledgers: request ids, entries, the entries' bytes, the
    highest LAC in them (-1: none), and where it stopped.

    Stops at the first frame that is anything else or not whole. The bytes are copies.
    """
    txn_ids, entries, data, max_lac = list[int](), list[int](), list[bytes](), -1
    position, before = start, -1
    while position > before:
        before = position
        response = _one_response(buffer, position, end)
        if response is None:
            break
        match, body, body_end, first_stop = response
        row, sizes = first_stop - position, (body - position, body_end - body, first_stop - body_end)
        spans = [(match.start(group) - position, match.end(group) - position) for group in (_TXN, _ENTRY)]
        for stop in tries(buffer, row, position, end):
            heads, bodies, lacs = cut_rows(memoryview(buffer)[position:stop], sizes)
            columns = take_columns(bytearray(b"".join(heads)), sizes[0], spans)
            if columns is None or (sizes[2] and not all(map(_LAC.fullmatch, set(lacs)))):
                break
            txn_ids += columns[0].to_list()
            entries += columns[1].to_list()
            data += bodies
            max_lac = max(max_lac, *map(_lac_of, set(lacs)))
            position = stop
        for _ in range(ONE_BY_ONE):
            response = _one_response(buffer, position, end)
            if response is None:
                break
            match, body, body_end, stop = response
            txn_ids.append(decode_varint(match[_TXN]))
            entries.append(decode_varint(match[_ENTRY]))
            data.append(bytes(buffer[body:body_end]))
            if body_end < stop:
                max_lac = max(max_lac, _lac_of(bytes(buffer[body_end:stop])))
            position = stop
    return txn_ids, entries, data, max_lac, position


def _lac_of(field: bytes) -> int:
    """Return the LAC in a field, which may be empty."""
    number = decode_varint(field[1:]) & (2 * _SIGN - 1) if field else 2 * _SIGN - 1
    return number - 2 * _SIGN if number & _SIGN else number
