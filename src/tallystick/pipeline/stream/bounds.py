"""Where a query begins and ends in each stream: from what an option says and what the stream has, to positions. Pure.

A position is that of the next entry to be read: a start is included, an end is not. Positions that are named are
promises: that one of them is not there is an error, never other rows or fewer.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from tallystick.bookkeeper.stream.ledger_list import count_of
from tallystick.bookkeeper.stream.names import stream_name
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchPosition, PositionTrimmed, UsageError

Word = Literal["earliest", "latest"]
WORDS: tuple[Word, ...] = ("earliest", "latest")

_LEDGER = attrgetter("ledger")
_FORM = 'earliest, latest, or JSON as in {"tenant/namespace/persistent/topic": "12:0"}, a position ledger:entry'


@dataclass(frozen=True)
class StreamExtent:
    """The ledgers that a stream lists, and the position behind the last entry that is confirmed, or EARLIEST.

    What was before ``trimmed`` is known to be deleted, and nothing behind it. ``end_entry_bytes`` is about what an
    entry of an open ledger has, where somebody asked.
    """

    stream: str
    ledgers: Sequence[StreamLedger]
    end: Position
    trimmed: Position = EARLIEST
    end_entry_bytes: int = 0

    @property
    def first(self) -> Position:
        """The position of the first entry that there is, or will be; EARLIEST while nobody knows."""
        return Position(self.ledgers[0].ledger, 0) if self.ledgers else EARLIEST

    def index(self, ledger: LedgerId) -> int:
        """Returns where the first ledger of this id or a higher one is in the list, its length if there is none."""
        return bisect_left(self.ledgers, ledger, key=_LEDGER)

    def next(self, position: Position) -> Position:
        """Returns the same place where reading goes on: at the end of a ledger the beginning of the next one.

        Raises PositionTrimmed for what is deleted, NoSuchPosition for what is not there yet, or never was.
        """
        if position == EARLIEST and self.ledgers and self.trimmed.entry > 0:
            # It was read while the list had no ledger yet: whatever was stored since and is deleted nobody has read.
            raise PositionTrimmed(
                "what this stream had first is deleted", stream=self.stream, deleted=self.trimmed, first=self.first
            )
        if self.ledgers and EARLIEST < position < self.first:
            if EARLIEST < self.trimmed <= position:
                if position <= self.end < self.first:
                    return self.end  # of a batch that ends where nothing was stored: that is gone as well
                position = self.first
            else:
                raise PositionTrimmed(
                    "what was at this position is deleted", stream=self.stream, position=position, first=self.first
                )
        position = max(position, self.first)
        index = self.index(position.ledger)
        is_listed = index < len(self.ledgers) and self.ledgers[index].ledger == position.ledger
        count = count_of(self.ledgers[index]) if is_listed else 0
        if position > self.end or (count is not None and position.entry > count):
            raise NoSuchPosition(
                "the stream does not reach to this position", stream=self.stream, position=position, end=self.end
            )
        for listed in self.ledgers[index + is_listed :]:
            if position.entry != count:
                break
            position, count = Position(listed.ledger, 0), count_of(listed)
        return position


@dataclass(frozen=True)
class StreamBound:
    """One end of what is read: a publish time, a position for each stream, or one of the words; as ``option`` says."""

    option: str
    default: Word  # of the streams that are not named
    named_positions: Mapping[str, Position | Word] = field(default_factory=dict)
    timestamp_ms: int | None = None  # the first entry that was published then or later; it wins over the others

    @classmethod
    def parse(cls, option: str, text: str, default: Word) -> StreamBound:
        """``earliest``, ``latest``, or ``{"tenant/namespace/persistent/topic": "12:0"}``; "" is the default. Raises
        UsageError."""
        for word in WORDS:
            if (text.strip().lower() or default) == word:
                return cls(option, word)
        try:
            named = json.loads(text)
            # Streams that are not named are read from their first message, and to their last one.
            default = "earliest" if option == "startingOffsets" else "latest"
            return cls(option, default, {stream_name(name): _position(value) for name, value in named.items()})
        except UsageError as error:
            raise UsageError(f"{option}: {error.message}", **error.fields) from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{option} is {_FORM}", value=text) from None

    @property
    def is_moving(self) -> bool:
        """Whether the bound is elsewhere when there is more."""
        return self.timestamp_ms is not None or "latest" in {self.default, *self.named_positions.values()}

    def check(self, streams: Collection[str]) -> None:
        """Raises UsageError for a stream that is named and not read."""
        for name in sorted(self.named_positions):
            if name not in streams:
                raise UsageError(f"{self.option} names a stream that the query does not read", stream=name)

    def position(self, extent: StreamExtent, timed: Position | None, *, is_strict: bool = True) -> Position:
        """Returns the bound's position in a stream; ``timed`` is the one that the stream has for the bound's time.

        Raises PositionTrimmed and NoSuchPosition for a named position that is not there. Not ``is_strict``: for what is
        deleted the first position that there is will do.
        """
        if timed is not None:
            return max(min(timed, extent.end), extent.first)
        position = self.named_positions.get(extent.stream, self.default)
        if position == "earliest":
            return extent.first
        if position == "latest":
            return extent.end
        try:
            return extent.next(position)
        except PositionTrimmed as error:
            if not is_strict:
                return extent.first
            reason = f"{self.option}: {error.message}; failOnDataLoss=false begins at the first position that there is"
            raise PositionTrimmed(reason, **error.fields) from None
        except NoSuchPosition as error:
            raise NoSuchPosition(f"{self.option}: {error.message}", **error.fields) from None


def _position(value: object) -> Position | Word:
    for word in WORDS:
        if isinstance(value, str) and value.strip().lower() == word:
            return word
    if not isinstance(value, str):
        raise ValueError
    position = Position.parse(value)
    if min(position.ledger, position.entry) < 0 or position.batch_index >= 0:
        raise UsageError("a position is that of a whole entry, ledger:entry", position=value)
    return position
