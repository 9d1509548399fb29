"""Calls of the thread that owns a SQLite connection: what is asked, by whom, and how the loops of those hear of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.metadata.store import Update
from tallystick.errors import MetadataUnavailable

RESULTS_A_TURN = 64  # each lets a caller go on


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


class Results:
    """Results on their way from the thread to the loops that asked. A loop hears of ``RESULTS_A_TURN`` in a turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, deque[Call]] = {}  # each of these loops is woken

    def settle(self, calls: list[Call]) -> None:
        """Give calls their results. Called on the thread."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        for call in calls:
            if call.loop is not None:
                by_loop.setdefault(call.loop, []).append(call)
        for loop, settled in by_loop.items():
            with self._lock:
                self._waiting = {loop: calls for loop, calls in self._waiting.items() if not loop.is_closed()}
                is_woken = loop in self._waiting
                self._waiting.setdefault(loop, deque()).extend(settled)
            if not is_woken:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(self._resolve, loop)

    def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting = self._waiting[loop]
            calls = [waiting.popleft() for _ in range(min(len(waiting), RESULTS_A_TURN))]
            if waiting:
                loop.call_soon(self._resolve, loop)
            else:
                del self._waiting[loop]
        for call in calls:
            _set_result(call)


def _set_result(call: Call) -> None:
    if call.future is None or call.future.done():  # its caller was cancelled
        return
    if call.error is not None:
        call.future.set_exception(call.error)
    else:
        call.future.set_result(call.result)
