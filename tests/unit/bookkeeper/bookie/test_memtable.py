"""The memtable against a dictionary, and its READ answers against the reference encoder."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, takewhile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.stores import KEY, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie import memtable, steps
from tallystick.bookkeeper.bookie.memtable import MemTable, MemTables, Rows, Run
from tallystick.bookkeeper.bookie.places import Mark
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.stored import responses_of_runs

LEDGER = 5


def run_of(entries: list[int], payloads: list[bytes] | None = None) -> Run:
    given: Sequence[bytes | None] = payloads or [None] * len(entries)
    frames = [frame(LEDGER, entry, payload) for entry, payload in zip(entries, given, strict=True)]
    data, run = scanned(frames)
    return Run(array("q", run.entries), array("Q", run.bounds), data)


def responses(run: Run, start: int, stop: int) -> bytes:
    return responses_of_runs([(run.entries[start:stop], run.bounds[start : stop + 1], run.data)])[2]


def answer(entry: int, payload: bytes | None = None) -> bytes:
    return v2.encode_response(v2.ReadFrame(LEDGER, entry), Code.OK, entry_bytes(LEDGER, entry, payload))


batches = st.lists(st.lists(st.tuples(st.integers(0, 25), st.binary(max_size=5)), min_size=1, max_size=12), max_size=12)


@given(batches)
def test_the_newest_version_is_found_and_written(batches: list[list[tuple[int, bytes]]]) -> None:
    table, twin = MemTable(), dict[int, bytes]()
    for batch in batches:
        entries, payloads = [entry for entry, _ in batch], [payload for _, payload in batch]
        assert table.add(LEDGER, run_of(entries, payloads)) == max(entries)
        twin |= dict(batch)
    for entry in range(26):
        hit = table.find(LEDGER, entry)
        assert (hit and hit[0].entry_bytes(hit[1])) == (
            entry_bytes(LEDGER, entry, twin[entry]) if entry in twin else None
        )
    rows = table.ledgers.get(LEDGER)
    runs = list(rows.sorted_runs()) if rows else []
    assert [entry for run in runs for entry in run.entries] == sorted(twin)
    assert b"".join(responses(run, 0, len(run.entries)) for run in runs) == b"".join(
        answer(entry, twin[entry]) for entry in sorted(twin)
    )


@given(st.integers(1, 40), st.integers(0, 300), st.booleans())
def test_answers_are_those_of_the_reference(count: int, size: int, same_size: bool) -> None:
    entries = [3 * place + (1 << 60) for place in range(count)]
    payloads = [bytes([place]) * (size if same_size else size + place % 3) for place in range(count)]
    run = run_of(entries, payloads)
    expected = [answer(entry, payload) for entry, payload in zip(entries, payloads, strict=True)]
    assert responses(run, 0, count) == b"".join(expected)
    assert responses(run, count // 2, count // 2 + 1) == expected[count // 2]


def rows_of(*runs: Run) -> Rows:
    table = MemTable()
    for run in runs:
        table.add(LEDGER, run)
    return table.ledgers[LEDGER]


def read(rows: Rows, entries: Sequence[int], max_bytes: int) -> tuple[bytes, int]:
    hit = rows.find(entries[0])
    assert hit is not None
    return rows.read(hit, entries, max_bytes)


def test_a_read_stops_at_gaps_and_at_the_size() -> None:
    rows = rows_of(run_of([4, 5, 6, 9, 10], [b"x" * 10] * 5))
    size = len(answer(4, b"x" * 10))
    assert read(rows, range(4, 14), 1 << 20)[1] == 3
    assert read(rows, range(9, 19), 1 << 20)[1] == 2
    assert read(rows, range(4, 6), 1 << 20)[1] == 2
    assert read(rows, range(4, 14), 2 * size + 1)[1] == 2
    assert read(rows, range(4, 14), 1)[1] == 1, "one entry always goes"


@example({*range(17), 150}, {*range(15), 150}, {7}, False, 9000)
@given(
    st.sets(st.integers(0, 200), min_size=1),
    st.sets(st.integers(0, 200)),
    st.sets(st.integers(1, 200), max_size=memtable._MOST_RUNS - 1),
    st.booleans(),
    st.integers(1, 9000),
)
def test_a_read_gives_what_is_here_of_ascending_entries(
    stored: set[int], others: set[int], cuts: set[int], same_size: bool, max_bytes: int
) -> None:
    payloads = {entry: b"x" * (40 if same_size else entry % 50) for entry in stored}
    ids = sorted(stored)
    groups = [[entry for entry in ids if low <= entry < high] for low, high in pairwise((0, *sorted(cuts), 201))]
    rows = rows_of(*(run_of(group, [payloads[entry] for entry in group]) for group in groups if group))
    asked = sorted({ids[0]} | {entry for entry in others if entry >= ids[0]})
    for entries in (array("q", asked), array("q", ids), range(ids[0], ids[0] + len(asked))):
        frames, count = read(rows, entries, max_bytes)
        expected = [answer(entry, payloads[entry]) for entry in takewhile(stored.__contains__, entries)]
        assert frames == b"".join(expected[:count]), entries
        assert count == max(1, sum(size <= max_bytes for size in accumulate(map(len, expected)))), entries


def test_one_read_takes_a_bounded_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memtable, "_MOST_RUNS", 3)
    rows = rows_of(*(run_of([entry, entry + 1]) for entry in range(0, 10, 2)))
    assert read(rows, range(10), 1 << 20) == (b"".join(map(answer, range(6))), 6)
    assert read(rows, range(6, 10), 1 << 20) == (b"".join(map(answer, range(6, 10))), 4)


def test_where_an_entry_came_late_each_is_read_alone() -> None:
    rows = rows_of(run_of([4, 5, 6], [b"old"] * 3), run_of([5], [b"new"]))
    assert [read(rows, range(entry, 7), 1 << 20) for entry in (4, 5)] == [
        (answer(4, b"old"), 1),
        (answer(5, b"new"), 1),
    ]


def test_a_late_entry_above_the_runs_does_not_hide_a_newer_run() -> None:
    table = MemTable()
    table.add(LEDGER, run_of([5, 3, 10], [b"old"] * 3))
    table.add(LEDGER, run_of([6, 7, 8, 9, 10], [b"new"] * 5))
    hit = table.find(LEDGER, 10)
    assert hit and hit[0].entry_bytes(hit[1]) == entry_bytes(LEDGER, 10, b"new")


def test_freezing_again_keeps_the_table_that_could_not_be_written() -> None:
    tables = MemTables()
    tables.active.add(LEDGER, run_of([0]))
    frozen = tables.freeze(Mark(7, (7,)))
    tables.active.add(LEDGER, run_of([1]))
    assert tables.freeze(Mark(9, (9,))) is frozen and tables.mark.number == 7
    assert [table.entries for table in tables.newest_first()] == [1, 1]
    tables.drop_frozen()
    assert tables.freeze(Mark(9, (9,))) is not frozen and tables.mark.number == 9


def test_keys_are_no_part_of_what_is_read() -> None:
    assert KEY not in responses(run_of([0]), 0, 1)


def test_late_entries_count_as_what_they_take() -> None:
    """A peer that adds downwards makes an object of each entry: 83 MB of frames took 370 MB before a checkpoint."""
    entries = [*range(2000)]
    ascending, late = MemTable(), MemTable()
    ascending.add(LEDGER, run_of(entries))
    late.add(LEDGER, run_of(entries[::-1]))
    assert late.bytes - ascending.bytes >= 200 * len(entries)


def test_late_entries_are_written_in_order_without_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """To sort a million of them at once held the interpreter for 0.4 s, and the loop with it."""
    monkeypatch.setattr(steps, "SORTED_AT_ONCE", 10)
    longest = 0

    def counted(ids: Iterable[int]) -> list[int]:
        nonlocal longest
        longest = max(longest, len(together := list(ids)))
        together.sort()
        return together

    monkeypatch.setattr(steps, "sorted", counted, raising=False)
    monkeypatch.setattr(memtable, "sorted", counted, raising=False)
    table = MemTable()
    for order in ([50, 51, 200], [*range(199, 51, -1)], [7, 3, 60]):
        table.add(LEDGER, run_of(order))
    written = [entry for run in table.ledgers[LEDGER].sorted_runs() for entry in run.entries]
    assert written == [3, 7, 50, 51, *range(52, 200), 200]
    assert longest == 10


def test_entries_are_freed_over_many_turns() -> None:
    """A million late ones were freed in one step of the loop of 0.1 s."""
    table = MemTable()
    for ledger in range(1, 4):
        for entries in ([5], [6], [3], [2], [1]):
            table.add(ledger, run_of(entries))
    all_rows, left_counts = list(table.ledgers.values()), list[int]()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(memtable, "FREED_AT_ONCE", 4)
        for _ in table.clear():
            left_counts.append(sum(len(rows.late) + len(rows.runs) for rows in all_rows))
    assert (left_counts, table.ledgers) == ([11, 7, 3], {})
    assert not any(rows.late or rows.runs for rows in all_rows)
