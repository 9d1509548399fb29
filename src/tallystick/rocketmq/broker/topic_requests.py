"""Requests that make, change, delete and list topics, and about their consumers and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tallystick.rocketmq.broker import attributes
from tallystick.rocketmq.broker.config_pages import ConfigPages
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import (
    MAX_EVENTS,
    MAX_LIST_BYTES,
    NOT_SET,
    OK,
    check_deletions,
    check_is_master,
    check_list,
    refusal,
    respond_after,
    respond_in_slices,
    respond_unchanged,
)
from tallystick.rocketmq.broker.statistics import topic_pieces
from tallystick.rocketmq.broker.topics import refusal_of_topic
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import GroupNames, TopicList, TopicNames, TopicTable, TopicTableResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    FILTER_TYPES,
    MAX_QUEUES,
    DataVersion,
    Perm,
    RequestCode,
    ResponseCode,
    TopicConfig,
)

PAGE_FIELDS = {"topicSeq", "dataVersion", "maxTopicNum"}
_PERMS = int(Perm.INHERIT | Perm.WRITE | Perm.READ | Perm.PRIORITY)


class TopicRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._pages = parts, ConfigPages[TopicTable](parts.clock)
        self._mappings = DataVersion(0, parts.clock.wall_ms(), 0)  # of static topics: there are none
        self.handlers: Mapping[int, Handler] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._create_many,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.GET_TOPIC_CONFIG: self._one,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumers,
        }

    # Changes

    def _create(self, link: Link, command: Command, reply: Reply) -> None:
        header = headers.CreateTopicHeader.of(command)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            attributes.read_changes(header.attributes),
        )
        self._put([config], link.peer, command, reply)

    def _create_many(self, link: Link, command: Command, reply: Reply) -> None:
        topics = dialect.read_short(command.body, TopicList, most_bytes=MAX_LIST_BYTES).topics
        check_list(len(topics), "topics")
        self._put(topics, link.peer, command, reply)

    def _put(self, requested: Sequence[TopicConfig], peer: str, command: Command, reply: Reply) -> None:
        """Put all topics or, if one is refused, none. Their attributes are changes.

        The response is sent when the name servers have them, as the client asks those for the topic next.
        """
        check_is_master(self._parts)
        topics = self._parts.topics
        configs = [self._checked(config) for config in requested]
        changed_topics = [one for one in configs if one != topics.get(one.name) or one.name in topics.fresh]
        if topics.more_places(changed_topics) > topics.room():
            remark = f"This broker has {len(topics.all)} topics: no more fit into {topics.most} places (maxTopics)."
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        if changed_topics:
            topics.put(*changed_topics)
        self._emit_changes(changed_topics, peer)
        self._parts.when_announced(lambda: reply(command.response(OK, NOT_SET)))

    def _emit_changes(self, topics: Sequence[TopicConfig], peer: str) -> None:
        if len(topics) > MAX_EVENTS:
            self._parts.events.emit("topics changed", topics=len(topics), first=topics[0].name, peer=peer)
            return
        for config in topics:
            self._parts.events.emit(
                "topic changed",
                topic=config.name,
                read_queues=config.read_queues,
                write_queues=config.write_queues,
                perm=config.perm,
                peer=peer,
            )

    def _checked(self, config: TopicConfig) -> TopicConfig:
        """Returns the topic as it is to be. Raises BrokerError."""
        remark = refusal_of_topic(config.name)
        if remark is None and self._parts.topics.is_system(config.name):
            remark = f"The topic[{config.name}] is conflict with system topic."
        if remark is None and config.attributes.get("+message.type") == "MIXED":
            remark = "MIXED message type is not supported."
        if remark is None and not all(0 <= count <= MAX_QUEUES for count in (config.read_queues, config.write_queues)):
            remark = f"The topic[{config.name}] may have 0 to {MAX_QUEUES} queues."
        if remark is None and (config.perm & ~_PERMS or config.filter_type not in FILTER_TYPES):
            remark = f"The topic[{config.name}] has an unknown perm or filter type."
        if remark is not None:
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        current = self._parts.topics.get(config.name)
        after = attributes.apply_changes(attributes.TOPIC, current.attributes if current else None, config.attributes)
        return msgspec.structs.replace(config, attributes=after)

    def _delete(self, link: Link, command: Command, reply: Reply) -> Command | None:
        topic = headers.TopicHeader.of(command).topic
        if not topic.strip():
            raise refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        parts = self._parts
        if parts.topics.is_system(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if parts.standing.is_slave:
            return respond_unchanged(command)
        check_deletions(parts)
        was_known = parts.topics.delete(topic)
        if was_known:
            parts.events.emit("topic deleted", topic=topic, peer=link.peer)
        was_there = was_known or parts.store.may_hold(topic)
        parts.offsets.forget_topic(topic, was_there=was_there)
        parts.traffic.forget_topics([topic])
        if not was_there:
            return command.response(OK)  # else each name that a stranger thinks of would be noted on the disk
        respond_after(parts, parts.store.delete_topics([topic]), command.response(OK), reply)
        return None

    # Queries

    def _all(self, link: Link, command: Command, reply: Reply) -> Command:
        table = self._parts.topics.table()
        topics = table.topics
        if PAGE_FIELDS & command.fields.keys():
            header = headers.TopicPageHeader.of(command)
            page = self._pages.page(
                link.peer, table, topics, header.data_version, header.topic_seq, header.max_topic_num
            )
            table = page.table
            topics = {name: table.topics[name] for name in page.names}
        fields = headers.TopicPageResponse(len(table.topics)).to_fields()
        body = TopicTableResponse(table.version, topics, mapping_version=self._mappings)
        return command.response(OK, None, fields, dialect.write_strict(body))

    def _one(self, link: Link, command: Command, reply: Reply) -> Command:
        name = headers.TopicHeader.of(command).topic
        config = self._parts.topics.get(name)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return command.response(OK, body=dialect.write(config))

    def _system(self, link: Link, command: Command, reply: Reply) -> Command:
        topics = self._parts.topics
        names = sorted(name for name in topics.all if topics.is_system(name))
        return command.response(OK, body=dialect.write(TopicNames(names)))

    def _stats(self, link: Link, command: Command, reply: Reply) -> None:
        name = headers.TopicHeader.of(command).topic
        config = self._parts.topics.get(name)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        pieces = topic_pieces(self._parts, config)
        respond_in_slices(self._parts, command.response(OK), pieces, f"the queues of topic {name}", reply)

    def _consumers(self, link: Link, command: Command, reply: Reply) -> Command:
        """Respond with the groups whose members subscribe to the topic, and those with offsets in it."""
        topic = headers.TopicHeader.of(command).topic
        subscribed_groups = (
            group
            for group, consumers in self._parts.clients.consumer_groups.items()
            if topic in consumers.subscriptions
        )
        groups = dict.fromkeys([*subscribed_groups, *self._parts.offsets.groups_of(topic)])
        return command.response(OK, body=dialect.write_strict(GroupNames(list(groups))))
