"""Where a query begins and ends in each queue: from what an option says and what a broker says, to offsets. Pure.

An offset is that of the next message to be read: a start is included, an end is not. Offsets that are named are
promises: that one of them is not there is an error, never other rows or fewer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystick.errors import NoSuchMessage, UsageError
from tallystick.pipeline.option_values import number_of_key
from tallystick.rocketmq.wire.values import MessageQueue

LATEST, EARLIEST = -1, -2  # as rocketmq-spark writes them
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_FORM = 'earliest, latest, or JSON as in {"topic": {"broker": {"0": 12}}}'


class QueueLimits(NamedTuple):
    """A queue has messages from ``first`` to before ``end``. ``is_sure`` is False if only a slave says so: that may
    lack some at both ends."""

    first: int
    end: int
    is_sure: bool = True


@dataclass(frozen=True)
class Bound:
    """One end of what is read: a store time, or an offset for each queue, EARLIEST and LATEST among them; as ``option``
    says."""

    option: str
    default: int = EARLIEST  # of the queues that are not named
    named_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    timestamp_ms: int | None = None  # the first message stored then or later; it wins over the others

    @classmethod
    def parse(cls, option: str, text: str, default: int) -> Bound:
        """``earliest``, ``latest``, or ``{"topic": {"broker": {"0": 12}}}``; "" is the default. Raises UsageError."""
        word = text.strip().lower()
        if not word or word in _WORDS:
            return cls(option, _WORDS.get(word, default))
        try:
            named_offsets = {
                MessageQueue(topic, broker, number_of_key(number)): _offset(offset)
                for topic, brokers in json.loads(text).items()
                for broker, offsets in brokers.items()
                for number, offset in offsets.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{option} is {_FORM}", value=text) from None
        # Queues that are not named are read from their beginning, and to their end.
        return cls(option, EARLIEST if option == "startingOffsets" else LATEST, named_offsets)

    @property
    def is_moving(self) -> bool:
        """Whether the bound is elsewhere when there is more."""
        return self.timestamp_ms is not None or LATEST in {self.default, *self.named_offsets.values()}

    def check(self, queues: Collection[MessageQueue]) -> None:
        """Raises UsageError for a queue that is named and not read."""
        for queue in sorted(self.named_offsets.keys() - set(queues)):
            reason = f"{self.option} names a queue that the query does not read, or that is not there"
            raise UsageError(reason, queue=queue)

    def offset(self, queue: MessageQueue, limits: QueueLimits, timed: int | None, *, is_strict: bool = True) -> int:
        """Returns the bound's offset in a queue; ``timed`` is the one that its broker has for the bound's store time.

        Raises NoSuchMessage for a named offset that is not there. Not ``is_strict``: for one that is deleted the first
        that there is will do.
        """
        if timed is not None:
            return min(max(timed, limits.first), limits.end)
        offset = self.named_offsets.get(queue, self.default)
        if offset == EARLIEST:
            return limits.first
        if offset == LATEST:
            return limits.end
        if offset < limits.first and not is_strict:
            return limits.first
        if not limits.first <= offset <= limits.end:
            remedy = "; failOnDataLoss=false begins at the first that there is" if offset < limits.first else ""
            raise NoSuchMessage(
                f"{self.option}: the queue does not reach to this offset (any more){remedy}",
                queue=queue,
                offset=offset,
                first=limits.first,
                end=limits.end,
            )
        return offset


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError
    return value
