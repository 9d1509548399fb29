"""Which entries a query wants: ledger ids and a span of entry ids. Built from options, narrowed by pushed filters.

A selection only ever shrinks, and each step is exact: what ``narrowed`` accepts needs no second look by Spark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.wire.values import MAX_ID, EntryId, LedgerId
from tallystick.errors import UsageError

_PIECE = re.compile(r"\s*(\d{1,40})\s*(?:-\s*(\d{1,40})\s*)?", re.ASCII)


@dataclass(frozen=True)
class IdSpan:
    """Ids from ``first`` to ``last``, both inclusive; empty when ``first`` is above ``last``."""

    first: int = 0
    last: int = MAX_ID

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def __and__(self, other: IdSpan) -> IdSpan:
        return IdSpan(max(self.first, other.first), min(self.last, other.last))

    @property
    def is_empty(self) -> bool:
        return self.first > self.last


@dataclass(frozen=True)
class Selection:
    """The ledgers of any of the spans ``ledgers``, which ascend and do not overlap; of each the entries ``entries``.

    ``named_ledgers`` are those that the option names one by one: where one of them is missing, the query raises an
    error instead of returning no rows.
    """

    ledgers: tuple[IdSpan, ...] = (IdSpan(),)
    entries: IdSpan = IdSpan()
    named_ledgers: tuple[LedgerId, ...] = ()

    @classmethod
    def parse(cls, ledgers: str, first: EntryId = 0, last: EntryId = MAX_ID) -> Selection:
        """From the text of the option: ``all``, or ids and inclusive ranges as in ``1,2,5-9``. Raises UsageError."""
        if first > last:
            raise UsageError("firstEntry is above lastEntry", firstEntry=first, lastEntry=last)
        entries = IdSpan(first, last)
        if ledgers.strip().lower() == "all":
            return cls(entries=entries)
        spans = [_span(piece, ledgers) for piece in ledgers.split(",")]
        named_ledgers = tuple(sorted({span.first for span in spans if span.first == span.last}))
        return cls(_merged(spans), entries, named_ledgers)

    def __contains__(self, ledger: LedgerId) -> bool:
        return covers(self.ledgers, ledger)

    @property
    def has_all_ledgers(self) -> bool:
        """No ledger is left out."""
        return self.ledgers == (IdSpan(),)

    @property
    def single_ledgers(self) -> tuple[LedgerId, ...] | None:
        """The ledgers, when all are single ids and no listing of the cluster is needed to find them."""
        if all(span.first == span.last for span in self.ledgers):
            return tuple(span.first for span in self.ledgers)
        return None

    def with_ledgers(self, spans: Sequence[IdSpan]) -> Selection:
        """Returns the selection without the ledgers outside of ``spans``."""
        both = [mine & other for mine in self.ledgers for other in _merged(spans)]
        ledgers = _merged([span for span in both if not span.is_empty])
        named_ledgers = tuple(ledger for ledger in self.named_ledgers if any(ledger in span for span in ledgers))
        return replace(self, ledgers=ledgers, named_ledgers=named_ledgers)

    def with_entries(self, span: IdSpan) -> Selection:
        """Returns the selection without the entries outside of ``span``."""
        return replace(self, entries=self.entries & span)


def covers(spans: Sequence[IdSpan], number: int) -> bool:
    """Whether an id is in one of some spans that ascend and do not overlap."""
    at = bisect_right(spans, number, key=_first) - 1
    return at >= 0 and number <= spans[at].last


def _first(span: IdSpan) -> LedgerId:
    return span.first


def _span(piece: str, text: str) -> IdSpan:
    match = _PIECE.fullmatch(piece)
    if match is None:
        raise UsageError('ledgers is "all" or a list of ids and ranges such as "1,2,5-9"', ledgers=text)
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last or last > MAX_ID:
        raise UsageError("a range of ledgers descends or is beyond 63 bits", ledgers=text)
    return IdSpan(first, last)


def _merged(spans: Sequence[IdSpan]) -> tuple[IdSpan, ...]:
    """Ascending, and no id in two of them. Neighbours stay apart, so that single ids stay recognisable."""
    merged: list[IdSpan] = []
    for span in sorted(spans, key=lambda span: (span.first, span.last)):
        if merged and span.first <= merged[-1].last:
            merged[-1] = IdSpan(merged[-1].first, max(merged[-1].last, span.last))
        else:
            merged.append(span)
    return tuple(merged)
