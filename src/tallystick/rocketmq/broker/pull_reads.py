"""The reads of pulls: messages, or where the reader must go on, and their counts (``pull_rules`` has the rules)."""

from __future__ import annotations

from dataclasses import dataclass

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
# An attribute of an enum costs ten times a name, and these are looked at for each pull.
_BADLY, _RESET = GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_RESET


@dataclass(slots=True)
class PullRead:
    """What a pull read. ``marked``: the response has a mark; ``is_reset``: an operator set the group there."""

    result: GetResult
    marked: bool
    is_reset: bool


class PullReads:
    """``bytes`` counts what was read so far. ``beyond_events`` has the topics and groups that had an event."""

    def __init__(self, parts: Parts, counts: BrokerCounts) -> None:
        self._parts, self._counts = parts, counts
        self.bytes = 0
        self.beyond_events = Once()

    def read(self, link: Link, header: PullHeader, tags: frozenset[int] | None) -> PullRead:
        """Returns messages, or why there are none; ``tags`` are codes. ``bytes`` grows by what is read."""
        parts = self._parts
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        max_bytes = _ANY_BYTES if header.max_msg_bytes is None else header.max_msg_bytes
        reset_to = self._reset_to(link, header) if parts.offsets.resets.pending else None
        has_mark = header.mark is not None
        if reset_to is not None:
            result = GetResult(GetStatus.OFFSET_RESET, reset_to, *parts.store.queue_range(topic, queue_id))
        else:
            result = parts.store.get(
                topic, queue_id, header.queue_offset, header.max_msg_nums, max_bytes, tags, mark=header.mark
            )
        if reset_to is None and result.status is _RESET:
            if parts.standing.is_slave and not parts.settings.store.offset_check_in_slave:
                has_mark = False  # the reader stays where it is, with what it knows, and asks the master
            else:
                result.next_offset = self._resume_offset(header, result)
        if result.status is _BADLY and result.next_offset != header.queue_offset:
            result.next_offset = self._resume_offset(header, result)
        parts.offsets.set_pull_offset(topic, group, queue_id, result.next_offset)
        self.bytes += result.size
        now_ms = parts.clock.wall_ms()
        parts.traffic.pulled(has_messages=result.count > 0, now_ms=now_ms)
        if result.count:
            self._counts.messages_out += result.count
            self._counts.bytes_out += result.size
            parts.traffic.read(topic, group, result.count, result.size, now_ms)
        return PullRead(result, has_mark, reset_to is not None)

    def response(self, command: Command, header: PullHeader, allowed_pull: AllowedPull, read: PullRead) -> Command:
        """Returns the response with what was read."""
        parts, result = self._parts, read.result
        mark = result.mark
        if mark is None and read.marked:
            mark = parts.store.mark_before(header.topic, header.queue_id, result.next_offset)
        code, response_header = outcome(result, header, allowed_pull, parts.settings, parts.standing, mark)
        fields = response_header.to_fields()
        if read.is_reset and code is ResponseCode.PULL_OFFSET_MOVED:
            fields |= OffsetMovedResponse(reset=True).to_fields()
        return command.response(code, result.status._name_, fields, parts=result.buffers)

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
