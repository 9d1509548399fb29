"""What a task of a sink and its driver decide, without Spark and without brokers."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from tallystick.errors import CheckpointLost, NonDeterministicReplay, UsageError
from tallystick.pipeline.topic import sink
from tallystick.pipeline.topic.sink import PartSent, TopicFollowingWriter
from tallystick.rocketmq.client.sinking import SinkPlace, SinkStart
from tallystick.rocketmq.wire.values import MessageQueue

BATCH = 3


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A writer whose task is the second of two in batch 3."""
    writer: Any = object.__new__(TopicFollowingWriter)
    writer.options = Mock(topic="T", application=None, partitions=None, is_sorted=False)
    writer.brokers, writer.queues, writer.is_once, writer.columns = None, (MessageQueue("T", "b", 0),), True, ()
    writer.sets = ()
    monkeypatch.setattr(sink, "this_task", lambda: Mock(partitionId=lambda: 1))
    monkeypatch.setattr(sink, "tasks_of_stage", lambda: 2)
    monkeypatch.setattr(sink, "query_id", lambda: "q")
    monkeypatch.setattr(sink, "batch_id", lambda: BATCH)
    return writer


def begins(monkeypatch: pytest.MonkeyPatch, newest: int) -> Mock:
    """Have brokers say so of the newest batch. Returns what makes parts."""
    start, part = SinkStart(MessageQueue("T", "b", 0), -1, ("b",), newest), Mock()
    part.return_value.send_all = lambda rows: len(list(rows))
    monkeypatch.setattr(sink, "worker", lambda brokers: Mock(ask=lambda question: start))
    monkeypatch.setattr(sink, "OncePart", part)
    return part


def test_a_task_sends_for_its_place(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begins(monkeypatch, BATCH - 1)
    sent = writer.write(iter([]))
    assert sent.place == SinkPlace("T", "q", "q", BATCH, 2, 1) and part.call_args[0][1] == sent.place


def test_nothing_is_sent_of_a_batch_behind_which_another_one_is_recorded(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is an older copy: this batch, and those behind it, may have other rows than were sent."""
    part = begins(monkeypatch, BATCH + 1)
    with pytest.raises(CheckpointLost, match="an older copy"):
        writer.write(iter([]))
    assert not part.called


def test_a_batch_is_not_done_before_each_task_has_said_what_it_sent(writer: Any) -> None:
    parts = [PartSent(SinkPlace("T", "q", "q", BATCH, 2, number), -1, 1) for number in range(2)]
    writer.commit(parts, BATCH)
    with pytest.raises(UsageError, match="a task said nothing of what it sent"):
        writer.commit([parts[0], None], BATCH)
    for others in (parts[:1], [*parts, parts[0]]):
        with pytest.raises(NonDeterministicReplay, match="tasks were told 2"):
            writer.commit(others, BATCH)
