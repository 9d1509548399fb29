from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.pipeline.topic.admit import admit
from tallystick.pipeline.topic.plan import QueueExtent, QueueRange
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.wire.values import MessageQueue


def backlog(number: int, first: int, end: int, message_bytes: int = 10) -> QueueExtent:
    return QueueExtent(QueueRange(MessageQueue("T", "b", number), first, end), message_bytes)


def ends(backlogs: list[QueueExtent], limits: TriggerLimits) -> list[int]:
    return [offset for _, offset in sorted(admit(backlogs, limits).items())]


def test_both_limits_are_shared_by_what_is_to_be_read() -> None:
    backlogs = [backlog(0, 0, 80), backlog(1, 100, 120)]
    assert ends(backlogs, TriggerLimits()) == [80, 120]
    assert ends(backlogs, TriggerLimits(items=10)) == [8, 102]
    assert ends(backlogs, TriggerLimits(bytes=500)) == [40, 110]
    assert ends(backlogs, TriggerLimits(20, 500)) == [16, 104]
    assert ends(backlogs, TriggerLimits(90, 200)) == [16, 104]
    assert ends(backlogs, TriggerLimits(100, 1000)) == [80, 120]


def test_each_queue_goes_on_by_a_message_at_least() -> None:
    backlogs = [backlog(0, 0, 1000), backlog(1, 5, 6, message_bytes=1_000_000)]
    assert ends(backlogs, TriggerLimits(1, 1)) == [1, 6]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_no_batch_is_more_than_its_limits_and_a_message_a_queue(
    queues: list[tuple[int, int]], items: int | None, size: int | None
) -> None:
    backlogs = [backlog(number, 7, 7 + count, bytes_) for number, (count, bytes_) in enumerate(queues)]
    counts = [end - 7 for end in ends(backlogs, TriggerLimits(items, size))]
    assert all(1 <= count <= most for count, (most, _) in zip(counts, queues, strict=True))
    assert items is None or sum(counts) <= items + len(queues)
    total = sum(count * each for count, (_, each) in zip(counts, queues, strict=True))
    assert size is None or total <= size + sum(each for _, each in queues)
