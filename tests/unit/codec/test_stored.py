"""Stored frames against the encoder of one response."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.stored import picked_responses, responses_of_runs

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
    entries, bounds, frames = run_of(first, sizes, before)
    start = data.draw(st.integers(0, len(sizes) - 1))
    stop = data.draw(st.integers(start + 1, len(sizes)))
    expected = b"".join(responses(first, sizes)[start:stop])
    run = entries[start:stop], bounds[start : stop + 1], frames + b"end"
    assert responses_of_runs([run])[2] == expected
    assert b"k" * 20 not in expected


@given(st.lists(st.tuples(st.integers(0, 1 << 60), SIZES, st.binary(max_size=5)), min_size=1, max_size=5))
def test_runs_become_one(runs: list[tuple[int, list[int], bytes]]) -> None:
    entries, starts, frames = responses_of_runs([run_of(*run) for run in runs])
    expected = [response for first, sizes, _ in runs for response in responses(first, sizes)]
    assert entries.tolist() == [first + at for first, sizes, _ in runs for at in range(len(sizes))]
    assert frames == b"".join(expected)
    assert starts.tolist() == list(accumulate(map(len, expected), initial=0))[:-1]
    assert (entries.typecode, starts.typecode) == ("q", "Q")


def pieces_of(
    sizes: list[int], cuts: set[int], picks: list[int], base: int
) -> tuple[list[tuple[bytes, int, int]], list[int]]:
    """The responses 0, 1, … in pieces that end at the cuts, and where those lie that are picked."""
    all_responses, pieces = responses(0, sizes), list[tuple[bytes, int, int]]()
    offsets = [base + offset for offset in accumulate(map(len, all_responses), initial=0)]
    for low, high in pairwise((0, *sorted(cut for cut in cuts if cut < len(sizes)), len(sizes))):
        if count := sum(low <= pick < high for pick in picks):
            pieces.append((b"".join(all_responses[low:high]), offsets[low], count))
    return pieces, [offsets[pick] for pick in picks]


@given(SIZES, st.sets(st.integers(1, 39)), st.sets(st.integers(0, 39), min_size=1), st.integers(-1, 9000))
def test_responses_are_picked_while_they_fit(
    sizes: list[int], cuts: set[int], wanted: set[int], max_bytes: int
) -> None:
    picks = sorted(pick for pick in wanted if pick < len(sizes)) or [0]
    pieces, locations = pieces_of(sizes, cuts, picks, 1 << 41)
    each = [responses(0, sizes)[pick] for pick in picks]
    count = max(1, sum(end <= max_bytes for end in accumulate(map(len, each))))
    picked = picked_responses(pieces, array("Q", locations), LEDGER, array("q", picks), max_bytes)
    assert picked == (b"".join(each[:count]), count)


@pytest.mark.parametrize("size", [10, 11])
def test_no_response_is_picked_from_one_on_that_is_another_than_it_should_be(size: int) -> None:
    """As where locations and what lies there differ: no reader gets the one entry for the other (Q15)."""
    sizes, picks = [10, 10, 10, size], [0, 1, 2, 3]
    pieces, locations = pieces_of(sizes, {2}, picks, 1 << 41)

    def picked(ledger: int, entries: list[int], places: list[int]) -> int:
        return picked_responses(pieces, array("Q", places), ledger, array("q", entries), 1 << 20)[1]

    assert picked(LEDGER, picks, locations) == 4
    assert picked(LEDGER + 1, picks, locations) == 0
    assert picked(LEDGER, [0, 1, 2, 4], locations) == 3
    assert picked(LEDGER, [0, 2, 3, 4], locations) == 1
    assert picked(LEDGER, picks, [locations[0], locations[1] + 1, *locations[2:]]) == 1
    assert picked(LEDGER, picks, [*locations[:2], locations[2] - 1, locations[3]]) == 2, "it lies before its piece"
    assert picked(LEDGER, picks, [*locations[:3], locations[3] + 5000]) == 3, "it lies behind it"
    cut_short = [*pieces[:-1], (pieces[-1][0][:-1], *pieces[-1][1:])]
    assert picked_responses(cut_short, array("Q", locations), LEDGER, array("q", picks), 1 << 20)[1] == 3
