"""Pulls: read at once, or held until a message comes; the shell of ``pull_rules`` and ``HoldCore`` (H13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.rocketmq.broker.hold import Held, HoldCore
from tallystick.rocketmq.broker.metrics import Counts
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.pull_rules import Allowed, check, outcome
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.ha.alarm import Alarm
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store.values import Arrival
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import PullFlag, RequestCode, ResponseCode

PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

_COMMIT_OFFSET, _SUSPEND = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUSPEND)  # plain numbers: per pull
_ANY_BYTES = 128 * 1024 * 1024
_MAX_HOLD_MS = 10 * 60 * 1000


@dataclass(frozen=True)
class _Pull:
    link: Link
    command: Command
    header: PullHeader


class Pulls:
    """Answers go to the links. Everything runs on the loop."""

    def __init__(self, parts: Parts, counts: Counts) -> None:
        self._parts, self._counts = parts, counts
        self._hold: HoldCore[_Pull] = HoldCore()
        self._alarm = Alarm(parts.clock, self._tick)

    @property
    def held(self) -> int:
        return len(self._hold)

    def handle(self, link: Link, command: Command) -> None:
        """Raises RemoteProtocolError for a header that is none."""
        self._run(_Pull(link, command, PullHeader.of(command)), first=True)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Messages became readable: who waited for one of them gets it."""
        now_ms = self._parts.clock.wall_ms()
        for arrival in arrivals:
            self._parts.traffic.stored(arrival.topic, len(arrival.tags), now_ms)
            woken = self._hold.arrived(arrival.topic, arrival.queue_id, arrival.next_offset, arrival.tags)
            for pull in woken:
                self._run_again(pull)

    def closed(self, link: Link) -> None:
        self._hold.closed(link)

    def close(self) -> None:
        """Whoever waits gets no answer any more."""
        self._alarm.cancel()

    def _tick(self) -> None:
        for pull in self._hold.tick(self._parts.clock.now()):
            self._run_again(pull)
        self._alarm.set(self._hold.wake_at())

    def _run_again(self, pull: _Pull) -> None:
        try:
            self._run(pull, first=False)
        except Exception as error:  # a bug of ours: whoever woke it, a send for example, is not to blame
            self._parts.events.emit("request failed", code=pull.command.code, reason=repr(error))
            pull.link.send(pull.command.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _run(self, pull: _Pull, *, first: bool) -> None:
        parts, header = self._parts, pull.header
        allowed = check(
            header, pull.command.code, pull.link.peer, parts.settings, parts.topics, parts.groups, parts.clients
        )
        if isinstance(allowed, Refusal):
            pull.link.send(pull.command.answer(allowed.code, allowed.remark))
            return
        answer = self._read(pull, allowed, first=first)
        if first and answer.code == ResponseCode.PULL_NOT_FOUND and self._held(pull, allowed):
            return
        self._counts.pulls += 1
        pull.link.send(answer)

    def _read(self, pull: _Pull, allowed: Allowed, *, first: bool) -> Command:
        parts, header = self._parts, pull.header
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        max_bytes = _ANY_BYTES if header.max_msg_bytes is None else header.max_msg_bytes
        found = parts.store.get(topic, queue_id, header.queue_offset, header.max_msg_nums, max_bytes, allowed.tags)
        parts.offsets.pulled(topic, group, queue_id, found.next_offset)
        if first and header.sys_flag & _COMMIT_OFFSET and header.commit_offset >= 0:
            parts.offsets.commit(topic, group, queue_id, header.commit_offset)
        code, said = outcome(found, header, allowed, parts.settings)
        if found.count:
            self._counts.messages_out += found.count
            self._counts.bytes_out += found.size
            parts.traffic.read(topic, group, found.count, parts.clock.wall_ms())
        return pull.command.answer(code, found.status.name, said.to_fields(), parts=found.buffers)

    def _held(self, pull: _Pull, allowed: Allowed) -> bool:
        """Whether it waits now."""
        header, settings = pull.header, self._parts.settings
        if not header.sys_flag & _SUSPEND:
            return False
        wait_ms = header.suspend_timeout_millis if settings.long_polling else settings.short_polling_ms
        deadline = self._parts.clock.now() + min(max(wait_ms, 0), _MAX_HOLD_MS) / 1000
        held = Held(header.topic, header.queue_id, header.queue_offset, allowed.tags, deadline, pull.link, pull)
        if not self._hold.hold(held):
            return False
        self._alarm.set(self._hold.wake_at())
        return True
