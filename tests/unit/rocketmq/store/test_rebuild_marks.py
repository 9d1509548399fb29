"""Reads with the mark of a message whose queue was lost and is being built again."""

from __future__ import annotations

import pytest

from support.message_stores import ROOT, Shelf
from tallystick.rocketmq.store.values import GetStatus

COUNT = 100
LOST = f"{ROOT}/consumequeue/Topic/0/{640:020}"  # the units of the queue offsets 32 to 47


@pytest.mark.parametrize("steps", range(4))
def test_a_mark_in_what_is_lost_is_compared_with_nothing(steps: int) -> None:
    """A reader that goes on behind it waits, or reads: it read no other log."""
    shelf = Shelf()
    for number in range(COUNT):
        shelf.send(b"%03d" % number)
    shelf.settle()
    marks = [shelf.store.mark_before("Topic", 0, offset) for offset in range(COUNT)]
    shelf.disk.kill()
    shelf.disk.unlink(LOST)
    shelf.open()
    for _ in range(steps):
        shelf.store.rebuild(200)
    assert shelf.store.rebuilding
    statuses = [shelf.store.get("Topic", 0, at, 4, 1 << 20, mark=marks[at]).status for at in range(1, COUNT)]
    assert set(statuses) == {GetStatus.FOUND, GetStatus.BEING_REBUILT}
