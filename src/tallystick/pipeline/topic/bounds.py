"""Where a query begins and ends in each queue: from what an option says and what a broker says, to offsets. Pure.

Offsets that are named are promises: that one of them is not there is an error, never other rows or fewer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import NoSuchMessage, UsageError
from tallystick.rocketmq.wire.values import MessageQueue

LATEST, EARLIEST = -1, -2  # as rocketmq-spark writes them
_WORDS = {"latest": LATEST, "earliest": EARLIEST}


@dataclass(frozen=True)
class Bound:
    """One end of what is read: a store time, or an offset for each queue, EARLIEST and LATEST among them."""

    default: int = EARLIEST  # of the queues that are not named
    named_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)  # by broker and queue
    timestamp_ms: int | None = None  # the first message stored then or later; it wins over the others

    @classmethod
    def parse(cls, option: str, text: str, topic: str, default: int) -> Bound:
        """``earliest``, ``latest``, or ``{"topic": {"broker": {"0": 12}}}``; "" is the default. Raises UsageError."""
        word = text.strip().lower()
        if not word or word in _WORDS:
            return cls(_WORDS.get(word, default))
        try:
            by_topic = json.loads(text)
            if list(by_topic) != [topic]:
                raise UsageError(f"{option} names other topics than {topic}", value=text)
            named_offsets = {
                (str(broker), int(queue)): _offset(offset)
                for broker, offsets in by_topic[topic].items()
                for queue, offset in offsets.items()
            }
        except (ValueError, TypeError, AttributeError):
            raise UsageError(
                f'{option} is earliest, latest, or JSON as in {{"topic": {{"broker": {{"0": 12}}}}}}', value=text
            ) from None
        return cls(default, named_offsets)

    def check(self, queues: Sequence[MessageQueue]) -> None:
        """Raises UsageError for a named queue that the topic does not have."""
        unknown = sorted(set(self.named_offsets) - {(queue.broker, queue.queue_id) for queue in queues})
        if unknown:
            raise UsageError("the topic has no such queue to read", broker=unknown[0][0], queue=unknown[0][1])

    def offset(self, queue: MessageQueue, first: int, end: int, timed: int | None) -> int:
        """Returns the bound's offset in a queue with messages from ``first`` to before ``end``.

        ``timed`` is the offset that the queue's broker has for the bound's store time.

        Raises NoSuchMessage for a named offset that is outside.
        """
        if timed is not None:
            return min(max(timed, first), end)
        queue_offset = self.named_offsets.get((queue.broker, queue.queue_id), self.default)
        if queue_offset == EARLIEST:
            return first
        if queue_offset == LATEST:
            return end
        if not first <= queue_offset <= end:
            raise NoSuchMessage(
                "the queue does not reach to this offset (any more)",
                queue=queue,
                offset=queue_offset,
                first=first,
                end=end,
            )
        return queue_offset


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError
    return value
