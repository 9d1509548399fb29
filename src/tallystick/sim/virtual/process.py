"""Who runs a callback: processes on hosts, which pause and die as processes of a kernel do.

All of them share one event loop. A callback, a task and all that they start carry their process in their context. A
process that is killed runs nothing more, not even a ``finally``; a paused one runs what became due when it goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Timers(Protocol):
    """The part of the event loop that a process uses."""

    def run_again(self, handle: asyncio.Handle) -> None: ...

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]: ...


class Process:
    """One life of a program on the host with this address. ``on_death`` is called in order, once."""

    def __init__(self, loop: Timers, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.alive, self.paused = True, False
        self.context = contextvars.copy_context()  # of callbacks that come from outside of it
        self.context.run(PROCESS.set, self)
        self.on_death: list[Callable[[], None]] = []
        self._loop = loop
        self._due_handles: list[asyncio.Handle] = []  # while it is paused
        self._lost_handles: list[
            asyncio.Handle
        ] = []  # kept: what nobody holds would be collected, and so run its ``finally``

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        return self._loop.create_task(work, context=self.context.copy())

    def takes(self, handle: asyncio.Handle) -> bool:
        """Returns whether a callback that is due can run now."""
        if not self.alive:
            self._lost_handles.append(handle)
        elif self.paused:
            self._due_handles.append(handle)
        return self.alive and not self.paused

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        """End a pause: callbacks that became due run now, unless an earlier one cancels them."""
        self.paused = False
        handles, self._due_handles = self._due_handles, []
        for handle in handles:
            if not handle.cancelled():
                self._loop.run_again(handle)

    def die(self) -> None:
        if self.alive:
            self.alive = False
            for tell in self.on_death:
                tell()
