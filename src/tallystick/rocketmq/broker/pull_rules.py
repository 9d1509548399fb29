"""Who may pull what, and what the response is (``PullMessageProcessor``, ``DefaultPullMessageResultHandler``).

``check`` costs the same for any request. What grows with the number of tags is ``tag_codes``: bounded, and called
when there is time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.codec.records import java_hashes
from tallystick.rocketmq.broker.clients import BROADCASTING, ClientsCore
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

_LITE, _FOUND, _SUCCESS = int(RequestCode.LITE_PULL_MESSAGE), GetStatus.FOUND, ResponseCode.SUCCESS  # likewise

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
class AllowedPull:
    """A pull may go on. ``subscription`` is an expression, or that of a heartbeat; None: all messages."""

    group: GroupConfig
    topic: TopicConfig
    subscription: str | Subscription | None


def check(
    header: PullHeader,
    code: int,
    peer: str,
    settings: BrokerSettings,
    standing: Standing,
    topics: Topics,
    groups: Groups,
    clients: ClientsCore[Any],
) -> AllowedPull | Refusal:
    """Check a pull in the original's order. Returns why it is refused, or that it may go on."""
    if standing.is_slave and not settings.slave_read:
        return REJECTED
    if not settings.perm & _READ:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{settings.client_host}] pulling message is forbidden")
    if code == _LITE and not settings.lite_pull:
        return Refusal(
            ResponseCode.NO_PERMISSION, f"the broker[{settings.client_host}] for lite pull consumer is forbidden"
        )
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
    subscription = (
        _requested_subscription(header)
        if header.sys_flag & _SUBSCRIPTION
        else _group_subscription(header, group, clients)
    )
    return subscription if isinstance(subscription, Refusal) else AllowedPull(group, topic, subscription)


def tag_codes(subscription: str | Subscription | None) -> frozenset[int] | None:
    """Returns the codes of the tags of a subscription, or None if it is to all messages. It takes about a microsecond a
    tag."""
    if subscription is None:
        return None
    if isinstance(subscription, Subscription):
        return frozenset(subscription.codes) or java_hashes(subscription.tags)
    tags = {tag.strip() for tag in subscription.split("||")}
    return java_hashes(tags - {""})


def _requested_subscription(header: PullHeader) -> str | Refusal | None:
    """Returns the subscription of the request itself; None: all messages."""
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


def _group_subscription(
    header: PullHeader, group: GroupConfig, clients: ClientsCore[Any]
) -> Subscription | Refusal | None:
    """Returns the subscription of the group's heartbeats; None: all messages."""
    consumers = clients.consumers(group.name)
    if consumers is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
    if not group.consume_broadcast_enable and consumers.message_model == BROADCASTING:
        remark = f"the consumer group[{group.name}] can not consume by broadcast way"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    subscription = consumers.subscriptions.get(header.topic)
    if subscription is None:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
    if subscription.version < header.sub_version:
        return Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if subscription.kind != TAG:
        return _tags_only(subscription.kind)
    if subscription.class_filter or subscription.expression in ("", EVERYTHING):
        return None
    if (
        max(len(subscription.codes), len(subscription.tags)) > MAX_TAGS
        or sum(map(len, subscription.tags)) > MAX_TAG_CHARS
    ):
        return _TOO_MANY_TAGS
    return subscription


_TOO_MANY_TAGS = Refusal(
    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    f"parse the consumer's subscription failed: at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters in all",
)


def _tags_only(kind: str) -> Refusal:
    remark = f"The broker does not support consumer to filter message by {kind}"
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def finds_nothing(result: GetResult, header: PullHeader) -> bool:
    """Whether a pull that may wait is to wait for a message."""
    return result.status is not _FOUND and _code_of(result, header) is ResponseCode.PULL_NOT_FOUND


def _code_of(result: GetResult, header: PullHeader) -> ResponseCode:
    if result.status is _FOUND:
        return _SUCCESS
    code = _CODES.get(result.status)
    if code is None:  # a queue without messages
        return ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
    return code


def outcome(
    result: GetResult,
    header: PullHeader,
    pull: AllowedPull,
    settings: BrokerSettings,
    standing: Standing,
    mark: str | None = None,
) -> tuple[ResponseCode, PullResponse]:
    """Returns code and header of the response; its remark is the status."""
    code = _code_of(result, header)
    suggested = MASTER_ID
    if settings.slave_read:
        suggested = pull.group.slow_broker_id if result.far_behind else pull.group.broker_id
    if (
        code is not _SUCCESS
        and code is ResponseCode.PULL_OFFSET_MOVED
        and standing.is_slave
        and not settings.store.offset_check_in_slave
    ):
        # A slave may lag: it sends the reader back to the master and leaves its offset alone.
        code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.group.broker_id
    return code, PullResponse(
        suggest_which_broker_id=suggested,
        group_sys_flag=pull.group.sys_flag,
        next_begin_offset=result.next_offset,
        max_offset=result.max_offset,
        min_offset=result.min_offset,
        topic_sys_flag=pull.topic.sys_flag,
        mark=mark,
    )
