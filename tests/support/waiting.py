"""Wait for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 20.0, *, pause: float = 0.01) -> None:
    """Return when ``condition`` holds; fail when it does not within ``seconds``. Costly: longer ``pause``."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(pause)
