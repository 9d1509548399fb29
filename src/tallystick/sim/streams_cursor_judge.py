"""What is known of one cursor of a simulated stream: what was acknowledged by it, for good or perhaps (S6, S7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.stream_values import EARLIEST, CursorInfo, Position
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.sim.invariants import OnViolation
from tallystick.sim.streams_history import Positions

UNSETTLED_S = 5.0  # a trim that began before a cursor was made or moved may not have seen that
WHOLE_ENTRY = 1 << 31  # the index behind all messages of an entry


def _last_of(position: Position) -> Position:
    """Returns the place of a message, or behind all of an entry."""
    return position if position.batch_index >= 0 else position._replace(batch_index=WHOLE_ENTRY)


def _before(position: Position) -> Position:
    """Returns the place just before a message or an entry."""
    if position.batch_index > 0:
        return position._replace(batch_index=position.batch_index - 1)
    return Position(position.ledger, position.entry - 1, WHOLE_ENTRY)


@dataclass
class Acks:
    """A set of messages: all up to one, and single ones or entries."""

    up_to: Position = EARLIEST
    single: dict[Position, None] = field(default_factory=dict)

    def has(self, position: Position) -> bool:
        return _last_of(position) <= self.up_to or position in self.single or position.of_entry in self.single

    def add(self, position: Position, *, up_to: bool) -> None:
        if up_to:
            self.up_to = max(self.up_to, _last_of(position))
        else:
            self.single[position] = None

    def below(self, position: Position) -> Acks:
        """Returns those before a position."""
        kept = dict.fromkeys(each for each in self.single if _last_of(each) < position)
        return Acks(min(self.up_to, _before(position)), kept)


@dataclass(eq=False)
class CursorHandle:
    """One opening of a cursor. ``last`` is the place behind which it reads; None: that is not known."""

    number: int
    done: Acks  # durable when it was opened
    last: Position | None
    is_of_deleted: bool = False  # which is another cursor than the one of this name now
    is_left: bool = False  # another one moved the cursor since: this one has no place in it any more


@dataclass(frozen=True)
class Ask:
    """An acknowledgement or a move that is under way; so many moves and openings there were before it."""

    handle: CursorHandle
    position: Position
    up_to: bool
    moves: int
    openings: int


class CursorHistory:
    """One durable cursor; ``asked`` are acks that may count, ``done`` those that must."""

    def __init__(
        self,
        name: str,
        fail: OnViolation,
        acked: Positions,
        seen: Positions,
        was_trimmed: Callable[[LedgerId], bool],
        has_expired: Callable[[Position], bool],
    ) -> None:
        """``acked`` are all appends that are known to be stored, ``seen`` all that were read; no cursor has to deliver
        what was trimmed, or has expired."""
        self.name, self._fail, self._acked, self._seen = name, fail, acked, seen
        self._was_trimmed, self._has_expired = was_trimmed, has_expired
        self.asked, self.done = Acks(), Acks()
        self._handles: list[CursorHandle] = []
        self.is_made, self._moves = False, 0
        self._unsettled_at = 0.0  # it was made, or moved
        self.promise_count = 0

    def stored(self, info: CursorInfo, now: float) -> None:
        """Its node was written."""
        if not self.is_made and info.state is not None:
            self.is_made, self._unsettled_at = True, now
            for acks in (self.asked, self.done):
                acks.add(info.state.mark, up_to=True)

    def deleted(self) -> None:
        """Its node is gone: another one of this name begins anew."""
        self.is_made = False
        self.asked, self.done = Acks(), Acks()
        for each in self._handles:
            each.done, each.is_of_deleted = Acks(), True

    def opened(self) -> CursorHandle:
        """Somebody begins to open it."""
        self._handles.append(CursorHandle(len(self._handles), self.done.below(_BEHIND), EARLIEST))
        return self._handles[-1]

    # Acks.

    def asking(self, handle: CursorHandle, position: Position, *, up_to: bool) -> Ask:
        """Somebody acknowledges a position, or all up to it."""
        self.asked.add(position, up_to=up_to)
        return Ask(handle, position, up_to, self._moves, len(self._handles))

    def acknowledged(self, ask: Ask) -> None:
        """The ack is durable. That says nothing if somebody moves the cursor since it was asked for."""
        self.promise_count += 1
        if ask.moves == self._moves and not ask.handle.is_of_deleted:
            self.done.add(ask.position, up_to=ask.up_to)

    def moving(self, handle: CursorHandle, low: Position, high: Position, now: float) -> Ask:
        """Somebody moves the cursor to a place between two: all before may be acknowledged, and nothing from there on
        must be."""
        self._moves, self._unsettled_at, handle.last = self._moves + 1, now, None
        self.asked.add(_before(high), up_to=True)
        self.done = self.done.below(low)
        for each in self._handles:
            each.done = each.done.below(low)
        return Ask(handle, high, False, self._moves, len(self._handles))

    def moved(self, handle: CursorHandle, ask: Ask, position: Position, now: float) -> None:
        """The move is durable. That says nothing if somebody else opens the cursor since."""
        self._unsettled_at = now
        handle.last = _before(position)
        if (ask.moves, ask.openings) == (self._moves, len(self._handles)) and not handle.is_of_deleted:
            self.asked, self.done = Acks(handle.last), Acks(handle.last)
            for each in self._handles:
                each.is_left = each is not handle

    def needs(self, ledger: LedgerId, last: EntryId, now: float) -> Position | None:
        """Returns the first entry of a ledger that nobody acknowledged. Returns None if all are, or none must be."""
        if not self.is_made or now - self._unsettled_at < UNSETTLED_S:
            return None
        entries = (Position(ledger, entry) for entry in range(last + 1))
        return next((entry for entry in entries if not self._covers(entry)), None)

    def _covers(self, entry: Position) -> bool:
        if self.asked.has(entry) or self._has_expired(entry):
            return True
        after = Position(entry.ledger, entry.entry + 1)
        within = self._acked.between(entry, after) + self._seen.between(entry, after)
        return bool(within) and all(self.asked.has(message) for message in within)

    def _is_passed_over(self, position: Position) -> bool:
        return self._was_trimmed(position.ledger) or self._has_expired(position)

    # Deliveries.

    def delivered(self, handle: CursorHandle, position: Position) -> None:
        """A cursor gave a message."""
        text = f"cursor {self.name}.{handle.number} delivers {position} after {handle.last}"
        if handle.done.has(position):
            self._fail("S6", f"{text}, which was acknowledged for good")
        if handle.last is not None:
            if position <= handle.last:
                self._fail("S6", text)
            if not (handle.is_of_deleted or handle.is_left):
                self._check_skipped(handle.last, position, text)
        handle.last = position

    def _check_skipped(self, last: Position, position: Position, text: str) -> None:
        between = self._acked.between(last, position)
        skipped = [each for each in between if not (self.asked.has(each) or self._is_passed_over(each))]
        if skipped:
            self._fail("S6", f"{text}, and skips {skipped[0]}")

    def ended(self, handle: CursorHandle) -> None:
        """A handle has delivered all that it has, when nothing is done any more."""
        if handle.last is not None and not handle.is_left:
            self._check_skipped(handle.last, _BEHIND, f"cursor {self.name}.{handle.number} ends after {handle.last}")


_BEHIND = Position(1 << 62, 0)
