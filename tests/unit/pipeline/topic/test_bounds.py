from __future__ import annotations

import pytest

from tallystick.errors import NoSuchMessage, UsageError
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound, QueueLimits
from tallystick.rocketmq.wire.values import MessageQueue

QUEUE = MessageQueue("T", "b", 1)
LIMITS = QueueLimits(10, 20)


def parse(text: str, default: int = EARLIEST) -> Bound:
    return Bound.parse("startingOffsets", text, default)


def test_a_time_and_the_end_are_elsewhere_when_there_is_more() -> None:
    assert Bound("startingTimestamp", timestamp_ms=5).is_moving and parse("latest").is_moving
    assert not parse("earliest").is_moving and not parse('{"T": {"b": {"1": 4}}}').is_moving


def test_words() -> None:
    assert parse("") == parse("", EARLIEST) == parse(" Earliest", LATEST)
    assert parse("latest") == Bound("startingOffsets", LATEST)


def test_queues_by_name_and_the_others_by_default() -> None:
    bound = parse('{"T": {"b": {"1": 12, "0": -1}, "c": {"1": -2}}}')
    assert bound.named_offsets == {
        MessageQueue("T", "b", 1): 12,
        MessageQueue("T", "b", 0): LATEST,
        MessageQueue("T", "c", 1): EARLIEST,
    }
    assert bound.offset(QUEUE, LIMITS, None) == 12
    assert bound.offset(MessageQueue("T", "b", 0), LIMITS, None) == 20
    assert bound.offset(MessageQueue("T", "b", 7), LIMITS, None) == 10


@pytest.mark.parametrize(
    "text",
    ["newest", "[1]", '{"T": 1}', '{"T": {"b": 1}}', '{"T": {"b": {"x": 1}}}',
     '{"T": {"b": {"0": -3}}}', '{"T": {"b": {"0": "1"}}}', '{"T": {"b": {"0": true}}}',
     '{"T": {"b": {"\u0667": 1}}}', '{"T": {"b": {"1_0": 1}}}', '{"T": {"b": {" 7 ": 1}}}', '{"T": {"b": {"07": 1}}}'],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets"):
        parse(text)


@pytest.mark.parametrize("wanted", [9, 21])
def test_a_named_offset_that_is_not_there_is_an_error(wanted: int) -> None:
    with pytest.raises(NoSuchMessage, match="does not reach"):
        Bound("endingOffsets", named_offsets={QUEUE: wanted}).offset(QUEUE, LIMITS, None)
    for inside in (10, 20):
        assert Bound("endingOffsets", named_offsets={QUEUE: inside}).offset(QUEUE, LIMITS, None) == inside


@pytest.mark.parametrize(("timed", "offset"), [(0, 10), (15, 15), (25, 20)])
def test_a_time_ends_where_the_queue_ends(timed: int, offset: int) -> None:
    assert Bound("startingTimestamp", timestamp_ms=5).offset(QUEUE, LIMITS, timed) == offset


def test_a_named_queue_that_does_not_exist_is_an_error() -> None:
    Bound("endingOffsets", named_offsets={QUEUE: 1}).check([QUEUE])
    with pytest.raises(UsageError, match="endingOffsets names a queue that"):
        Bound("endingOffsets", named_offsets={MessageQueue("T", "b", 2): 1}).check([QUEUE])


def test_what_is_deleted_may_be_passed_over() -> None:
    bound = Bound("startingOffsets", named_offsets={QUEUE: 9})
    assert bound.offset(QUEUE, LIMITS, None, is_strict=False) == 10
    with pytest.raises(NoSuchMessage, match="failOnDataLoss=false begins at the first that there is"):
        bound.offset(QUEUE, LIMITS, None)
    with pytest.raises(NoSuchMessage, match="does not reach"):
        Bound("startingOffsets", named_offsets={QUEUE: 21}).offset(QUEUE, LIMITS, None, is_strict=False)
