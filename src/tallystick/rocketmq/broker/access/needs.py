"""What each request needs to be allowed, by its code (``DefaultAuthorizationContextBuilder``, ``RocketMQAction``).

The original lets requests pass that it has no rule for, such as a change of groups, of many topics, or of the broker's
settings. Here every code has one, and an unknown code needs what a change of the cluster needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.access.rules import Action, Kind, Need, group_need, topic_need
from tallystick.rocketmq.broker.client_requests import MAX_BEAT_BYTES
from tallystick.rocketmq.broker.responses import MAX_LIST_BYTES
from tallystick.rocketmq.broker.sendback import whole_topic
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest, TopicList
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import Heartbeat, RequestCode

Needs = Callable[[Command, str], list[Need]]  # of a request, at a broker of this cluster


class _GroupName(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="groupName")


class _GroupNames(msgspec.Struct, frozen=True):
    groups: list[_GroupName] = msgspec.field(name="groupConfigList")


def _send(command: Command, cluster: str) -> list[Need]:
    """A retry topic needs that its group may be subscribed to, whoever says to produce for it."""
    topic = _field(command, "topic" if command.code == RequestCode.SEND_MESSAGE else "b")
    need = topic_need(topic, Action.PUB)
    return [need if need.kind is Kind.TOPIC else topic_need(topic, Action.SUB)]


def _send_back(command: Command, cluster: str) -> list[Need]:
    """The message is copied to where the group reads it: who gives it back must be allowed to read it anyway."""
    group = _field(command, "group")
    return _both(group, [whole_topic(group, _field(command, "originTopic"))], Action.SUB)


def _cluster(*actions: Action) -> Needs:
    return lambda command, cluster: [Need(Kind.CLUSTER, cluster, actions)]


def _topic(*actions: Action) -> Needs:
    return lambda command, cluster: [topic_need(_field(command, "topic"), *actions)]


def _group(name: str, *actions: Action) -> Needs:
    return lambda command, cluster: [group_need(_field(command, name), *actions)]


def _group_and_topic(group: str, *actions: Action) -> Needs:
    def needs(command: Command, cluster: str) -> list[Need]:
        return _both(_field(command, group), [_field(command, "topic")], *actions)

    return needs


def _stats(command: Command, cluster: str) -> list[Need]:
    fields = command.fields
    topics = [fields.get("topic", ""), *fields.get("topicList", "").split(";")]
    return _both(_field(command, "consumerGroup"), filter(None, topics), Action.GET)


def _queue(command: Command, cluster: str) -> list[Need]:
    needs, group = [topic_need(_field(command, "topic"), Action.GET)], command.fields.get("consumerGroup")
    return [*needs, group_need(group, Action.GET)] if group else needs


def _beat(command: Command, cluster: str) -> list[Need]:
    beat = dialect.read_short(command.body, Heartbeat, most_bytes=MAX_BEAT_BYTES)
    return [
        need
        for group in beat.consumers
        for need in _both(group.name, (each.topic for each in group.subscriptions), Action.SUB)
    ]


def _leave(command: Command, cluster: str) -> list[Need]:
    group = command.fields.get("consumerGroup")
    return [group_need(group, Action.SUB)] if group else []


def _locks(command: Command, cluster: str) -> list[Need]:
    lock = dialect.read_short(command.body, LockRequest)
    return _both(lock.group, dict.fromkeys(queue.topic for queue in lock.queues), Action.SUB)


def _view(command: Command, cluster: str) -> list[Need]:
    topic = command.fields.get("topic")
    return [topic_need(topic, Action.GET)] if topic else [Need(Kind.CLUSTER, cluster, (Action.GET,))]


def _topics(command: Command, cluster: str) -> list[Need]:
    topics = dialect.read_short(command.body, TopicList, most_bytes=MAX_LIST_BYTES).topics
    return [topic_need(topic.name, Action.CREATE) for topic in topics]


def _one_group(command: Command, cluster: str) -> list[Need]:
    return [group_need(dialect.read_short(command.body, _GroupName).name, Action.CREATE)]


def _groups(command: Command, cluster: str) -> list[Need]:
    groups = dialect.read_short(command.body, _GroupNames, most_bytes=MAX_LIST_BYTES).groups
    return [group_need(group.name, Action.CREATE) for group in groups]


def _both(group: str, topics: Iterable[str], *actions: Action) -> list[Need]:
    """Returns the needs of a group and of topics; a retry topic needs its own group, whichever is named."""
    return list(dict.fromkeys([group_need(group, *actions), *(topic_need(topic, *actions) for topic in topics)]))


def _field(command: Command, name: str) -> str:
    """Raises RemoteProtocolError if it is missing."""
    value = command.fields.get(name)
    if not value:
        raise RemoteProtocolError(f"the custom field <{name}> is null")
    return value


_READ_CLUSTER, _CHANGE_CLUSTER = _cluster(Action.GET), _cluster(Action.UPDATE)
_NEEDS: Mapping[int, Needs] = {
    **dict.fromkeys(
        (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
         RequestCode.SEND_SINK_BATCH), _send),
    RequestCode.GET_SINK_STATE: _topic(Action.PUB),
    RequestCode.FORGET_SINK: _topic(Action.DELETE),
    RequestCode.END_TRANSACTION: _topic(Action.PUB),
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _group_and_topic("consumerGroup", Action.SUB),
    RequestCode.LITE_PULL_MESSAGE: _group_and_topic("consumerGroup", Action.SUB),
    RequestCode.QUERY_MESSAGE: _topic(Action.SUB, Action.GET),
    RequestCode.VIEW_MESSAGE_BY_ID: _view,
    RequestCode.HEART_BEAT: _beat,
    RequestCode.UNREGISTER_CLIENT: _leave,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup", Action.SUB, Action.GET),
    RequestCode.QUERY_CONSUMER_OFFSET: _group_and_topic("consumerGroup", Action.SUB, Action.GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: _group_and_topic("consumerGroup", Action.SUB, Action.UPDATE),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _group_and_topic("group", Action.UPDATE),
    **dict.fromkeys(
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
         RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG,
         RequestCode.QUERY_TOPIC_CONSUME_BY_WHO), _topic(Action.GET)),
    RequestCode.QUERY_CONSUME_QUEUE: _queue,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _topic(Action.CREATE),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: _topic(Action.DELETE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _one_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _group("groupName", Action.DELETE),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group", Action.GET),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _group("group", Action.GET),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _group("consumerGroup", Action.GET),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _group("consumerGroup", Action.GET),
    RequestCode.GET_CONSUME_STATS: _stats,
    **dict.fromkeys(
        (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
         RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_TIMER_CHECK_POINT,
         RequestCode.GET_TIMER_METRICS, RequestCode.GET_TABLE_PAGE, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
         RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_HA_STATUS,
         RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_PRODUCER_CONNECTION_LIST,
         RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
         RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER, RequestCode.AUTH_GET_ACL,
         RequestCode.AUTH_LIST_ACL, RequestCode.GET_AUTHENTICATION), _READ_CLUSTER),
}  # fmt: skip


def needs_of(command: Command, cluster: str) -> list[Need]:
    """Returns all that a request needs; none if whoever has a key may send it. Raises RemoteProtocolError for a
    request that is none."""
    return _NEEDS.get(command.code, _CHANGE_CLUSTER)(command, cluster)
