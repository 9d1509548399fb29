"""Requests of operators to the store: to delete expired files and queues of deleted topics, and to look into a queue.

A broker does all of this by itself. Expired files go at ``deleteWhen`` o'clock or when the disk fills, and their units
in the queues with them; the requests make it happen within a second or so.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.responses import (
    OK,
    check_deletions,
    check_is_master,
    refusal,
    respond_after,
)
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import QueueUnit, QueueUnits
from tallystick.rocketmq.wire.operator_headers import QueryConsumeQueueHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

MAX_UNITS = 2000  # of one response
MAX_UNUSED = 250  # topics that go in one turn of the loop: some 50 us each, and their offsets


class UpkeepRequests:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.handlers: Mapping[int, Handler] = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._delete_expired,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_topics,
            RequestCode.QUERY_CONSUME_QUEUE: self._queue,
        }

    def _delete_expired(self, link: Link, command: Command, reply: Reply) -> Command:
        self._parts.events.emit("expired files are to go", peer=link.peer)
        self._parts.store.delete_expired()
        return command.response(OK)

    def _clean_topics(self, link: Link, command: Command, reply: Reply) -> Command | None:
        """Delete the queues of topics that the table does not have, and the offsets of groups in them. A slave goes by
        its master's table."""
        check_is_master(self._parts)
        parts = self._parts
        check_deletions(parts)
        unused = [topic for topic in parts.store.queues() if topic not in parts.topics.all]
        topics = unused[:MAX_UNUSED]
        if not topics:
            return command.response(OK)
        for topic in topics:
            parts.events.emit("queues of a deleted topic removed", topic=topic, peer=link.peer)
            parts.offsets.forget_topic(topic)
        parts.traffic.forget_topics(topics)
        remaining_count = len(unused) - len(topics)
        remark = f"{remaining_count} more topics are unused: ask again" if remaining_count else None
        respond_after(parts, parts.store.delete_topics(topics), command.response(OK, remark), reply)
        return None

    def _queue(self, link: Link, command: Command, reply: Reply) -> Command:
        header, parts = QueryConsumeQueueHeader.of(command), self._parts
        count = max(0, min(header.count, MAX_UNITS))
        units = parts.store.queue_units(header.topic, header.queue_id, header.index, count)
        if units is None:
            raise refusal(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        subscription = filter_text = None
        if header.consumer_group:
            consumers = parts.clients.consumers(header.consumer_group)
            subscription = consumers.subscriptions.get(header.topic) if consumers is not None else None
            filter_text = "null" if subscription else f"{header.consumer_group}@{header.topic} is not online!"
        first, end = parts.store.queue_range(header.topic, header.queue_id)
        body = QueueUnits(first, end, [QueueUnit(*unit) for unit in units], subscription, filter_text)
        remark = None if units else f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
        return command.response(OK, remark, body=dialect.write(body))
