"""How fast one replicator may copy, all its ledgers together."""

from __future__ import annotations

import asyncio

from tallystick.runtime.clock import Clock


class Pace:
    """Lets ``bytes_per_s`` pass; 0 is no limit."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock, self._bytes_per_s = clock, bytes_per_s
        self._free_at = clock.now()

    async def spend(self, size: int) -> None:
        """Return when these bytes, which were copied just now, are paid for: whoever comes next waits for them, too."""
        if not self._bytes_per_s:
            return
        now = self._clock.now()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s
        await asyncio.sleep(self._free_at - now)
