from __future__ import annotations

import pytest

from tallystick.errors import BrokerError, ConnectionLost, RemoteProtocolError, RequestTimeout, TallyError, Unavailable
from tallystick.rocketmq.client.sending import SendingCore, SendStatus
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode

QUEUE = MessageQueue("T", "b", 0)
STORED = {"msgId": "F" * 32, "queueId": "3", "queueOffset": "9"}


def said(code: int, fields: dict[str, str] | None = None) -> Command:
    return request(310).response(code, "said", fields)


def sending() -> SendingCore:
    return SendingCore("id", attempts_left=3, deadline=10.0)


@pytest.mark.parametrize("status", SendStatus)
def test_four_codes_mean_stored(status: SendStatus) -> None:
    result = sending().responded(QUEUE, said(status.value, STORED), 0.0)
    assert result is not None
    assert (result.status, result.queue.queue_id, result.queue_offset, result.maybe_twice) == (status, 3, 9, False)


@pytest.mark.parametrize(
    ("failure", "again"),
    [
        (said(ResponseCode.SYSTEM_BUSY), True),
        (said(ResponseCode.TOPIC_NOT_EXIST), True),
        (said(ResponseCode.MESSAGE_ILLEGAL), False),
        (said(ResponseCode.INVALID_PARAMETER), False),
        (ConnectionLost("x"), True),
        (RequestTimeout("x"), True),
        (Unavailable("x"), True),
        (RemoteProtocolError("x"), False),
        (said(0, {"queueId": "no number"}), False),
    ],
)
def test_what_is_tried_again(failure: Command | TallyError, again: bool) -> None:
    attempt = sending()
    assert attempt.responded(QUEUE, failure, 0.0) is None
    assert (attempt.may_retry, attempt.avoid) == (again, "b")
    assert attempt.failure is not None


def test_attempts_and_time_are_bounded() -> None:
    attempt = sending()
    for left in (True, True, False):
        attempt.responded(QUEUE, said(2), 0.0)
        assert attempt.may_retry == left
    late = sending()
    late.responded(QUEUE, said(2), 10.0)
    assert not late.may_retry


def test_doubt_outlives_what_comes_after_it() -> None:
    attempt = sending()
    attempt.responded(QUEUE, ConnectionLost("first"), 0.0)
    attempt.responded(QUEUE, said(2), 0.0)
    assert isinstance(attempt.failure, ConnectionLost)
    result = attempt.responded(QUEUE, said(0, STORED), 0.0)
    assert result is not None
    assert result.maybe_twice


@pytest.mark.parametrize("failure", [said(0, {"queueId": "no number"}), RemoteProtocolError("x"), RequestTimeout("x")])
def test_an_answer_that_cannot_be_read_leaves_doubt(failure: Command | TallyError) -> None:
    one = sending()
    assert one.responded(QUEUE, failure, 0.0) is None
    assert one.failure is not None and one.failure.ambiguous


def test_without_doubt_the_last_failure_counts() -> None:
    attempt = sending()
    attempt.responded(QUEUE, said(2), 0.0)
    attempt.responded(QUEUE, said(14), 0.0)
    assert isinstance(attempt.failure, BrokerError)
    assert attempt.failure.response_code == 14
    result = attempt.responded(QUEUE, said(0, STORED), 0.0)
    assert result is not None
    assert not result.maybe_twice
