"""Calls of the thread that owns a SQLite connection: what is asked, by whom, and how the loops of those hear of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.metadata.store import Update
from tallystick.errors import MetadataUnavailable

RESULTS_A_TURN = 64  # that a loop hears of before it does something else: each lets a caller go on


@dataclass(slots=True, eq=False)
class Call:
    """``deadline`` is on the monotonic clock: until then it waits for a lock. ``ends``: the thread's last one."""

    job: Callable[[], Any]
    writes: bool
    deadline: float
    loop: asyncio.AbstractEventLoop | None = None  # None: nobody waits
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    update: Update | None = None  # what the job does, if it is that alone
    ends: bool = False


def attempt(call: Call) -> None:
    """Run a call, and store its result or error in it."""
    call.result = call.error = None
    try:
        call.result = call.job()
    except BaseException as error:
        call.error = error


def is_locked(error: BaseException | None) -> bool:
    """Returns whether another process had the lock, and nothing was done."""
    return isinstance(error, MetadataUnavailable) and not error.ambiguous


def settle(calls: list[Call]) -> None:
    """Give calls their results; each loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    for call in calls:
        if call.loop is not None:
            by_loop.setdefault(call.loop, []).append(call)
    for loop, settled in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_resolve, loop, settled)


def _resolve(loop: asyncio.AbstractEventLoop, calls: list[Call]) -> None:
    if rest := calls[RESULTS_A_TURN:]:
        loop.call_soon(_resolve, loop, rest)
    for call in calls[:RESULTS_A_TURN]:
        if call.future is None or call.future.done():  # its caller was cancelled
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)
