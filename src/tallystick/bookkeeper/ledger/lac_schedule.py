"""When the writers of a client tell bookies their LAC, and whom they are still telling it (facts of the original's
``ExplicitLacUpdateFlow``).

An entry carries the LAC of before it was sent, so that readers learn of the last one only from the next. A writer that
was idle for an interval after its last entry was confirmed tells the LAC by itself. The order in which writers became
idle is the order in which they are due, so one timer serves all of them. A LAC that no bookie took is told again, after
an interval first and after ``MOST_WAIT_S`` at last, until one takes it or the writer sends entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from typing import Generic, TypeVar

from tallystick.bookkeeper.wire.values import BookieId, LedgerId

MOST_WAIT_S = 10.0  # between two attempts to tell a LAC that no bookie takes

Writer = TypeVar("Writer")


@dataclass(eq=False)
class _Telling(Generic[Writer]):
    """A LAC that a writer tells bookies."""

    writer: Writer
    wait_s: float  # before it is told again
    unanswered: int = 0
    is_taken: bool = False


class LacScheduleCore(Generic[Writer]):
    """Decide which writers tell their LAC now, and which bookies they do not tell, as they are telling them already."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_at: dict[Writer, float] = {}  # ascending
        # Requests without a response, one a bookie and ledger, and the writer that has more to tell by now.
        self._requests: dict[tuple[BookieId, LedgerId], tuple[_Telling[Writer], Writer | None]] = {}
        self._tellings: dict[Writer, _Telling[Writer]] = {}  # that no bookie took yet
        self._again: list[
            tuple[float, int, _Telling[Writer]]
        ] = []  # a heap; those that are not in the above count no more
        self._numbers = count()

    def confirmed(self, writer: Writer, now: float) -> float:
        """All that was appended is confirmed. Returns when the writer is due, if it stays so."""
        self.appended(writer)
        self._due_at[writer] = due_at = now + self._interval_s
        return due_at

    def appended(self, writer: Writer) -> None:
        """The writer sends entries, which will tell its LAC, or has none to tell any more."""
        self._due_at.pop(writer, None)
        self._tellings.pop(writer, None)

    def take_due(self, now: float, most: int) -> list[Writer]:
        """Take the writers that were idle for the interval, or whose LAC is to be told again, ``most`` of them."""
        due: list[Writer] = []
        for writer, at in self._due_at.items():
            if at > now or len(due) == most:
                break
            due.append(writer)
        for writer in due:
            del self._due_at[writer]
        while self._again and self._again[0][0] <= now and len(due) < most:
            telling = heappop(self._again)[2]
            if self._tellings.get(telling.writer) is telling:
                due.append(telling.writer)
        return due

    def wake_at(self) -> float | None:
        """Return when the next writer is due, None if all are busy or have told their LAC."""
        first_times = [*islice(self._due_at.values(), 1), *(at for at, _, _ in self._again[:1])]
        return min(first_times, default=None)

    def tells(self, writer: Writer, bookie: BookieId, ledger: LedgerId) -> bool:
        """Return whether to tell this bookie now; else ``answered`` returns the writer when it can be told."""
        key = bookie, ledger
        if (request := self._requests.get(key)) is not None:
            self._requests[key] = request[0], writer
            return False
        telling = self._tellings.setdefault(writer, _Telling(writer, self._interval_s))
        telling.unanswered += 1
        self._requests[key] = telling, None
        return True

    def is_current(self, bookie: BookieId, ledger: LedgerId) -> bool:
        """Return whether the request that ``tells`` allowed is to be sent still: the writer sent no entries since."""
        telling, _ = self._requests[bookie, ledger]
        return self._tellings.get(telling.writer) is telling

    def answered(self, bookie: BookieId, ledger: LedgerId, now: float, *, taken: bool) -> Writer | None:
        """The bookie took the LAC or did not. Returns the writer that has more to tell, None if there is none."""
        telling, teller = self._requests.pop((bookie, ledger))
        telling.unanswered -= 1
        telling.is_taken |= taken
        if not telling.unanswered and self._tellings.get(telling.writer) is telling:
            if telling.is_taken:
                del self._tellings[telling.writer]
            else:
                heappush(self._again, (now + telling.wait_s, next(self._numbers), telling))
                telling.wait_s = min(2 * telling.wait_s, MOST_WAIT_S)
        return teller
