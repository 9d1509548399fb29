"""How far a streaming query of ledgers is, as Spark's checkpoint keeps it. Pure.

::

    {"v": 1, "l": {"next": {"12": 345}, "read": [[0, 6], [8, 8]]}}

Of each ledger that is being read the entry that is read next: what is before is read, so an end is not part of its
batch. Ledgers that are closed and read to their end are ``read``, as inclusive ranges of ids: nobody looks at them
again. All ascends, so that equal offsets have equal texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.pipeline.ledger.schema import FORMAT
from tallystick.pipeline.ledger.selection import IdSpan, covers
from tallystick.pipeline.offsets import Offset, content_of, stamped


@dataclass(frozen=True)
class LedgerPositions:
    """See the module. ``read`` ascends, and no two of them touch."""

    next: Mapping[LedgerId, EntryId]
    read: tuple[IdSpan, ...] = ()

    def has_read(self, ledger: LedgerId) -> bool:
        """Whether a ledger is closed and read to its end."""
        return covers(self.read, ledger)

    def moved(self, next_entries: Mapping[LedgerId, EntryId], finished: Iterable[LedgerId]) -> LedgerPositions:
        """Returns the positions where these are next, and ``finished`` are read besides those that are."""
        spans = [*self.read, *(IdSpan(ledger, ledger) for ledger in finished)]
        return LedgerPositions(next_entries, _joined(spans))


def to_offset(positions: LedgerPositions) -> Offset:
    """Returns what Spark stores as JSON."""
    entries = {str(ledger): entry for ledger, entry in sorted(positions.next.items())}
    return stamped("l", {"next": entries, "read": [[span.first, span.last] for span in positions.read]})


def from_offset(offset: Any) -> LedgerPositions:
    """Raises UsageError for one that this version did not write."""
    return content_of(offset, "l", FORMAT, _positions)


def _positions(content: Any) -> LedgerPositions:
    entries = {_id(int(ledger)): _id(entry) for ledger, entry in content["next"].items()}
    read = [IdSpan(_id(first), _id(last)) for first, last in content["read"]]
    return LedgerPositions(entries, _joined(read))


def _id(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _joined(spans: Iterable[IdSpan]) -> tuple[IdSpan, ...]:
    joined: list[IdSpan] = []
    for span in sorted(spans, key=lambda span: span.first):
        if joined and span.first <= joined[-1].last + 1:
            joined[-1] = IdSpan(joined[-1].first, max(joined[-1].last, span.last))
        else:
            joined.append(span)
    return tuple(joined)
