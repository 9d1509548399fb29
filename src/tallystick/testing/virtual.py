"""Programs on virtual time: a test of an hour of silence takes as long as what happens in it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from tallystick.sim.virtual.loop import VirtualLoop

T = TypeVar("T")
P = ParamSpec("P")

MAX_S = 24 * 3600.0
MAX_TURNS = 20_000_000


def run(work: Coroutine[Any, Any, T], *, max_seconds: float = MAX_S) -> T:
    """Run a coroutine to its end on a loop whose time passes only when nothing is left to do.

    Nothing may use sockets or threads in it. Raises what it raises; ``Stuck`` when nothing will ever happen, or the
    time is over; AssertionError for an error in a callback that nobody waits for.
    """
    loop, was_enabled = VirtualLoop(max_seconds=max_seconds, max_turns=MAX_TURNS), gc.isenabled()
    gc.disable()  # it would close what nobody holds at a time that no seed decides
    try:
        result = loop.run_until_complete(work)
    finally:
        errors = list(loop.errors)
        loop.abandon()
        if was_enabled:
            gc.enable()
    if errors:
        raise AssertionError(f"errors in callbacks: {'; '.join(errors)}")
    return result


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A test in virtual time: decorate an ``async def`` with it, and call it as a function."""

    @functools.wraps(test)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return wrapped
