from __future__ import annotations

import pytest

from support.admin_desk import MASTER, Desk
from tallystick.errors import StorageError
from tallystick.rocketmq.wire.values import RequestCode, TopicConfig


def test_a_code_that_nobody_knows() -> None:
    answer = Desk().ask(7777)
    assert (answer.code, answer.remark) == (3, " request type 7777 not supported")


@pytest.mark.parametrize("code", [RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_TOPIC_CONFIG])
def test_a_missing_field_is_named(code: RequestCode) -> None:
    answer = Desk().ask(code)
    assert (answer.code, answer.remark) == (1, "the custom field <topic> is null")


def test_a_body_that_is_none_is_refused() -> None:
    desk = Desk(MASTER)
    for body in (b"", b"{", b"[]", b'{"groupName":5}'):
        assert desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 1


def test_a_disk_that_fails_is_an_answer() -> None:
    desk = Desk()
    desk.tables.topics.put(TopicConfig("Topic", 1, 1))
    desk.shelf.send(b"x")
    desk.shelf.settle()
    desk.disk.fault = lambda operation, path: StorageError("the disk is gone") if "tally-queues" in path else None
    answer = desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Topic"})
    assert (answer.code, answer.remark) == (1, "it was done, but cannot be made durable: the disk is gone")
