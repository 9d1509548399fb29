"""How many entries the ledgers of a stream have, and which entry comes after which: found by bisection.

A list of 10,000 ledgers is counted once after each change, and all cursors of a client share that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from tallystick.bookkeeper.wire.ledger_runs import PlainLedgers, parts
from tallystick.bookkeeper.wire.stream_values import StreamInfo
from tallystick.bookkeeper.wire.values import EntryId, LedgerId


class EntryCounts:
    """The counts of one list. ``open_ledgers`` are those whose end the list does not say: mostly the newest alone."""

    def __init__(self, info: StreamInfo) -> None:
        terminated = info.terminated
        ledgers, ends = list[LedgerId](), list[EntryId | None]()
        for part in parts(info.ledgers):
            if isinstance(part, PlainLedgers):
                ledgers += part.ids
                ends += part.entries
            else:
                ledgers += [each.ledger for each in part]
                ends += [each.entries if each.is_closed else None for each in part]
        self._ledgers, self._ends = ledgers, ends
        if terminated is not None and (at := self._at(terminated.ledger)) is not None:
            ends[at] = terminated.entry + 1
        self._before = [0, *accumulate(end or 0 for end in ends)]  # entries of all ledgers before this one
        self.open_ledgers = [each for each, end in zip(self._ledgers, ends, strict=True) if end is None]

    @property
    def first(self) -> LedgerId | None:
        """Returns the first ledger, None if there is none."""
        return self._ledgers[0] if self._ledgers else None

    @property
    def newest(self) -> LedgerId | None:
        """Returns the last ledger, None if there is none."""
        return self._ledgers[-1] if self._ledgers else None

    def __contains__(self, ledger: LedgerId) -> bool:
        return self._at(ledger) is not None

    def end(self, ledger: LedgerId) -> EntryId | None:
        """Returns how many entries a listed ledger has; None where the list does not say it, or lacks the ledger."""
        at = self._at(ledger)
        return None if at is None else self._ends[at]

    def ledger_after(self, ledger: LedgerId) -> LedgerId | None:
        """Returns the next listed ledger that has entries, or may have; None if there is none."""
        at = bisect_right(self._ledgers, ledger)
        with_entries = bisect_right(self._before, self._before[at]) - 1
        candidates = [self._ledgers[with_entries]] if with_entries < len(self._ledgers) else []
        if (opened := bisect_right(self.open_ledgers, ledger)) < len(self.open_ledgers):
            candidates.append(self.open_ledgers[opened])
        return min(candidates, default=None)

    def listed_from(self, ledger: LedgerId) -> LedgerId | None:
        """Returns the first listed ledger of this id or a higher one, None if there is none."""
        at = bisect_left(self._ledgers, ledger)
        return self._ledgers[at] if at < len(self._ledgers) else None

    def closed_after(self, ledger: LedgerId) -> int:
        """Returns how many entries the ledgers behind this one have that the list counts."""
        return self._before[-1] - self._before[bisect_right(self._ledgers, ledger)]

    def _at(self, ledger: LedgerId) -> int | None:
        at = bisect_left(self._ledgers, ledger)
        return at if at < len(self._ledgers) and self._ledgers[at] == ledger else None
