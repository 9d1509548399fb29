"""Who may pull what; the answers of masters and slaves."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from support.brokers import pull_command
from tallystick.codec.records import java_hash
from tallystick.rocketmq.broker.clients import BROADCASTING, ClientsCore
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.pull_rules import MAX_TAG_CHARS, MAX_TAGS, AllowedPull, check, outcome, tag_codes
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.store.values import GetResult, GetStatus
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.values import (
    ConsumerGroup,
    GroupConfig,
    Heartbeat,
    Language,
    Perm,
    ResponseCode,
    Subscription,
    TopicConfig,
)
from tallystick.runtime.clock import SystemClock

MASTER = BrokerSettings("/store", "b0")
SLAVE = BrokerSettings("/store", "b0", broker_id=1, role=Role.SLAVE)
NO_SUBSCRIPTION = 0


class Desk:
    """The tables that a check looks at."""

    def __init__(self, settings: BrokerSettings = MASTER) -> None:
        self.settings = settings
        self.topics = Topics(settings.topic_defaults(), SystemClock(), lambda: None)
        self.topics.put(TopicConfig("T", 4, 4), TopicConfig("Dark", 4, 4, Perm.WRITE))
        self.groups = Groups(SystemClock(), lambda: None, auto_create=settings.auto_create_groups)
        self.clients: ClientsCore[Any] = ClientsCore()

    def subscribe(self, *subscriptions: Subscription, model: str = "CLUSTERING") -> None:
        group = ConsumerGroup("G", message_model=model, subscriptions=subscriptions)
        self.clients.heartbeat_received("link", Heartbeat("c", (), (group,)), (group,), Language.JAVA, 513, 0.0)

    def check(self, **pull: Any) -> AllowedPull | Refusal:
        command = pull_command(**pull)
        header = PullHeader.of(command)
        standing = Standing(self.settings.role)
        return check(header, command.code, "1.2.3.4:5", self.settings, standing, self.topics, self.groups, self.clients)

    def code(self, **pull: Any) -> ResponseCode | None:
        found = self.check(**pull)
        return found.code if isinstance(found, Refusal) else None

    def tags(self, **pull: Any) -> Set[int] | None:
        found = self.check(**pull)
        assert isinstance(found, AllowedPull)
        return tag_codes(found.subscription)


def test_what_is_missing_or_forbidden_has_its_code() -> None:
    desk = Desk()
    assert desk.code() is None
    assert desk.code(topic="Nope") is ResponseCode.TOPIC_NOT_EXIST
    assert desk.code(topic="Dark") is ResponseCode.NO_PERMISSION
    assert desk.code(queue_id=4) is ResponseCode.INVALID_PARAMETER
    assert desk.code(queue_id=-1) is ResponseCode.INVALID_PARAMETER
    desk.groups.put(GroupConfig("Off", consume_enable=False))
    assert desk.code(group="Off") is ResponseCode.NO_PERMISSION
    assert desk.code(group="../up") is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_settings_forbid_in_their_way() -> None:
    def code(code: int = 11, **settings: Any) -> ResponseCode | None:
        return Desk(BrokerSettings("/store", "b0", **settings)).code(code=code)

    assert code(perm=int(Perm.WRITE)) is ResponseCode.NO_PERMISSION
    assert code(361, lite_pull=False) is ResponseCode.NO_PERMISSION
    assert code(361) is None
    assert code(auto_create_groups=False) is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    slave: dict[str, Any] = {"broker_id": 1, "role": Role.SLAVE}
    assert code(**slave) is None
    assert code(**slave, slave_read=False) is ResponseCode.SYSTEM_BUSY


def test_a_request_says_which_tags_it_wants() -> None:
    desk = Desk()
    assert desk.tags(tags="*") is None
    assert desk.tags(tags="") is None
    assert desk.tags(tags="A || B||") == {java_hash("A"), java_hash("B")}
    assert desk.tags(tags=" ") == frozenset()
    assert desk.code(tags="||") is ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert desk.code(tags="a > 5", expression_type="SQL92") is ResponseCode.SYSTEM_ERROR
    assert desk.code(tags="", expression_type="SQL92") is ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_or_its_groups_heartbeats_did() -> None:
    desk = Desk()
    pull: dict[str, Any] = {"flags": NO_SUBSCRIPTION}
    assert desk.code(**pull) is ResponseCode.SUBSCRIPTION_NOT_EXIST
    desk.subscribe(Subscription("T", "A", ("A",), (java_hash("A"),), version=5))
    assert desk.tags(**pull) == {java_hash("A")}
    assert desk.code(topic="BenchmarkTest", **pull) is ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert desk.code(sub_version=6, **pull) is ResponseCode.SUBSCRIPTION_NOT_LATEST
    desk.subscribe(Subscription("T", "*", version=6))
    assert desk.tags(**pull) is None
    desk.subscribe(Subscription("T", "a > 5", kind="SQL92", version=7))
    assert desk.code(**pull) is ResponseCode.SYSTEM_ERROR


def test_tags_are_bounded_wherever_they_come_from() -> None:
    desk = Desk()
    most = [f"tag-{number}" for number in range(MAX_TAGS)]
    codes = frozenset(map(java_hash, most))
    assert desk.tags(tags="||".join(most)) == codes
    desk.subscribe(Subscription("T", "said", tuple(most), version=1))
    assert desk.tags(flags=NO_SUBSCRIPTION) == codes
    too_many, too_long = ([*most, "one more"], ["x" * MAX_TAG_CHARS, "y"])
    for tags in (too_many, too_long):
        assert desk.code(tags="||".join(tags)) is ResponseCode.SUBSCRIPTION_PARSE_FAILED
        desk.subscribe(Subscription("T", "said", tuple(tags), version=2))
        assert desk.code(flags=NO_SUBSCRIPTION) is ResponseCode.SUBSCRIPTION_PARSE_FAILED
    desk.subscribe(Subscription("T", "said", (), tuple(range(MAX_TAGS + 1)), version=3))
    assert desk.code(flags=NO_SUBSCRIPTION) is ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_group_that_may_not_broadcast() -> None:
    desk = Desk()
    desk.groups.put(GroupConfig("G", consume_broadcast_enable=False))
    desk.subscribe(Subscription("T"), model=BROADCASTING)
    assert desk.code(flags=NO_SUBSCRIPTION) is ResponseCode.NO_PERMISSION


def answer(
    status: GetStatus, settings: BrokerSettings = MASTER, offset: int = 7, *, far: bool = False
) -> tuple[int, int]:
    header = PullHeader.of(pull_command(offset=offset))
    group = GroupConfig("G", broker_id=0, slow_broker_id=1)
    found = GetResult(status, 3, 1, 9, far_behind=far)
    code, said = outcome(found, header, AllowedPull(group, TopicConfig("T"), None), settings, Standing(settings.role))
    assert (said.next_begin_offset, said.min_offset, said.max_offset) == (3, 1, 9)
    return int(code), said.suggest_which_broker_id


def test_each_status_has_its_code() -> None:
    assert answer(GetStatus.FOUND) == (0, 0)
    assert answer(GetStatus.NO_MATCHED_MESSAGE) == (20, 0)
    assert answer(GetStatus.MESSAGE_WAS_REMOVING) == (20, 0)
    assert answer(GetStatus.OFFSET_FOUND_NULL) == (19, 0)
    assert answer(GetStatus.OFFSET_OVERFLOW_ONE) == (19, 0)
    assert answer(GetStatus.OFFSET_OVERFLOW_BADLY) == (21, 0)
    assert answer(GetStatus.OFFSET_TOO_SMALL) == (21, 0)
    assert answer(GetStatus.NO_MESSAGE_IN_QUEUE) == (21, 0)
    assert answer(GetStatus.NO_MESSAGE_IN_QUEUE, offset=0) == (19, 0)
    assert answer(GetStatus.NO_MATCHED_LOGIC_QUEUE, offset=0) == (19, 0)


@pytest.mark.rule("H13")
def test_h13_who_is_far_behind_is_sent_to_a_slave_and_a_slave_moves_no_offset() -> None:
    assert answer(GetStatus.FOUND, far=True) == (0, 1)
    assert answer(GetStatus.FOUND, BrokerSettings("/store", "b0", slave_read=False), far=True) == (0, 0)
    assert answer(GetStatus.OFFSET_OVERFLOW_BADLY, SLAVE, far=True) == (20, 0)
    assert answer(GetStatus.OFFSET_OVERFLOW_ONE, SLAVE) == (19, 0)
