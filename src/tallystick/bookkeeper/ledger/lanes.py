"""Requests to one bookie that belong together: the ADDs of one channel, a run of READs.

Responses in the order of the requests are settled by one comparison, those in any other order by where their entries
are. A run of requests sent together has one deadline. Time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from tallystick.bookkeeper.wire.values import EntryId

Requester = TypeVar("Requester")  # who hears of the responses
LaneName = tuple[int, int]  # what a lane is about: numbers by which its wire finds it

_COMPACT_AT = 8192
_SEARCH = 4096  # entries of a lane that are passed over before their places are noted: one lost response is cheap


# Requests that were sent together: when, their deadline, and the position behind the last one, counted from the lane's
# beginning. A plain tuple of numbers is nothing that Python's collector of garbage goes on looking at.
_Run = tuple[float, float, int]


class _Places:
    """Where the unanswered entries of a lane are, up to the place ``end``. Places count from the lane's beginning."""

    __slots__ = ("_first", "_later", "end")

    def __init__(self, entries: Sequence[EntryId | None], begin: int) -> None:
        """``entries`` are from the place ``begin`` on."""
        self.end = begin + len(entries)
        self._first: dict[EntryId, int] = {}
        self._later: dict[int, int] = {}  # the next place of the same entry
        for place in range(self.end - 1, begin - 1, -1):
            entry = entries[place - begin]
            if entry is not None:
                if entry in self._first:
                    self._later[place] = self._first[entry]
                self._first[entry] = place

    def take(self, entry: EntryId) -> int | None:
        """Take the first place of an entry, which may have been answered since; None if there is none."""
        place = self._first.pop(entry, None)
        if place is not None and (later := self._later.pop(place, None)) is not None:
            self._first[entry] = later
        return place


class Lane(Generic[Requester]):
    """Unanswered requests about entries, in the order they were sent. Without ``owner`` responses are swallowed."""

    __slots__ = (
        "_base",
        "_cursor",
        "_entries",
        "_head",
        "_later",
        "_places",
        "_run",
        "_searched",
        "about",
        "owner",
        "turn",
        "younger",
    )

    def __init__(self, about: LaneName, owner: Requester | None, entries: Sequence[EntryId] = ()) -> None:
        self.about, self.owner = about, owner
        self.younger: Lane[Requester] | None = None  # the next one about the same
        self.turn = 0  # its place among the deadlines of its connection; 0: it has none
        self._entries: list[EntryId | None] = list(entries)  # None: answered out of turn
        self._head = 0  # index of the first unanswered one
        self._cursor = 0  # index behind the last one that was answered: one lost response must not slow all that follow
        self._base = 0  # how many were dropped from the front of the list
        self._run: _Run | None = None  # the oldest with unanswered ones
        self._later: deque[_Run] | None = None  # those after it, once there were some
        self._places: _Places | None = None  # once answers out of turn were looked for too far
        self._searched = 0  # entries that were passed over for them since the places were noted

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def sent(self, entries: Sequence[EntryId], now: float, timeout: float) -> float:
        """Requests about these entries follow. Returns the deadline of their responses."""
        self._entries += entries
        deadline = now + timeout
        run = now, deadline, self._base + len(self._entries)
        if self._run is None:
            self._run = run
        elif self._later is None:
            self._later = deque((run,))
        else:
            self._later.append(run)
        return deadline

    def answered_in_order(self, entries: list[EntryId]) -> bool:
        """Settle ``entries`` if they are exactly the next requests; otherwise change nothing."""
        start, stop = self._cursor, self._cursor + len(entries)
        if self._entries[start:stop] != entries:
            return False
        self._settle(start, stop)
        return True

    def answered_first(self, entries: Sequence[EntryId], at: int) -> int:
        """Settle those of ``entries`` from ``at`` on that are exactly the next requests. Returns how many."""
        start = stop = self._cursor
        offset, most = at - start, min(len(self._entries), start + len(entries) - at)
        while stop < most and self._entries[stop] == entries[stop + offset]:
            stop += 1
        if stop > start:
            self._settle(start, stop)
        return stop - start

    def answered(self, entry: EntryId) -> bool:
        """Settle one entry. Returns False if it was not asked for."""
        index = self._find(entry)
        if index is None:
            return False
        self._settle(index, index + 1)
        return True

    def _find(self, entry: EntryId) -> int | None:
        """Return the index of a request about an entry, None if there is none.

        In whatever order responses come, each costs a few steps.
        """
        start = self._head
        if self._places is not None:
            while (place := self._places.take(entry)) is not None:
                index = place - self._base
                if index >= self._head and self._entries[index] == entry:
                    return index
            start = max(start, self._places.end - self._base)
        cursor = max(start, self._cursor)
        for begin, end in ((cursor, len(self._entries)), (start, cursor)):
            try:
                index = self._entries.index(entry, begin, end)
            except ValueError:
                self._searched += end - begin
            else:
                self._searched += index - begin
                break
        else:
            return None
        if self._searched > len(self) + _SEARCH:
            self._places, self._searched = _Places(self._entries[self._head :], self._base + self._head), 0
        return index

    def _settle(self, start: int, stop: int) -> None:
        self._cursor = stop
        if start > self._head:
            self._entries[start:stop] = [None] * (stop - start)
            return
        while stop < len(self._entries) and self._entries[stop] is None:
            stop += 1
        self._advance(stop)

    def expire(self, now: float) -> tuple[list[EntryId], float] | None:
        """Take out what is overdue. Returns the entries and when the first of them was sent, None if nothing is."""
        expired: list[EntryId] = []
        since = now
        while self._run is not None and self._run[1] <= now:
            sent_at, _, end = self._run
            stop = end - self._base
            expired += [entry for entry in self._entries[self._head : stop] if entry is not None]
            since = min(since, sent_at)
            self._advance(stop)
        return (expired, since) if expired else None

    def deadline(self) -> float | None:
        return None if self._run is None else self._run[1]

    def leave(self) -> None:
        """Drop the owner. Responses that do not come are still a sign of a silent peer."""
        self.owner = None

    def take_all(self) -> list[EntryId]:
        entries = [entry for entry in self._entries[self._head :] if entry is not None]
        self._advance(len(self._entries))
        return entries

    def _advance(self, head: int) -> None:
        self._head = head
        self._cursor = max(self._cursor, head)
        while self._run is not None and self._run[2] <= self._base + head:
            self._run = self._later.popleft() if self._later else None
        if head == len(self._entries):
            self._places = None
        if head == len(self._entries) or head >= _COMPACT_AT:
            del self._entries[:head]
            self._base += head
            self._cursor -= head
            self._head = 0
