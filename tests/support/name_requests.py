"""A name server without its port, and what brokers ask it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from support.announcing import announcement
from support.workers import WorkerAtOnce
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.requests import CHANGES, NameRequests
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.dispatch import Dispatch, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.bodies import TopicTableResponse
from tallystick.rocketmq.wire.name_server_headers import RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, body_crc, encode_registration
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import DataVersion, RequestCode, TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Event, Events


def server(settings: NameServerSettings | None = None, told: list[Event] | None = None) -> NameRequests:
    routes = RoutesCore()
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


@dataclass(eq=False)
class Caller:
    """As much of a link as a name server looks at. ``sent`` are its answers."""

    peer: str
    sent: list[Command] = field(default_factory=list)

    def send(self, command: Command) -> None:
        self.sent.append(command)


def ask(requests: NameRequests, code: int, body: bytes = b"", /, **fields: str) -> Command:
    return answered(requests, request(code, fields, body))


def answered(requests: NameRequests, command: Command, peer: str = "link") -> Command:
    """Its answer, without a stop."""

    def at_once(link: Link, command: Command, reply: Reply) -> Command:
        made = answers[command.code](link.peer, command)
        return made if isinstance(made, Command) else finished(made)

    answers = {**requests.brokers.responders, **requests.responders}
    dispatch, caller = Dispatch(Events(), lambda link, command, answer: None), Caller(peer)
    dispatch.add(dict.fromkeys(answers, at_once))
    dispatch.add(dict.fromkeys(CHANGES, lambda link, command, reply: requests.change(command, "host", reply)))
    dispatch.serve(cast("Link", caller), command)
    [answer] = caller.sent
    return answer


def count_steps(requests: NameRequests, command: Command) -> int:
    """Of an answer that is made in some."""
    made = requests.responders[command.code]("link", command)
    assert not isinstance(made, Command)
    return len(list(made))


def registration(compressed: bool) -> Command:
    topics = {name: TopicConfig(name, 3, 3) for name in ("N1", "N2")}
    body = encode_registration(Registration(TopicTableResponse(DataVersion(0, 7, 1), topics)), compressed=compressed)
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
