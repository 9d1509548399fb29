"""What a client of bookies counts: plain numbers, to which a run of entries adds once."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import BookieUnavailable, DigestMismatch, NoSuchEntry, RequestTimeout, TallyError

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
BAD_DIGEST = "BAD_DIGEST"
NO_RESPONSE = "NO_RESPONSE"  # in the place of a code: none in time, or the connection ended


@dataclass(slots=True)
class Latencies:
    """How many took at most each of ``BOUNDS_S`` and more than the one before; the last number is of longer ones."""

    count: int = 0
    seconds: float = 0.0
    by_bound: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))

    def took(self, seconds: float, count: int = 1) -> None:
        """``count`` of them took so long each."""
        self.count += count
        self.seconds += seconds * count
        self.by_bound[bisect_left(BOUNDS_S, seconds)] += count


@dataclass(slots=True)
class ClientCounts:
    """Since the client was made. Entries that were added are confirmed ones; errors are those of single bookies."""

    adds: int = 0
    add_bytes: int = 0
    add_latencies: Latencies = field(default_factory=Latencies)  # from sending to confirming an entry
    add_errors: Counter[str] = field(default_factory=Counter)  # entries, by the name of the code
    reads: int = 0
    read_bytes: int = 0
    read_latencies: Latencies = field(default_factory=Latencies)  # of pieces: all that is asked for at once
    read_errors: Counter[str] = field(default_factory=Counter)  # pieces
    speculative_reads: int = 0
    slow_bookies: int = 0
    ensemble_changes: int = 0
    reconnects: int = 0

    def add_failed(self, code: Code | None, entries: int) -> None:
        """A bookie refused entries, or (None) did not respond."""
        self.add_errors[NO_RESPONSE if code is None else code.name] += entries

    def read_failed(self, error: TallyError) -> None:
        """A bookie gave nothing of a piece."""
        if isinstance(error, BookieUnavailable | RequestTimeout):
            name = NO_RESPONSE
        elif isinstance(error, DigestMismatch):
            name = BAD_DIGEST
        elif isinstance(error, NoSuchEntry):
            name = Code.NO_ENTRY.name
        else:
            name = error.fields.get("answer", Code.UNAUTHORIZED.name)
        self.read_errors[name] += 1
