from __future__ import annotations

from tallystick.rocketmq.remoting.refusals import Refusals
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.events import Event, Events


def test_a_refusal_is_said_once_for_each_kind_and_host() -> None:
    told: list[Event] = []
    refusals = Refusals(Events(told.append))
    beat, unknown = request(34), request(7777)
    for port in (1, 2, 3):
        refusals.responded(f"10.0.0.1:{port}", beat, beat.response(ResponseCode.SYSTEM_ERROR, "no heartbeat\nadvice"))
    refusals.responded("10.0.0.1:1", unknown, unknown.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "x" * 999))
    refusals.responded("10.0.0.2:1", beat, beat.response(ResponseCode.SYSTEM_ERROR, None))
    assert [(event.fields["peer"], event.fields["code"]) for event in told] == [
        ("10.0.0.1:1", 34),
        ("10.0.0.1:1", 7777),
        ("10.0.0.2:1", 34),
    ]
    assert told[0].fields["reason"] == "no heartbeat"
    assert len(told[1].fields["reason"]) == 200


def test_the_state_of_things_is_no_refusal() -> None:
    told: list[Event] = []
    refusals = Refusals(Events(told.append))
    pull = request(11)
    for code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.QUERY_NOT_FOUND):
        refusals.responded("10.0.0.1:1", pull, pull.response(code))
    assert told == []
