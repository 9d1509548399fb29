"""Consecutive entries of one fragment, with all that is needed to read them from the bookies that hold them (Q4)."""

from __future__ import annotations

from typing import NamedTuple

from tallystick.bookkeeper.ledger.striping import Striping, striping_of
from tallystick.bookkeeper.wire.values import DigestType, Ensemble, EntryId, LedgerId, LedgerMetadata


class Range(NamedTuple):
    """Consecutive entries of one fragment, with all that is needed to read and check them."""

    ledger: LedgerId
    first: EntryId
    last: EntryId
    bookies: Ensemble
    write_quorum: int
    digest_type: DigestType
    password: bytes = b""

    def __repr__(self) -> str:  # without the password
        return f"Range(ledger={self.ledger}, first={self.first}, last={self.last}, bookies={self.bookies})"

    @property
    def striping(self) -> Striping:
        return striping_of(len(self.bookies), self.write_quorum, self.write_quorum)


def ranges_of(ledger: LedgerId, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> list[Range]:
    """Split the entries ``first`` … ``last`` by fragment."""
    ranges, stop = [], last
    quorum, digest_type, password = metadata.write_quorum, metadata.digest_type, metadata.password
    for fragment in reversed(metadata.fragments):
        start = max(first, fragment.first)
        if start <= stop:
            ranges.append(Range(ledger, start, stop, fragment.bookies, quorum, digest_type, password))
        stop = min(stop, fragment.first - 1)
    ranges.reverse()
    return ranges
