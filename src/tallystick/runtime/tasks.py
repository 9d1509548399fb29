"""Background tasks that cannot die unseen, and many questions that do not time each other out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


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


async def together(asking: Iterable[Coroutine[Any, Any, T]], at_once: int = 32) -> list[T]:
    """The results in order, ``at_once`` of them under way: each has its time-out to itself. Raises what one raises."""
    results: list[T] = []
    questions = iter(asking)
    while some := list(islice(questions, at_once)):
        results += await asyncio.gather(*some)
    return results
