"""Which appends of a producer are stored already (Pulsar's ``MessageDeduplication``): no loop, no clock, no I/O.

A producer numbers its appends. What is not above the highest number of its producer that is stored was stored before,
and is not stored again. Numbers may skip; a number that goes down is a repeat. What is on its way is no repeat yet: who
repeats it waits for the first. What failed is appended again before any higher number of its producer: of that nobody
could tell it apart later.

The state is a number a producer, and for the newest appends where they are. The numbers are saved now and then, with
the position up to which they count at least; whoever takes the stream over reads on from there. To read what counts
already once more changes nothing.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Mapping
from types import MappingProxyType

from tallystick.bookkeeper.stream.dedup_places import DedupPlaces
from tallystick.bookkeeper.stream.producers import has_numbers
from tallystick.bookkeeper.wire.stream_values import Position

MOST_PRODUCERS = (
    10_000  # whose numbers are kept; those that were silent longest go first (brokerDeduplicationMaxNumberOfProducers)
)
MOST_NAME_BYTES = 768 * 1024  # of all their names, which are saved in one node: a server takes less than 1 MiB
_NUMBER_BYTES = 16  # as it is saved, about
PLACES_KEPT = 10_000  # of the newest entries of all producers together


class AppendStatus(enum.Enum):
    """Whether a numbered append is new, or repeats another one."""

    NEW = "new"
    PENDING = "pending"  # it is on its way: its outcome is that of the first
    STORED = "stored"


class FailedNumbers:
    """The numbers of appends that failed, until they are appended again, by producer."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # first and last, ascending

    def failed(self, producer: str, first: int, last: int) -> None:
        """An append with these numbers is not stored, as far as is known."""
        runs = self._runs.setdefault(producer, [])
        start = bisect_left(runs, (first, first))
        if start and runs[start - 1][1] >= first - 1:
            start -= 1
        end = start
        while end < len(runs) and runs[end][0] <= last + 1:
            first, last = min(first, runs[end][0]), max(last, runs[end][1])
            end += 1
        runs[start:end] = [(first, last)]
        if len(self._runs) > MOST_PRODUCERS:
            self._runs.popitem(last=False)

    def lowest(self, producer: str) -> int | None:
        """Returns the number that comes next; None if no append of the producer failed."""
        runs = self._runs.get(producer)
        return runs[0][0] if runs else None

    def settled(self, producer: str, last: int) -> None:
        """Numbers up to ``last`` are stored, or on their way again."""
        if (runs := self._runs.get(producer)) is None:
            return
        gone = bisect_left(runs, (last + 1, 0))  # of these the last may go on behind it
        if gone and runs[gone - 1][1] > last:
            gone -= 1
            runs[gone] = last + 1, runs[gone][1]
        del runs[:gone]  # not all are looked at: who repeats what failed settles one at a time
        if not runs:
            del self._runs[producer]


class DedupCore:
    """See the module. Appends of one stream are stored in the order in which they were pushed."""

    def __init__(
        self,
        *,
        most_producers: int = MOST_PRODUCERS,
        most_name_bytes: int = MOST_NAME_BYTES,
        places_kept: int = PLACES_KEPT,
    ) -> None:
        self._most_producers, self._most_name_bytes = most_producers, most_name_bytes
        self._name_bytes = 0
        self._stored: OrderedDict[str, int] = OrderedDict()  # the highest, the producer that was silent longest first
        # Those that are on their way, ascending, of producers that have any. One that is refused leaves the others.
        self._pushed: dict[str, deque[int]] = {}
        self._places = DedupPlaces(places_kept)

    @property
    def highest(self) -> Mapping[str, int]:
        """Returns the highest stored number of each producer, the one that was silent longest first."""
        return MappingProxyType(dict(self._stored))

    def restored(self, highest: Mapping[str, int]) -> None:
        """The numbers that were saved were read. Next: ``stored`` for each entry behind their position."""
        self._stored = OrderedDict((producer, last) for producer, last in highest.items() if has_numbers(producer))
        self._name_bytes = sum(map(_saved_bytes, self._stored))
        self._bound()

    def check(self, producer: str, sequence: int) -> AppendStatus:
        """Say what is known of a number. Next: for a new one ``pushed``."""
        if sequence <= self._stored.get(producer, -1):
            return AppendStatus.STORED
        return AppendStatus.PENDING if sequence <= self._highest_pushed(producer) else AppendStatus.NEW

    def pending(self, producer: str, sequence: int) -> int:
        """Returns the last number of the append on its way that has a number which is pending, or has it behind it."""
        pushed = self._pushed[producer]
        return pushed[bisect_left(pushed, sequence)]

    def highest_of(self, producer: str) -> int:
        """Returns the highest stored number of a producer, -1 if none is."""
        return self._stored.get(producer, -1)

    def position_of(self, producer: str, sequence: int) -> Position:
        """Returns where a stored append is. Returns EARLIEST where that is not known any more."""
        return self._places.of(producer, sequence, 1)[0]

    def positions_of(self, producer: str, first: int, count: int) -> list[Position]:
        """The same of so many numbers."""
        return self._places.of(producer, first, count)

    def first_new(self, producer: str, first: int) -> int:
        """Returns the first number from this one on that is neither stored nor on its way."""
        return max(first, self._stored.get(producer, -1) + 1, self._highest_pushed(producer) + 1)

    def pushed(self, producer: str, last: int) -> None:
        """An append with numbers up to ``last`` is on its way."""
        self._pushed.setdefault(producer, deque()).append(last)

    def stored(self, producer: str, first: int, last: int, position: Position) -> None:
        """An entry with the numbers ``first`` to ``last`` is stored. Of one entry's messages each has its index."""
        before = self._stored.get(producer)
        if before is None:
            self._name_bytes += _saved_bytes(producer)
        self._stored[producer] = last if before is None else max(last, before)
        self._stored.move_to_end(producer)
        pushed = self._pushed.get(producer, deque())
        while pushed and pushed[0] <= last:
            pushed.popleft()
        self._forget_none(producer)
        self._places.add(producer, first, last, position)
        self._bound()

    def failed(self, producer: str, last: int) -> None:
        """What was pushed with this number is not stored, and never will be."""
        pushed = self._pushed.get(producer, deque())
        if last in pushed:  # which is the first mostly
            pushed.remove(last)
        self._forget_none(producer)

    def _highest_pushed(self, producer: str) -> int:
        pushed = self._pushed.get(producer)
        return pushed[-1] if pushed else -1

    def _forget_none(self, producer: str) -> None:
        if not self._pushed.get(producer, True):
            del self._pushed[producer]

    def _bound(self) -> None:
        while len(self._stored) > self._most_producers or self._name_bytes > self._most_name_bytes:
            producer, _ = self._stored.popitem(last=False)
            self._name_bytes -= _saved_bytes(producer)


def _saved_bytes(producer: str) -> int:
    return len(producer.encode("utf-8", "surrogatepass")) + _NUMBER_BYTES
