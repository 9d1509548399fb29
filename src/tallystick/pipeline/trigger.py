"""How much of what is new the next batch of a streaming query gets, and when there is one: what formats share. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TriggerLimits:
    """At most so much for a batch, None for any amount; and ``min_items``, unless the batch before it began
    ``max_delay_s`` ago. An item is what a format counts: an entry of a stream, a message of a topic."""

    items: int | None = None
    bytes: int | None = None
    min_items: int | None = None
    max_delay_s: float = 900.0


class TriggerDelay:
    """Decides whether what is new is too little for a batch by now."""

    def __init__(self) -> None:
        self._batch_at: float | None = None  # when the last batch began

    def waits(self, limits: TriggerLimits, items: int, now: float) -> bool:
        """``items``: how many are not read yet."""
        if limits.min_items is None:
            return False
        self._batch_at = now if self._batch_at is None else self._batch_at
        return now < self._batch_at + limits.max_delay_s and items < limits.min_items

    def batch_began(self, now: float) -> None:
        self._batch_at = now


def share(limit: int | None, part: int, whole: int) -> int | None:
    """Returns the part of a limit that is as large as ``part`` is of ``whole``, one at least, so that nobody waits for
    the others; None if all may be taken."""
    return None if limit is None or whole <= limit else max(1, limit * part // whole)
