"""Who may pull what, and what the answer is (``PullMessageProcessor``, ``DefaultPullMessageResultHandler``).

``check`` costs the same for any request. What grows with the number of tags is ``tag_codes``: bounded, and for a moment
that has the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.codec.records import java_hashes
from tallystick.rocketmq.broker.clients import BROADCASTING, Clients
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.refusals import FAQ, REJECTED, Refusal
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.store.values import GetResult, GetStatus
from tallystick.rocketmq.wire.headers import PullHeader, PullResponse
from tallystick.rocketmq.wire.values import (
    MASTER_ID,
    GroupConfig,
    Perm,
    PullFlag,
    RequestCode,
    ResponseCode,
    Subscription,
    TopicConfig,
)

EVERYTHING = "*"
TAG = "TAG"
MAX_TAGS = 4_000  # of one pull: they take some 5 ms
MAX_TAG_CHARS = 65_536

_READ, _SUBSCRIPTION = int(Perm.READ), int(PullFlag.SUBSCRIPTION)  # plain numbers: per pull

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.BEING_REBUILT: ResponseCode.PULL_NOT_FOUND,  # the reader stays where it is, and waits
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(frozen=True)
class Allowed:
    """A pull may go on. ``wanted`` is an expression, or what a heartbeat said; None: all messages."""

    group: GroupConfig
    topic: TopicConfig
    wanted: str | Subscription | None


def check(
    header: PullHeader, code: int, peer: str, settings: BrokerSettings, standing: Standing, topics: Topics,
    groups: Groups, clients: Clients[Any],
) -> Allowed | Refusal:  # fmt: skip
    """The checks in the original's order."""
    here = settings.client_host
    if standing.is_slave and not settings.slave_read:
        return REJECTED
    if not settings.perm & _READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{here}] pulling message is forbidden")
    if code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{here}] for lite pull consumer is forbidden")
    group = groups.get(header.consumer_group, peer)
    if group is None:
        remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
        return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if not group.consume_enable:
        return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group.name}")
    topic = topics.get(header.topic)
    if topic is None:
        remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not topic.perm & _READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queues:
        remark = (
            f"queueId[{header.queue_id}] is illegal, topic:[{topic.name}] "
            f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[/{peer}]"
        )
        return Refusal(ResponseCode.INVALID_PARAMETER, remark)
    wanted = _stated(header) if header.sys_flag & _SUBSCRIPTION else _subscribed(header, group, clients)
    return wanted if isinstance(wanted, Refusal) else Allowed(group, topic, wanted)


def tag_codes(wanted: str | Subscription | None) -> frozenset[int] | None:
    """The codes of the messages that are ``wanted``; None: all. It takes about a microsecond a tag."""
    if wanted is None:
        return None
    if isinstance(wanted, Subscription):
        return frozenset(wanted.codes) or java_hashes(wanted.tags)
    tags = {tag.strip() for tag in wanted.split("||")}
    return java_hashes(tags - {""})


def _stated(header: PullHeader) -> str | Refusal | None:
    """What the request itself says that it wants."""
    expression, kind = header.subscription or "", header.expression_type
    if kind not in (None, TAG):
        if not expression:
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
        return _tags_only(str(kind))
    if expression in ("", EVERYTHING):
        return None
    if len(expression) > MAX_TAG_CHARS or expression.count("||") >= MAX_TAGS:
        return _TOO_MANY_TAGS
    if not expression.replace("||", ""):
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    return expression


def _subscribed(header: PullHeader, group: GroupConfig, clients: Clients[Any]) -> Subscription | Refusal | None:
    """What the group's heartbeats said that it wants."""
    known = clients.consumers(group.name)
    if known is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if not group.consume_broadcast_enable and known.message_model == BROADCASTING:
        remark = f"the consumer group[{group.name}] can not consume by broadcast way"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    found = known.subscriptions.get(header.topic)
    if found is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if found.version < header.sub_version:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if found.kind != TAG:
        return _tags_only(found.kind)
    if found.class_filter or found.expression in ("", EVERYTHING):
        return None
    if max(len(found.codes), len(found.tags)) > MAX_TAGS or sum(map(len, found.tags)) > MAX_TAG_CHARS:
        return _TOO_MANY_TAGS
    return found


_TOO_MANY_TAGS = Refusal(
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    f"parse the consumer's subscription failed: at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters in all",
)


def _tags_only(kind: str) -> Refusal:
    remark = f"The broker does not support consumer to filter message by {kind}"
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def outcome(
    found: GetResult,
    header: PullHeader,
    allowed: Allowed,
    settings: BrokerSettings,
    standing: Standing,
    mark: str | None = None,
) -> tuple[ResponseCode, PullResponse]:
    """Code and header of the answer; its remark is the status."""
    code = _CODES.get(found.status)
    if code is None:  # a queue without messages
        code = ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
    suggested = MASTER_ID
    if settings.slave_read:
        suggested = allowed.group.slow_broker_id if found.far_behind else allowed.group.broker_id
    if code is ResponseCode.PULL_OFFSET_MOVED and standing.is_slave and not settings.store.offset_check_in_slave:
        # A slave may lag: it sends the reader back to the master and leaves its offset alone.
        code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, allowed.group.broker_id
    return code, PullResponse(
        suggest_which_broker_id=suggested, group_sys_flag=allowed.group.sys_flag, next_begin_offset=found.next_offset,
        max_offset=found.max_offset, min_offset=found.min_offset, topic_sys_flag=allowed.topic.sys_flag, mark=mark,
    )  # fmt: skip
