"""One timer that is set again and again and mostly never rings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.runtime.clock import Clock


class Alarm:
    """``ring`` runs at the time that was set last or before it; it looks what is due and sets the alarm again."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock, self._ring = clock, ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float | None) -> None:
        """A later time costs nothing: the alarm rings early and is set again. None: nothing is due."""
        if at is None or (self._handle is not None and self._at <= at):
            return
        self.cancel()
        self._at = at
        self._handle = self._loop.call_later(max(0.0, at - self._clock.now()), self._rang)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rang(self) -> None:
        self._handle = None
        self._ring()
