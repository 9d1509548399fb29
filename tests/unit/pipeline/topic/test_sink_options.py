"""The options of writing topics."""

from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.option_values import AT_LEAST_ONCE, ONCE
from tallystick.pipeline.topic.sink_options import TopicSinkOptions

NAMED = {"nameServer": "127.0.0.1:9876", "topic": "T"}
BATCH = {"txnAppId": "app", "txnVersion": "3"}


def parse(follows: bool, **options: str) -> TopicSinkOptions:
    return TopicSinkOptions.parse(NAMED | options, {}, follows=follows)


def test_defaults() -> None:
    options = parse(True)
    assert options == TopicSinkOptions(("127.0.0.1:9876",), "T", None, None, None, True, None)
    assert parse(False, **BATCH).version == 3


def test_each_option() -> None:
    options = parse(True, application="a", delivery="Exactly-Once", order="arrival", partitions="4")
    assert (options.application, options.delivery, options.is_sorted, options.partitions) == ("a", ONCE, False, 4)
    assert parse(False, delivery="at-least-once").delivery == AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("follows", "options", "why"),
    [
        (True, {"txnAppId": "a"}, "option of df.write"),
        (False, {"application": "a", **BATCH}, "option of df.writeStream"),
        (False, {}, "txnAppId and txnVersion"),
        (True, {"delivery": "at-most-once"}, "exactly-once or at-least-once"),
        (True, {"delivery": "at-least-once", "application": "a"}, "application says nothing"),
        (False, {"delivery": "at-least-once", **BATCH}, "txnAppId says nothing"),
        (True, {"order": "random"}, "sorted or arrival"),
        (True, {"partitions": "0"}, "from 1"),
        (True, {"topic": "no topic"}, "topic"),
        (True, {"application": "a", "delivery": "at-least-once"}, "application says nothing with delivery"),
        (False, {"delivery": "at-least-once", **BATCH}, "txnAppId says nothing with delivery"),
        (False, {"delivery": "at-least-once", "partitions": "2"}, "partitions says nothing with delivery"),
        (True, {"delivery": "at-least-once", "order": "sorted"}, "order says nothing with delivery"),
        (True, {"orders": "sorted"}, "did you mean order"),
        (True, {"path": "U"}, "topic"),
    ],
)
def test_what_means_nothing_is_refused(follows: bool, options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(follows, **options)


def test_a_topic_is_needed() -> None:
    with pytest.raises(UsageError, match="give the option topic"):
        TopicSinkOptions.parse({"nameServer": "127.0.0.1:1"}, {}, follows=True)
