"""How long entries took, against a twin that keeps a time for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.add_times import AddTimesCore


@given(st.integers(-1, 5), st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6), st.integers(0, 3))))
def test_each_entry_is_told_once_with_the_time_of_its_run(lac: int, steps: list[tuple[int, int, int]]) -> None:
    core, now, last = AddTimesCore(lac), 0.0, lac
    sent_at: dict[int, float] = {}  # of the entries that are not told yet
    end_of: dict[int, int] = {}
    for count, confirmed, passed in steps:
        sent_at.update(dict.fromkeys(range(last + 1, last + count + 1), now))
        end_of.update(dict.fromkeys(range(last + 1, last + count + 1), last + count))
        last += count
        core.sent(last, now)
        now += passed
        lac = min(lac + confirmed, last)
        told = [entry for entry in sent_at if end_of[entry] <= lac]
        expected = [now - sent_at.pop(entry) for entry in told]
        assert [seconds for count, seconds in core.confirmed(lac, now) for _ in range(count)] == expected
        assert core.oldest_at == min(sent_at.values(), default=None)
