"""Wait for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any

PATIENCE_S = float(os.environ.get("PATIENCE_S", "20"))  # less where a test that waits in vain is what is wanted


async def until(condition: Callable[[], Any], seconds: float = PATIENCE_S, *, pause: float = 0.002) -> None:
    """Return when ``condition``, or what it awaits, holds. A costly one takes a longer ``pause``.

    Raises AssertionError with the condition's source when it does not hold within ``seconds``.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                holds = condition()
                if await holds if inspect.isawaitable(holds) else holds:
                    return
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"this did not come to hold within {seconds} s: {source(condition)}") from None


def source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # of what has no source: a partial, say
        return repr(condition)
