"""How fast work that is not urgent may go: bytes or entries by the second, of all who share one pace together."""

from __future__ import annotations

import asyncio

from tallystick.runtime.clock import Clock


class Pace:
    """Lets so much pass by the second; 0 is no limit. What is spent counts in the pace that it is ``within``, too."""

    def __init__(self, clock: Clock, per_s: float, *, within: Pace | None = None) -> None:
        self._clock, self._per_s, self._within = clock, per_s, within
        self._free_at = clock.now()

    async def spend(self, size: int) -> None:
        """Return when what was done just now is paid for: whoever comes next waits for it, too."""
        if self._within is not None:
            await self._within.spend(size)
        if not self._per_s:
            return
        now = self._clock.now()
        self._free_at = max(self._free_at, now) + size / self._per_s
        await asyncio.sleep(self._free_at - now)
