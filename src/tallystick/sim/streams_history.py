"""What is known of a simulated stream by who sees everything: each append and what became of it, each ledger's end."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.stream_values import Position

BULKY = 6  # one in so many appends has the bulk, where there is one


def payload(number: int, largest: int, bulk: int = 0) -> bytes:
    """Returns the data of an append: of any size, and never that of another one. Some have ``bulk`` more."""
    digest = hashlib.blake2b(str(number).encode()).digest()
    size = int.from_bytes(digest[:4], "big") % (largest + 1)
    data = b"%d." % number + (digest * (size // len(digest) + 1))[:size]
    return data + bytes(bulk) if digest[4] % BULKY == 0 else data


def number_of(data: bytes) -> int:
    """Returns which append had this data, -1 if none had."""
    number = data.partition(b".")[0]
    return int(number) if number.isdigit() else -1


@dataclass(eq=False)
class Handle:
    """One opening of the stream to append to it."""

    number: int
    owner: str
    after: int  # so many handles were open when this one was asked for
    next_order: int = 0
    is_superseded: bool = False  # another one was asked for and opened since
    acked: list[tuple[int, Position]] = field(default_factory=list)  # orders of appends, and where they are

    def add(self, order: int, position: Position) -> bool:
        """An append is acknowledged. Returns whether its position is between those of its neighbours."""
        place = bisect_left(self.acked, (order, position))
        self.acked.insert(place, (order, position))
        near = [each[1] for each in self.acked[max(place - 1, 0) : place + 2]]
        return near == sorted(near) and len(set(near)) == len(near)


@dataclass(eq=False)
class Append:
    """What one message is to be stored once for: it is told once, or (with a sequence) until that is known."""

    number: int  # in all the life
    data: bytes
    after: Position | None  # the last one that was acknowledged before it was told
    told_at: float  # first
    tellings: list[Telling] = field(default_factory=list)
    position: Position | None = None  # once it is acknowledged, and known
    is_stored: bool = False  # it is acknowledged
    numbered: tuple[str, int] | None = None  # by its producer

    @property
    def may_repeat(self) -> bool:
        return len(self.tellings) > 1


@dataclass(eq=False)
class Telling:
    """One call for an append."""

    append: Append
    handle: Handle
    order: int  # in its handle
    superseded: bool  # somebody else had opened the stream before


@dataclass
class Positions:
    """Positions in order, each with the number of its append."""

    order: list[Position] = field(default_factory=list)
    numbers: dict[Position, int] = field(default_factory=dict)

    def add(self, position: Position, number: int) -> None:
        if position not in self.numbers:
            insort(self.order, position)
            self.numbers[position] = number

    def between(self, after: Position | None, before: Position) -> list[Position]:
        """Returns those behind one and before another."""
        start = 0 if after is None else bisect_right(self.order, after)
        return self.order[start : bisect_left(self.order, before)]
