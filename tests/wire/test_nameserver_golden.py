"""What an original name server answered, byte for byte, played against one of ours in the recorded order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.frames import decode
from support.name_requests import answered
from support.workers import WorkerAtOnce
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.requests import NameRequests
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events

EXCHANGES: list[dict[str, str]] = json.loads((Path(__file__).parent / "golden" / "nameserver.json").read_text())
LIST_OF_ALL = "topics"  # the original's own system topics, in the order of its hash table


def recorded(name: str) -> tuple[Command, Command]:
    (exchange,) = [exchange for exchange in EXCHANGES if exchange["name"] == name]
    return decode(bytes.fromhex(exchange["request"])), decode(bytes.fromhex(exchange["response"]))


def name_server() -> NameRequests:
    """As the recorded one was: with one broker, which has two queues of GoldTopic."""
    server, routes = empty_name_server()
    version = dialect.read_as(bytes(recorded("data version")[1].body), DataVersion)
    topics = {name: TopicConfig(name, 2, 2) for name in ("GoldTopic", "Other")}
    broker = Announcement("c0", "b0", 0, "127.0.0.1:22500", "127.0.0.1:22501", 120.0, False, version, topics)
    assert finished(routes.register(broker, "link", 0.0)) is not None
    return server


def empty_name_server() -> tuple[NameRequests, RoutesCore]:
    routes = RoutesCore()
    return NameRequests(
        routes, KvConfig(OsDisk(), "", WorkerAtOnce), NameServerSettings(), SystemClock(), Events()
    ), routes


def said(answer: Command) -> tuple[Any, ...]:
    return answer.code, answer.opaque, answer.flag, answer.remark, answer.fields, bytes(answer.body)


def test_each_recorded_answer_is_ours_too() -> None:
    server = name_server()
    for exchange in EXCHANGES:
        if exchange["name"].startswith("captured") or exchange["name"] == LIST_OF_ALL:
            continue
        question, answer = recorded(exchange["name"])
        assert said(answered(server, question)) == said(answer), exchange["name"]


def test_the_list_of_all_topics_has_the_recorded_form() -> None:
    question, answer = recorded(LIST_OF_ALL)
    ours = answered(name_server(), question)
    assert dialect.read(bytes(ours.body)) == {"topicList": ["GoldTopic", "Other"]}
    assert dialect.read(bytes(answer.body)).keys() == {"topicList"}


@pytest.mark.parametrize("name", ["captured registration", "captured unregistration"])
def test_an_original_broker_gets_the_answer_it_knows(name: str) -> None:
    question, answer = recorded(name)
    server, _ = (
        empty_name_server()
    )  # another broker of its name and id, which lives, would be told of in a field of ours
    ours = answered(server, question)
    assert (ours.code, ours.remark, ours.fields, bytes(ours.body)) == (
        answer.code,
        answer.remark,
        answer.fields,
        bytes(answer.body),
    )
