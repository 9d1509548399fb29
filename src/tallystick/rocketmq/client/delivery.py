"""What one consumer has pulled: what it hands out next, what was acknowledged, and what is given back.

A core: time is an argument, and ``wake_at`` says when to call ``due``. A message is pulled (``responded``), ready or
held, handed out (``take``), and then acknowledged (``ack``; ``finish`` for what a loop's body has done) or given back
(``nack``). What was given back waits here and stays unacknowledged, so that it is never lost:

    nack ── waits ──▶ due ──▶ GiveBack ── the broker stored it ──▶ given_back: acknowledged here
                       │                ├ disk or slaves are late ──▶ stored_late ──▶ waits, for the same copy
                       │                └ it did not ──▶ not_given_back ─┐
                       └ of a queue that gives nothing back ─────────────┴▶ ready again, before all others

An ordered consumer has one message of a queue under way: the next is ready when that one is acknowledged. It keeps a
queue that another member is to have while it is at a message of it (``leaving``), as the next one would get that, too.

There may be thousands of queues: what looks through all that is ready does so once for all of them.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count, repeat

from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.unacked import QueueCore, UnackedBounds
from tallystick.rocketmq.wire.own_headers import OffsetMovedResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode

LATE_S = 5.0  # before a broker is asked again whether disk and slaves have a message that was given back
LATE_MOST_S = 30.0  # for which it is asked: the message holds up its queue when that is far enough ahead
KEEP_S = 120.0  # that a queue is kept for the message at hand (the original keeps it until that is consumed)


@dataclass(frozen=True)
class GiveBack:
    """Send the message to its broker, to be delivered again not before ``delay_s``. ``copy``: where it stored it, and
    ``late_since``: when it first said that its disk or slaves are late with that."""

    queue: QueueCore
    message: ReceivedMessage
    delay_s: float
    copy: int | None = None
    late_since: float | None = None


class DeliveryCore:
    """See the module. ``room_made`` tells the shell that waiting readers may look again; the shell resets it."""

    def __init__(self, bounds: UnackedBounds, nack_delays_s: Sequence[float], *, auto_ack: bool, ordered: bool) -> None:
        self.queues: dict[MessageQueue, QueueCore] = {}
        self._ready: deque[tuple[QueueCore, ReceivedMessage]] = deque()
        self._has_dropped = False  # messages that are still among those
        self.unacked_bytes = 0
        self.room_made = False
        self._bounds, self._delays_s, self._auto_ack, self._ordered = bounds, nack_delays_s, auto_ack, ordered
        self._at_hand: Sequence[tuple[QueueCore, ReceivedMessage]] = ()  # handed out to a loop's body
        self._give_backs: list[tuple[float, int, GiveBack]] = []  # given back, by when they are due
        self._numbers = count()
        self._is_crowded = False  # a reader waits because of the bytes of all queues

    @property
    def ready(self) -> deque[tuple[QueueCore, ReceivedMessage]]:
        """The messages that are handed out next; dropped ones are removed when this is read."""
        if self._has_dropped:
            self._ready = deque(pair for pair in self._ready if pair[0].has(pair[1]))
            self._has_dropped = False
        return self._ready

    # Queues come and go

    def assigned(self, pull: PullPosition, *, gives_back: bool) -> QueueCore:
        queue = self.queues[pull.queue] = QueueCore(pull, gives_back=gives_back)
        return queue

    def revoking(self, queues: Collection[QueueCore]) -> None:
        """Queues are about to go: hand out nothing more of them. What was handed out can still be acknowledged."""
        leaving = set(queues)
        self._ready = deque(pair for pair in self.ready if pair[0] not in leaving)
        for queue in queues:
            queue.held_messages.clear()
            queue.pause_asked = True

    def revoked(self, queues: Collection[QueueCore]) -> None:
        """Queues are gone: forget them, and ignore acknowledgements from now on."""
        for queue in queues:
            self._drop(queue, 0)
            queue.is_revoked = True
            del self.queues[queue.queue]

    def seek(self, queue: QueueCore, offset: int) -> None:
        """Go on at this offset. What was pulled and handed out before counts no more. Raises UsageError."""
        queue.seek(offset)
        self._drop(queue, 0)

    def pause(self, queues: Collection[QueueCore]) -> None:
        """Pull and hand out nothing more of these."""
        for queue in queues:
            queue.pause_asked = True
        self._take_back(queues)

    def resume(self, queue: QueueCore) -> None:
        queue.pause_asked = False
        self._go_on(queue)

    def leaving(self, queues: Collection[QueueCore], now: float) -> list[QueueCore]:
        """Other members are to have these queues: hand out nothing more of them. Returns those that must stay for now,
        as they are ``at_work``; that is for ``KEEP_S`` at most."""
        self._take_back(queues)
        at_work, busy_queues = set(self.at_work(queues)), []
        for queue in queues:
            if queue.leaves_since is None:
                queue.leaves_since = now
            if queue in at_work and now - queue.leaves_since < KEEP_S:
                busy_queues.append(queue)
        return busy_queues

    def at_work(self, queues: Collection[QueueCore]) -> list[QueueCore]:
        """Returns the queues with a message that is handed out, and neither acknowledged nor given back."""
        others = Counter(queue for queue, _ in self.ready)
        others.update(one.queue for _, _, one in self._give_backs if one.queue.has(one.message))
        return [queue for queue in queues if len(queue.unacked_messages) > len(queue.held_messages) + others[queue]]

    def stays(self, queue: QueueCore) -> None:
        """The queue did not go, and is this member's again."""
        if queue.leaves_since is not None:
            queue.leaves_since = None
            self._go_on(queue)

    def position(self, queue: QueueCore) -> int:
        """Returns the offset of the next message that will be handed out, as far as is known."""
        ready = [message.offset for owner, message in self.ready if owner is queue]
        return min(ready + [message.offset for message in queue.held_messages], default=queue.pull.next_offset)

    # Messages come

    def may_pull(self, queue: QueueCore) -> bool:
        """Whether there is room for another pull; else the reader waits until ``room_made``."""
        self._is_crowded = self.unacked_bytes >= self._bounds.bytes
        queue.is_stalled = queue.is_paused or self._is_crowded or queue.is_full(self._bounds)
        return not queue.is_stalled

    @property
    def is_stalled(self) -> bool:
        """Whether a queue waits for acknowledgements: nothing more of it is pulled before."""
        return any(queue.is_stalled and not queue.is_paused for queue in self.queues.values())

    def responded(self, pull: PullPosition, response: Command) -> bool:
        """Take the response to a pull. Returns whether it had messages; False if the queue was taken away or sought.

        Raises BrokerError for a refusal, RemoteProtocolError.
        """
        queue = self.queues.get(pull.queue)
        if queue is None or queue.pull is not pull:
            return False
        messages = pull.responded(response)
        if response.code == ResponseCode.PULL_OFFSET_MOVED and OffsetMovedResponse.of(response).reset:
            self._drop(queue, 0)  # an operator set the group: what is at hand of before, and below, is not wanted
        elif pull.corrected:  # backwards: from there on it is another queue, or will be pulled again
            self._drop(queue, pull.next_offset)
        if not messages:
            return False
        unacked_messages, size = queue.unacked_messages, 0
        for message in messages:
            record = message.record
            unacked_messages[record.queue_offset] = message
            size += record.size
        self.unacked_bytes += size
        self._make_ready(queue, messages)
        return True

    # Messages go

    def take(self) -> ReceivedMessage:
        """Hand out the next message; ``ready`` has it."""
        pair = self.ready.popleft()
        if self._auto_ack:
            self._at_hand = (pair,)
        return pair[1]

    def take_batch(self, most: int) -> list[ReceivedMessage]:
        ready = self.ready
        pairs = [ready.popleft() for _ in range(min(most, len(ready)))]
        if self._auto_ack:
            self._at_hand = pairs
        return [message for _, message in pairs]

    def finish(self) -> None:
        """The loop's body is done with its messages: acknowledge those that it neither acknowledged nor gave back."""
        for queue, message in self._at_hand:
            record, unacked_messages = message.record, queue.unacked_messages
            offset = record.queue_offset
            if unacked_messages.get(offset) is message:  # as in _acknowledge: this is done for each message
                del unacked_messages[offset]
                self.unacked_bytes -= record.size
                if queue.is_stalled or self._is_crowded or self._ordered:
                    self._acknowledged(queue)
        self._at_hand = ()

    def begin_loop(self) -> None:
        """A loop begins: messages that an earlier loop did not finish are handed out again first."""
        for queue, message in reversed(self._at_hand):
            if queue.has(message):
                again = queue.unacked_messages[message.offset] = message.repeat(0)
                self._repeat(queue, again)
        self._at_hand = ()

    def ack(self, message: ReceivedMessage) -> bool:
        """Acknowledge a message. Returns False if it is not outstanding: its queue was taken away or sought, or it is
        done."""
        queue = self.queues.get(message.queue)
        return queue is not None and self._acknowledge(queue, message)

    def nack(self, message: ReceivedMessage, now: float, delay_s: float | None = None) -> bool:
        """Deliver it again, not before ``delay_s``; by default the more often it was tried, the later.

        Returns False as ``ack`` does.
        """
        queue = self.queues.get(message.queue)
        if queue is None or not queue.has(message):
            return False
        if delay_s is None:
            delay_s = self._delays_s[min(message.reconsume_times, len(self._delays_s) - 1)]
        again = queue.unacked_messages[message.offset] = message.repeat()
        self._wait(GiveBack(queue, again, 0.0), now + delay_s)
        return True

    # What was given back

    def wake_at(self) -> float | None:
        """When to call ``due``. Returns None while nothing waits."""
        return self._give_backs[0][0] if self._give_backs else None

    def due(self, now: float) -> list[GiveBack]:
        """Returns what is to be sent to brokers; messages that are repeated here become ready."""
        actions = []
        while self._give_backs and self._give_backs[0][0] <= now:
            _, _, action = heapq.heappop(self._give_backs)
            if not action.queue.has(action.message):
                continue
            if action.queue.gives_back:
                actions.append(action)
            else:
                self._repeat(action.queue, action.message)
        return actions

    def give_back_now(self, queues: Collection[QueueCore], now: float) -> list[GiveBack]:
        """Returns what waits in queues that are about to go: left here it would hold their offsets back."""
        leaving = set(queues)
        actions = sorted(one for one in self._give_backs if one[2].queue in leaving and one[2].queue.gives_back)
        self._give_backs = sorted(one for one in self._give_backs if one[2].queue not in leaving)
        return [
            replace(action, delay_s=max(0.0, due_at - now))
            for due_at, _, action in actions
            if action.queue.has(action.message)
        ]

    def given_back(self, action: GiveBack) -> None:
        """The broker has stored the message: the offset may pass over it."""
        self._acknowledge(action.queue, action.message)

    def stored_late(self, action: GiveBack, copy: int, now: float) -> bool:
        """The broker has stored the message, but not yet as safely as its settings say: the loss of one disk may take
        it.

        Returns whether the message waits; after ``LATE_MOST_S`` it does not: it is as safe as what is sent meanwhile,
        and counts as given back.
        """
        since = now if action.late_since is None else action.late_since
        if now - since >= LATE_MOST_S:
            self.given_back(action)
            return False
        self._wait(replace(action, copy=copy, late_since=since), now + LATE_S)
        return True

    def not_given_back(self, action: GiveBack) -> None:
        """The broker has not stored the message, or perhaps not: it is repeated here."""
        if action.queue.has(action.message):
            self._repeat(action.queue, action.message)

    # Inside

    def _wait(self, action: GiveBack, due_at: float) -> None:
        heapq.heappush(self._give_backs, (due_at, next(self._numbers), action))

    def _acknowledge(self, queue: QueueCore, message: ReceivedMessage) -> bool:
        record = message.record
        if queue.unacked_messages.get(record.queue_offset) is not message:
            return False
        del queue.unacked_messages[record.queue_offset]
        self.unacked_bytes -= record.size
        if queue.is_stalled or self._is_crowded or self._ordered:
            self._acknowledged(queue)
        return True

    def _acknowledged(self, queue: QueueCore) -> None:
        if self._is_crowded and self.unacked_bytes < self._bounds.bytes:
            self._is_crowded = False
            self.room_made = True
        elif queue.is_stalled and not (self._is_crowded or queue.is_paused or queue.is_full(self._bounds)):
            queue.is_stalled = False  # its reader is woken once, and looks for itself
            self.room_made = True
        if self._ordered:
            self._make_ready(queue, ())

    def _make_ready(self, queue: QueueCore, messages: Collection[ReceivedMessage]) -> None:
        """Put messages behind those that are ready, or hold them."""
        if not self._ordered and not queue.is_paused:
            self._ready.extend(zip(repeat(queue), messages, strict=False))
            return
        queue.held_messages.extend(messages)
        if not queue.is_paused and not queue.is_busy and queue.held_messages:
            self._ready.append((queue, queue.held_messages.popleft()))

    def _take_back(self, queues: Collection[QueueCore]) -> None:
        """Hold the ready messages of paused queues."""
        paused = set(queues)
        for queue, message in reversed(self.ready):
            if queue in paused:
                queue.held_messages.appendleft(message)
        self._ready = deque(pair for pair in self._ready if pair[0] not in paused)

    def _go_on(self, queue: QueueCore) -> None:
        if not queue.is_paused:
            messages, queue.held_messages = queue.held_messages, deque()
            self._make_ready(queue, messages)
            self.room_made = True

    def _repeat(self, queue: QueueCore, message: ReceivedMessage) -> None:
        """Hand the message out again, before all others."""
        if queue.is_paused:
            queue.held_messages.appendleft(message)
        else:
            self._ready.appendleft((queue, message))

    def _drop(self, queue: QueueCore, offset: int) -> None:
        messages = queue.drop_from(offset)
        self.unacked_bytes -= sum(message.record.size for message in messages)
        self._has_dropped = True
        self.room_made = True
