"""Requests about consumer offsets: to commit, read and copy them, and how far behind groups are. Delay offsets, too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tallystick.rocketmq.broker.offsets import OffsetCommit
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal, respond_in_slices
from tallystick.rocketmq.broker.statistics import broker_pieces, consumed_topics, group_pieces
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import GetStatus
from tallystick.rocketmq.wire import dialect, headers
from tallystick.rocketmq.wire.operator_headers import BrokerConsumeStatsHeader, ConsumeStatsHeader
from tallystick.rocketmq.wire.own_headers import QueryOffsetResponse, UpdateOffsetResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

_REMEMBERED_HOSTS = 100


class OffsetRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._reported_hosts: set[str] = set()  # whose requests for all offsets were refused
        self.handlers: Mapping[int, Handler] = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delays,
            RequestCode.GET_CONSUME_STATS: self._stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self._broker_stats,
        }

    def _query(self, link: Link, command: Command, reply: Reply) -> Command:
        """Respond with a group's offset. A group without one begins at 0 if the queue is short and young; else the
        consumer decides."""
        header = headers.QueryOffsetHeader.of(command)
        offset = self._parts.offsets.get(header.topic, header.consumer_group, header.queue_id)
        if offset is None or offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            if not self._begins_in_memory(header.topic, header.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
            offset = 0
        if header.mark is None:
            return command.response(OK, None, QueryOffsetResponse(offset).to_fields())
        mark = self._parts.store.mark_before(header.topic, header.queue_id, offset)
        resets = self._parts.offsets.counter(f"{header.topic}@{header.consumer_group}", header.queue_id)
        return command.response(OK, None, QueryOffsetResponse(offset, mark, resets or None).to_fields())

    def _begins_in_memory(self, topic: str, queue_id: int) -> bool:
        first, end = self._parts.store.queue_range(topic, queue_id)
        if first > 0 or not end:
            return False
        result = self._parts.store.get(topic, queue_id, 0, 1, 1)
        return result.status is GetStatus.FOUND and not result.far_behind

    def _update(self, link: Link, command: Command, reply: Reply) -> Command:
        header, parts = headers.UpdateOffsetHeader.of(command), self._parts
        topic, group = header.topic, header.consumer_group
        # A slave may not have heard of the group yet, and serves it all the same.
        group_config = parts.groups.get(group, link.peer) if parts.standing.is_slave else parts.groups.all.get(group)
        if group_config is None and header.resets is not None and parts.groups.lacks_room(group, link.peer):
            # A slave's: 26 would tell it that the group is none for ever, and it would forget the commit.
            remark = f"This broker has {len(parts.groups.all)} groups: it has no room for {group} (maxGroups)."
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        if group_config is None:
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = parts.topics.get(topic)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= header.queue_id < max(config.read_queues, config.write_queues) or header.commit_offset < 0:
            remark = f"No queue {header.queue_id} or no offset {header.commit_offset}, topic is {topic}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        commit = OffsetCommit(topic, group, header.queue_id, header.commit_offset, header.resets or 0)
        self._check_place(commit, header.mark, is_slave=header.resets is not None)
        if header.resets is not None:
            return self._take(command, commit)
        reset_to = parts.offsets.resets.pending.hear(
            f"{topic}@{group}", header.queue_id, header.commit_offset, link.peer, parts.clock.now(), commits=True
        )
        if reset_to is not None:
            return command.response(OK, "Offset has been previously reset", UpdateOffsetResponse(reset_to).to_fields())
        went_back = header.went_back is True
        if not parts.offsets.commit(topic, group, header.queue_id, header.commit_offset, went_back=went_back):
            raise self._no_room()
        resets = parts.offsets.counter(f"{topic}@{group}", header.queue_id)
        return command.response(OK, None, UpdateOffsetResponse(resets=resets or None).to_fields())

    def _check_place(self, commit: OffsetCommit, mark: str | None, *, is_slave: bool) -> None:
        """Refuse an offset that is not one of the messages here. ``is_slave``: a slave sends it, which forgets it when
        it is refused with INVALID_PARAMETER, and sends it again else."""
        parts, topic, queue_id = self._parts, commit.topic, commit.queue_id
        if is_slave and parts.offsets.is_overtaken(commit):
            remark = f"The offset of group {commit.group} was set since, topic is {topic}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if parts.offsets.is_beyond(topic, queue_id, commit.offset):
            # A slave may show messages that are not on the disk here yet.
            code = ResponseCode.SYSTEM_ERROR if is_slave else ResponseCode.INVALID_PARAMETER
            raise refusal(code, f"Offset {commit.offset} is beyond the end of queue {queue_id}, topic is {topic}")
        if mark and parts.store.knows_other(topic, queue_id, mark):
            remark = f"Queue {queue_id} has not the messages that this consumer had of it, topic is {topic}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)

    def _take(self, command: Command, commit: OffsetCommit) -> Command:
        """Take a commit that a slave sends. It keeps one that finds no room here."""
        offsets = self._parts.offsets
        if not offsets.take(commit):
            raise self._no_room()
        offset = offsets.get(commit.topic, commit.group, commit.queue_id)
        if offset is not None:
            offsets.resets.pending.moved(commit.key, commit.queue_id, offset)
        return command.response(OK, None, {})

    def _no_room(self) -> Exception:
        remark = f"This broker keeps {self._parts.offsets.most} offsets: a group gets no more of them (maxOffsets)."
        return refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _all(self, link: Link, command: Command, reply: Reply) -> None:
        """Respond with the whole table to an original slave, which has no pull offsets, and whose parser takes strict
        JSON only."""
        too_long = "the consumer offsets; only a slave of ours, which asks for pages, can copy them"
        pieces = dialect.write_lines(self._parts.offsets.table())
        failed = partial(self._report_too_long, link.peer)
        respond_in_slices(self._parts, command.response(OK), pieces, too_long, reply, failed=failed)

    def _report_too_long(self, peer: str, remark: str) -> None:
        """Emit the event once for each host: a slave asks every ten seconds."""
        host = peer.rpartition(":")[0]
        if host not in self._reported_hosts and len(self._reported_hosts) < _REMEMBERED_HOSTS:
            self._reported_hosts.add(host)
            self._parts.events.emit("offsets not sent", peer=peer, reason=remark)

    def _delays(self, link: Link, command: Command, reply: Reply) -> Command:
        return command.response(OK, body=dialect.write(self._parts.delays.table))

    def _stats(self, link: Link, command: Command, reply: Reply) -> None:
        header, parts = ConsumeStatsHeader.of(command), self._parts
        pieces = group_pieces(parts, header.consumer_group, consumed_topics(parts, header.consumer_group, header.topic))
        too_long = f"the queues of group {header.consumer_group}; ask for one topic"
        respond_in_slices(parts, command.response(OK), pieces, too_long, reply)

    def _broker_stats(self, link: Link, command: Command, reply: Reply) -> None:
        pieces = broker_pieces(self._parts, only_ordered=BrokerConsumeStatsHeader.of(command).is_order)
        too_long = "the queues of all groups; ask for one group"
        respond_in_slices(self._parts, command.response(OK), pieces, too_long, reply)
