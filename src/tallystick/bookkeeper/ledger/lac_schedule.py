"""When the writers of a client tell bookies their LAC, and whom they are still telling it (facts of the original's
``ExplicitLacUpdateFlow``).

An entry carries the LAC of before it was sent, so that readers learn of the last one only from the next. A writer that
was idle for an interval after its last entry was confirmed tells the LAC by itself. The order in which writers became
idle is the order in which they are due, so one timer serves all of them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tallystick.bookkeeper.wire.values import BookieId, LedgerId

Writer = TypeVar("Writer")


class LacScheduleCore(Generic[Writer]):
    """Decide which writers tell their LAC now, and which bookies they do not tell, as they are telling them already."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_at: dict[Writer, float] = {}  # ascending
        # Requests without a response, one a bookie and ledger, and the writer that has more to tell by now.
        self._telling: dict[tuple[BookieId, LedgerId], Writer | None] = {}

    def confirmed(self, writer: Writer, now: float) -> None:
        """All that was appended is confirmed."""
        self._due_at.pop(writer, None)
        self._due_at[writer] = now + self._interval_s

    def appended(self, writer: Writer) -> None:
        """The writer sends entries: they will tell its LAC."""
        self._due_at.pop(writer, None)

    def take_due(self, now: float, most: int) -> list[Writer]:
        """Take the writers that were idle for the interval, ``most`` of them."""
        due: list[Writer] = []
        for writer, at in self._due_at.items():
            if at > now or len(due) == most:
                break
            due.append(writer)
        for writer in due:
            del self._due_at[writer]
        return due

    def wake_at(self) -> float | None:
        """Return when the next writer is due, None if all are busy or have told their LAC."""
        return next(iter(self._due_at.values()), None)

    def tells(self, writer: Writer, bookie: BookieId, ledger: LedgerId) -> bool:
        """Return whether to tell this bookie now; else ``answered`` returns the writer when it can be told."""
        key = bookie, ledger
        is_telling = key in self._telling
        self._telling[key] = writer if is_telling else None
        return not is_telling

    def answered(self, bookie: BookieId, ledger: LedgerId) -> Writer | None:
        """The bookie took the LAC or did not. Returns the writer that has more to tell, None if there is none."""
        return self._telling.pop((bookie, ledger))
