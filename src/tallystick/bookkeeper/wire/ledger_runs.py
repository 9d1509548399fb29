"""The ledgers of a long list, most of which stay as they are stored: one is decoded when somebody asks for it.

Whoever opens a stream of 10,000 ledgers needs the ends of its list, and writes the rest of it back. So a long list is
*runs* of encoded ledgers, which lists that follow one another share, and a *tail* of decoded ones. A run of plain
ledgers (closed, with entries, and with nothing but numbers, as most are) has been judged as a whole: each of its fields
was looked at, and none of them was made an object of Python. A short list is a tuple, and all functions take both.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, chain
from operator import attrgetter, eq, lt
from typing import Final, overload

from tallystick.bookkeeper.wire.managed_ledgers import plain_stream
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.streams_pb2 import LedgerNumbers, StoredLedgers
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.steps import Steps

RUN_LEDGERS = 512  # judged, encoded or compressed in one step: a millisecond or two

# The end of a record is two bytes that begin and continue no field here, so none of these expressions reaches over it.
# A record that has them within has a field 0, of which protobuf makes nothing.
_END = b"\x00\x01"
_NUMBER = rb"[\x80-\xff]{0,8}[\x00-\x7f]"  # 63 bits: none is negative
_POSITIVE = rb"[\x80-\xff]{0,8}[\x01-\x7f]"
_PLAIN = re.compile(
    rb"(?:\x08%b\x10%b\x18%b\x20%b%b)*+" % (_NUMBER, _POSITIVE, _NUMBER, _POSITIVE, re.escape(_END))
)  # ledgerId, entries, size, timestamp, each once and in order

_LEVEL = 2  # of ZLIB: 6 takes twice the time, and 1 % fewer bytes come of it
_LEDGER = attrgetter("ledger")


class PlainLedgers(Sequence[StreamLedger]):
    """Plain ledgers, ids ascending, as columns of numbers."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: LedgerNumbers) -> None:
        self._numbers: Final = numbers

    @classmethod
    def of(cls, records: Sequence[bytes]) -> PlainLedgers | None:
        """Returns these stored ledgers, None if there is any other than plain ones among them, or their ids do not
        ascend. Raises DecodeError for damaged ones."""
        if _PLAIN.fullmatch(_END.join((*records, b""))) is None:
            return None
        plain = cls(LedgerNumbers.FromString(b"".join(records)))
        ids = plain.ids
        return plain if all(map(lt, ids, ids[1:])) else None

    @property
    def ids(self) -> list[LedgerId]:
        return list(self._numbers.ledgerId)

    @property
    def entries(self) -> list[int]:
        return list(self._numbers.entries)

    @property
    def size(self) -> int:
        """Returns the size of all."""
        return sum(self._numbers.size)

    def __len__(self) -> int:
        return len(self._numbers.ledgerId)

    @overload
    def __getitem__(self, at: int) -> StreamLedger: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[StreamLedger, ...]: ...
    def __getitem__(self, at: int | slice) -> StreamLedger | tuple[StreamLedger, ...]:
        numbers = self._numbers
        if isinstance(at, slice):
            columns = numbers.ledgerId[at], numbers.entries[at], numbers.size[at], numbers.timestamp[at]
            return tuple(map(StreamLedger, *columns))
        return StreamLedger(numbers.ledgerId[at], numbers.entries[at], numbers.size[at], numbers.timestamp[at])

    def __iter__(self) -> Iterator[StreamLedger]:
        return iter(self[:])


class LedgerRun:
    """So many ledgers as they are stored, one field of a list each, with what they say."""

    __slots__ = ("_deflated", "data", "first", "last", "ledgers")

    def __init__(self, data: bytes, ledgers: PlainLedgers | tuple[StreamLedger, ...]) -> None:
        """``ledgers``: ids ascending."""
        self.data, self.ledgers = data, ledgers
        self.first, self.last = ledgers[0].ledger, ledgers[-1].ledger
        self._deflated: bytes | None = None

    @classmethod
    def of(cls, ledgers: tuple[StreamLedger, ...]) -> LedgerRun:
        """Encode ledgers. Raises UsageError for what the format cannot hold."""
        data = plain_stream(StreamInfo(ledgers))
        return cls(data, PlainLedgers.of(list(StoredLedgers.FromString(data).ledgerInfo)) or ledgers)

    @property
    def is_plain(self) -> bool:
        return isinstance(self.ledgers, PlainLedgers)

    @property
    def is_deflated(self) -> bool:
        return self._deflated is not None

    @property
    def deflated(self) -> bytes:
        """The run as whole blocks of a deflated stream, which need nothing that is before them."""
        if self._deflated is None:
            deflate = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
            self._deflated = deflate.compress(self.data) + deflate.flush(zlib.Z_FULL_FLUSH)
        return self._deflated


