from __future__ import annotations

from tallystick.rocketmq.remoting.refused import Refused
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Event, Events


def test_a_refusal_is_said_once_for_each_kind_and_host() -> None:
    told: list[Event] = []
    refused = Refused(Events(told.append))
    beat, unknown = request(34), request(7777)
    for port in (1, 2, 3):
        refused.answered(f"10.0.0.1:{port}", beat, beat.answer(ResponseCode.SYSTEM_ERROR, "no heartbeat\nadvice"))
    refused.answered("10.0.0.1:1", unknown, unknown.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "x" * 999))
    refused.answered("10.0.0.2:1", beat, beat.answer(ResponseCode.SYSTEM_ERROR, None))
    assert [(event.fields["peer"], event.fields["code"]) for event in told] == [
        ("10.0.0.1:1", 34), ("10.0.0.1:1", 7777), ("10.0.0.2:1", 34),
    ]  # fmt: skip
    assert told[0].fields["reason"] == "no heartbeat"
    assert len(told[1].fields["reason"]) == 200


def test_the_state_of_things_is_no_refusal() -> None:
    told: list[Event] = []
    refused = Refused(Events(told.append))
    pull = request(11)
    for code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.QUERY_NOT_FOUND):
        refused.answered("10.0.0.1:1", pull, pull.answer(code))
    assert told == []
