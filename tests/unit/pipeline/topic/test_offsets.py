from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import UsageError
from tallystick.pipeline.topic.offsets import from_offset, to_offset
from tallystick.rocketmq.wire.values import MessageQueue

Q = MessageQueue


def test_queues_that_follow_each_other_share_a_list() -> None:
    positions = {Q("T", "b", 10): 5, Q("T", "b", 2): 3, Q("T", "a", 0): 12, Q("T", "b", 11): 6, Q("S", "b", 12): 0}
    offset = to_offset(positions)
    assert json.dumps(offset) == (
        '{"v": 1, "q": {"S": {"b": {"12": [0]}}, "T": {"a": {"0": [12]}, "b": {"2": [3], "10": [5, 6]}}}}'
    )
    assert json.dumps(to_offset(dict(reversed(positions.items())))) == json.dumps(offset)
    assert from_offset(json.loads(json.dumps(offset))) == positions
    assert from_offset(to_offset({})) == {}


def test_a_queue_takes_some_bytes() -> None:
    positions = {Q("flights", f"broker-{set_}", n): 10**12 + n for set_ in "ab" for n in range(500)}
    assert len(json.dumps(to_offset(positions))) < 16 * len(positions)


def test_a_queue_that_is_alone_in_its_topic_takes_40_bytes_at_most_beside_the_names() -> None:
    positions = {Q(f"topic-{n:04}", "broker", 1023): 10**15 - 1 for n in range(1_000)}
    names = sum(len(queue.topic) + len(queue.broker) for queue in positions)
    assert len(json.dumps(to_offset(positions))) - len(json.dumps(to_offset({}))) - names <= 40 * len(positions)


queues = st.builds(Q, st.sampled_from("ST"), st.sampled_from("ab"), st.integers(0, 12))


@given(st.dictionaries(queues, st.integers(0, 2**62)))
def test_each_position_comes_back(positions: dict[MessageQueue, int]) -> None:
    assert from_offset(json.loads(json.dumps(to_offset(positions)))) == positions


@pytest.mark.parametrize(
    "content",
    [[], {"T": []}, {"T": {"b": []}}, {"T": {"b": {"x": [1]}}}, {"T": {"b": {"0": 1}}}, {"T": {"b": {"0": [-1]}}},
     {"T": {"b": {"0": [True]}}}, {"T": {"b": {"0": ["1"]}}}],
)  # fmt: skip
def test_what_is_no_offset_is_refused(content: Any) -> None:
    with pytest.raises(UsageError, match="the checkpoint has no offsets of tally-topic"):
        from_offset({"v": 1, "q": content})
    with pytest.raises(UsageError, match="offsets of a newer tallystick"):
        from_offset({"v": 2, "q": content})
