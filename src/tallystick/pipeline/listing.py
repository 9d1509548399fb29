"""What a streaming query reads, by name, while the logs of its options come and go."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tallystick.errors import MetadataUnavailable
from tallystick.pipeline.notes import note
from tallystick.runtime.clock import Clock

LIST_S = 1.0  # how old the names may be
PATIENCE_S = 60.0  # a query goes on so long although nobody tells them

T = TypeVar("T")


class Listing(Generic[T]):
    """The names as ``look`` returns them, looked up again when they are old."""

    def __init__(self, look: Callable[[], Awaitable[Sequence[T]]], clock: Clock, format_name: str) -> None:
        self._look, self._clock, self._format_name = look, clock, format_name
        self._names: Sequence[T] = ()
        self._look_at = self._looked_at = -math.inf

    async def names(self) -> Sequence[T]:
        """Returns the names as they were not long ago. Raises MetadataError, and MetadataUnavailable after a while."""
        now = self._clock.now()
        if now >= self._look_at:
            try:
                self._names = await self._look()
                self._looked_at = now
            except MetadataUnavailable as error:
                if now > self._looked_at + PATIENCE_S:
                    raise
                note(self._format_name, f"what is new is not looked for now: {error}")
            self._look_at = now + LIST_S
        return self._names