class LedgerList(Sequence[StreamLedger]):
    """The ledgers of a long list. It never changes: ``joined`` and ``changed`` return others."""

    __slots__ = ("_starts", "runs", "tail")

    def __init__(self, runs: Iterable[LedgerRun], tail: tuple[StreamLedger, ...] = ()) -> None:
        self.runs, self.tail = tuple(runs), tail
        self._starts = list(accumulate((len(run.ledgers) for run in self.runs), initial=0))  # the tail's at the end

    def __len__(self) -> int:
        return self._starts[-1] + len(self.tail)

    @overload
    def __getitem__(self, at: int) -> StreamLedger: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[StreamLedger, ...]: ...
    def __getitem__(self, at: int | slice) -> StreamLedger | tuple[StreamLedger, ...]:
        if isinstance(at, slice):
            return tuple([self[each] for each in range(*at.indices(len(self)))])
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            raise IndexError(at)
        part = bisect_right(self._starts, at) - 1
        ledgers = self.runs[part].ledgers if part < len(self.runs) else self.tail
        return ledgers[at - self._starts[part]]

    def __iter__(self) -> Iterator[StreamLedger]:
        return chain.from_iterable(parts(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LedgerList) and self.runs == other.runs:  # mostly one was made of the other
            return self.tail == other.tail
        if not isinstance(other, LedgerList | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<LedgerList of {len(self)}, {self[0].ledger} to {self[-1].ledger}>"


def parts(ledgers: Sequence[StreamLedger]) -> Iterator[PlainLedgers | Sequence[StreamLedger]]:
    """Yields all ledgers of a list, some at a time."""
    if isinstance(ledgers, LedgerList):
        yield from (run.ledgers for run in ledgers.runs)
        ledgers = ledgers.tail
    yield ledgers


def unusual(ledgers: Sequence[StreamLedger]) -> Iterator[StreamLedger]:
    """Yields those of the list that are decoded: all that are open, or empty, and some others."""
    return chain.from_iterable(part for part in parts(ledgers) if not isinstance(part, PlainLedgers))


def ids_of(ledgers: Sequence[StreamLedger]) -> Set[LedgerId]:
    """Returns the ids of all."""
    ids = set[LedgerId]()
    for part in parts(ledgers):
        ids.update(part.ids if isinstance(part, PlainLedgers) else map(_LEDGER, part))
    return ids


def total_size(ledgers: Sequence[StreamLedger]) -> int:
    """Returns the size of all."""
    return sum(
        part.size if isinstance(part, PlainLedgers) else sum(each.size for each in part) for part in parts(ledgers)
    )


def find(ledgers: Sequence[StreamLedger], ledger: LedgerId) -> StreamLedger | None:
    """Returns a ledger of the list, None if it is not listed."""
    index = bisect_left(ledgers, ledger, key=_LEDGER)
    listed = ledgers[index] if index < len(ledgers) else None
    return listed if listed is not None and listed.ledger == ledger else None


def joined(ledgers: Sequence[StreamLedger], new: Iterable[StreamLedger]) -> Sequence[StreamLedger]:
    """Returns the list with these at its end. Raises UsageError for what the format cannot hold."""
    runs, tail = (list(ledgers.runs), ledgers.tail) if isinstance(ledgers, LedgerList) else ([], tuple(ledgers))
    tail = (*tail, *new)
    while len(tail) > RUN_LEDGERS:
        runs.append(LedgerRun.of(tail[:RUN_LEDGERS]))
        tail = tail[RUN_LEDGERS:]
    return LedgerList(runs, tail) if runs else tail


def changed(ledgers: Sequence[StreamLedger], ends: Mapping[LedgerId, StreamLedger | None]) -> Sequence[StreamLedger]:
    """Returns the list with these in the places of those of their ids; None: without it. Raises as ``joined``."""

    def after(some: Iterable[StreamLedger]) -> tuple[StreamLedger, ...]:
        changes = (ends.get(each.ledger, each) for each in some)
        return tuple([each for each in changes if each is not None])

    if not isinstance(ledgers, LedgerList):
        return after(ledgers)
    ids, runs = sorted(ends), list[LedgerRun]()
    for run in ledgers.runs:
        if bisect_left(ids, run.first) == bisect_right(ids, run.last):
            runs.append(run)
        elif left := after(run.ledgers):
            runs.append(LedgerRun.of(left))
    tail = after(ledgers.tail)
    return LedgerList(runs, tail) if runs else tail


def listing(ledgers: Sequence[StreamLedger]) -> Steps[LedgerList]:
    """Encode the ledgers of a list, as far as they are not, in steps. Raises UsageError as ``joined``."""
    if isinstance(ledgers, LedgerList):
        return ledgers
    runs = []
    for at in range(0, len(ledgers), RUN_LEDGERS):
        runs.append(LedgerRun.of(tuple(ledgers[at : at + RUN_LEDGERS])))
        yield
    return LedgerList(runs)
