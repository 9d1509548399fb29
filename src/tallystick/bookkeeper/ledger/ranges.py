"""Consecutive entries of one fragment, with all that is needed to read them from the bookies that hold them (Q4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tallystick.bookkeeper.ledger.striping import Striping, striping_of
from tallystick.bookkeeper.wire.lost_runs import Lost, lost_of, next_lost
from tallystick.bookkeeper.wire.values import DigestType, Ensemble, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import EntryLost


class Range(NamedTuple):
    """Consecutive entries of one fragment, with all that is needed to read and check them."""

    ledger: LedgerId
    first: EntryId
    last: EntryId
    bookies: Ensemble
    write_quorum: int
    digest_type: DigestType
    password: bytes = b""
    lost: Lost = ()  # what was given up of the ledger
    mean_bytes: int = 0  # of a payload of the ledger, once it is closed; 0: nobody knows

    def __repr__(self) -> str:  # without the password
        return f"Range(ledger={self.ledger}, first={self.first}, last={self.last}, bookies={self.bookies})"

    @property
    def striping(self) -> Striping:
        return striping_of(len(self.bookies), self.write_quorum, self.write_quorum)


def ranges_of(ledger: LedgerId, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> list[Range]:
    """Split the entries ``first`` … ``last`` by fragment. Raises MetadataError if nobody can read which are lost."""
    ranges, stop = [], last
    quorum, digest_type, password = metadata.write_quorum, metadata.digest_type, metadata.password
    lost, count = lost_of(metadata.custom), metadata.last_entry + 1 if metadata.is_closed else 0
    mean_bytes = metadata.length // count if count else 0
    for fragment in reversed(metadata.fragments):
        start = max(first, fragment.first)
        if start <= stop:
            ranges.append(Range(ledger, start, stop, fragment.bookies, quorum, digest_type, password, lost, mean_bytes))
        stop = min(stop, fragment.first - 1)
    ranges.reverse()
    return ranges


def parts_left(ranges: Iterable[Range]) -> Iterator[Range | EntryLost]:
    """Yield the parts of ranges that are not lost, in order, and between them the errors that tell of the rest."""
    for whole in ranges:
        first = whole.first
        while first <= whole.last:
            run = next_lost(whole.lost, first)
            if run is not None and run[0] <= first:  # it is lost
                yield loss_of(whole._replace(first=first))
                first = run[1] + 1
                continue
            last = whole.last if run is None else min(whole.last, run[0] - 1)
            yield whole._replace(first=first, last=last)
            first = last + 1


def loss_of(piece: Range) -> EntryLost:
    """Return the error for a piece whose first entry is lost."""
    run = next_lost(piece.lost, piece.first)
    assert run is not None, "only of what is lost"
    return EntryLost(ledger=piece.ledger, entry=piece.first, last=run[1])
