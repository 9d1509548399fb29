"""Pulls that found nothing and wait for a message (long polling; ``PullRequestHoldService``).

A held pull is woken by the first message of its queue that its tags let through, by the deletion of its topic, or by
its own deadline; the original looks for ended ones every 5 s. A pull that is run again is not held a second time.

A client pulls again as soon as it has a response, so no response is sent before the pull has waited: beyond
``MAX_HELD``, or ``MAX_LINK_HELD`` of one connection, a pull waits for ``BRIEF_S`` at most. Beyond ``MAX_QUEUE_HELD`` of
one queue no message wakes a pull before that. The memory of held pulls counts as that of other requests: the connection
that takes most is closed when all take too much.

A pull that ends leaves its place in the heap of deadlines, but frees its request. When most places are of ended pulls,
those of the others move to a new heap, some with each pull that comes or ends: always from the end of the old one,
which stays a heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_HELD = 200_000  # that wait as long as they want to
MAX_LINK_HELD = 10_000  # of them for one connection
MAX_QUEUE_HELD = 10_000  # of them that each message of a queue passes over, or wakes
MAX_OVER = 500  # deadlines that one ``tick`` looks at: some milliseconds
STEP_PASSED, STEP_FORGOTTEN = 50, 4  # pulls that are passed over, or forgotten, in one step
BRIEF_S = 5.0  # that any more of them wait
_STALE = 1000  # places of ended ones that the heap of deadlines may have beside as many as there are living ones
_STEP_MOVED = 4  # places of the old heap that are looked at with each pull that comes or ends

AnyPull = TypeVar("AnyPull")


@dataclass(eq=False, slots=True)
class HeldPull(Generic[AnyPull]):
    """A pull that waits for queue offset ``offset``. ``tags`` are the codes that wake it, None for all messages."""

    topic: str
    queue_id: int
    offset: int
    tags: frozenset[int] | None
    deadline: float
    link: Hashable
    pull: AnyPull | None  # None: it has ended
    is_waiting: bool = field(default=True, init=False)


class HoldCore(Generic[AnyPull]):
    """Events return the pulls that are over, to be run again. ``tick`` is due at ``wake_at``.

    There may be very many, so events yield one at a time, and None after a step that ended no pull. A change between
    two steps counts as if it had happened before the event.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, dict[HeldPull[AnyPull], None]]] = {}  # by queue id
        self._links: dict[Hashable, dict[HeldPull[AnyPull], None]] = {}
        self._deadlines: list[tuple[float, int, HeldPull[AnyPull]]] = []
        self._old_deadlines: list[tuple[float, int, HeldPull[AnyPull]]] = []  # that go over
        self._count = self._number = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, held_pull: HeldPull[AnyPull], now: float) -> bool:
        """Returns False if it waits briefly, as there are too many."""
        of_link = self._links.setdefault(held_pull.link, {})
        of_queue = self._topics.setdefault(held_pull.topic, {}).setdefault(held_pull.queue_id, {})
        is_listed = len(of_queue) < MAX_QUEUE_HELD
        has_room = is_listed and self._count < MAX_HELD and len(of_link) < MAX_LINK_HELD
        if not has_room:
            held_pull.deadline = min(held_pull.deadline, now + BRIEF_S)
        if is_listed:
            of_queue[held_pull] = None
        of_link[held_pull] = None
        self._count += 1
        self._number += 1
        heapq.heappush(self._deadlines, (held_pull.deadline, self._number, held_pull))
        self._move_deadlines()
        return has_room

    def waits(self, topic: str, queue_id: int) -> bool:
        """Whether a pull is held at a queue."""
        return queue_id in self._topics.get(topic, {})

    def arrived(self, topic: str, queue_id: int, next_offset: int, tags: Iterable[int]) -> Iterator[AnyPull | None]:
        """Messages with these tags codes became readable; ``next_offset`` is after the last of them."""
        codes, skipped_count = frozenset(tags), 0
        for held_pull in list(self._topics.get(topic, {}).get(queue_id, ())):
            is_wanted = held_pull.tags is None or not held_pull.tags.isdisjoint(codes)
            if held_pull.is_waiting and held_pull.offset < next_offset and is_wanted:
                yield self._end(held_pull)
            else:
                skipped_count += 1
                if skipped_count % STEP_PASSED == 0:
                    yield None

    def topics_deleted(self, topics: Container[str]) -> Iterator[AnyPull]:
        """Topics were deleted: end the pulls of all but these ``topics``. A pull that is held later, at a topic that is
        made anew, is not over."""
        return self._end_all(
            [self._topics.pop(topic) for topic in [name for name in self._topics if name not in topics]]
        )

    def _end_all(self, queues_by_topic: list[dict[int, dict[HeldPull[AnyPull], None]]]) -> Iterator[AnyPull]:
        for queues in queues_by_topic:
            while queues:
                _, held_pulls = queues.popitem()
                for held_pull in held_pulls:
                    if held_pull.is_waiting:
                        yield self._end(held_pull)

    def closed(self, link: Hashable) -> Iterator[None]:
        """A connection ended: forget its pulls, in steps."""
        return self._forget(self._links.pop(link, {}))

    def _forget(self, of_link: dict[HeldPull[AnyPull], None]) -> Iterator[None]:
        while of_link:
            for _ in range(min(STEP_FORGOTTEN, len(of_link))):
                held_pull, _none = of_link.popitem()
                if held_pull.is_waiting:
                    self._end(held_pull)
            yield

    def tick(self, now: float) -> list[AnyPull]:
        """Returns the pulls whose deadlines have passed, ``MAX_OVER`` at most."""
        over: list[AnyPull] = []
        for _ in range(MAX_OVER):
            heap = self._soonest()
            if not heap or (heap[0][0] > now and heap[0][2].is_waiting):
                break
            held_pull = heapq.heappop(heap)[2]
            if held_pull.is_waiting:
                over.append(self._end(held_pull))
        return over

    def wake_at(self) -> float | None:
        """Returns when ``tick`` is due, perhaps too early; None if no pull is held."""
        heap = self._soonest()
        return heap[0][0] if heap else None

    def _soonest(self) -> list[tuple[float, int, HeldPull[AnyPull]]]:
        """Returns the heap with the earliest deadline of both."""
        old, new = self._old_deadlines, self._deadlines
        return old if old and (not new or old[0] < new[0]) else new

    def _move_deadlines(self) -> None:
        """Move some deadlines to the new heap, as a pull came or ended."""
        if not self._old_deadlines and len(self._deadlines) > 2 * self._count + _STALE:
            self._old_deadlines, self._deadlines = self._deadlines, []
        for _ in range(min(_STEP_MOVED, len(self._old_deadlines))):
            entry = self._old_deadlines.pop()
            if entry[2].is_waiting:
                heapq.heappush(self._deadlines, entry)

    def _end(self, held_pull: HeldPull[AnyPull]) -> AnyPull:
        """Forget a pull. Returns it, to be run again."""
        pull, held_pull.pull, held_pull.is_waiting = held_pull.pull, None, False
        assert pull is not None
        self._count -= 1
        queues = self._topics.get(held_pull.topic, {})
        _remove(queues, held_pull.queue_id, held_pull)
        if not queues:
            self._topics.pop(held_pull.topic, None)
        _remove(self._links, held_pull.link, held_pull)
        held_pull.link = None
        self._move_deadlines()
        return pull


AnyPlace = TypeVar("AnyPlace", bound=Hashable)


def _remove(
    table: dict[AnyPlace, dict[HeldPull[AnyPull], None]], place: AnyPlace, held_pull: HeldPull[AnyPull]
) -> None:
    held_pulls = table.get(place, {})
    held_pulls.pop(held_pull, None)  # one beyond the bound of its queue is not there
    if not held_pulls:
        table.pop(place, None)
