"""How long the garbage collector stops a server: not in proportion to what it ever made.

A full collection looks at all that lives, and the loop stands still meanwhile. What survives one lives on, most likely:
after a long one it is frozen, that is, not looked at again. What is frozen and not in a cycle is freed as ever. For
garbage in cycles all is looked through again: when as much again is frozen, but only once in ``LOOK_EVERY_S``; in any
case when it is ``MOST_GROWTH`` times as much. So such garbage takes a multiple of what lives, and no more. That look
takes longer than a turn of the loop may, so ``FEW`` more objects are no reason for it: all the connections that a
server accepts, and what strangers can have it remember, are fewer.

Python begins a full collection when a quarter of what survived the last one has come. Behind a freeze nothing is left
to survive, and a collection of nothing says so: or a process with a million objects would look at 250,000 at once. With
Python's own thresholds 70,000 new objects at least are one full collection: with ``FULL_AFTER`` it is a fifth of that,
or the collection alone took most of the time that a turn of the loop may take. How many are frozen is counted only
where it may be enough for a look at all: to count them is to walk to each.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping

from tallystick.runtime.clock import Clock

LONG_S = 0.002  # of a full collection
FULL_AFTER = 2  # collections of the middle generation, 7,000 new objects each, comes a full one
LOOK_EVERY_S = 3600.0
MOST_GROWTH = 4  # of what is frozen, since all was looked through
FEW = 1_000_000  # objects: with what they hold some 200 MB
FROZEN_AT_ONCE = 25_000  # objects, or about: what a full collection finds new
COUNT_AFTER = 10  # freezes at least: with half a million objects a count takes 50 ms
_OLDEST = 2  # the generation of full collections


class Collections:
    """Keeps full collections short from ``start`` to ``close``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None  # from ``start`` on
        self._began: float | None = None  # the full collection that runs
        self._frozen_count, self._frozen_at = 0, clock.now()  # what was frozen when all had been looked through
        self._last_count = self._freezes = 0  # what was frozen when it was counted last; how often more was since
        self._looks_at_all = False  # the next full collection
        self._thresholds = gc.get_threshold()  # Python's own

    def start(self) -> None:
        """Call it when all is made that a start makes, on the loop."""
        self._loop = asyncio.get_running_loop()
        gc.collect()
        gc.freeze()
        gc.collect()
        self._frozen_count, self._frozen_at = self._count(), self._clock.now()
        gc.callbacks.append(self.on_collection)
        young, middle, _ = self._thresholds
        gc.set_threshold(young, middle, FULL_AFTER)

    def close(self) -> None:
        gc.callbacks.remove(self.on_collection)
        gc.set_threshold(*self._thresholds)

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
        if self._looks_at_all:
            self._looks_at_all = False
            self._freeze()
            self._frozen_count, self._frozen_at = self._count(), now
        elif self._has_grown(now):
            gc.unfreeze()  # the next full collection looks at all
            self._looks_at_all = True
        else:
            self._freeze()

    def _has_grown(self, now: float) -> bool:
        """Whether so much is frozen that all is to be looked through; it is counted where it may be."""
        factor = 2 if now - self._frozen_at >= LOOK_EVERY_S else MOST_GROWTH
        enough = max(self._frozen_count * factor, self._frozen_count + FEW)
        if self._freezes < COUNT_AFTER or self._last_count + self._freezes * FROZEN_AT_ONCE < enough:
            return False
        return self._count() >= enough

    def _count(self) -> int:
        self._last_count, self._freezes = gc.get_freeze_count(), 0
        return self._last_count

    def _freeze(self) -> None:
        """Next, when this collection has ended: one of nothing."""
        gc.freeze()
        self._freezes += 1
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(gc.collect)  # any thread may collect
