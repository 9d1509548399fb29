"""The reads of pulls: messages, or where the reader must go on, and their counts (``pull_rules`` has the rules)."""

from __future__ import annotations

from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.pull_rules import AllowedPull, outcome
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import GetResult, GetStatus
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.own_headers import OffsetMovedResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.once import Once

_ANY_BYTES = 128 * 1024 * 1024


class PullReads:
    """``bytes`` counts what was read so far. ``beyond_events`` has the topics and groups that had an event."""

    def __init__(self, parts: Parts, counts: BrokerCounts) -> None:
        self._parts, self._counts = parts, counts
        self.bytes = 0
        self.beyond_events = Once()

    def read(
        self, link: Link, command: Command, header: PullHeader, allowed_pull: AllowedPull, tags: frozenset[int] | None
    ) -> Command:
        """Returns messages, or why there are none; ``tags`` are codes. ``bytes`` grows by what is read."""
        parts = self._parts
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        max_bytes = _ANY_BYTES if header.max_msg_bytes is None else header.max_msg_bytes
        reset_to = self._reset_to(link, header) if parts.offsets.resets.pending else None
        has_mark = header.mark is not None
        if reset_to is not None:
            result = GetResult(GetStatus.OFFSET_RESET, reset_to, *parts.store.queue_range(topic, queue_id))
        elif header.mark and parts.store.knows_other(topic, queue_id, header.mark):
            result = GetResult(GetStatus.OFFSET_RESET, header.queue_offset, *parts.store.queue_range(topic, queue_id))
            if parts.standing.is_slave and not parts.settings.store.offset_check_in_slave:
                has_mark = False  # the reader stays where it is, with what it knows, and asks the master
            else:
                result.next_offset = self._resume_offset(header, result)
        else:
            result = parts.store.get(topic, queue_id, header.queue_offset, header.max_msg_nums, max_bytes, tags)
        if result.status is GetStatus.OFFSET_OVERFLOW_BADLY and result.next_offset != header.queue_offset:
            result.next_offset = self._resume_offset(header, result)
        parts.offsets.set_pull_offset(topic, group, queue_id, result.next_offset)
        self.bytes += result.size
        mark = parts.store.mark_before(topic, queue_id, result.next_offset) if has_mark else None
        code, response_header = outcome(result, header, allowed_pull, parts.settings, parts.standing, mark)
        parts.traffic.pulled(has_messages=result.count > 0, now_ms=parts.clock.wall_ms())
        if result.count:
            self._counts.messages_out += result.count
            self._counts.bytes_out += result.size
            parts.traffic.read(topic, group, result.count, result.size, parts.clock.wall_ms())
        fields = response_header.to_fields()
        if reset_to is not None and code is ResponseCode.PULL_OFFSET_MOVED:
            fields |= OffsetMovedResponse(reset=True).to_fields()
        return command.response(code, result.status.name, fields, parts=result.buffers)

    def _reset_to(self, link: Link, header: PullHeader) -> int | None:
        """Returns where an operator set the group, if the pull is one of its consumers'; tools and slaves pull in its
        name, too."""
        group, pending = header.consumer_group, self._parts.offsets.resets.pending
        members = self._parts.clients.consumers(group)
        if members is None or link not in members.members:
            return None
        key, now = f"{header.topic}@{group}", self._parts.clock.now()
        return pending.hear(key, header.queue_id, header.queue_offset, link.peer, now, commits=False)

    def _resume_offset(self, header: PullHeader, result: GetResult) -> int:
        """Returns where a reader beyond the end, or of another log, goes on.

        Messages up to its offset are not those of this queue, which was made anew or lost its tail: the reader has seen
        those before the group's offset, or none.
        """
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        group_offset = self._parts.offsets.get(topic, group, queue_id)
        first, end = result.min_offset, result.max_offset
        to = group_offset if group_offset is not None and first <= group_offset <= end else first
        if self.beyond_events.is_new((topic, group, "pull")):
            kind = "reader beyond the end" if header.queue_offset > end else "reader of another log"
            self._parts.events.emit(
                kind,
                topic=topic,
                group=group,
                queue=queue_id,
                offset=header.queue_offset,
                end=end,
                to=to,
            )
        return to
