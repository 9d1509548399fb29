"""Pulls that found nothing and wait for a message (long polling; ``PullRequestHoldService``).

A held pull is woken by the first message of its queue that its tags let through, by the end of its topic, or by its own
deadline; the original looks for ended ones every 5 s. Whoever is told to run one again does not hold it a second time.

A client pulls again as soon as it is answered, so none is answered before it has waited: beyond ``MAX_HELD``, or
``MAX_LINK_HELD`` of one connection, a pull waits for ``BRIEF_S`` at most. Beyond ``MAX_QUEUE_HELD`` of one queue no
message wakes it before. What it keeps counts as ever; whoever makes a broker keep most is closed when that is too much.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_HELD = 200_000  # that wait as long as they want to
MAX_LINK_HELD = 10_000  # of them for one connection
MAX_QUEUE_HELD = 10_000  # of them that each message of a queue passes over, or wakes: some milliseconds
MAX_OVER = 10_000  # whose time is up, in one ``tick``
BRIEF_S = 5.0  # that any more of them wait
_STALE = 1000  # ended ones that the list of deadlines may have beside the living ones

Pull = TypeVar("Pull")


@dataclass(eq=False, slots=True)
class Held(Generic[Pull]):
    """``offset`` is the queue offset that is waited for; ``tags`` the codes that are let through, None: all."""

    topic: str
    queue_id: int
    offset: int
    tags: frozenset[int] | None
    deadline: float
    link: Hashable
    pull: Pull
    waiting: bool = field(default=True, init=False)


class HoldCore(Generic[Pull]):
    """Every event returns the pulls that are over, to be run again. ``tick`` is due at ``wake_at``."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, dict[Held[Pull], None]]] = {}  # by queue id
        self._links: dict[Hashable, dict[Held[Pull], None]] = {}
        self._deadlines: list[tuple[float, int, Held[Pull]]] = []
        self._count = self._number = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, held: Held[Pull], now: float) -> bool:
        """Returns False if it waits briefly, as there are too many."""
        of_link = self._links.setdefault(held.link, {})
        of_queue = self._topics.setdefault(held.topic, {}).setdefault(held.queue_id, {})
        is_listed = len(of_queue) < MAX_QUEUE_HELD
        has_room = is_listed and self._count < MAX_HELD and len(of_link) < MAX_LINK_HELD
        if not has_room:
            held.deadline = min(held.deadline, now + BRIEF_S)
        if is_listed:
            of_queue[held] = None
        of_link[held] = None
        self._count += 1
        self._number += 1
        heapq.heappush(self._deadlines, (held.deadline, self._number, held))
        if len(self._deadlines) > 2 * self._count + _STALE:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waiting]
            heapq.heapify(self._deadlines)
        return has_room

    def arrived(self, topic: str, queue_id: int, next_offset: int, tags: Iterable[int]) -> list[Pull]:
        """Messages with these tags codes became readable; ``next_offset`` is after the last of them."""
        waiting = self._topics.get(topic, {}).get(queue_id)
        if not waiting:
            return []
        codes = frozenset(tags)
        return self._end(
            [
                held
                for held in waiting
                if held.offset < next_offset and (held.tags is None or not held.tags.isdisjoint(codes))
            ]
        )

    def gone(self, topics: Container[str]) -> list[Pull]:
        """Only these topics are left."""
        lost = [queues for topic, queues in self._topics.items() if topic not in topics]
        return self._end([held for queues in lost for waiting in queues.values() for held in waiting])

    def closed(self, link: Hashable) -> None:
        """Nobody waits there any more."""
        self._end(list(self._links.get(link, ())))

    def tick(self, now: float) -> list[Pull]:
        """Those whose time is up, or so many of them."""
        over: list[Held[Pull]] = []
        while (
            self._deadlines
            and len(over) < MAX_OVER
            and (self._deadlines[0][0] <= now or not self._deadlines[0][2].waiting)
        ):
            held = heapq.heappop(self._deadlines)[2]
            if held.waiting:
                over.append(held)
        return self._end(over)

    def wake_at(self) -> float | None:
        """None: not before another event. May be early."""
        return self._deadlines[0][0] if self._deadlines else None

    def _end(self, over: list[Held[Pull]]) -> list[Pull]:
        for held in over:
            held.waiting = False
            self._count -= 1
            queues = self._topics.get(held.topic, {})
            _remove(queues, held.queue_id, held)
            if not queues:
                self._topics.pop(held.topic, None)
            _remove(self._links, held.link, held)
        return [held.pull for held in over]


Place = TypeVar("Place", bound=Hashable)


def _remove(table: dict[Place, dict[Held[Pull], None]], place: Place, held: Held[Pull]) -> None:
    waiting = table.get(place, {})
    waiting.pop(held, None)  # one beyond the bound of its queue is not there
    if not waiting:
        table.pop(place, None)
