from __future__ import annotations

from typing import Any

import pytest

from support.announcing import announcement
from support.name_requests import answered, ask, registration, server
from support.workers import WorkerAtOnce
from tallystick.codec.steps import Steps, finished
from tallystick.rocketmq.nameserver import live_brokers
from tallystick.rocketmq.nameserver import queues as queues_module
from tallystick.rocketmq.nameserver import registrations as registrations_module
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.requests import NameRequests
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.name_server_headers import RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, decode_registration
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events


@pytest.mark.parametrize("compressed", [False, True])
def test_brokers_register_plain_and_compressed(compressed: bool) -> None:
    requests = server()
    assert answered(requests, registration(compressed)).code == 0
    route = dialect.read(bytes(ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="N1").body))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "n:1"}
    assert route["queueDatas"][0]["readQueueNums"] == 3


@pytest.mark.parametrize("has_body", [True, False])
def test_a_registration_with_another_checksum_than_its_body_is_refused(has_body: bool) -> None:
    requests, command = server(), registration(False)
    assert isinstance(command.ext, dict)
    command.ext["bodyCrc32"] = "7"
    if not has_body:
        command.body = b""
    response = answered(requests, command)
    assert (response.code, response.remark) == (1, "crc32 not match")
    assert ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="N1").code != 0


@pytest.mark.parametrize(
    ("bound", "said"), [("MAX_ROUTES", "1 topics are left out"), ("MAX_BROKERS", "register broker failed: too many")]
)
def test_a_registration_without_room_is_refused_aloud(bound: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module if bound == "MAX_ROUTES" else live_brokers, bound, 1)
    seen: list[Event] = []
    routes = RoutesCore()
    if bound == "MAX_BROKERS":
        finished(routes.register(announcement(0), "another", 0))
    requests = NameRequests(
        routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events(seen.append)
    )
    for _ in range(2):
        response = answered(requests, registration(False))
        assert (response.code, (response.remark or "").startswith(said)) == (1, True), response.remark
    assert requests.brokers.refused_count == 2
    (told,) = [event for event in seen if event.kind == "broker not registered"]
    assert (told.fields["broker"], told.fields["at"]) == ("n", "n:1")
    assert (finished(routes.route("N1")) is not None) == (bound == "MAX_ROUTES"), "what fits is taken"


def test_a_registration_that_is_the_same_again_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, read = server(), []

    def counted(*args: Any, **more: Any) -> Steps[Registration]:
        read.append(args)
        return decode_registration(*args, **more)

    monkeypatch.setattr(registrations_module, "decode_registration", counted)
    same = registration(False)
    responses = [answered(requests, same) for _ in range(3)]
    assert {response.code for response in responses} == {0} and len(read) == 1
    answered(requests, request(same.code, same.fields | {"haServerAddr": "elsewhere:1"}, same.body))
    answered(requests, same, "another link")
    answered(requests, registration(True), "another link")
    assert len(read) == 4
    assert ask(requests, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="N1").code == 0
    assert answered(requests, registration(True), "another link").code == 0
    assert ask(requests, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="N1").code == 0, "as ever it brings its topics back"


def test_the_digest_of_a_long_registration_is_made_in_steps() -> None:
    header, body = RegisterBrokerHeader.of(registration(False)), bytes(16 * 1024 * 1024)
    steps = registrations_module._digest(header, body)
    assert sum(1 for _ in steps) == 64
    texts = (b"", b"1", body, body[1:], body + b"1")
    assert len({finished(registrations_module._digest(header, text)) for text in texts}) == len(texts)
