"""How rows of frames are cut, and how many are tried at once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.v3_rows import cut_rows, even_bodies, tries


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 140))
def test_rows_are_cut_into_parts(sizes: list[int], skip: int, count: int) -> None:
    row = skip + sum(sizes)
    rows = bytes(at * 7 % 256 for at in range(row * count))
    parts = cut_rows(memoryview(rows), tuple(sizes), skip)
    assert list(map(len, parts)) == [count] * len(sizes)
    for number in range(count):
        assert b"".join(part[number] for part in parts) == rows[number * row + skip : (number + 1) * row]


@given(st.integers(0, 20), st.integers(8, 100), st.data())
def test_bodies_of_one_size_are_cut_out_of_frames(size: int, count: int, data: st.DataObject) -> None:
    bodies = [bytes([at % 256]) * size for at in range(count)]
    frames = [v2.encode_response(v2.ReadFrame(1, at), Code.OK, body) for at, body in enumerate(bodies)]
    assert even_bodies(b"".join(frames), count) == bodies
    place = data.draw(st.integers(0, count - 1))
    frames[place] = v2.encode_response(v2.ReadFrame(1, 0), Code.OK, b"longer" * 4)
    assert even_bodies(b"".join(frames), count) == []
    shifted = [*frames[:place], frames[place][:-4], *frames[place + 1 :]]
    assert even_bodies(b"".join(shifted), count) == []
    assert even_bodies(b"".join(frames[:7]), 7) == []


@given(st.integers(12, 5000), st.integers(0, 20_000), st.integers(0, 11))
def test_tries_grow_up_to_the_last_whole_row(row: int, count: int, rest: int) -> None:
    buffer = bytes(row * min(count, 2_000_000 // row) + rest)
    stops = list(tries(buffer, row, 0, len(buffer)))
    taken = [stop - before for before, stop in zip([0, *stops], stops, strict=False)]
    assert all(size % row == 0 and size >= 8 * row for size in taken)
    assert len(buffer) - sum(taken) < 8 * row
    assert not taken or taken[0] <= max(8 * row, min(64 * row, 128 * 1024))
    assert all(size <= min(4 * before, 4096 * row) for before, size in itertools.pairwise(taken))


def test_rows_that_begin_otherwise_are_not_tried() -> None:
    buffer = bytearray(40 * 20)
    buffer[19 * 40 + 10] = 1
    assert list(tries(buffer, 40, 0, len(buffer))) == []
    buffer[19 * 40 + 10], buffer[19 * 40 + 11] = 0, 1
    assert list(tries(buffer, 40, 0, len(buffer))) == [800]
