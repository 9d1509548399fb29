"""``tally-queues``: what the batches of a file say together."""

from __future__ import annotations

from tallystick.rocketmq.store.queue_state import Hole, QueueRow, QueueState


def state() -> QueueState:
    state, rows = QueueState(), [QueueRow("Topic", number, 0, 50, 50, 0, 1000) for number in range(2)]
    state.take(state.change(queues=rows, holes=[Hole("Topic", number, 10, 50) for number in range(2)]))
    return state


def test_a_queue_that_goes_takes_its_hole_along() -> None:
    found = state()
    found.take(found.change(gone=[("Topic", 0)]))
    assert found.holes == found.whole().holes == found.change().holes == [Hole("Topic", 1, 10, 50)]


def test_a_hole_is_of_a_row_that_reaches_it() -> None:
    found = state()
    found.take(found.change(gone=[("Topic", 0)], queues=[QueueRow("Topic", 0, 0, 5, 5, 0, 2000)]))
    assert found.holes == [Hole("Topic", 1, 10, 50)]
    found.take(found.change(holes=[Hole("Unknown", 0, 0, 1)]))
    assert found.holes == []
