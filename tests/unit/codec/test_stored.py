"""Stored frames against the encoder of one response."""

from __future__ import annotations

from array import array
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.stored import responses_of_adds, responses_of_runs

LEDGER, KEY = 5, b"k" * 20
SIZES = st.integers(1, 40).flatmap(
    lambda count: (
        st.lists(st.integers(0, 99), min_size=count, max_size=count)
        | st.integers(0, 99).map(lambda size: [size] * count)
    )
)


def body(entry: int, size: int) -> bytes:
    return LEDGER.to_bytes(8, "big") + entry.to_bytes(8, "big") + bytes(16 + size)


def run_of(first: int, sizes: list[int], before: bytes) -> tuple[array[int], array[int], bytes]:
    frames = [v2.AddFrame(LEDGER, entry, KEY, body(entry, size)).encode() for entry, size in enumerate(sizes, first)]
    bounds = array("Q", accumulate(map(len, frames), initial=len(before)))
    return array("q", range(first, first + len(sizes))), bounds, b"".join((before, *frames))


def responses(first: int, sizes: list[int]) -> list[bytes]:
    return [
        v2.encode_response(v2.ReadFrame(LEDGER, entry), Code.OK, body(entry, size))
        for entry, size in enumerate(sizes, first)
    ]


@given(st.integers(0, 1 << 60), SIZES, st.binary(max_size=5), st.data())
def test_responses_are_those_to_reads(first: int, sizes: list[int], before: bytes, data: st.DataObject) -> None:
    _, bounds, frames = run_of(first, sizes, before)
    start = data.draw(st.integers(0, len(sizes) - 1))
    stop = data.draw(st.integers(start + 1, len(sizes)))
    expected = b"".join(responses(first, sizes)[start:stop])
    assert responses_of_adds(frames + b"end", bounds, start, stop) == expected
    assert b"k" * 20 not in expected


@given(st.lists(st.tuples(st.integers(0, 1 << 60), SIZES, st.binary(max_size=5)), min_size=1, max_size=5))
def test_runs_become_one(runs: list[tuple[int, list[int], bytes]]) -> None:
    entries, starts, frames = responses_of_runs([run_of(*run) for run in runs])
    expected = [response for first, sizes, _ in runs for response in responses(first, sizes)]
    assert entries.tolist() == [first + at for first, sizes, _ in runs for at in range(len(sizes))]
    assert frames == b"".join(expected)
    assert starts.tolist() == list(accumulate(map(len, expected), initial=0))[:-1]
    assert (entries.typecode, starts.typecode) == ("q", "Q")
