from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.acked_entries import CHUNK_BITS, AckedEntries

ENTRIES = st.one_of(
    st.integers(0, 70),
    st.integers(CHUNK_BITS - 3, CHUNK_BITS + 3),
    st.integers(2 * CHUNK_BITS - 2, 2 * CHUNK_BITS + 2),
    st.integers(0, 6 * CHUNK_BITS),
)
STEPS = st.lists(st.tuples(st.sampled_from(["one", "run", "discard"]), ENTRIES, st.integers(0, 2 * CHUNK_BITS)))


def runs_of(entries: set[int]) -> list[tuple[int, int]]:
    starts = sorted(each for each in entries if each - 1 not in entries)
    ends = sorted(each for each in entries if each + 1 not in entries)
    return list(zip(starts, ends, strict=True))


def as_set(acked: AckedEntries) -> set[int]:
    return {entry for first, last in acked.ranges() for entry in range(first, last + 1)}


@given(STEPS, ENTRIES)
def test_it_is_a_set(steps: list[tuple[str, int, int]], asked: int) -> None:
    acked, expected, forgotten = AckedEntries(), set[int](), 0
    for step, entry, length in steps:
        if step == "discard":
            forgotten = max(forgotten, entry)
            acked.discard_before(entry)
            expected = {each for each in expected if each >= entry}
            continue
        first = max(forgotten, entry)
        last = first if step == "one" else first + length
        acked.add(first, last)
        expected.update(range(first, last + 1))
    runs = runs_of(expected)
    assert list(acked.ranges()) == runs
    assert (acked.count, acked.runs) == (len(expected), len(runs))
    assert (asked in acked) == (asked in expected)
    assert acked.end() == max(expected, default=-1) + 1
    assert acked.run_end(asked) == next(each for each in range(asked, 20_000) if each not in expected)
    bits = int.from_bytes(acked.bitmap(asked), "little")
    assert {each for each in range(asked + 8) if bits >> each & 1} == {each for each in expected if each < asked}
    for number in range(1, len(runs) + 2):
        assert acked.end_of_run(number) == (runs[min(number, len(runs)) - 1][1] + 1 if runs else 0)


def test_a_jump_over_all_that_there_is_costs_what_there_is() -> None:
    acked = AckedEntries()
    acked.add(5, 7)
    acked.discard_before(1 << 62)
    assert as_set(acked) == set() and acked.runs == 0
