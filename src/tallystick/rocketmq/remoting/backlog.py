"""Requests that are served one after another, for some milliseconds of each turn of the loop.

A peer can put thousands of requests into one read. Those for which a turn has no time wait for the next one, in their
order, and while one of a peer's waits, no more is read from it: so what waits is bounded by what one read brings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.runtime.clock import Clock

TURN_S = 0.01
_WAITING_BYTES = 512  # that a request takes beside its body


class Backlog:
    """``received`` the requests of a turn; ``close`` it. Must be made on a running loop."""

    def __init__(
        self, clock: Clock, serve: Callable[[Link, Command], None], begin: Callable[[], None] = lambda: None
    ) -> None:
        """``begin()`` comes before the first request of each turn. Neither raises."""
        self._clock, self._serve, self._begin = clock, serve, begin
        self._loop = asyncio.get_running_loop()
        self._late: deque[tuple[Link, Command]] = deque()
        self._handle: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._late)

    def received(self, requests: Iterable[tuple[Link, Command]]) -> None:
        """Serve what there is time for. What came before goes first."""
        rest = iter(requests)
        if not self._late:
            self._begin()
            ends = self._clock.now() + TURN_S
            for link, command in rest:
                self._serve(link, command)
                if self._clock.now() >= ends:
                    break
        for link, command in rest:
            self._late.append((link, command))
            link.keep(len(command.body) + _WAITING_BYTES)
            link.busy(+1)
        self._continue_later()

    def close(self) -> None:
        """What waits is served no more."""
        if self._handle is not None:
            self._handle.cancel()
        self._late.clear()

    def _continue_later(self) -> None:
        if self._late and self._handle is None:
            self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._handle = None
        self._begin()
        ends = self._clock.now() + TURN_S
        while self._late and self._clock.now() < ends:
            link, command = self._late.popleft()
            link.keep(-len(command.body) - _WAITING_BYTES)
            link.busy(-1)
            if link.alive:
                self._serve(link, command)
        self._continue_later()
