"""Background tasks that cannot die unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


def watch(tasks: Iterable[asyncio.Task[Any]], failed: Callable[[Exception], None]) -> None:
    """Call ``failed(error)`` when one of them ends by an exception, of whatever kind.

    Nobody awaits a server's background tasks before it stops. One that dies without a word leaves a server that is
    registered, answers, and no longer flushes, copies or registers: whoever gets the error must end it.
    """

    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            failed(error)

    for task in tasks:
        task.add_done_callback(ended)
