"""What a life may not pass: handles, connections, bytes held, items queued, tasks, callbacks of a turn of the loop.

Each bound is what the code allows, or over twice the most that hundreds of schedules came to: a leak grows past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from tallystick.sim.virtual.loop import VirtualLoop

EVERY_S = 0.25
TASKS, TURN = "tasks", "callbacks of one turn of the loop"


Counts = Iterable[tuple[str, int]]


class Budgets:
    """``most`` is allowed of each; ``counts()`` are those of now; a violation is of the rule ``promise``."""

    def __init__(
        self, most: Mapping[str, int], counts: Callable[[], Counts], promise: str, fail: Callable[[str, str], object]
    ) -> None:
        self._most, self._counts, self._promise, self._fail = most, counts, promise, fail

    async def watch(self) -> None:
        """Check the budgets four times a second, for ever. It is a task of no process."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.look()

    def look(self) -> None:
        """Fail if a budget is passed."""
        for what, count in self._counts():
            if count > self._most[what]:
                self._fail(self._promise, f"{what}: {count:,}, and {self._most[what]:,} are allowed")


def of_loop(loop: VirtualLoop) -> Iterator[tuple[str, int]]:
    """Returns the counts that every life has."""
    yield TASKS, loop.tasks
    yield TURN, loop.longest_turn
