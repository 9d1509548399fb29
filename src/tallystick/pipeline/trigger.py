"""How much of what is new the next batch of a streaming query gets, and when there is one: what formats share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class TriggerLimits:
    """At most so much for a batch, None for any amount; and ``min_items``, unless the batch before it began
    ``max_delay_s`` ago. An item is what a format counts: an entry of a ledger or a stream, a message of a topic."""

    items: int | None = None
    bytes: int | None = None
    min_items: int | None = None
    max_delay_s: float = 900.0


class Backlog(NamedTuple):
    """Numbered items from ``first`` to before ``end`` that are not read, of about ``item_bytes`` each, at least 1."""

    first: int
    end: int
    item_bytes: int

    @property
    def items(self) -> int:
        return self.end - self.first

    @property
    def size(self) -> int:
        return self.items * self.item_bytes


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


def admit(backlogs: Sequence[Backlog], limits: TriggerLimits) -> list[int]:
    """Returns where a batch ends in each backlog, none of which is empty.

    Each has a part of the limits that is as large as its part of all that is not read, and one item at least. Sizes are
    estimates, since items are not all of one size; what was decided is in the offset.
    """
    items = sum(backlog.items for backlog in backlogs)
    size = sum(backlog.size for backlog in backlogs)
    ends = []
    for backlog in backlogs:
        most = [backlog.items]
        if (item_share := share(limits.items, backlog.items, items)) is not None:
            most.append(item_share)
        if (size_share := share(limits.bytes, backlog.size, size)) is not None:
            most.append(max(1, size_share // backlog.item_bytes))
        ends.append(backlog.first + min(most))
    return ends
