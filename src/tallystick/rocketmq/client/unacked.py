"""One queue as its consumer has it: how far it was pulled, and which messages are not acknowledged. A core.

Messages are acknowledged in any order; a group stores the offset of the lowest that is not, so that after a crash each
of them comes again, and perhaps some behind it. A message is identified by its object: one that was handed out before a
seek, or before it was given back, acknowledges nothing, though its offset is there again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.values import MessageQueue


@dataclass(frozen=True)
class UnackedBounds:
    """Bounds beyond which no more is pulled: messages and offsets of one queue, bytes of one consumer."""

    count: int
    span: int
    bytes: int

    @classmethod
    def of(cls, settings: BrokerClientSettings) -> UnackedBounds:
        return cls(settings.queue_max_unacked, settings.queue_max_span, settings.max_unacked_bytes)


class QueueCore:
    """``unacked_messages`` is in the order of offsets. A seek replaces ``pull``: responses to the old one do not count.

    ``gives_back`` tells whether a message that is given back goes to the broker; else it is delivered here again.
    """

    def __init__(self, pull: PullPosition, *, gives_back: bool) -> None:
        self.pull, self.gives_back = pull, gives_back
        self.unacked_messages: dict[int, ReceivedMessage] = {}
        self.held_messages: deque[ReceivedMessage] = deque()  # pulled and not to be handed out now
        self.pause_asked = False
        self.leaves_since: float | None = None  # another member is to have it, and this one is at a message of it
        self.is_stalled = False  # its reader waits for room
        self.is_revoked = False  # it is somebody else's: nothing is known of it any more, and nothing to be committed

    @property
    def queue(self) -> MessageQueue:
        return self.pull.queue

    @property
    def is_paused(self) -> bool:
        """Whether nothing more of it is pulled and handed out."""
        return self.pause_asked or self.leaves_since is not None

    @property
    def committable(self) -> int:
        """The offset to commit: that of the lowest unacknowledged message or, without one, the next offset to pull."""
        return next(iter(self.unacked_messages), self.pull.next_offset)

    @property
    def is_busy(self) -> bool:
        """Whether a message is ready, handed out, or waits to be repeated."""
        return len(self.unacked_messages) > len(self.held_messages)

    def has(self, message: ReceivedMessage) -> bool:
        """Whether this very delivery of the message is unacknowledged."""
        return self.unacked_messages.get(message.record.queue_offset) is message

    def is_full(self, bounds: UnackedBounds) -> bool:
        return len(self.unacked_messages) >= bounds.count or self.pull.next_offset - self.committable >= bounds.span

    def drop_from(self, offset: int) -> list[ReceivedMessage]:
        """Forget the messages from this offset on. Returns them."""
        messages = [message for at, message in self.unacked_messages.items() if at >= offset]
        for message in messages:
            del self.unacked_messages[message.offset]
        self.held_messages = deque(message for message in self.held_messages if self.has(message))
        return messages

    def seek(self, offset: int) -> None:
        """Pull from here on. Call ``drop_from(0)`` before. Raises UsageError."""
        if offset < 0:
            raise UsageError("an offset is not below 0", offset=offset)
        self.pull = PullPosition(self.queue, self.pull.filter, offset, self.pull.broker_id)
