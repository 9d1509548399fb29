from __future__ import annotations

import pytest

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker.attributes import GROUP, TOPIC, apply_changes, read_changes


def test_changes_as_text() -> None:
    assert read_changes(None) == read_changes("") == {}
    assert read_changes("+message.type=FIFO,-reserve.time") == {"+message.type": "FIFO", "-reserve.time": ""}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("reserve.time", "delete attribute format is wrong: reserve.time"),
        ("+a=1,+a=2", r"key duplication: \+a"),
    ],
)
def test_changes_that_are_none(text: str, why: str) -> None:
    with pytest.raises(BrokerError, match=why):
        read_changes(text)


def test_attributes_are_added_changed_and_deleted() -> None:
    new = apply_changes(TOPIC, None, {"+message.type": "FIFO", "+queue.type": "SimpleCQ"})
    assert new == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert apply_changes(TOPIC, new, {"+message.type": "NORMAL", "+reserve.time": "-1"}) == new | {
        "message.type": "NORMAL",
        "reserve.time": "-1",
    }
    assert apply_changes(TOPIC, new, {"-message.type": ""}) == {"queue.type": "SimpleCQ"}
    assert new["message.type"] == "FIFO"


@pytest.mark.parametrize(
    ("current", "changes", "why"),
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic. key: message.type"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"message.type": "FIFO"}, "wrong format key: essage.type"),
        ({}, {"+x": "1"}, "unsupported key: x"),
        ({}, {"+": "1"}, "kv string format wrong."),
        ({}, {"++x": "1"}, "kv string format wrong."),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL", "-message.type": ""}, "alter duplication key"),
        ({}, {"+queue.type": "SimpleCQ"}, "attempt to update an unchangeable attribute. key: queue.type"),
        (None, {"+queue.type": "BatchCQ"}, "value is not supported by this broker: queue.type=BatchCQ"),
        (None, {"+cleanup.policy": "COMPACTION"}, "value is not supported by this broker"),
        (None, {"+reserve.time": "-2"}, "value is not supported by this broker"),
        (None, {"+reserve.time": str(1 << 63)}, "value is not supported by this broker"),
    ],
)
def test_what_is_refused(current: dict[str, str] | None, changes: dict[str, str], why: str) -> None:
    with pytest.raises(BrokerError) as refused:
        apply_changes(TOPIC, current, changes)
    assert refused.value.message.startswith(why)
    assert refused.value.response_code == 1


def test_groups_have_no_attributes() -> None:
    with pytest.raises(BrokerError, match="unsupported key: x"):
        apply_changes(GROUP, None, {"+x": "1"})
