from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.pipeline.trigger import Backlog, TriggerDelay, TriggerLimits, admit, share


def test_a_batch_waits_for_enough_or_long_enough() -> None:
    limits, delay = TriggerLimits(min_items=5, max_delay_s=10.0), TriggerDelay()
    assert delay.waits(limits, 4, 100.0) and not delay.waits(limits, 5, 100.0)
    assert delay.waits(limits, 4, 109.9) and not delay.waits(limits, 4, 110.0)
    delay.batch_began(110.0)
    assert delay.waits(limits, 0, 119.9) and not delay.waits(limits, 0, 120.0)
    assert not TriggerDelay().waits(TriggerLimits(), 0, 0.0)


@pytest.mark.parametrize(
    ("limit", "part", "whole", "expected"),
    [(None, 5, 10, None), (10, 5, 10, None), (10, 15, 30, 5), (10, 1, 1000, 1), (1, 0, 2, 1)],
)
def test_a_share_is_as_large_as_the_part(limit: int | None, part: int, whole: int, expected: int | None) -> None:
    assert share(limit, part, whole) == expected


def test_both_limits_are_shared_by_what_is_to_be_read() -> None:
    backlogs = [Backlog(0, 80, 10), Backlog(100, 120, 10)]
    assert admit(backlogs, TriggerLimits()) == [80, 120]
    assert admit(backlogs, TriggerLimits(items=10)) == [8, 102]
    assert admit(backlogs, TriggerLimits(bytes=500)) == [40, 110]
    assert admit(backlogs, TriggerLimits(20, 500)) == [16, 104]
    assert admit(backlogs, TriggerLimits(90, 200)) == [16, 104]
    assert admit(backlogs, TriggerLimits(100, 1000)) == [80, 120]


def test_each_backlog_goes_on_by_an_item_at_least() -> None:
    assert admit([Backlog(0, 1000, 10), Backlog(5, 6, 1_000_000)], TriggerLimits(1, 1)) == [1, 6]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_no_batch_is_more_than_its_limits_and_an_item_a_backlog(
    backlogs: list[tuple[int, int]], items: int | None, size: int | None
) -> None:
    ends = admit([Backlog(7, 7 + count, item_bytes) for count, item_bytes in backlogs], TriggerLimits(items, size))
    counts = [end - 7 for end in ends]
    assert all(1 <= count <= most for count, (most, _) in zip(counts, backlogs, strict=True))
    assert items is None or sum(counts) <= items + len(backlogs)
    total = sum(count * each for count, (_, each) in zip(counts, backlogs, strict=True))
    assert size is None or total <= size + sum(each for _, each in backlogs)
