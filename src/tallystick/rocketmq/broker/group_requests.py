"""Requests that make, change, delete and list consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tallystick.rocketmq.broker import attributes
from tallystick.rocketmq.broker.config_pages import ConfigPages
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import (
    MAX_EVENTS,
    MAX_LIST_BYTES,
    OK,
    check_is_master,
    check_list,
    refusal,
    respond_unchanged,
    respond_when_done,
)
from tallystick.rocketmq.broker.topics import refusal_of_group
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import GroupList, GroupTable, RequestModeTable, TopicNames
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, ResponseCode

PAGE_FIELDS = {"groupSeq", "dataVersion", "maxGroupNum"}


class GroupRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._pages = parts, ConfigPages[GroupTable](parts.clock)
        self.handlers: Mapping[int, Handler] = {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_many,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._request_modes,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics,
        }

    def _create(self, link: Link, command: Command, reply: Reply) -> Command:
        return self._put([dialect.read_short(command.body, GroupConfig)], link.peer, command)

    def _create_many(self, link: Link, command: Command, reply: Reply) -> Command:
        groups = dialect.read_short(command.body, GroupList, most_bytes=MAX_LIST_BYTES).groups
        check_list(len(groups), "groups")
        return self._put(groups, link.peer, command)

    def _put(self, requested: Sequence[GroupConfig], peer: str, command: Command) -> Command:
        """Put all groups or, if one is refused, none. Their attributes are changes."""
        check_is_master(self._parts)
        groups = self._parts.groups
        configs = [self._checked(config) for config in requested]
        changed_groups = [one for one in configs if one != groups.all.get(one.name) or one.name in groups.fresh]
        if groups.more_places(changed_groups) > groups.room():
            remark = f"This broker has {len(groups.all)} groups: no more fit into {groups.most} places (maxGroups)."
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        if changed_groups:
            groups.put(*changed_groups)
        if len(changed_groups) > MAX_EVENTS:
            self._parts.events.emit(
                "groups changed", groups=len(changed_groups), first=changed_groups[0].name, peer=peer
            )
        else:
            for config in changed_groups:
                self._parts.events.emit("group changed", group=config.name, peer=peer)
        return command.response(OK)

    def _checked(self, config: GroupConfig) -> GroupConfig:
        """Returns the group as it is to be. Raises BrokerError."""
        remark = refusal_of_group(config.name)
        if remark is not None:
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        current = self._parts.groups.all.get(config.name)
        after = attributes.apply_changes(attributes.GROUP, current.attributes if current else None, config.attributes)
        return msgspec.structs.replace(config, attributes=after)

    def _delete(self, link: Link, command: Command, reply: Reply) -> Command | None:
        header = headers.DeleteGroupHeader.of(command)
        if self._parts.standing.is_slave:
            return respond_unchanged(command)
        was_there = self._parts.groups.delete(header.group)
        if was_there:
            self._parts.events.emit("group deleted", group=header.group, peer=link.peer)
        self._parts.traffic.forget_group(header.group)
        offsets = self._parts.offsets
        steps = offsets.forgetting_resets(header.group)
        if header.clean_offset:
            steps = offsets.forgetting_group(header.group, was_there=was_there)
        respond_when_done(self._parts, command.response(OK), steps, reply)
        return None

    def _all(self, link: Link, command: Command, reply: Reply) -> Command:
        table = self._parts.groups.table()
        groups = table.groups
        if PAGE_FIELDS & command.fields.keys():
            header = headers.GroupPageHeader.of(command)
            page = self._pages.page(
                link.peer, table, groups, header.data_version, header.group_seq, header.max_group_num
            )
            table = page.table
            groups = {name: table.groups[name] for name in page.names}
        forbidden = {name: bits for name, bits in table.forbidden.items() if name in groups}
        fields = headers.GroupPageResponse(len(table.groups)).to_fields()
        return command.response(OK, None, fields, dialect.write_strict(GroupTable(table.version, groups, forbidden)))

    def _one(self, link: Link, command: Command, reply: Reply) -> Command:
        config = self._parts.groups.get(headers.GroupHeader.of(command).group, link.peer)
        if config is None:
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return command.response(OK, body=dialect.write(config))

    def _request_modes(self, link: Link, command: Command, reply: Reply) -> Command:
        return command.response(OK, body=dialect.write(RequestModeTable()))

    def _topics(self, link: Link, command: Command, reply: Reply) -> Command:
        """The topics of which the group has offsets."""
        topics = self._parts.offsets.topics_of(headers.GroupHeader.of(command).group)
        return command.response(OK, body=dialect.write_strict(TopicNames(topics, self._parts.identity.address)))
