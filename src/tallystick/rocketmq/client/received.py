"""A message that a consumer received."""

from __future__ import annotations

import msgspec

from tallystick.rocketmq.wire.record import RETRY_TOPIC, StoredMessage
from tallystick.rocketmq.wire.system_properties import SYSTEM_PROPERTIES
from tallystick.rocketmq.wire.values import RETRY_PREFIX, MessageQueue


class ReceivedMessage(msgspec.Struct, frozen=True, gc=False):
    """``queue`` and ``offset`` are its place; ``record`` has what else its record says."""

    queue: MessageQueue
    record: StoredMessage
    repeats: int = 0  # how often this consumer delivered it again by itself

    @property
    def topic(self) -> str:
        """The topic to which it was sent, also when it comes again from the retry topic of the group."""
        topic = self.record.topic
        return self.record.properties.get(RETRY_TOPIC, topic) if topic.startswith(RETRY_PREFIX) else topic

    @property
    def offset(self) -> int:
        """The queue offset."""
        return self.record.queue_offset

    @property
    def body(self) -> bytes:
        """The body as its producer sent it. Raises UsageError for a compression that is not understood,
        RemoteProtocolError for a damaged body."""
        return self.record.body()

    @property
    def tags(self) -> str | None:
        """The tag, or None if it has none."""
        return self.record.tags

    @property
    def keys(self) -> list[str]:
        """The keys by which it can be found."""
        return self.record.keys

    @property
    def properties(self) -> dict[str, str]:
        """The properties that its producer gave it: those of the system are in ``record.properties``. To forward a
        message, give them to ``send``."""
        return {name: value for name, value in self.record.properties.items() if name not in SYSTEM_PROPERTIES}

    @property
    def message_id(self) -> str:
        """The unique key that its producer gave it; the offset id if it has none."""
        return self.record.unique_key or self.record.offset_id

    @property
    def reconsume_times(self) -> int:
        """How often it was given back before this delivery."""
        return self.record.reconsume_times + self.repeats

    def repeat(self, times: int = 1) -> ReceivedMessage:
        """The same message for its next delivery by this consumer: what it acknowledges is that one alone."""
        return ReceivedMessage(self.queue, self.record, self.repeats + times)

    @property
    def born_timestamp(self) -> int:
        """When it was sent, in ms by its producer's clock."""
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """When it was stored, in ms by its broker's clock."""
        return self.record.store_timestamp
