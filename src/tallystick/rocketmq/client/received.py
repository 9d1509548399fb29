"""A message as a consumer gets it."""

from __future__ import annotations

import msgspec

from tallystick.rocketmq.wire.record import StoredMessage
from tallystick.rocketmq.wire.values import MessageQueue


class ReceivedMessage(msgspec.Struct, frozen=True):
    """``queue`` and ``offset`` are its place; ``stored`` has what else its record says."""

    queue: MessageQueue
    stored: StoredMessage

    @property
    def topic(self) -> str:
        return self.stored.topic

    @property
    def offset(self) -> int:
        """In its queue."""
        return self.stored.queue_offset

    @property
    def body(self) -> bytes:
        """Raises UsageError for a compression that is not understood, RemoteProtocolError for a damaged body."""
        return self.stored.body()

    @property
    def tags(self) -> str | None:
        return self.stored.tags

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def properties(self) -> dict[str, str]:
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The unique key that its producer gave it; the place where it is stored if it has none."""
        return self.stored.unique_key or self.stored.offset_id

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in ms by its producer's clock."""
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.stored.store_timestamp
