"""What a task of a sink and its driver decide, without Spark and without brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from tallystick.errors import BrokerError, CheckpointLost, NonDeterministicReplay, UsageError
from tallystick.pipeline.topic import sink, sink_part
from tallystick.pipeline.topic.sink import BatchEnd, PartSent, TopicFollowingWriter
from tallystick.pipeline.topic.sink_part import OncePart
from tallystick.pipeline.topic.sink_rows import SinkRow, encode_row
from tallystick.pipeline.topic.sink_sets import SETS
from tallystick.rocketmq.client.sinking import SinkPlace, SinkStart
from tallystick.rocketmq.wire.values import MessageQueue

BATCH = 3


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A writer whose task is the second of two in batch 3."""
    writer: Any = object.__new__(TopicFollowingWriter)
    writer.options = Mock(topic="T", application=None, partitions=None, is_sorted=False)
    writer.brokers, writer.queues, writer.is_once, writer.columns = None, (MessageQueue("T", "b", 0),), True, ()
    writer.sets, writer.end = (), None
    monkeypatch.setattr(sink, "this_task", lambda: Mock(partitionId=lambda: 1))
    monkeypatch.setattr(sink, "tasks_of_stage", lambda: 2)
    monkeypatch.setattr(sink, "is_told", lambda: True)
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


def test_messages_are_told_apart_by_where_their_batch_ends(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part = begins(monkeypatch, BATCH - 1)
    for end, offsets in ((None, 0), (BatchEnd(BATCH, 77), 77), (BatchEnd(BATCH + 1, 77), 0)):
        writer.end = end
        writer.write(iter([]))
        assert part.call_args[0][3] == offsets


def test_nothing_is_sent_of_a_batch_behind_which_another_one_is_recorded(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is an older copy: this batch, and those behind it, may have other rows than were sent."""
    part = begins(monkeypatch, BATCH + 1)
    with pytest.raises(CheckpointLost, match="an older copy"):
        writer.write(iter([]))
    assert not part.called


@pytest.mark.parametrize("is_once", [True, False])
def test_only_who_sends_once_notes_the_broker_sets_in_its_checkpoint(
    writer: Any, tmp_path: Path, is_once: bool
) -> None:
    """A checkpoint that takes no note ends the query, and who may send a row twice can do without."""
    writer.options.checkpoint, writer.is_once = str(tmp_path), is_once
    assert writer._sets() == (("b",) if is_once else ())
    assert (tmp_path / SETS).exists() == is_once


def test_a_batch_is_not_done_before_each_task_has_said_what_it_sent(writer: Any) -> None:
    parts = [PartSent(SinkPlace("T", "q", "q", BATCH, 2, number), -1, 1) for number in range(2)]
    writer.commit(parts, BATCH)
    with pytest.raises(UsageError, match="a task said nothing of what it sent"):
        writer.commit([parts[0], None], BATCH)
    for others in (parts[:1], [*parts, parts[0]]):
        with pytest.raises(NonDeterministicReplay, match="tasks were told 2"):
            writer.commit(others, BATCH)


def test_an_option_that_counts_otherwise_is_said_to_be_wrong_before_anything_is_sent(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = begins(monkeypatch, BATCH - 1)
    for count, words in ((1, "fewer than there are"), (3, "more than there are")):
        writer.options.partitions = count
        with pytest.raises(UsageError, match=words):
            writer.write(iter([]))
    assert not part.called
    writer.options.partitions = 2
    writer.write(iter([]))
    monkeypatch.setattr(sink, "is_told", lambda: False)
    writer.options.partitions = 3
    sent = writer.write(iter([]))
    with pytest.raises(UsageError, match=r"option partitions says 3, and the frame has 1"):
        writer.commit([sent], BATCH)


@pytest.mark.parametrize("is_once", [True, False])
def test_a_row_that_is_refused_is_looked_for_in_its_partition(
    writer: Any, monkeypatch: pytest.MonkeyPatch, is_once: bool
) -> None:
    made = Mock(count=5)
    made.send_all.side_effect = BrokerError("the message is too long", response_code=13, broker="b")
    begins(monkeypatch, BATCH - 1).return_value = made
    monkeypatch.setattr(sink, "RepeatablePart", lambda *arguments: made)
    writer.is_once = is_once
    with pytest.raises(BrokerError, match=r"too long \(.*partition=1 rows_taken=5.*broker=b") as refused:
        writer.write(iter([]))
    assert refused.value.response_code == 13


def test_what_a_task_that_dies_has_under_way_is_sent_no_more() -> None:
    """Its process and its client live on, and the next attempt begins by what the broker has."""

    def rows() -> Iterator[bytes]:
        yield encode_row(SinkRow(bytes(sink_part.BATCH_BYTES), None, None, [], 0))
        raise RuntimeError("the task dies")

    under_way, start = Mock(), SinkStart(MessageQueue("T", "b", 0), -1, ("b",), -1)
    part = OncePart(cast("Any", Mock(begin=lambda call: under_way)), SinkPlace("T", "a", "q", BATCH, 1, 0), start)
    with pytest.raises(RuntimeError, match="the task dies"):
        part.send_all(rows())
    under_way.cancel.assert_called_once_with()


def test_what_a_broker_has_is_not_sent_again_but_for_the_last_of_it() -> None:
    """By that one the broker sees whether they are the same."""
    sender, place = AsyncMock(), SinkPlace("T", "a", "q", BATCH, 1, 0)
    worker: Any = Mock(begin=lambda call: Mock(result=lambda: asyncio.run(call(sender))))
    part = OncePart(worker, place, SinkStart(MessageQueue("T", "b", 0), 4, ("b",), BATCH))
    assert part.send_all(encode_row(SinkRow(b"%d" % number, None, None, [], 0)) for number in range(7)) == 2
    [sent] = sender.send_once.await_args_list
    assert [body for _, body, _ in sent.args[2]] == [b"4", b"5", b"6"]


@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_that_has_fewer_rows_than_before_is_refused_also_if_only_the_last_one_is_missing(count: int) -> None:
    start = SinkStart(MessageQueue("T", "b", 0), 4, ("b",), BATCH)
    part = OncePart(cast("Any", Mock()), SinkPlace("T", "a", "q", BATCH, 1, 0), start)
    with pytest.raises(NonDeterministicReplay, match="has fewer rows than were sent before"):
        part.send_all(encode_row(SinkRow(b"%d" % number, None, None, [], 0)) for number in range(count))


@pytest.mark.parametrize("place", ["nosuch://host/checkpoint", "hdfs:///a/checkpoint"])
def test_a_checkpoint_that_only_the_jvm_can_write_ends_no_query(writer: Any, place: str) -> None:
    writer.options.checkpoint = place
    assert writer._sets() == ()


@pytest.mark.parametrize("partition", range(4))
def test_tasks_that_may_send_twice_begin_at_queues_of_their_own(
    writer: Any, monkeypatch: pytest.MonkeyPatch, partition: int
) -> None:
    """And each goes on with all others, where a broker is away."""
    writer.is_once, writer.queues = False, tuple(MessageQueue("T", "b", number) for number in range(3))
    part = Mock()
    part.return_value.send_all.return_value = 0
    monkeypatch.setattr(sink, "this_task", lambda: Mock(partitionId=lambda: partition))
    monkeypatch.setattr(sink, "worker", lambda brokers: Mock())
    monkeypatch.setattr(sink, "RepeatablePart", part)
    writer.write(iter([]))
    queues = part.call_args[0][2]
    assert queues[0] == writer.queues[partition % 3] and set(queues) == set(writer.queues)
