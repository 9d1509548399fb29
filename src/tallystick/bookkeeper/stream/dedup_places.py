"""Where the newest numbered appends are stored: a run of numbers for each entry, however many messages it has."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position


class _Run(NamedTuple):
    """The numbers of an entry that it was the first to have. ``base`` is that of its first message."""

    last: int
    first: int
    entry: Position
    base: int | None  # None: the entry is one message

    def at(self, number: int) -> Position:
        ledger, entry, _ = self.entry
        return self.entry if self.base is None else Position(ledger, entry, number - self.base)


class DedupPlaces:
    """See the module. Of each producer numbers ascend: one that comes behind a higher one is not kept."""

    def __init__(self, most: int) -> None:
        """``most`` entries are kept, of all producers together."""
        self._most = most
        self._runs: dict[str, list[_Run]] = {}  # ascending
        self._order: deque[tuple[str, int]] = deque()  # producer and last number, as they came

    def add(self, producer: str, first: int, last: int, entry: Position) -> None:
        """The entry has these numbers. The first place of each counts."""
        runs = self._runs.setdefault(producer, [])
        start = max(first, runs[-1].last + 1) if runs else first
        if start > last:
            return
        runs.append(_Run(last, start, entry, None if first == last else first))
        self._order.append((producer, last))
        if len(self._order) > self._most:
            self._forget(*self._order.popleft())

    def _forget(self, producer: str, last: int) -> None:
        runs = self._runs[producer]
        del runs[bisect_left(runs, (last,))]
        if not runs:
            del self._runs[producer]

    def of(self, producer: str, first: int, count: int) -> list[Position]:
        """Returns where so many numbers are, EARLIEST for each of which that is not known."""
        runs, end, places = self._runs.get(producer, []), first + count, list[Position]()
        index = bisect_left(runs, (first,))
        while first < end:
            run = runs[index] if index < len(runs) else None
            if run is None or run.first >= end:
                places += [EARLIEST] * (end - first)
                break
            places += [EARLIEST] * (run.first - first)
            first, stop = max(first, run.first), min(run.last + 1, end)
            places += [run.at(number) for number in range(first, stop)]
            first, index = stop, index + 1
        return places
