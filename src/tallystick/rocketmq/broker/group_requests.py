"""Consumer groups: made, changed, deleted, listed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tallystick.errors import BrokerError
from tallystick.rocketmq.broker import attributes
from tallystick.rocketmq.broker.answers import OK, Answer, check_is_master, left_to_master, page, refusal
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.topics import refusal_of_group
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.bodies import GroupList, GroupTable, RequestModeTable, TopicNames
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import GroupConfig, RequestCode, ResponseCode

PAGE_FIELDS = {"groupSeq", "dataVersion", "maxGroupNum"}


class GroupRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.answers: Mapping[int, Answer] = {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_many,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._request_modes,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics,
        }

    def _create(self, peer: str, command: Command) -> Command:
        check_is_master(self._parts)
        asked, groups = dialect.read_as(bytes(command.body), GroupConfig), self._parts.groups
        remark = refusal_of_group(asked.name)
        if remark is not None:
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        current = groups.all.get(asked.name)
        after = attributes.changed(attributes.GROUP, current.attributes if current else None, asked.attributes)
        config = msgspec.structs.replace(asked, attributes=after)
        if current is None and not groups.room():
            raise _full(groups)
        if config != current or config.name in groups.fresh:
            groups.put(config)
            self._parts.events.emit("group changed", group=config.name, peer=peer)
        return command.answer(OK)

    def _create_many(self, peer: str, command: Command) -> Command:
        """All of them or, if a name is refused, none."""
        asked = dialect.read_as(bytes(command.body), GroupList).groups
        for config in asked:
            remark = refusal_of_group(config.name)
            if remark is not None:
                raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        groups = self._parts.groups
        if len({config.name for config in asked if config.name not in groups.all}) > groups.room():
            raise _full(groups)
        for config in asked:
            self._create(peer, request(command.code, None, dialect.write(config)))
        return command.answer(OK)

    def _delete(self, peer: str, command: Command) -> Command:
        header = headers.DeleteGroupHeader.of(command)
        if self._parts.settings.is_slave:
            return left_to_master(command)
        if self._parts.groups.delete(header.group):
            self._parts.events.emit("group deleted", group=header.group, peer=peer)
        if header.clean_offset:
            self._parts.offsets.forget_group(header.group)
        self._parts.traffic.forget_group(header.group)
        return command.answer(OK)

    def _all(self, peer: str, command: Command) -> Command:
        table = self._parts.groups.table()
        groups = table.groups
        if PAGE_FIELDS & command.fields.keys():
            header = headers.GroupPageHeader.of(command)
            groups = page(groups, table.version, header.data_version, header.group_seq, header.max_group_num)
        forbidden = {name: bits for name, bits in table.forbidden.items() if name in groups}
        fields = headers.GroupPageAnswer(len(table.groups)).to_fields()
        return command.answer(OK, None, fields, dialect.write_strict(GroupTable(table.version, groups, forbidden)))

    def _one(self, peer: str, command: Command) -> Command:
        config = self._parts.groups.get(headers.GroupHeader.of(command).group)
        if config is None:
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return command.answer(OK, body=dialect.write(config))

    def _request_modes(self, peer: str, command: Command) -> Command:
        return command.answer(OK, body=dialect.write(RequestModeTable()))

    def _topics(self, peer: str, command: Command) -> Command:
        """What the group ever consumed here."""
        topics = self._parts.offsets.topics_of(headers.GroupHeader.of(command).group)
        return command.answer(OK, body=dialect.write(TopicNames(topics, self._parts.identity.address)))


def _full(groups: Groups) -> BrokerError:
    remark = f"This broker has {len(groups.all)} groups: more than {groups.most} are not made (maxGroups)."
    return refusal(ResponseCode.SYSTEM_ERROR, remark)
