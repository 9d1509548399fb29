"""How far the writing programs may write: the story holds them there until its next fault has happened.

However long that takes on a busy machine, no program is through before the fault that it is to meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Leash:
    """``told``: waits for a line with the row to stop before; an empty one, as at the end of a file: nobody holds."""

    def __init__(self, told: Callable[[], str]) -> None:
        self._told = told
        self._before = 0.0

    async def reach(self, row: int) -> None:
        """Wait until this row may be written."""
        while row >= self._before:
            line = await asyncio.to_thread(self._told)
            self._before = int(line) if line else float("inf")
