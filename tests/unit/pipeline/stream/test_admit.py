from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.stream_values import Position, StreamLedger
from tallystick.pipeline.stream.admit import admit, backlog
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.trigger import TriggerLimits


def extent(stream: str, *counts: int, open_entries: int = 0, entry_bytes: int = 10) -> StreamExtent:
    """Closed ledgers 10, 11, … with so many entries, and an open one behind them."""
    closed = [StreamLedger(10 + i, count, count * entry_bytes, 1) for i, count in enumerate(counts)]
    last = StreamLedger(10 + len(counts), has_counts=False)
    end = Position(last.ledger, open_entries)
    return StreamExtent(stream, (*closed, last), end, end_entry_bytes=entry_bytes)


def test_without_limits_all_is_read() -> None:
    a, b = extent("a", 5, 5, open_entries=2), extent("b")
    ends = admit({"a": Position(10, 3), "b": Position(10, 0)}, {"a": a, "b": b}, TriggerLimits())
    assert ends == {"a": Position(12, 2), "b": Position(10, 0)}


def test_a_read_ledger_is_left_for_the_next_one() -> None:
    a = extent("a", 5, open_entries=0)
    assert admit({"a": a.next(Position(10, 5))}, {"a": a}, TriggerLimits()) == {"a": Position(11, 0)}
    assert admit({"a": Position(10, 0)}, {"a": a}, TriggerLimits()) == {"a": Position(11, 0)}
    assert admit({"a": Position(10, 0)}, {"a": a}, TriggerLimits(5, 50)) == {"a": Position(11, 0)}


def test_both_limits_are_shared_by_what_is_to_be_read() -> None:
    a, b = extent("a", 60, open_entries=20), extent("b", 20)
    starts = {"a": Position(10, 0), "b": Position(10, 0)}
    assert admit(starts, {"a": a, "b": b}, TriggerLimits(items=10)) == {"a": Position(10, 8), "b": Position(10, 2)}
    assert admit(starts, {"a": a, "b": b}, TriggerLimits(bytes=500)) == {"a": Position(10, 40), "b": Position(10, 10)}
    assert admit(starts, {"a": a, "b": b}, TriggerLimits(20, 500)) == {"a": Position(10, 16), "b": Position(10, 4)}
    assert admit(starts, {"a": a, "b": b}, TriggerLimits(90, 5000)) == {"a": Position(11, 12), "b": Position(10, 18)}


def test_each_stream_goes_on_by_an_entry_at_least() -> None:
    extents = {"a": extent("a", 1000), "b": extent("b", 1, entry_bytes=1_000_000)}
    starts = {"a": Position(10, 0), "b": Position(10, 0)}
    ends = admit(starts, extents, TriggerLimits(items=1, bytes=1))
    assert ends == {"a": Position(10, 1), "b": Position(11, 0)}


def test_sizes_are_those_of_the_ledgers() -> None:
    closed = StreamLedger(10, 4, 400, 1)
    found = StreamExtent("a", (closed, StreamLedger(11, has_counts=False)), Position(11, 3), end_entry_bytes=7)
    assert [(piece.entries, piece.size) for piece in backlog(found, Position(10, 1))] == [(3, 300), (3, 21)]
    assert backlog(found, Position(11, 3)) == backlog(StreamExtent("a", (), Position(-1, -1)), Position(-1, -1)) == []


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=4), st.integers(0, 9)), min_size=1, max_size=4),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 400),
)
def test_batch_by_batch_every_entry_is_read_once(
    streams: list[tuple[list[int], int]], entries: int | None, size: int | None
) -> None:
    extents = {str(i): extent(str(i), *counts, open_entries=rest) for i, (counts, rest) in enumerate(streams)}
    positions = {stream: each.next(each.first) for stream, each in extents.items()}
    limits = TriggerLimits(entries, size)
    while any(backlog(extents[stream], at) for stream, at in positions.items()):
        ends = admit(positions, extents, limits)
        batch = 0
        for stream, each in extents.items():
            assert positions[stream] <= ends[stream] <= each.end
            before = sum(piece.entries for piece in backlog(each, positions[stream]))
            batch += before - sum(piece.entries for piece in backlog(each, ends[stream]))
            assert before == 0 or positions[stream] < ends[stream]
        assert entries is None or batch <= entries + len(streams)
        assert size is None or batch * 10 <= size + 10 * len(streams)
        positions = ends
    assert all(
        positions[stream] in (each.end, each.next(each.first)) and admit(positions, extents, limits) == positions
        for stream, each in extents.items()
    )
