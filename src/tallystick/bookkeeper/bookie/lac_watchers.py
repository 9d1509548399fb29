"""Who waits until a ledger is confirmed beyond an entry: the long polls of readers that follow it.

A watcher leaves when the ledger's LAC passes its entry, when its ledger is fenced, at its deadline, or with its
connection. Whoever reaches the port can make as many as it likes, of ledgers on which nothing ever moves: so they are
bounded, all together and those of one connection, and none costs an add of its ledger anything before it leaves. With
all places taken a newcomer has that of the oldest watcher of the host with most of them (``runtime/places.py``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.runtime.places import Places

MOST_WATCHERS = 8192
LEAVE_AT_ONCE = 1024  # some milliseconds
MOST_OF_ONE = 1024  # connection

_TICK_S = 0.001  # those whose deadlines are so close leave together
_FEW_DEAD = 64  # in a heap: not worth a new one

Owner = TypeVar("Owner", bound=Hashable)
Watcher = int  # its number


@dataclass(slots=True)
class _Heap:
    """Watchers by what they wait for, the least first; some have left by another way."""

    items: list[tuple[float, Watcher]] = field(default_factory=list)
    alive: int = 0


@dataclass(slots=True)
class _Place(Generic[Owner]):
    """What a watcher has to be taken out of."""

    owner: Owner
    ledger: LedgerId


class LacWatchersCore(Generic[Owner]):
    """Tell what happens; the watchers that leave by it are returned, in the order of what they waited for.

    Of those that pass a LAC or a moment ``LEAVE_AT_ONCE`` are returned; tell it again while it is so many.
    """

    def __init__(self, most: int = MOST_WATCHERS, most_of_one: int = MOST_OF_ONE) -> None:
        self._most_of_one = most_of_one
        self._shares: Places[Watcher] = Places(most)
        self.watched: dict[LedgerId, _Heap] = {}  # by the entry that is to be passed
        self._deadlines = _Heap()
        self._places: dict[Watcher, _Place[Owner]] = {}
        self._by_owner: dict[Owner, dict[Watcher, None]] = {}
        self._last: Watcher = 0

    def __len__(self) -> int:
        return len(self._places)

    def wait(
        self, owner: Owner, host: str, ledger: LedgerId, past: EntryId, deadline: float
    ) -> tuple[Watcher | None, list[Watcher]]:
        """Wait until the ledger's LAC is above ``past``. Returns the watcher, None if too many of its connection or
        host wait, and those that leave for it."""
        own = self._by_owner.get(owner, {})
        if len(own) >= self._most_of_one:
            return None, []
        self._last += 1
        goes = self._shares.arrived(self._last, host)
        if goes == self._last:
            return None, []
        leaving = [] if goes is None else self._left([goes])
        self._places[self._last] = _Place(owner, ledger)
        self._by_owner.setdefault(owner, {})[self._last] = None
        self._push(self.watched.setdefault(ledger, _Heap()), past)
        self._push(self._deadlines, deadline)
        return self._last, leaving

    def _push(self, heap: _Heap, key: float) -> None:
        heap.alive += 1
        heappush(heap.items, (key, self._last))
        if len(heap.items) > 2 * heap.alive + _FEW_DEAD:
            heap.items = [item for item in heap.items if item[1] in self._places]
            heapify(heap.items)

    def lets_go(self, ledger: LedgerId, lac: EntryId) -> bool:
        """Return whether ``moved`` with this LAC may return somebody."""
        heap = self.watched.get(ledger)
        return heap is not None and heap.items[0][0] < lac

    def moved(self, ledger: LedgerId, lac: EntryId) -> list[Watcher]:
        """A ledger is known to be confirmed up to this entry."""
        return self._leaving(self.watched[ledger], lac) if ledger in self.watched else []

    def passed(self, now: float) -> list[Watcher]:
        """It is this late."""
        return self._leaving(self._deadlines, now + _TICK_S)

    def forget(self, owner: Owner) -> list[Watcher]:
        """A connection has ended."""
        return self._left(list(self._by_owner.get(owner, ())))

    def wake_at(self) -> float | None:
        """Return when ``passed`` is due, None while nobody waits."""
        items = self._deadlines.items
        while items and items[0][1] not in self._places:
            heappop(items)
        return items[0][0] if items else None

    def _leaving(self, heap: _Heap, below: float) -> list[Watcher]:
        watchers, items = list[Watcher](), heap.items
        while items and items[0][0] < below and len(watchers) < LEAVE_AT_ONCE:
            watcher = heappop(items)[1]
            if watcher in self._places:
                watchers.append(watcher)
        return self._left(watchers)

    def _left(self, watchers: list[Watcher]) -> list[Watcher]:
        for watcher in watchers:
            place = self._places.pop(watcher)
            self._shares.left(watcher)
            own, heap = self._by_owner[place.owner], self.watched[place.ledger]
            del own[watcher]
            if not own:
                del self._by_owner[place.owner]
            heap.alive -= 1
            if not heap.alive:
                del self.watched[place.ledger]
            self._deadlines.alive -= 1
        return watchers
