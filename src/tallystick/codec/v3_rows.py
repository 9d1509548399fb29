"""Frames of version 3 that lie in a row: how many of them are looked at together, and those that are all head.

Rows that differ in nothing but numbers are taken by columns (``varints.take_columns``), all others one by one, by the
pattern of their head. Both see the one form that a plain frame has when it is written in the order of its fields with
the shortest lengths. Whatever else means the same in protobuf is left to ``bookkeeper.wire.v3``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from tallystick.codec.reads import READ_PREFIX
from tallystick.codec.varints import Buffer, Column, decode_varint, encode_varint, take_columns

LENGTH_BYTES = 4
FEW = 8  # of fewer rows columns are not worth while
ONE_BY_ONE = 64  # rows that are read so before columns are tried again
HEADER_BYTES = 5  # of a header before its request id: version, operation, and what announces the id
FIXED_BYTES = 11  # of a frame before its request id: length, what announces the header, and those

# Parts of patterns. A positive int64 has nine bytes at most.
NUMBER = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
LENGTH = rb"([\x80-\xff]{0,3}[\x00-\x7f])"

_FIRST_TRY_BYTES = 128 * 1024
_FIRST_TRY_ROWS, _FIRST_TRY_HEADS = 64, 256
_ROWS_AT_ONCE = 32  # that one call of struct cuts
_MOST_ROWS = 4096  # at once


def header(operation: int) -> bytes:
    """Return a header up to its request id."""
    return bytes((0x08, 3, 0x10, operation, 0x18))


def frame_of(header: bytes, txn: bytes, rest: bytes) -> bytes:
    """Return a frame of an encoded request id and what follows the header."""
    body = b"\x0a%c%b%b%b" % (HEADER_BYTES + len(txn), header, txn, rest)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def cut_rows(rows: Buffer, sizes: tuple[int, ...], skip: int = 0) -> list[list[bytes]]:
    """Return the parts of rows, all the first ones, all the second ones, … ``skip`` bytes of each row are left out in
    front. The rows fill the buffer."""
    one, many = _row_structs(sizes, skip)
    view = memoryview(rows)
    whole = len(view) // many.size * many.size
    parts = list(chain(*many.iter_unpack(view[:whole]), *one.iter_unpack(view[whole:])))
    return [parts[at :: len(sizes)] for at in range(len(sizes))]


def even_bodies(frames: Buffer, count: int) -> list[bytes]:
    """Return the bodies of so many frames of version 2, ADDs or responses to READs, if all have one size.

    They fill the buffer. Returns nothing if their sizes differ, or they are few.
    """
    row, head = len(frames) // count, bytes(frames[:LENGTH_BYTES])
    if count < FEW or row * count != len(frames) or int.from_bytes(head, "big") != row - LENGTH_BYTES:
        return []
    if any(bytes(frames[at::row]) != head[at : at + 1] * count for at in range(LENGTH_BYTES)):
        return []
    [bodies] = cut_rows(frames, (row - READ_PREFIX,), READ_PREFIX)
    return bodies


@lru_cache(maxsize=128)
def _row_structs(sizes: tuple[int, ...], skip: int) -> tuple[struct.Struct, struct.Struct]:
    """Return what cuts a row, and what cuts many in half the time each."""
    row = f"{skip}x" + "".join(f"{size}s" for size in sizes)
    return struct.Struct(row), struct.Struct(row * _ROWS_AT_ONCE)


def tries(buffer: Buffer, row: int, start: int, end: int, first: int = _FIRST_TRY_ROWS) -> Iterator[int]:
    """Yield where to try to take whole rows to, at once, each time four times as many, while there are enough.

    Ask on only when they were taken: so what a try costs that fails is bounded by what those before it have taken,
    whatever a stranger mixes. Where the last row begins otherwise than the first there is no try.
    """
    count, head = max(FEW, min(first, _FIRST_TRY_BYTES // row)), bytes(buffer[start : start + FIXED_BYTES])
    while (whole := (end - start) // row) >= FEW:
        start += min(whole, count, _MOST_ROWS) * row
        if bytes(buffer[start - row : start - row + FIXED_BYTES]) != head:
            return
        yield start
        count *= 4


def heads_pattern(header: bytes, before: bytes, tag: bytes, after_ledger: bytes) -> re.Pattern[bytes]:
    """Return the pattern of frames that end with ledger and entry: ``before`` stands between header and length of the
    operation's message, whose ledger comes after ``tag``."""
    return re.compile(
        rb"\x00\x00\x00(.)\x0a(.)" + re.escape(header) + NUMBER + re.escape(before) + rb"(.)" + re.escape(tag)
        + NUMBER + re.escape(after_ledger) + NUMBER,
        re.DOTALL,
    )  # fmt: skip


