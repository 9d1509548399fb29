from __future__ import annotations

import pytest

from tallystick.pipeline.trigger import TriggerDelay, TriggerLimits, share


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
