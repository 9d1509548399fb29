"""Steps of handshakes, so many of which are done in one turn of the loop, hosts in their turns.

A step takes milliseconds, and whoever connects can ask for one: a host that has hundreds under way keeps those of
another host waiting for one of its own, and not for all of them (``turn_order``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from tallystick.runtime.turn_order import PeerQueues


class HandshakeTurns:
    """What ``run`` is given is done at once as far as this turn has steps left, and nobody waits; else later.

    ``close`` it: what is not done by then is not done any more.
    """

    def __init__(self, most: int) -> None:
        """``most``: steps of one turn."""
        self._most = self._steps_left = most
        self._waiting: PeerQueues[Hashable, Callable[[], None]] = PeerQueues()
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        self._is_at_it = False

    def run(self, peer: Hashable, host: str, step: Callable[[], None]) -> None:
        """Do a step of a peer; its own are done in their order."""
        self._waiting.put(peer, host, step)
        if not self._is_at_it:
            self._go_on()

    def close(self) -> None:
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()

    def _go_on(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._next_turn)
        self._is_at_it = True
        try:
            while self._waiting and self._steps_left > 0:
                self._steps_left -= 1
                self._waiting.pop()()
        finally:
            self._is_at_it = False

    def _next_turn(self) -> None:
        self._next, self._steps_left = None, self._most
        if self._waiting:
            self._go_on()
