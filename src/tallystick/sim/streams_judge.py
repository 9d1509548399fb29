"""The promises of streams, checked at each change of the metadata, acknowledgement and delivery, and at the end.

S1 an acknowledged append is in the stream once, at its position and with its bytes, whoever owned it since; any other
is there once at most. S2 positions ascend as appends were made: in a handle, and where one was acknowledged before the
other was made. S3 who opened the stream before somebody else did gets nothing acknowledged that is told afterwards, and
nothing is acknowledged behind the end of a closed ledger or of a terminated stream. S4 the ids of the list ascend, each
of its ledgers is there and not too long, all but the newest are closed, and what a closed one has is never changed. S5
readers get what is in the stream, in order, without a gap, and nothing that is not confirmed, nor a part of a message
that came in chunks. S6 a cursor delivers in
order, nothing whose ack was durable when it was opened, and skips nothing that nobody acknowledged. S7 nothing is
trimmed that a durable cursor needs, and nothing is passed over before it is too old, or too much; while a backlog is
too large appends are refused or wait, as the policy is, and no longer. S8 each ledger is
listed, a cursor's, or noted. S9 when the faults have ended, the stream is opened, appended to, read, consumed, trimmed
and deleted in bounded time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.stream.quota import EVICTED_TO
from tallystick.bookkeeper.stream.settings import UNLIMITED
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.sim.invariants import Violation
from tallystick.sim.past_tree import NodeChange
from tallystick.sim.streams_cursor_judge import WHOLE_ENTRY, CursorHistory
from tallystick.sim.streams_history import Append, Handle, Positions, Telling, number_of, payload
from tallystick.sim.streams_list_judge import ListJudge
from tallystick.sim.streams_plan import StreamsPlan
from tallystick.sim.virtual.trace import Trace

CLOCK_S = 0.002  # times of messages are in ms
BATCH = 4  # messages of an entry, at most
ENTRY_BYTES = 300  # of one with the shortest messages, at most


class StreamsJudge:
    """Checks the promises; ``violation`` is the first that was broken."""

    def __init__(self, trace: Trace, plan: StreamsPlan, now: Callable[[], float]) -> None:
        self._trace, self._plan, self._now = trace, plan, now
        self.stop: Callable[[], None] = lambda: None  # settable: ends the life, also where nobody hears the violation
        self.violation: str | None = None
        self.promise_count = 0
        self.handles: list[Handle] = []
        self.appends: list[Append] = []
        self.acked = Positions()
        self.seen = Positions()  # by readers and cursors
        self.published: dict[Position, int] = {}  # when in ms, of what was seen
        self._are_times_in_order = not any(owner.numbers for owner in plan.owners)  # what is held is stamped later
        self.cursors: dict[str, CursorHistory] = {}
        self.list = ListJudge(self.fail, self.cursors, plan.max_entries, now)
        self.list.expired_up_to = self._expired

    def fail(self, promise: str, what: str) -> NoReturn:
        """Raise Violation, which ends who looked. The first one counts."""
        self._trace.note("VIOLATION", promise, what)
        self.violation = self.violation or f"{promise}: {what}"
        self.stop()
        raise Violation(self.violation)

    # Owners.

    def opened(self, owner: str, after: int) -> Handle:
        """Somebody has the stream to append to it; it had been opened ``after`` times when that was begun."""
        handle = Handle(len(self.handles), owner, after)
        self._trace.note("opened", handle.number, owner)
        for older in self.handles[:after]:
            older.is_superseded = True
        self.handles.append(handle)
        return handle

    def appending(self, handle: Handle, append: Append | None = None) -> Telling:
        """Returns the telling of a new append, or one more of an old one, which begins now."""
        if append is None:
            after = self.acked.order[-1] if self.acked.order else None
            number, plan = len(self.appends), self._plan
            append = Append(number, payload(number, plan.largest, plan.bulk), after, self._now())
            self.appends.append(append)
        telling = Telling(append, handle, handle.next_order, handle.is_superseded)
        append.tellings.append(telling)
        handle.next_order += 1
        return telling

    def acknowledged(self, telling: Telling, position: Position) -> None:
        """Whoever told an append was told that it is stored."""
        append, handle = telling.append, telling.handle
        self._trace.note("acknowledged", handle.number, append.number, position)
        text = f"append {append.number} of handle {handle.number} is acknowledged at {position}"
        append.is_stored = True
        if append.may_repeat and position == EARLIEST:
            return  # it was stored long ago: nobody knows where
        if append.position not in (None, position):
            self.fail("S1", f"{text}; it is at {append.position}")
        if telling.superseded and not append.may_repeat:
            self.fail("S3", f"{text}, and was told when somebody else had the stream")
        if not append.may_repeat and not handle.add(telling.order, position):
            self.fail("S2", f"{text}, and those before and after it at {handle.acked}")
        if append.after is not None and position <= append.after:
            self.fail("S2", f"{text}; {append.after} was acknowledged before it was told")
        for known in (self.acked, self.seen):
            if known.numbers.get(position, append.number) != append.number:
                self.fail("S1", f"{text}, where append {known.numbers[position]} is")
        self.list.acknowledged(position, text)
        append.position = position
        self.acked.add(position, append.number)
        self.promise_count += 1

    def last_acked(self) -> Position | None:
        """Returns the last position that was acknowledged. Returns None if it is not there any more."""
        last = self.acked.order[-1] if self.acked.order else None
        return None if last is None or self.list.was_trimmed(last.ledger) else last

    def failed(self, telling: Telling, error: BaseException) -> None:
        """Whoever told an append was told that it may not be stored."""
        self._trace.note("failed", telling.handle.number, telling.append.number, type(error).__name__)

    # Readers.

    def delivered(self, position: Position, data: bytes, to: str, published_ms: int | None = None) -> int:
        """Somebody read a message. Returns the number of its append."""
        number = number_of(data)
        self._trace.note("delivered", to, position, number)
        if not 0 <= number < len(self.appends) or self.appends[number].data != data:
            self.fail("S5", f"{to} read at {position} what nobody appended: {data[:20]!r}")
        if self.acked.numbers.get(position, number) != number or self.seen.numbers.get(position, number) != number:
            known = self.acked.numbers.get(position, self.seen.numbers.get(position))
            self.fail("S5", f"{to} read {number} at {position}, where {known} is")
        append = self.appends[number]
        if append.position not in (None, position):
            self.fail("S1", f"{to} read append {number} at {position}; it is at {append.position}")
        self.list.readable(position, to)
        self.seen.add(position, number)
        if published_ms is not None:
            self.published[position] = published_ms
        return number

    def between_times(self, time_ms: int) -> tuple[Position, Position]:
        """Returns two positions between which is the first message that was published at this time or later."""
        earlier = [position for position, at in self.published.items() if at < time_ms]
        later = [position for position, at in self.published.items() if at >= time_ms]
        if not self._are_times_in_order:
            return EARLIEST, max(self.published)
        return max(earlier, default=EARLIEST), min(later)

    def sought(self, time_ms: int, at: Position) -> None:
        """A cursor was moved to the first message that was published at this time or later, and is there."""
        self._trace.note("sought", time_ms, at)
        if not self._are_times_in_order:
            return
        for position, published_ms in self.published.items():
            if (position < at) == (published_ms >= time_ms) and not self._is_gone(position):
                self.fail("S6", f"{time_ms} was sought, and {at} found; what is at {position} is of {published_ms}")

    def _is_gone(self, position: Position) -> bool:
        return self.list.was_trimmed(position.ledger) or self.list.has_expired(position)

    def gap(self, after: Position | None, position: Position, to: str) -> None:
        """A reader went on from one position (None: from the begin) to another."""
        if after is not None and position <= after:
            self.fail("S5", f"{to} got {position} after {after}")
        for missing in self.acked.between(after, position):
            if not self.list.was_trimmed(missing.ledger):
                self.fail("S5", f"{to} got {position} after {after}, and not {missing}")

    def trimmed(self, start: Position | None, first: Position | None, to: str) -> None:
        """A reader was told that what it wanted was trimmed, and what is first now."""
        self._trace.note("trimmed", to, start, first)
        if start is None or first is None or first < start or not self.list.was_trimmed(start.ledger):
            self.fail("S5", f"{to} was told that {start} was trimmed, and {first} is first")

    def at_the_end(self, content: Positions) -> None:
        """All that the stream has was read, when nothing is done with it any more."""
        for position, number in self.acked.numbers.items():
            if not self.list.was_trimmed(position.ledger) and content.numbers.get(position) != number:
                found = content.numbers.get(position)
                self.fail("S1", f"append {number} was acknowledged at {position}, where {found} is")
        self._check_order(content)
        if not self.list.has_trimmed:
            for append in self.appends:
                if append.is_stored and append.number not in content.numbers.values():
                    self.fail("S1", f"append {append.number} is acknowledged, and not there")
        for position in self.seen.order:
            if position not in content.numbers and not self.list.was_trimmed(position.ledger):
                self.fail("S5", f"append {self.seen.numbers[position]} was read at {position}, and is not there")

    def _check_order(self, content: Positions) -> None:
        """Check that each append is there once, and that those of a handle are in order."""
        places: dict[int, Position] = {}
        orders: dict[int, int] = {}
        numbers: dict[str, int] = {}
        for position in content.order:
            append = self.appends[content.numbers[position]]
            if append.number in places:
                self.fail("S1", f"append {append.number} is at {places[append.number]} and at {position}")
            places[append.number] = position
            if append.numbered is not None:
                producer, number = append.numbered
                if number <= numbers.get(producer, -1):
                    self.fail("S2", f"{producer} numbered {position} {number}, and one before it {numbers[producer]}")
                numbers[producer] = number
            if append.may_repeat:
                continue
            telling = append.tellings[0]
            if telling.order < orders.get(telling.handle.number, -1):
                self.fail("S2", f"append {append.number} of handle {telling.handle.number} is behind a later one")
            orders[telling.handle.number] = telling.order

    # Bookies, and the metadata.

    def changed(self, changes: Sequence[NodeChange]) -> None:
        """A transaction changed nodes of the metadata."""
        for change in changes:
            self._trace.note("znode", change.path, "-" if change.after is None else change.after.version)
        self.list.changed(changes)

    def _expired(self, before: Position, after: Position) -> None:
        """Cursors pass over what is between two positions, as it is too old, or too much for the quota."""
        plan = self._plan
        self._trace.note("expired", before, after)
        if plan.refuses:
            self.fail("S7", f"cursors pass over all up to {after}, and appends are to be refused instead")
        if plan.quota_bytes != UNLIMITED:
            left = self.list.closed_entries(after) + len(self._acked_entries(after, self.list.open_ledger))
            biggest = ENTRY_BYTES + BATCH * plan.largest
            if (left + 1) * biggest < plan.quota_bytes * EVICTED_TO // 100:
                self.fail("S7", f"up to {after} all is evicted: {left} entries are left of {plan.quota_bytes} bytes")
            return
        for known in (self.acked, self.seen):
            for position in known.between(before, after._replace(batch_index=WHOLE_ENTRY)):
                append = self.appends[known.numbers[position]]
                if append.told_at + plan.ttl_s > self._now() + CLOCK_S:
                    self.fail("S7", f"append {append.number} at {position} has expired, told at {append.told_at:.3f}")

    def _acked_entries(self, after: Position, ledger: LedgerId) -> set[Position]:
        behind = max(after._replace(batch_index=WHOLE_ENTRY), Position(ledger, -1))
        return {position.of_entry for position in self.acked.between(behind, Position(ledger + 1, 0))}

    def cursor(self, name: str) -> CursorHistory:
        """Returns what is known of a cursor."""
        return self.cursors.setdefault(
            name, CursorHistory(name, self.fail, self.acked, self.seen, self.list.was_trimmed, self.list.has_expired)
        )

    def damaged(self, bookie: BookieId, *, forgets: bool) -> None:
        self.fail("S1", f"{bookie} was damaged, which the plan does not have")

    def collected(self, bookie: BookieId, storage: Storage) -> None:
        """A bookie has deleted ledgers."""
        for ledger, creation in self.list.creations.items():
            identity = storage.identities.identity(ledger)
            if identity is not None and identity.deleted and identity.creation == creation:
                self.fail("S8", f"{bookie} deleted ledger {ledger}, which the metadata has")
