"""The appends of a stream that are not stored yet: which wait for a ledger, and which were sent to one.

::

    append ──▶ waiting ──take──▶ sent ──stored──▶ gone
                  ▲               │
                  └───send_on─────┘    their ledger ended before them

Order never changes. Appends that fail are gone from both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Appends(Generic[T]):
    """Items with their sizes in bytes, in the order of their positions."""

    __slots__ = ("_sent", "_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0  # of all
        self._waiting: deque[tuple[T, int]] = deque()
        self._sent: deque[tuple[T, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def append(self, item: T, size: int) -> None:
        """It waits behind all others."""
        self._waiting.append((item, size))
        self.bytes += size

    def extend(self, items: Iterable[tuple[T, int]], size: int) -> None:
        """These wait behind all others, in their order; ``size`` is that of all."""
        self._waiting.extend(items)
        self.bytes += size

    def take(self, most: int, room_bytes: int) -> tuple[list[T], int]:
        """Take items that are sent now, ``most`` of them, up to the one that fills ``room_bytes``. Returns them and
        their size."""
        waiting, taken_bytes, count = self._waiting, 0, 0
        for _, size in islice(waiting, most):
            taken_bytes += size
            count += 1
            if taken_bytes >= room_bytes:
                break
        taken = [waiting.popleft() for _ in range(count)]
        self._sent += taken
        return [item for item, _ in taken], taken_bytes

    def stored(self, count: int) -> list[T]:
        """The first ``count`` of those that were sent are stored. Returns them."""
        done = [self._sent.popleft() for _ in range(min(count, len(self._sent)))]
        self.bytes -= sum([size for _, size in done])
        return [item for item, _ in done]

    def send_on(self) -> None:
        """What was sent and is not stored waits again, before all else."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    def take_all(self) -> tuple[Iterator[T], Iterator[T]]:
        """Returns those that were sent, and those that wait, each to be looked at once; none is left."""
        sent, waiting = self._sent, self._waiting
        self._sent, self._waiting, self.bytes = deque(), deque(), 0
        return _items(sent), _items(waiting)


def _items(pairs: deque[tuple[T, int]]) -> Iterator[T]:
    while pairs:
        yield pairs.popleft()[0]
