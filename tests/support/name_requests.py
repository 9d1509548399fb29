"""A name server without its port, and what brokers ask it."""

from __future__ import annotations

from support.announcing import announcement
from support.workers import WorkerAtOnce
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.requests import CHANGES, NameRequests
from tallystick.rocketmq.nameserver.routes import Routes
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire.bodies import TopicTableAnswer
from tallystick.rocketmq.wire.headers import RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, body_crc, encode_registration
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.steps import finished
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events


def server(settings: NameServerSettings | None = None, told: list[Event] | None = None) -> NameRequests:
    routes = Routes()
    finished(routes.register(announcement(0), "master", 0))
    finished(routes.register(announcement(1), "slave", 0))
    config = KvConfig(OsDisk(), "", WorkerAtOnce)
    return NameRequests(
        routes,
        config,
        settings or NameServerSettings(),
        SystemClock(),
        Events(*([told.append] if told is not None else [])),
    )


def ask(requests: NameRequests, code: int, body: bytes = b"", /, **fields: str) -> Command:
    return answered(requests, request(code, fields, body))


def answered(requests: NameRequests, command: Command) -> Command:
    changed: list[Command] = []
    if command.code not in CHANGES:
        return finished(requests.answer("link", command))
    requests.change(command, "host", changed.append)
    [answer] = changed
    return answer


def registration(compressed: bool) -> Command:
    topics = {name: TopicConfig(name, 3, 3) for name in ("N1", "N2")}
    body = encode_registration(Registration(TopicTableAnswer(DataVersion(0, 7, 1), topics)), compressed=compressed)
    header = RegisterBrokerHeader(
        broker_name="n",
        broker_addr="n:1",
        cluster_name="c",
        broker_id=0,
        ha_server_addr="n:2",
        compressed=compressed,
        body_crc32=body_crc(body),
    )
    return request(RequestCode.REGISTER_BROKER, header.to_fields(), body)
