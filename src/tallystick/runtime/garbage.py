"""How long the garbage collector stops a server: not in proportion to what it ever made.

A full collection looks at all that lives, and the loop stands still meanwhile. What survives one lives on, most likely:
after a long one it is frozen, that is, not looked at again. What is frozen and not in a cycle is freed as ever. For
garbage in cycles all is looked through again, once in ``LOOK_EVERY_S`` at most, and when as much again is frozen.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

from tallystick.runtime.clock import Clock

LONG_S = 0.02  # of a full collection
LOOK_EVERY_S = 3600.0
_OLDEST = 2  # the generation of full collections


class Collections:
    """Keeps full collections short from ``start`` to ``close``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: float | None = None  # the full collection that runs
        self._frozen_count, self._frozen_at = 0, clock.now()  # what was frozen when all had been looked through

    def start(self) -> None:
        """Call it when all is made that a start makes."""
        gc.collect()
        gc.freeze()
        self._frozen_count, self._frozen_at = gc.get_freeze_count(), self._clock.now()
        gc.callbacks.append(self.on_collection)

    def close(self) -> None:
        gc.callbacks.remove(self.on_collection)

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """The collector begins or ends a collection."""
        if info["generation"] != _OLDEST:
            return
        now = self._clock.now()
        if phase == "start":
            self._began = now
        elif self._began is not None and now - self._began >= LONG_S:
            self._after_long(now)

    def _after_long(self, now: float) -> None:
        frozen = gc.get_freeze_count()
        if frozen == 0:  # this one looked at all
            gc.freeze()
            self._frozen_count, self._frozen_at = gc.get_freeze_count(), now
        elif frozen >= 2 * self._frozen_count and now - self._frozen_at >= LOOK_EVERY_S:
            gc.unfreeze()  # the next full collection looks at all
        else:
            gc.freeze()
