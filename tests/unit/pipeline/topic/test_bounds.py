from __future__ import annotations

import pytest

from tallystick.errors import NoSuchMessage, UsageError
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.rocketmq.wire.values import MessageQueue

QUEUE = MessageQueue("T", "b", 1)


def parse(text: str, default: int = EARLIEST) -> Bound:
    return Bound.parse("startingOffsets", text, "T", default)


def test_words() -> None:
    assert parse("") == parse("", EARLIEST) == parse(" Earliest", LATEST)
    assert parse("latest") == Bound(LATEST)


def test_queues_by_name_and_the_others_by_default() -> None:
    bound = parse('{"T": {"b": {"1": 12, "0": -1}, "c": {"1": -2}}}')
    assert bound.named_offsets == {("b", 1): 12, ("b", 0): LATEST, ("c", 1): EARLIEST}
    assert bound.offset(QUEUE, 10, 20, None) == 12
    assert bound.offset(MessageQueue("T", "b", 0), 10, 20, None) == 20
    assert bound.offset(MessageQueue("T", "b", 7), 10, 20, None) == 10


@pytest.mark.parametrize(
    "text",
    ["newest", "[1]", "{}", '{"X": {}}', '{"T": 1}', '{"T": {"b": 1}}', '{"T": {"b": {"x": 1}}}',
     '{"T": {"b": {"0": -3}}}', '{"T": {"b": {"0": "1"}}}', '{"T": {"b": {"0": true}}}', '{"T": {}, "X": {}}'],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets"):
        parse(text)


@pytest.mark.parametrize("wanted", [9, 21])
def test_a_named_offset_that_is_not_there_is_an_error(wanted: int) -> None:
    with pytest.raises(NoSuchMessage, match="does not reach"):
        Bound(named_offsets={("b", 1): wanted}).offset(QUEUE, 10, 20, None)
    for inside in (10, 20):
        assert Bound(named_offsets={("b", 1): inside}).offset(QUEUE, 10, 20, None) == inside


@pytest.mark.parametrize(("timed", "offset"), [(0, 10), (15, 15), (25, 20)])
def test_a_time_ends_where_the_queue_ends(timed: int, offset: int) -> None:
    assert Bound(timestamp_ms=5).offset(QUEUE, 10, 20, timed) == offset


def test_a_named_queue_that_does_not_exist_is_an_error() -> None:
    Bound(named_offsets={("b", 1): 1}).check([QUEUE])
    with pytest.raises(UsageError, match="no such queue"):
        Bound(named_offsets={("b", 2): 1}).check([QUEUE])
