"""The shell of ``AcksCore``: its clock, its timer, and the calls when waits are over.

A disk or a slave that was late ends very many waits at once. Each may have a thousand sends, whose responses are made
when it is told: some waits are told in each turn of the loop, in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tallystick.rocketmq.ha.acks import AcksCore, Settle, Settled
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.clock import Clock

SETTLES_EACH_TURN = 4  # waits; each has the sends of one turn at most


class Waits:
    """``settled`` gets the waits that are over. All methods run on the loop."""

    def __init__(
        self, clock: Clock, settings: HaSettings, settled: Callable[[list[Settle]], None], *, flushed: int
    ) -> None:
        self._clock, self._settled = clock, settled
        self.core = AcksCore(settings, flushed=flushed)
        self._alarm = Alarm(clock, self._tick)
        self._over: deque[Settle] = deque()  # and not told yet
        self._next: asyncio.Handle | None = None

    def appended(self, end: int, *, flush: bool, replicas: bool, first_end: int | None = None) -> Settled:
        """Pass on ``AcksCore.appended``. Waits that are over at once are in the result and are not passed to
        ``settled``."""
        wait = self.core.appended(end, self._clock.now(), flush=flush, replicas=replicas, first_end=first_end)
        self._alarm.set(self.core.wake_at())
        return wait

    def flushed(self, offset: int) -> None:
        self._tell(self.core.flushed(offset, self._clock.now()))

    def connected(self, slave: str, position: int, first: int) -> None:
        self._tell(self.core.connected(slave, position, self._clock.now(), first=first))

    def reported(self, slave: str, offset: int) -> None:
        self._tell(self.core.reported(slave, offset, self._clock.now()))

    def disconnected(self, slave: str) -> None:
        self._tell(self.core.disconnected(slave, self._clock.now()))

    def give_up(self) -> None:
        """End all waits, and tell them at once: see ``AcksCore.give_up``."""
        self._tell(self.core.give_up())
        self._tell_the_rest()

    def close(self) -> None:
        """Tell what is over, and stop the timer: ``settled`` is not called any more."""
        self._alarm.cancel()
        self._tell_the_rest()

    def _tick(self) -> None:
        self._tell(self.core.tick(self._clock.now()))

    def _tell(self, settles: list[Settle]) -> None:
        self._alarm.set(self.core.wake_at())
        self._over += settles
        if self._over and self._next is None:
            self._tell_some()

    def _tell_some(self) -> None:
        self._next = None
        some = [self._over.popleft() for _ in range(min(len(self._over), SETTLES_EACH_TURN))]
        if self._over:
            self._next = asyncio.get_running_loop().call_soon(self._tell_some)
        self._settled(some)

    def _tell_the_rest(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        rest, self._over = list(self._over), deque()
        if rest:
            self._settled(rest)
