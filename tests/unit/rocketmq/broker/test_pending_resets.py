"""Where operators set groups, until their consumers have heard of it."""

from __future__ import annotations

import pytest

from tallystick.rocketmq.broker import pending_resets
from tallystick.rocketmq.broker.pending_resets import PendingResets

PLACE, OTHER = ("T", "g", 0), ("U", "h", 0)


def test_a_consumer_is_told_until_it_goes_on_from_there() -> None:
    resets = PendingResets()
    resets.put(PLACE, 10)
    assert [resets.hear(PLACE, offset) for offset in (100, 101, 10, 11)] == [10, 10, None, None]
    assert resets.hear(OTHER, 5) is None


@pytest.mark.parametrize("forget", ["topic", "group"])
def test_what_is_deleted_takes_its_resets_along(forget: str) -> None:
    """Else what comes under its name is passed over."""
    resets = PendingResets()
    resets.put(PLACE, 100)
    resets.put(OTHER, 7)
    resets.forget_topic("T") if forget == "topic" else resets.forget_group("g")
    assert (resets.hear(PLACE, 0), resets.hear(OTHER, 0)) == (None, 7)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_resets, "MOST", 3)
    resets = PendingResets()
    for queue in (0, 1, 2, 0, 3):
        resets.put(("T", "g", queue), 9)
    assert [resets.hear(("T", "g", queue), 0) for queue in range(4)] == [9, None, 9, 9]