def _one_head(pattern: re.Pattern[bytes], buffer: Buffer, start: int, end: int) -> re.Match[bytes] | None:
    match = pattern.match(buffer, start, end)
    if match is None:
        return None
    stop = match.end()
    is_good = (
        match[1][0] == stop - start - LENGTH_BYTES
        and match[2][0] == HEADER_BYTES + len(match[3])
        and match[4][0] == stop - match.end(4)
    )
    return match if is_good else None


def scan_heads(
    pattern: re.Pattern[bytes], buffer: Buffer, start: int, end: int
) -> tuple[list[int], list[int], list[int], int]:
    """Request ids, ledgers and entries of the frames of the pattern from ``start``, and where it stopped."""
    txn_ids, ledgers, entries = list[int](), list[int](), list[int]()
    position, before = start, -1
    while position > before:
        before = position
        match = _one_head(pattern, buffer, position, end)
        if match is None:
            break
        row, ledger = match.end() - position, decode_varint(match[5])
        spans = [(match.start(part) - position, match.end(part) - position) for part in (3, 6, 5)]
        for stop in tries(buffer, row, position, end, _FIRST_TRY_HEADS):
            # The ledgers of a writer's frames are one, mostly, and of the frames of many they have often one width.
            is_one = bytes(buffer[stop - row + spans[2][0] : stop - row + spans[2][1]]) == match[5]
            columns = take_columns(bytearray(memoryview(buffer)[position:stop]), row, spans[: 2 if is_one else 3])
            if columns is None:
                break
            txn_ids += columns[0].to_list()
            entries += columns[1].to_list()
            ledgers += [ledger] * (len(txn_ids) - len(ledgers)) if is_one else columns[2].to_list()
            position = stop
        for _ in range(ONE_BY_ONE):
            match = _one_head(pattern, buffer, position, end)
            if match is None:
                break
            txn_ids.append(decode_varint(match[3]))
            ledgers.append(decode_varint(match[5]))
            entries.append(decode_varint(match[6]))
            position = match.end()
    return txn_ids, ledgers, entries, position


def encode_heads(
    frame: Callable[[bytes, bytes, bytes], bytes],
    txn_ids: Sequence[int],
    ledgers: Sequence[int],
    entries: Sequence[int],
) -> bytes:
    """The frames with these request ids, ledgers and entries. ``frame`` makes one of encoded numbers, and ends with
    ledger, one byte, and entry."""
    count = len(txn_ids)
    if count >= FEW:
        txn, ledger, entry = Column.of(txn_ids), _part(ledgers), Column.of(entries)
        if txn is not None and ledger is not None and entry is not None:
            encoded_ledger = ledger if isinstance(ledger, bytes) else bytes(ledger.width)
            pattern = frame(bytes(txn.width), encoded_ledger, bytes(entry.width))
            row = len(pattern)
            frames = bytearray(pattern * count)
            txn.write(frames, row, FIXED_BYTES)
            if isinstance(ledger, Column):
                ledger.write(frames, row, row - entry.width - 1 - ledger.width)
            entry.write(frames, row, row - entry.width)
            return bytes(frames)
    return b"".join(map(frame, *(map(encode_varint, numbers) for numbers in (txn_ids, ledgers, entries))))


def _part(numbers: Sequence[int]) -> bytes | Column | None:
    """Return the one number that all are, encoded, or their column if they have one."""
    return encode_varint(numbers[0]) if numbers.count(numbers[0]) == len(numbers) else Column.of(numbers)
