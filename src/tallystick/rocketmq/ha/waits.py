"""The shell of ``AcksCore``: its clock, its timer, and the calls when waits are over."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.rocketmq.ha.acks import AcksCore, Settle, Settled
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.clock import Clock


class Waits:
    """``settled`` gets all waits that one event ended, in one call. All methods run on the loop."""

    def __init__(
        self, clock: Clock, settings: HaSettings, settled: Callable[[list[Settle]], None], *, flushed: int
    ) -> None:
        self._clock, self._settled = clock, settled
        self.core = AcksCore(settings, flushed=flushed)
        self._alarm = Alarm(clock, self._tick)

    def appended(self, end: int, *, flush: bool, replicas: bool) -> Settled:
        """Pass on ``AcksCore.appended``. Waits that are over at once are in the result and are not passed to
        ``settled``."""
        wait = self.core.appended(end, self._clock.now(), flush=flush, replicas=replicas)
        self._alarm.set(self.core.wake_at())
        return wait

    def flushed(self, offset: int) -> None:
        self._tell(self.core.flushed(offset, self._clock.now()))

    def connected(self, slave: str, position: int) -> None:
        self._tell(self.core.connected(slave, position, self._clock.now()))

    def reported(self, slave: str, offset: int) -> None:
        self._tell(self.core.reported(slave, offset, self._clock.now()))

    def disconnected(self, slave: str) -> None:
        self._tell(self.core.disconnected(slave, self._clock.now()))

    def give_up(self) -> None:
        """End all waits: see ``AcksCore.give_up``."""
        self._tell(self.core.give_up())

    def close(self) -> None:
        """Stop the timer: ``settled`` is not called any more."""
        self._alarm.cancel()

    def _tick(self) -> None:
        self._tell(self.core.tick(self._clock.now()))

    def _tell(self, settles: list[Settle]) -> None:
        self._alarm.set(self.core.wake_at())
        if settles:
            self._settled(settles)
