"""The shell of ``LacWatchersCore``: it holds long polls, has one timer, and answers those that leave over turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable
from typing import Protocol

from tallystick.bookkeeper.bookie.lac_watchers import LEAVE_AT_ONCE, MOST_WATCHERS, LacWatchersCore, Watcher
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.turns import TURN_S
from tallystick.bookkeeper.wire.values import MAX_ID, NO_ENTRY, EntryId, LedgerId
from tallystick.runtime.turn_order import PeerQueues

LONGEST_S = 60.0  # a poll that would wait for longer is answered then


class Requester(Hashable, Protocol):
    """The connection of a request whose response comes later."""

    peer: str  # its host

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    def fail(self, error: Exception) -> None:
        """End, as a fault of ours leaves the request without a response."""
        ...


class LongPolls:
    """Hold polls until the LAC of their ledger has passed an entry. All methods run on the loop."""

    def __init__(self, known_lac: Callable[[LedgerId], EntryId], counts: Counts) -> None:
        self._known_lac, self._counts = known_lac, counts
        self._core: LacWatchersCore[Requester] = LacWatchersCore()
        self.watched: Collection[LedgerId] = self._core.watched  # adds look at it alone
        self._wakes: dict[Watcher, tuple[Requester, Callable[[], None]]] = {}
        self._passed: dict[LedgerId, EntryId] = {}  # the LACs that watchers have still to leave for
        # Those that have left and are to be answered: another host's does not wait for one host's thousands.
        self._ready: PeerQueues[Requester, tuple[Requester, Callable[[], None]]] = PeerQueues()
        # Some loops make a plain Handle for a moment that is near or past: only what all of them have is used.
        self._timer: asyncio.Handle | None = None
        self._wake_at = 0.0  # when it rings
        self._answering: asyncio.Handle | None = None

    def hold(
        self, owner: Requester, ledger: LedgerId, past: EntryId, timeout_s: float, wake: Callable[[], None]
    ) -> bool:
        """Call ``wake`` when the ledger's LAC is above ``past``, when the ledger is fenced or deleted, after the
        time-out, or when another host needs its place.

        Returns False if too many wait: ``wake`` is not called.
        """
        if len(self._ready) >= MOST_WATCHERS:
            return False
        deadline = asyncio.get_running_loop().time() + min(timeout_s, LONGEST_S)
        watcher, leaving = self._core.wait(owner, owner.peer, ledger, past, deadline)
        if watcher is None:
            return False
        self._wakes[watcher] = owner, wake
        self._leave(leaving)
        self._follow()
        return True

    def added(self, ledgers: Collection[LedgerId]) -> None:
        """Entries were added to these ledgers, one of which is ``watched`` perhaps."""
        for ledger in [ledger for ledger in dict.fromkeys(ledgers) if ledger in self.watched]:
            self.moved(ledger)

    def moved(self, ledger: LedgerId) -> None:
        """A ledger may be known to be confirmed further than before."""
        if ledger in self.watched:
            self._pass(ledger, self._known_lac(ledger))

    def fenced(self, ledger: LedgerId) -> None:
        """A ledger was fenced: its writer confirms nothing more."""
        self._pass(ledger, MAX_ID + 1)

    def deleted(self, ledgers: Collection[LedgerId]) -> None:
        """Ledgers were deleted: nothing more will come of them."""
        for ledger in [ledger for ledger in ledgers if ledger in self.watched]:
            self.fenced(ledger)

    def forget(self, owner: Requester) -> None:
        """A connection has ended."""
        for watcher in self._core.forget(owner):
            del self._wakes[watcher]
        self._ready.discard(owner, owner.peer)
        self._follow()

    def close(self) -> None:
        """Answer nobody any more."""
        for handle in (self._timer, self._answering):
            if handle is not None:
                handle.cancel()

    def _pass(self, ledger: LedgerId, lac: EntryId) -> None:
        """Let those leave in the next turns that this LAC lets go: thousands are too much for one add."""
        if self._core.lets_go(ledger, lac) and lac > self._passed.get(ledger, NO_ENTRY):
            self._passed[ledger] = lac
            self._answer_soon()

    def _take_passed(self) -> None:
        """Let as many leave as one turn has time for."""
        count = 0
        while self._passed and count < LEAVE_AT_ONCE:
            ledger, lac = next(iter(self._passed.items()))
            leaving = self._core.moved(ledger, lac)
            if len(leaving) < LEAVE_AT_ONCE:
                del self._passed[ledger]
            self._leave(leaving)
            count += 1 + len(leaving)

    def _leave(self, watchers: Collection[Watcher]) -> None:
        for watcher in watchers:
            owner, wake = self._wakes.pop(watcher)
            self._ready.put(owner, owner.peer, (owner, wake))
        if self._ready:
            self._answer_soon()

    def _answer_soon(self) -> None:
        if self._answering is None:
            self._answering = asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        """Answer those that have left, a turn's time of them."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + TURN_S
        try:
            if len(self._ready) < LEAVE_AT_ONCE:
                self._take_passed()
            while self._ready:
                owner, wake = self._ready.pop()
                began = loop.time()
                self._wake(owner, wake)
                now = loop.time()
                self._ready.spent(None if owner.gone else owner, owner.peer, now - began)
                if now >= ends:
                    break
        finally:
            self._answering = loop.call_soon(self._answer) if self._ready or self._passed else None
        self._follow()

    def _wake(self, owner: Requester, wake: Callable[[], None]) -> None:
        try:
            if not owner.gone:
                wake()
        except Exception as error:  # a fault of ours: the others are answered
            owner.fail(error)

    def _follow(self) -> None:
        """Set the timer to the next deadline."""
        self._counts.long_polls_waiting = len(self._wakes) + len(self._ready)
        wake_at = self._core.wake_at()
        if self._timer is not None and self._wake_at != wake_at:
            self._timer.cancel()
            self._timer = None
        if wake_at is not None and self._timer is None:
            self._wake_at = wake_at
            self._timer = asyncio.get_running_loop().call_at(wake_at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._leave(self._core.passed(asyncio.get_running_loop().time()))
        self._follow()
