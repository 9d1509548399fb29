"""The memory that all connections of one server take, and the end of those that take too much.

The counting and the choice are ``Budget``'s; this is its shell: it looks once a second at what peers took, as
transports tell nobody, and ends connections. A connection that must go takes nothing more at once, and is closed in the
next turn of the loop: whoever made the budget overflow may be in the middle of a batch of requests. Looks at very many
connections, and the ends of many, take several turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from typing import Protocol

from tallystick.runtime.budget import Budget, CloseReason
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.memory import FreedMemory
from tallystick.runtime.once import Once
from tallystick.runtime.turn_steps import TurnSteps

LOOK_S = 1.0
LOOKS_EACH_TURN = 64  # connections: some milliseconds, also where all of them have to go


class Holder(Hashable, Protocol):
    """A connection, as this module uses it."""

    peer: str

    def tell_unsent(self) -> None:
        """Call ``Memory.unsent`` with the bytes that are unsent now."""
        ...

    def condemn(self, reason: str) -> None:
        """Drop what is queued, take nothing more, and close soon."""
        ...


class Memory:
    """The memory of one server, whatever the number of its ports. ``close`` it behind the last of them."""

    def __init__(self, clock: Clock, events: Events, limit_bytes: int, stalled_after_s: float) -> None:
        self.dropped_connections = 0  # connections that had to go
        self._clock, self._events = clock, events
        self._budget: Budget[Holder] = Budget(limit_bytes, stalled_after_s)
        self._freed = FreedMemory()
        self._reports = Once()
        self._look_handle: asyncio.TimerHandle | None = None
        self._steps: TurnSteps | None = None
        self._is_dropping = False

    @property
    def unsent_bytes(self) -> int:
        return self._budget.unsent_bytes

    @property
    def unfinished_bytes(self) -> int:
        return self._budget.unfinished_bytes

    @property
    def kept_bytes(self) -> int:
        return self._budget.kept_bytes

    def unsent(self, holder: Holder, size: int, *, has_taken: bool) -> None:
        """``size`` bytes are held of what waits for the peer to take it; ``has_taken``: it took some since the last
        call."""
        self._budget.unsent(holder, size, self._clock.now(), has_taken=has_taken)
        if size and self._look_handle is None:
            self._look_soon()
        if self._budget.over:
            self._begin(self._drop())

    def unfinished(self, holder: Holder, size: int, *, progress: bool) -> None:
        """``size`` bytes are there of a request that has not come whole; ``progress``: one came whole since."""
        self._budget.unfinished(holder, size, self._clock.now(), progress=progress)
        if self._budget.over:
            self._begin(self._drop())

    def kept(self, holder: Holder, size: int) -> None:
        """``size`` bytes are kept of heartbeats, and of requests that wait."""
        self._budget.kept(holder, size)
        if self._budget.over:
            self._begin(self._drop())

    def forget(self, holder: Holder) -> None:
        """A connection ended."""
        self._freed.freed(self._budget.forget(holder))

    def close(self) -> None:
        self._freed.close()
        if self._steps is not None:
            self._steps.close()
        if self._look_handle is not None:
            self._look_handle.cancel()
            self._look_handle = None

    def _look_soon(self) -> None:
        self._look_handle = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._look_handle = None
        self._begin(self._look_at_all())
        if self._look_handle is None and self._budget.takers():
            self._look_soon()

    def _begin(self, steps: Iterator[None]) -> None:
        """Do this, unless something of that kind is under way, which closes whoever must go."""
        if self._is_dropping:
            return
        if self._steps is None:
            self._steps = TurnSteps(LOOKS_EACH_TURN)
        self._is_dropping = True
        self._steps.run(self._to_the_end(steps))

    def _to_the_end(self, steps: Iterator[None]) -> Iterator[None]:
        try:
            yield from steps
        finally:
            self._is_dropping = False

    def _look_at_all(self) -> Iterator[None]:
        for holder in self._budget.takers():
            holder.tell_unsent()
            yield
            if self._budget.over:
                yield from self._drop()
        yield from self._drop()

    def _drop(self) -> Iterator[None]:
        for offender in self._budget.excess(self._clock.now(), _tell_unsent):
            if offender is not None:
                self.dropped_connections += 1
                self._tell(offender.peer, offender.reason, offender.bytes)
                offender.peer.condemn(str(offender.reason))
                self._freed.freed(offender.bytes)
            yield

    def _tell(self, holder: Holder, reason: CloseReason, size: int) -> None:
        """Log a close once for each host and reason: a peer that is closed connects again and does the same."""
        if self._reports.is_new((holder.peer.rpartition(":")[0], reason)):
            self._events.emit("connection closed", peer=holder.peer, reason=str(reason), bytes=size)


def _tell_unsent(holder: Holder) -> None:
    holder.tell_unsent()
