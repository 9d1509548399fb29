"""The requests of one connection without a response, and which response belongs to which of them.

The wire names requests. Version 2 responses carry no request number: ADD and READ are told apart by (opcode, ledger,
entry), and several of the same name are answered first come, first served (``PerChannelBookieClient`` completes an
arbitrary one). So a request stays here until its response comes or the connection ends, even when nobody waits for it
any more (timed out, given up, channel closed): its late response must not be taken for the response to a newer request
about the same entry.

Requests that belong together (the ADDs of one channel, a run of READs) form a lane. Time is an argument.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic

from tallystick.bookkeeper.ledger.lanes import Lane, LaneName, Requester
from tallystick.bookkeeper.wire.values import EntryId

RequestKey = tuple[int, int, int]  # the name of a lone request: numbers by which its wire finds it


@dataclass(slots=True, eq=False)
class LoneRequest(Generic[Requester]):
    """One READ, BATCH_READ or single ADD; ``owner`` gets the response, None when it is overdue."""

    key: RequestKey
    entry: EntryId  # that it is about, or the first one
    owner: Requester | None
    sent_at: float
    deadline: float


@dataclass(slots=True)
class OverdueRequests(Generic[Requester]):
    """Requests that are overdue, and when the oldest of them was sent."""

    since: float
    entries: list[tuple[Requester, list[EntryId]]] = field(default_factory=list)  # by who waits
    ownerless: int = 0  # entries of lanes whose owners left

    def __bool__(self) -> bool:
        return bool(self.entries or self.ownerless)


class OutstandingCore(Generic[Requester]):
    """All requests of one connection."""

    def __init__(self) -> None:
        self._lanes: dict[LaneName, Lane[Requester]] = {}  # the oldest about each; those after it hang on it
        self._requests: dict[RequestKey, deque[LoneRequest[Requester]]] = {}
        self._deadlines: dict[
            float, deque[LoneRequest[Requester]]
        ] = {}  # by timeout: each queue is in order of its deadlines
        # Lanes by a deadline that is not after their next one, so that a look at what is due is no look at all lanes.
        self._lane_queue: list[
            tuple[float, int]
        ] = []  # with the turn of each, which a lane that was dropped has no more
        self._with_turn: dict[int, Lane[Requester]] = {}
        self._turns = itertools.count(1)
        self.abandoned = 0  # how many were ever overdue

    def lane(self, about: LaneName, owner: Requester) -> Lane[Requester]:
        """Make a lane. Lanes of one name are matched oldest first."""
        lane: Lane[Requester] = Lane(about, owner)
        older = self._lanes.setdefault(about, lane)
        while older.younger is not None:
            older = older.younger
        if older is not lane:
            older.younger = lane
        return lane

    def _about(self, about: LaneName) -> Iterator[Lane[Requester]]:
        """Return the lanes of a name, oldest first."""
        lane = self._lanes.get(about)
        while lane is not None:
            yield lane
            lane = lane.younger

    def sent(self, lane: Lane[Requester], entries: Sequence[EntryId], now: float, timeout: float) -> float:
        """Requests about these entries follow in the lane. Returns the deadline of their responses."""
        deadline = lane.sent(entries, now, timeout)
        self._queue(lane)
        return deadline

    def _queue(self, lane: Lane[Requester]) -> None:
        deadline = lane.deadline()
        if deadline is not None and not lane.turn:
            lane.turn = next(self._turns)
            self._with_turn[lane.turn] = lane
            heapq.heappush(self._lane_queue, (deadline, lane.turn))

    def _unqueue(self) -> Lane[Requester] | None:
        """Take the first lane of the queue; None if it was dropped."""
        lane = self._with_turn.pop(heapq.heappop(self._lane_queue)[1], None)
        if lane is not None:
            lane.turn = 0
        return lane

    def _next_of_lanes(self) -> tuple[float, Lane[Requester]] | None:
        """Return the earliest deadline of a lane, and that lane, which is then the first of the queue."""
        while self._lane_queue:
            at, turn = self._lane_queue[0]
            lane = self._with_turn.get(turn)
            if lane is not None and lane.deadline() == at:
                return at, lane
            if (lane := self._unqueue()) is not None:
                self._queue(lane)
        return None

    def forget(self, lane: Lane[Requester]) -> None:
        """Swallow the responses to a lane whose owner left, however late they come. They are due as before."""
        lane.leave()
        self._drop_if_idle(lane)

    def add_request(
        self, key: RequestKey, entry: EntryId, owner: Requester, now: float, timeout: float
    ) -> LoneRequest[Requester]:
        request = LoneRequest(key, entry, owner, now, now + timeout)
        self._requests.setdefault(key, deque()).append(request)
        self._deadlines.setdefault(timeout, deque()).append(request)
        return request

    def has_lanes(self, about: LaneName) -> bool:
        return about in self._lanes

    def answered_run(
        self, about: LaneName, entries: list[EntryId], report: Callable[[Requester, int, int], None], at: int = 0
    ) -> int:
        """Settle a run of responses from the index ``at`` on. Returns the index of the first that belongs to no lane.

        ``report`` gets each owner with the part of ``entries`` that is its own: from index, to index.
        """
        oldest = self._lanes.get(about)
        if not at and oldest is not None and oldest.owner is not None and oldest.answered_in_order(entries):
            report(oldest.owner, 0, len(entries))  # as nearly all are: the next ones of the oldest lane
            return len(entries)
        while at < len(entries):
            lane = next(filter(len, self._about(about)), None)
            count = lane.answered_first(entries, at) if lane is not None else 0
            if lane is not None and count:
                self._drop_if_idle(lane)
            else:
                lane, count = self.answered_in_lane(about, entries[at]), 1
            if lane is None:
                break
            if lane.owner is not None:
                report(lane.owner, at, at + count)
            at += count
        return at

    def answered_in_lane(self, about: LaneName, entry: EntryId) -> Lane[Requester] | None:
        """Settle the entry in the lane that asked for it. Returns that lane, None if there is none."""
        for lane in self._about(about):
            if lane.answered(entry):
                self._drop_if_idle(lane)
                return lane
        return None

    def has_request(self, key: RequestKey) -> bool:
        return key in self._requests

    def answered(self, key: RequestKey) -> LoneRequest[Requester] | None:
        """Settle the oldest request with this key. Returns it, None if there is none."""
        queue = self._requests.get(key)
        if not queue:
            return None
        request = queue.popleft()
        if not queue:
            del self._requests[key]
        request.deadline = 0.0  # settled: its place in the queue of deadlines is skipped
        self._trim()
        return request

    def expire(self, now: float) -> OverdueRequests[Requester]:
        """Return everything that is overdue, once; it then waits, ownerless, for a late response."""
        expired: OverdueRequests[Requester] = OverdueRequests(now)
        for queue in self._deadlines.values():
            while queue and queue[0].deadline <= now:
                request = queue.popleft()
                if request.deadline and request.owner is not None:
                    expired.entries.append((request.owner, [request.entry]))
                    expired.since = min(expired.since, request.sent_at)
                    request.owner = None
                    self.abandoned += 1
        while (earliest := self._next_of_lanes()) is not None and earliest[0] <= now:
            lane = earliest[1]
            self._unqueue()
            overdue = lane.expire(now)
            self._queue(lane)
            if overdue is None:
                continue
            entries, since = overdue
            self.abandoned += len(entries)
            if lane.owner is not None:
                expired.entries.append((lane.owner, entries))
            else:
                expired.ownerless += len(entries)
            expired.since = min(expired.since, since)
            swallows: Lane[Requester] = Lane(lane.about, None, entries)
            swallows.younger = lane
            self._hang(lane, swallows)
            self._drop_if_idle(lane)
        return expired

    def wake_at(self) -> float | None:
        """Return when the next request becomes overdue, None without requests."""
        times = [queue[0].deadline for queue in self._deadlines.values() if queue]
        of_lanes = self._next_of_lanes()
        return min(times if of_lanes is None else [*times, of_lanes[0]], default=None)

    def take_all(self) -> list[tuple[Requester, list[EntryId]]]:
        """Return, at the end of the connection, everything that somebody still waits for."""
        requests = itertools.chain.from_iterable(self._requests.values())
        unanswered = [(request.owner, [request.entry]) for request in requests if request.owner is not None]
        for about in self._lanes:
            for lane in self._about(about):
                entries = lane.take_all()
                if lane.owner is not None and entries:
                    unanswered.append((lane.owner, entries))
        self._lanes, self._requests, self._deadlines, self._lane_queue, self._with_turn = {}, {}, {}, [], {}
        return unanswered

    def _drop_if_idle(self, lane: Lane[Requester]) -> None:
        if lane.owner is None and not len(lane):
            self._with_turn.pop(lane.turn, None)
            self._hang(lane, lane.younger)

    def _hang(self, lane: Lane[Requester], other: Lane[Requester] | None) -> None:
        """Put another lane where this one is, if that is there at all."""
        oldest = self._lanes.get(lane.about)
        if oldest is not lane:
            older = next((one for one in self._about(lane.about) if one.younger is lane), None)
            if older is not None:
                older.younger = other
        elif other is not None:
            self._lanes[lane.about] = other
        else:
            del self._lanes[lane.about]

    def _trim(self) -> None:
        for queue in self._deadlines.values():
            while queue and not queue[0].deadline:
                queue.popleft()
