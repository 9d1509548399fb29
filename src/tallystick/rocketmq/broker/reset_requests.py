"""An operator sets a group elsewhere in a topic: to a time, an offset, or the end, which skips what has piled up.

The offset is set at once, for groups that are away. One whose consumers are there is told at its next pull in each
queue: what that pull commits is of before (``AdminBrokerProcessor.resetOffset``, server side as in 5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import OK, refusal, respond_in_slices
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import TimeBoundary
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ResetOffsets
from tallystick.rocketmq.wire.operator_headers import ResetOffsetHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode, TopicConfig

MAX_QUEUES = 4096  # of one request: they are set in one turn of the loop
MAX_SEARCHED = 256  # of one request, where a time is looked for in each: some 0.1 ms


class ResetRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.handlers: Mapping[int, Handler] = {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, link: Link, command: Command, reply: Reply) -> None:
        header, parts = ResetOffsetHeader.of(command), self._parts
        if parts.standing.is_slave:
            raise refusal(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = parts.topics.get(header.topic)
        if config is None:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in parts.groups.all:
            raise refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        offsets = self._targets(header, config)
        for queue_id, offset in offsets.items():
            if not parts.offsets.reset(header.topic, header.group, queue_id, offset):
                remark = f"This broker keeps {parts.offsets.most} offsets: a group gets no more of them (maxOffsets)."
                raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        parts.offsets.resets.pending.put(f"{header.topic}@{header.group}", offsets)
        parts.events.emit("offsets reset", topic=header.topic, group=header.group, queues=len(offsets), peer=link.peer)
        table = {MessageQueue(header.topic, parts.identity.name, queue): offset for queue, offset in offsets.items()}
        pieces = dialect.write_pieces(ResetOffsets(table))
        respond_in_slices(parts, command.response(OK), pieces, f"the queues of topic {header.topic}", reply)

    def _targets(self, header: ResetOffsetHeader, config: TopicConfig) -> dict[int, int]:
        """Returns the new offset by queue id. Raises BrokerError."""
        if header.queue_id < 0:
            most = MAX_QUEUES if header.timestamp < 0 else MAX_SEARCHED
            if config.read_queues > most:
                remark = f"More than {most} queues are not set at once, this topic has {config.read_queues}"
                raise refusal(ResponseCode.SYSTEM_ERROR, f"{remark}: give each with queueId.")
            return {queue_id: self._at(header, queue_id) for queue_id in range(config.read_queues)}
        if header.queue_id >= max(config.read_queues, config.write_queues):
            raise refusal(ResponseCode.SYSTEM_ERROR, f"Topic {header.topic} has no queue {header.queue_id}")
        if header.offset is None or header.offset == -1:
            return {header.queue_id: self._at(header, header.queue_id)}
        first, end = self._parts.store.queue_range(header.topic, header.queue_id)
        if not first <= header.offset <= end:
            remark = f"Target offset {header.offset} not in consume queue range [{first}-{end}]"
            raise refusal(ResponseCode.SYSTEM_ERROR, remark)
        return {header.queue_id: header.offset}

    def _at(self, header: ResetOffsetHeader, queue_id: int) -> int:
        store = self._parts.store
        if header.timestamp < 0:
            return store.queue_range(header.topic, queue_id)[1]
        return store.offset_at(header.topic, queue_id, header.timestamp, TimeBoundary.LOWER)
