"""What one connection has asked and not yet heard, and which answer belongs to which question.

Version 2 answers carry no request number: ADD and READ are told apart by (opcode, ledger, entry), and several of the
same key are answered first come, first served (``PerChannelBookieClient`` completes an arbitrary one). So a question
stays here until its answer comes or the connection ends, even when nobody waits for it any more (timed out, given up,
channel closed): its late answer must not be taken for the answer to a newer question about the same entry.

Questions that belong together (the ADDs of one channel, a run of READs) form a lane: answers in the order of the
questions are settled by one comparison, those in any other order by where their entries are. Time is an argument; a run
of questions sent together has one deadline.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tallystick.bookkeeper.wire.values import EntryId, LedgerId

Owner = TypeVar("Owner")
Topic = tuple[int, LedgerId]  # (opcode, ledger)
Key = tuple[int, int, int]  # (opcode, ledger, entry), or (BATCH_READ, ledger, request id)

_COMPACT_AT = 8192
_SEARCH = 4096  # entries of a lane that are passed over before their places are noted: one lost answer is cheap


# Questions that were sent together: when, their deadline, and the position behind the last one, counted from the lane's
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
        """The first place of it, which is not given again; it may have been answered since. None: there is none."""
        place = self._first.pop(entry, None)
        if place is not None and (later := self._later.pop(place, None)) is not None:
            self._first[entry] = later
        return place


class Lane(Generic[Owner]):
    """Unanswered questions about entries, in the order they were sent. ``owner`` None: answers are only swallowed."""

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

    def __init__(self, about: Topic, owner: Owner | None, entries: Sequence[EntryId] = ()) -> None:
        self.about, self.owner = about, owner
        self.younger: Lane[Owner] | None = None  # the next one about the same
        self.turn = 0  # its place among the deadlines of its connection; 0: it has none
        self._entries: list[EntryId | None] = list(entries)  # None: answered out of turn
        self._head = 0  # index of the first unanswered one
        self._cursor = 0  # index behind the last one that was answered: one lost answer must not slow all that follow
        self._base = 0  # how many were dropped from the front of the list
        self._run: _Run | None = None  # the oldest with unanswered ones
        self._later: deque[_Run] | None = None  # those after it, once there were some
        self._places: _Places | None = None  # once answers out of turn were looked for too far
        self._searched = 0  # entries that were passed over for them since the places were noted

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def sent(self, entries: Sequence[EntryId], now: float, timeout: float) -> float:
        """Questions about these follow; the deadline of their answers."""
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
        """Settle ``entries`` if they are exactly the next questions; otherwise change nothing."""
        start, stop = self._cursor, self._cursor + len(entries)
        if self._entries[start:stop] != entries:
            return False
        self._settle(start, stop)
        return True

    def answered_first(self, entries: Sequence[EntryId], at: int) -> int:
        """Settle those of ``entries`` from ``at`` on that are exactly the next questions; how many."""
        start = stop = self._cursor
        offset, most = at - start, min(len(self._entries), start + len(entries) - at)
        while stop < most and self._entries[stop] == entries[stop + offset]:
            stop += 1
        if stop > start:
            self._settle(start, stop)
        return stop - start

    def answered(self, entry: EntryId) -> bool:
        """Settle one entry; False when it was not asked."""
        index = self._find(entry)
        if index is None:
            return False
        self._settle(index, index + 1)
        return True

    def _find(self, entry: EntryId) -> int | None:
        """The index of a question about it. However the answers come, looking for them all costs a few steps each."""
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
        """Take out what is overdue: the entries and when the first of them was sent."""
        expired: list[EntryId] = []
        since = now
        while self._run is not None and self._run[1] <= now:
            sent, _, end = self._run
            stop = end - self._base
            expired += [entry for entry in self._entries[self._head : stop] if entry is not None]
            since = min(since, sent)
            self._advance(stop)
        return (expired, since) if expired else None

    def deadline(self) -> float | None:
        return None if self._run is None else self._run[1]

    def leave(self) -> None:
        """Nobody waits for the answers; that they do not come is still a sign of a peer that is silent."""
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


@dataclass(slots=True, eq=False)
class Question(Generic[Owner]):
    """One READ, BATCH_READ or single ADD; ``owner`` gets the answer, None when it is overdue."""

    key: Key
    owner: Owner | None
    sent: float
    deadline: float


@dataclass(slots=True)
class Expired(Generic[Owner]):
    """What is overdue, and when the oldest of it was sent."""

    since: float
    questions: list[Owner] = field(default_factory=list)
    entries: list[tuple[Owner, list[EntryId]]] = field(default_factory=list)  # of lanes
    left: int = 0  # entries of lanes whose owners left

    def __bool__(self) -> bool:
        return bool(self.questions or self.entries or self.left)


class Outstanding(Generic[Owner]):
    """All questions of one connection."""

    def __init__(self) -> None:
        self._lanes: dict[Topic, Lane[Owner]] = {}  # the oldest about each; those after it hang on it
        self._questions: dict[Key, deque[Question[Owner]]] = {}
        self._deadlines: dict[float, deque[Question[Owner]]] = {}  # by timeout: each queue is in order of its deadlines
        # Lanes by a deadline that is not after their next one, so that a look at what is due is no look at all lanes.
        self._queued: list[tuple[float, int]] = []  # with the turn of each, which a lane that was dropped has no more
        self._with_turn: dict[int, Lane[Owner]] = {}
        self._turns = itertools.count(1)
        self.abandoned = 0  # how many were ever overdue

    def lane(self, about: Topic, owner: Owner) -> Lane[Owner]:
        """A new lane. Those about the same are matched oldest first."""
        lane: Lane[Owner] = Lane(about, owner)
        older = self._lanes.setdefault(about, lane)
        while older.younger is not None:
            older = older.younger
        if older is not lane:
            older.younger = lane
        return lane

    def _about(self, about: Topic) -> Iterator[Lane[Owner]]:
        """The lanes, oldest first."""
        lane = self._lanes.get(about)
        while lane is not None:
            yield lane
            lane = lane.younger

    def sent(self, lane: Lane[Owner], entries: Sequence[EntryId], now: float, timeout: float) -> float:
        """Questions about these follow in the lane; the deadline of their answers."""
        deadline = lane.sent(entries, now, timeout)
        self._queue(lane)
        return deadline

    def _queue(self, lane: Lane[Owner]) -> None:
        deadline = lane.deadline()
        if deadline is not None and not lane.turn:
            lane.turn = next(self._turns)
            self._with_turn[lane.turn] = lane
            heapq.heappush(self._queued, (deadline, lane.turn))

    def _unqueue(self) -> Lane[Owner] | None:
        """The first of the queue, unless it was dropped."""
        lane = self._with_turn.pop(heapq.heappop(self._queued)[1], None)
        if lane is not None:
            lane.turn = 0
        return lane

    def _next_of_lanes(self) -> tuple[float, Lane[Owner]] | None:
        """The earliest deadline of a lane, which is then the first of the queue."""
        while self._queued:
            at, turn = self._queued[0]
            lane = self._with_turn.get(turn)
            if lane is not None and lane.deadline() == at:
                return at, lane
            if (lane := self._unqueue()) is not None:
                self._queue(lane)
        return None

    def forget(self, lane: Lane[Owner]) -> None:
        """Its owner left: swallow the answers that still come, however late. They are due as before."""
        lane.leave()
        self._drop_if_idle(lane)

    def ask(self, key: Key, owner: Owner, now: float, timeout: float) -> Question[Owner]:
        question = Question(key, owner, now, now + timeout)
        self._questions.setdefault(key, deque()).append(question)
        self._deadlines.setdefault(timeout, deque()).append(question)
        return question

    def has_lanes(self, about: Topic) -> bool:
        return about in self._lanes

    def answered_run(
        self, about: Topic, entries: list[EntryId], report: Callable[[Owner, int, int], None], at: int = 0
    ) -> int:
        """Settle a run of answers from the index ``at`` on; the index of the first that belongs to no lane.

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

    def answered_in_lane(self, about: Topic, entry: EntryId) -> Lane[Owner] | None:
        """The lane that asked for this entry; it waits for it no longer."""
        for lane in self._about(about):
            if lane.answered(entry):
                self._drop_if_idle(lane)
                return lane
        return None

    def answered(self, key: Key) -> Question[Owner] | None:
        """The oldest question with this key; it is settled."""
        waiting = self._questions.get(key)
        if not waiting:
            return None
        question = waiting.popleft()
        if not waiting:
            del self._questions[key]
        question.deadline = 0.0  # settled: its place in the queue of deadlines is skipped
        self._trim()
        return question

    def expire(self, now: float) -> Expired[Owner]:
        """Everything overdue is given back once and then waits, ownerless, for a late answer."""
        expired: Expired[Owner] = Expired(now)
        for queue in self._deadlines.values():
            while queue and queue[0].deadline <= now:
                question = queue.popleft()
                if question.deadline and question.owner is not None:
                    expired.questions.append(question.owner)
                    expired.since = min(expired.since, question.sent)
                    question.owner = None
                    self.abandoned += 1
        while (due := self._next_of_lanes()) is not None and due[0] <= now:
            lane = due[1]
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
                expired.left += len(entries)
            expired.since = min(expired.since, since)
            swallows: Lane[Owner] = Lane(lane.about, None, entries)
            swallows.younger = lane
            self._hang(lane, swallows)
            self._drop_if_idle(lane)
        return expired

    def wake_at(self) -> float | None:
        """When the next question becomes overdue."""
        times = [queue[0].deadline for queue in self._deadlines.values() if queue]
        of_lanes = self._next_of_lanes()
        return min(times if of_lanes is None else [*times, of_lanes[0]], default=None)

    def take_all(self) -> Expired[Owner]:
        """The connection ended: everything that somebody still waits for."""
        taken: Expired[Owner] = Expired(0.0)
        for waiting in self._questions.values():
            taken.questions += [question.owner for question in waiting if question.owner is not None]
        for about in self._lanes:
            for lane in self._about(about):
                entries = lane.take_all()
                if lane.owner is not None and entries:
                    taken.entries.append((lane.owner, entries))
        self._lanes, self._questions, self._deadlines, self._queued, self._with_turn = {}, {}, {}, [], {}
        return taken

    def _drop_if_idle(self, lane: Lane[Owner]) -> None:
        if lane.owner is None and not len(lane):
            self._with_turn.pop(lane.turn, None)
            self._hang(lane, lane.younger)

    def _hang(self, lane: Lane[Owner], other: Lane[Owner] | None) -> None:
        """Put the other one where the lane is, if that is there at all."""
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
