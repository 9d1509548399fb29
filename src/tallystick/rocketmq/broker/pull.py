"""Pulls: read at once, or held until a message comes; the shell of ``pull_rules`` and ``HoldCore`` (H13).

A turn of the loop reads for ``TURN_S`` or ``TURN_BYTES``, the tags of pulls included. Pulls beyond that wait for the
next turn, one of each connection in turn, and their connections are not read meanwhile. So sends, acknowledgements and
slaves have their turn however many consumers read. The memory of a waiting pull counts for its connection.

A pull that makes its group waits until the group is saved, and reads then. Other pulls do not wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.hold import HeldPull, HoldCore
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.parts import Parts
from tallystick.rocketmq.broker.pull_reads import PullReads
from tallystick.rocketmq.broker.pull_rules import AllowedPull, check, finds_nothing, tag_codes
from tallystick.rocketmq.broker.refusals import Refusal
from tallystick.rocketmq.broker.saves import newest_since
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.refusals import Refusals
from tallystick.rocketmq.store.values import Arrival
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import PullFlag, RequestCode, ResponseCode
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.once import Once
from tallystick.runtime.turn_order import PeerQueues
from tallystick.runtime.turn_steps import TurnSteps
from tallystick.runtime.turn_time import TurnTime

PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

_COMMIT_OFFSET, _SUSPEND = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUSPEND)  # plain numbers: per pull
_MAX_HOLD_MS = 10 * 60 * 1000

WAKE_EACH_TURN = 500  # steps of ``HoldCore``: some milliseconds
TURN_S = 0.01
TURN_BYTES = 8 * 1024 * 1024
_PULL_BYTES = 1024  # that one takes which waits
_TAG_BYTES = 16  # for each byte of its expression
_CHARACTER_BYTES = 4  # of its other texts, which nobody looks at
_CODE_BYTES = 80  # for each tag that its group's heartbeats said


@dataclass(slots=True)
class _Pull:
    """``command`` is the request without its header and body."""

    link: Link
    reply: Reply
    command: Command
    header: PullHeader
    codes: int = 0  # of tags, in memory while it is held

    @property
    def kept_bytes(self) -> int:
        header = self.header
        texts = (header.expression_type or "", header.broker or "", header.mark or "")
        size = _PULL_BYTES + _TAG_BYTES * len(header.subscription or "") + _CODE_BYTES * self.codes
        return size + _CHARACTER_BYTES * sum(map(len, texts))


class Pulls:
    """Serves pulls and sends their responses to the links. All methods run on the loop."""

    def __init__(self, parts: Parts, counts: BrokerCounts) -> None:
        self._parts, self._counts, self._refusals = parts, counts, Refusals(parts.events)
        self._hold: HoldCore[_Pull] = HoldCore()
        self._reads, self._brief_events = PullReads(parts, counts), Once()  # hosts
        self._removals = parts.topics.removals
        self._alarm = Alarm(parts.clock, self._tick)
        self._loop = asyncio.get_running_loop()
        self._turn_time = TurnTime.of(self._loop)
        # Put off to a later turn; whether for the first time here.
        self._late: PeerQueues[Link, tuple[_Pull, bool]] = PeerQueues()
        self._waking = TurnSteps(WAKE_EACH_TURN)
        # By topic and queue id: where the messages end, and their tags codes, that wake pulls in later steps.
        self._arrivals: dict[tuple[str, int], tuple[int, frozenset[int]]] = {}
        self._turn_ends: float | None = None  # None: none was read in this turn
        self._turn_end_bytes = 0  # of all that is read
        self.handlers: Mapping[int, Handler] = dict.fromkeys(PULLS, self.handle)

    @property
    def held_count(self) -> int:
        return len(self._hold)

    def handle(self, link: Link, command: Command, reply: Reply) -> Command | None:
        """Serve or hold a pull. Raises RemoteProtocolError for a header that is none."""
        pull = _Pull(
            link,
            reply,
            Command(command.code, command.opaque, command.flag, language=command.language),
            PullHeader.of(command),
        )
        try:
            self._begin(pull)
        except StorageError as error:  # reported as a bug is: the log cannot be read
            return self._failed(pull, error)
        return None

    def _begin(self, pull: _Pull) -> None:
        before = self._parts.saves.changes
        allowed_pull = self._check(pull)
        if allowed_pull is None:
            return
        header = pull.header
        if header.sys_flag & _COMMIT_OFFSET and header.commit_offset >= 0:
            self._commit(pull.link.peer, header)
        if self._parts.saves.changes != before:
            self._save_first(pull)
        elif self._late or not self._has_time():
            self._put_off(pull, first=True)
        else:
            self._serve(pull, allowed_pull, first=True)

    def _commit(self, peer: str, header: PullHeader) -> None:
        """Take the commit that a pull carries; it has no response of its own."""
        topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.commit_offset
        if self._parts.offsets.is_beyond(topic, queue_id, offset):
            if self._reads.beyond_events.is_new((topic, group, "commit")):
                self._parts.events.emit(
                    "commit beyond the end", topic=topic, group=group, queue=queue_id, offset=offset
                )
            return
        now, pending = self._parts.clock.now(), self._parts.offsets.resets.pending
        if pending.hear(f"{topic}@{group}", queue_id, offset, peer, now, commits=True) is None:
            self._parts.offsets.commit(topic, group, queue_id, offset)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Messages became readable: wake the pulls that wait for one of them."""
        now_ms, sent_here = self._parts.clock.wall_ms(), not self._parts.standing.is_slave
        for arrival in arrivals:
            if sent_here:  # what a slave copies its master has counted
                self._parts.traffic.stored(arrival.topic, len(arrival.tags), now_ms)
            self._wake_for(arrival)

    def rebuilt(self, arrivals: Iterable[Arrival]) -> None:
        """Messages of a lost queue can be read again: wake the pulls that wait for one of them."""
        for arrival in arrivals:
            self._wake_for(arrival)

    def _wake_for(self, arrival: Arrival) -> None:
        """Note that pulls of a queue are to be woken: its messages until the next turn cost one look at its pulls."""
        key = arrival.topic, arrival.queue_id
        if not self._hold.waits(*key):
            return
        before = self._arrivals.get(key)
        end, tags = before or (0, frozenset[int]())
        self._arrivals[key] = max(end, arrival.next_offset), tags.union(arrival.tags)
        if before is None:
            self._waking.run(self._waking_for(key))

    def _waking_for(self, key: tuple[str, int]) -> Iterator[None]:
        end, tags = self._arrivals.pop(key)
        yield from self._waking_all(self._hold.arrived(*key, end, tags))

    def _waking_all(self, over: Iterable[_Pull | None]) -> Iterator[None]:
        for pull in over:
            if pull is not None:
                self._wake(pull)
            yield

    def topics_changed(self) -> None:
        """Wake the pulls of deleted topics: a topic that is made anew counts its messages from 0."""
        topics = self._parts.topics
        if topics.removals != self._removals:
            self._removals = topics.removals
            self._waking.run(self._waking_all(self._hold.topics_deleted(topics.all)))

    def revoked(self) -> None:
        """Somebody may do less than before: end the pulls that are held. Their clients ask again, and are checked."""
        self._waking.run(self._waking_all(self._hold.topics_deleted(())))

    def closed(self, link: Link) -> None:
        self._late.discard(link, link.host)
        self._waking.run(self._hold.closed(link))

    def close(self) -> None:
        """Drop the pulls that wait: they get no response any more."""
        self._alarm.cancel()
        self._waking.close()
        self._late.clear()

    def _tick(self) -> None:
        for pull in self._hold.tick(self._parts.clock.now()):
            self._wake(pull)
        self._alarm.set(self._hold.wake_at())

    def _wake(self, pull: _Pull) -> None:
        """Run a held pull again."""
        if not pull.link.alive:
            return
        pull.link.keep(-pull.kept_bytes)
        pull.codes = 0
        if self._late or not self._has_time():
            self._put_off(pull, first=False)
        else:
            self._run(pull, first=False)

    # Turns

    def _has_time(self) -> bool:
        """Whether one more pull may read in this turn of the loop."""
        now = self._parts.clock.now()
        if self._turn_ends is None:
            self._turn_ends = self._turn_time.ends(now, TURN_S)
            self._turn_end_bytes = self._reads.bytes + TURN_BYTES
            self._loop.call_soon(self._next_turn)
        return now < self._turn_ends and self._reads.bytes < self._turn_end_bytes

    def _put_off(self, pull: _Pull, *, first: bool) -> None:
        self._late.put(pull.link, pull.link.host, (pull, first))
        pull.link.keep(pull.kept_bytes)
        pull.link.busy(+1)

    def _next_turn(self) -> None:
        self._turn_ends = None
        cpu = self._parts.clock.cpu() if self._late else 0.0
        while self._late and self._has_time():
            pull, first = self._late.pop()
            pull.link.keep(-pull.kept_bytes)
            pull.link.busy(-1)
            if pull.link.alive:
                self._run(pull, first=first)
                link = pull.link if pull.link.alive else None
                began, cpu = cpu, self._parts.clock.cpu()
                self._late.spent(link, pull.link.host, cpu - began)

    def _save_first(self, pull: _Pull) -> None:
        """Serve a pull that made its group when the group is on the disk."""
        pull.link.keep(pull.kept_bytes)

        def saved(error: StorageError | None) -> None:
            if not pull.link.alive:
                return
            pull.link.keep(-pull.kept_bytes)
            if error is None:
                self._put_off(pull, first=True)
                self._has_time()  # of this turn or, when it has none left, of the next one
            else:
                remark = f"the group was made, but cannot be saved: {error}"
                pull.reply(pull.command.response(ResponseCode.SYSTEM_ERROR, remark))

        self._parts.saves.when_saved(saved)

    def _run(self, pull: _Pull, *, first: bool) -> None:
        before = self._parts.saves.changes
        try:
            allowed_pull = self._check(pull)
            if allowed_pull is None:
                return
            if self._parts.saves.changes != before:
                self._save_first(pull)
            else:
                self._serve(pull, allowed_pull, first=first)
        except Exception as error:  # a bug of ours: whoever woke it, a send for example, is not to blame
            pull.reply(self._failed(pull, error))

    def _failed(self, pull: _Pull, error: Exception) -> Command:
        peer, code = pull.link.peer, pull.command.code
        self._parts.events.emit("request failed", peer=peer, code=code, reason=repr(error))
        return pull.command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # One pull

    def _check(self, pull: _Pull) -> AllowedPull | None:
        """Returns None if the pull was refused, with a response."""
        parts, header, before = self._parts, pull.header, self._parts.saves.changes
        outcome = check(
            header,
            pull.command.code,
            pull.link.peer,
            parts.settings,
            parts.standing,
            parts.topics,
            parts.groups,
            parts.clients,
        )
        if isinstance(outcome, Refusal):
            response = pull.command.response(outcome.code, outcome.remark)
            self._refusals.responded(pull.link.peer, pull.command, response)
            parts.saves.send(pull.reply, response, newest_since(parts.saves, before))
            return None
        return outcome

    def _serve(self, pull: _Pull, allowed_pull: AllowedPull, *, first: bool) -> None:
        """Respond to a pull, or, if it is ``first`` tried, hold it when there is nothing to read."""
        tags = tag_codes(allowed_pull.subscription)
        read = self._reads.read(pull.link, pull.header, tags)
        if first and finds_nothing(read.result, pull.header) and self._hold_pull(pull, tags):
            return
        self._counts.pulls += 1
        pull.reply(self._reads.response(pull.command, pull.header, allowed_pull, read))

    def _hold_pull(self, pull: _Pull, tags: frozenset[int] | None) -> bool:
        """Hold a pull, if it may wait. Returns whether it is held."""
        header, settings = pull.header, self._parts.settings
        if not header.sys_flag & _SUSPEND:
            return False
        wait_ms = header.suspend_timeout_millis if settings.long_polling else settings.short_polling_ms
        now = self._parts.clock.now()
        deadline = now + min(max(wait_ms, 0), _MAX_HOLD_MS) / 1000
        held_pull = HeldPull(header.topic, header.queue_id, header.queue_offset, tags, deadline, pull.link, pull)
        if not self._hold.hold(held_pull, now):
            self._counts.brief_pulls += 1
            host = pull.link.peer.rpartition(":")[0]
            if self._brief_events.is_new(host):
                self._parts.events.emit("pulls wait briefly", peer=pull.link.peer, held=len(self._hold))
        pull.codes = len(tags or ()) if not header.subscription else 0
        pull.link.keep(pull.kept_bytes)
        self._alarm.set(self._hold.wake_at())
        return True
