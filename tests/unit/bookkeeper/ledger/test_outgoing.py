"""Pieces: what is joined, what stays as it is, and in which order bytes leave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.outgoing import LONG_PART_BYTES, SLICE_BYTES, Outgoing, OutgoingPiece, cut

HEADER = b"h" * 60
GREATEST_WRITE = 1024  # parts that a kernel gathers in one call


def parts_of(sizes: list[int]) -> list[Any]:
    return [part for size in sizes for part in (HEADER, bytes([size & 127]) * size)]


@pytest.mark.parametrize(
    "sizes", [[100] * 10, [100] * 50_000, [5_000] * 1000, [65_536] * 30, [3_000_000], [0], [], [10] * 9 + [2_000_000]]
)
@pytest.mark.parametrize("join", [True, False])
def test_pieces_are_the_bytes_in_their_order_a_slice_each_at_most(sizes: list[int], join: bool) -> None:
    parts = parts_of(sizes)
    pieces = cut(parts, join=join)
    assert b"".join(part for piece in pieces for part in piece.parts) == b"".join(parts)
    for piece in pieces:
        assert piece.size == sum(map(len, piece.parts)) > 0
        assert piece.size <= SLICE_BYTES or len(piece.parts) == 1
    assert len(pieces) <= 3 + 2 * sum(map(len, parts)) // SLICE_BYTES


def test_short_parts_are_joined_and_long_ones_are_the_callers_own() -> None:
    assert [len(piece.parts) for piece in cut(parts_of([100] * 50))] == [1]
    parts = parts_of([4096] * 500)
    pieces = cut(parts)
    assert all(one is other for one, other in zip((p for piece in pieces for p in piece.parts), parts, strict=True))
    assert [piece.size > SLICE_BYTES * 0.9 for piece in pieces[:-1]] == [True], "few writes"
    short = parts_of([100] * 50)
    assert [list(piece.parts) for piece in cut(short, join=False)] == [short], "for who is behind: no copy"


def test_what_is_taken_together_is_a_slice_at_most() -> None:
    """A transport holds what is written in one call until the last byte of it is sent."""
    outgoing = Outgoing()
    for size in (SLICE_BYTES // 2, SLICE_BYTES // 4, SLICE_BYTES // 4 + 1, SLICE_BYTES // 4, 3 * SLICE_BYTES, 1):
        outgoing.put(OutgoingPiece.of(bytes(size)))
    taken = list[int]()
    while outgoing:
        taken.append(outgoing.take().size)
    assert taken == [SLICE_BYTES * 3 // 4, SLICE_BYTES // 2 + 1, 3 * SLICE_BYTES, 1]


@given(st.lists(st.lists(st.integers(0, 3 * LONG_PART_BYTES), max_size=9), max_size=30), st.booleans())
def test_what_is_taken_is_what_was_put(sends: list[list[int]], join: bool) -> None:
    outgoing = Outgoing()
    put: list[Any] = []
    taken: list[Any] = []
    for sizes in sends:
        put += parts_of(sizes)
        for piece in cut(parts_of(sizes), join=join):
            outgoing.put(piece)
    assert outgoing.queued_bytes == sum(map(len, put)) and b"".join(outgoing.parts) == b"".join(put)
    while outgoing:
        piece = outgoing.take()
        assert piece.size == sum(map(len, piece.parts)) and len(piece.parts) <= GREATEST_WRITE
        taken += piece.parts
    assert b"".join(taken) == b"".join(put) and outgoing.written_bytes == outgoing.queued_bytes


def test_the_pieces_of_many_ledgers_leave_together_up_to_a_slice() -> None:
    outgoing = Outgoing()
    for _ in range(5000):
        outgoing.put(OutgoingPiece.of(bytes(500)))
    assert [len(outgoing.take().parts) for _ in range(3)] == [1, 1, 1]
    assert not outgoing and outgoing.written_bytes == 2_500_000


def test_waiters_hear_once_when_their_bytes_are_written_and_all_at_the_end() -> None:
    outgoing, heard = Outgoing(), []
    for _ in range(3):
        outgoing.put(OutgoingPiece.of(bytes(SLICE_BYTES)))
        outgoing.when_written(outgoing.queued_bytes, lambda: heard.append(outgoing.written_bytes))
    assert not outgoing.waiters()
    outgoing.take()
    for waiter in outgoing.waiters():
        waiter()
    assert heard == [SLICE_BYTES] and not outgoing.waiters()
    outgoing.clear()
    assert len(outgoing.waiters(ended=True)) == 2 and not outgoing.waiters(ended=True) and not outgoing.parts
