"""An event loop whose time passes only when nothing is left to do: then it jumps to the next timer.

Nothing here waits, opens a socket or starts a thread. Callbacks run in the order in which they became due, so a run
depends on nothing but what the callbacks do. Each callback belongs to the process of its context (``process.py``): one
that is paused gets it later, one that is dead never.

The base loop of asyncio has no public way to give it another clock, hence its private names here: ``_run_once`` is one
turn, ``_call_soon`` and ``call_at`` make the handles. Timers of one moment run in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NoReturn, TypeVarTuple

from tallystick.sim.virtual.process import PROCESS

Ts = TypeVarTuple("Ts")
MAX_LISTED = 20  # places in the text of an error
MAX_CLOSES = 100  # of one task
_OUTSIDE = (  # what asyncio's loops have of the machine
    "add_reader", "add_signal_handler", "add_writer", "connect_accepted_socket", "connect_read_pipe",
    "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection",
    "create_unix_server", "getaddrinfo", "getnameinfo", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into",
    "sock_recvfrom", "sock_sendall", "sock_sendfile", "sock_sendto", "start_tls", "subprocess_exec", "subprocess_shell",
)  # fmt: skip

START_MS = 1_600_000_000_000  # the time of clocks on walls when a life begins


class Stuck(Exception):
    """The run does not come to its end: nothing will ever happen, or too much does."""


class _Handle(asyncio.Handle):
    __slots__ = ()
    _context: contextvars.Context

    def _run(self) -> None:
        process = self._context.get(PROCESS)
        if process is None or process.takes(self):
            super()._run()


class _Timer(_Handle, asyncio.TimerHandle):
    __slots__ = ()


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. ``errors`` has what callbacks raised: a callback of production raises nothing.

    ``turns`` and ``longest_turn`` count iterations, and callbacks that were ready at the begin of one.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _scheduled: list[tuple[float, int, _Timer]]  # a heap: when, the timer's number

    def __init__(self, *, max_seconds: float, max_turns: int) -> None:
        """Raise Stuck from the run when its time or the number of its turns exceeds a limit."""
        super().__init__()
        self._now, self._timers = 0.0, 0
        self._max_seconds, self._max_turns = max_seconds, max_turns
        self.turns = self.longest_turn = 0
        self.errors: list[str] = []
        self._unfinished: dict[asyncio.Task[Any], None] = {}  # held: see ``abandon``
        self.set_exception_handler(_note_error)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """Run one turn: what is ready, and the timers that are due. Instead of waiting for one, move the clock."""
        ready, timers = self._ready, self._scheduled
        self.turns += 1
        if self.turns > self._max_turns:
            self._stuck(f"not at its end after {self._max_turns:,} turns")
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not (ready or self._stopping):
            if not timers:
                self._stuck("nothing will ever happen")
            self._now = max(self._now, timers[0][0])
            if self._now > self._max_seconds:
                self._stuck(f"not at its end after {self._max_seconds:g} seconds")
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        self.longest_turn = max(self.longest_turn, len(ready))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]  # private
        timer = _Timer(when, callback, args, self, context)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it is done, or ``abandon``."""
        self._unfinished[task] = None
        task.add_done_callback(self._finished)

    @property
    def tasks(self) -> int:
        """Returns how many tasks are not done; those of dead processes count, too."""
        return len(self._unfinished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.pop(task, None)

    def abandon(self) -> None:
        """End the run: whatever is not done is closed, in order, and its errors are nobody's.

        A task that nobody held any more would be closed by the garbage collector, at a time that no seed decides.
        """
        for task in reversed(self._unfinished):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # private: there is no other way to say so
            if (work := task.get_coro()) is not None:
                _close(work)
        self.close()

    def run_again(self, handle: asyncio.Handle) -> None:
        """Run in the next turn what a process could not take when it was due."""
        self._ready.append(handle)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # its types
        raise AssertionError(
            "virtual time has no threads (asyncio.to_thread, run_in_executor, a client made by tallystick.connect): "
            "use the cluster's clients, or real time; a shell gets its worker from outside"
        )

    def _refuse_outside(self, *args: Any, **options: Any) -> NoReturn:
        raise AssertionError(
            "virtual time has no sockets, names, pipes, processes or signals of this machine (asyncio.open_connection, "
            "start_server, create_subprocess_exec, a library that uses them): use the clients that the cluster gives "
            "(connect, topics), or real time; a shell gets its network from outside"
        )

    def _call_soon(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _stuck(self, why: str) -> NoReturn:
        task_counts = Counter(_where(task) for task in self._unfinished)
        rare_first = sorted(task_counts.items(), key=lambda item: (item[1], item[0]))
        descriptions = [f"{count} x {where}" if count > 1 else where for where, count in rare_first[:MAX_LISTED]]
        raise Stuck("; ".join([f"{why}; these tasks wait", *descriptions]))


for _name in _OUTSIDE:
    setattr(VirtualLoop, _name, VirtualLoop._refuse_outside)


def _where(task: asyncio.Task[Any]) -> str:
    """Returns which coroutine a task runs and where it stands, as text that is equal in all runs."""
    coroutine, place = task.get_coro(), ""
    with contextlib.suppress(IndexError):
        frame = task.get_stack(limit=1)[0]
        place = f" at {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    return f"{getattr(coroutine, '__qualname__', type(coroutine).__name__)}{place}"


def _close(work: Coroutine[Any, Any, Any] | Generator[Any, None, Any]) -> None:
    """Close a coroutine that may wait once more for each thing that it cleans up.

    A plain ``close`` would leave the inner part of such a one to the garbage collector, and its errors to nobody.
    """
    with contextlib.suppress(BaseException):
        for _ in range(MAX_CLOSES):
            work.throw(asyncio.CancelledError("the run is over"))
    with contextlib.suppress(BaseException):
        work.close()


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task = asyncio.Task(work, loop=loop, **options)
    loop.hold(task)
    return task


def _note_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    error = context.get("exception")
    if isinstance(error, Exception):  # else the process died in the middle of it
        loop.errors.append(f"{context['message']}: {error!r}")


class VirtualClock:
    """The loop's time as a ``runtime.clock.Clock``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = START_MS) -> None:
        self._loop, self._start_ms = loop, start_ms

    def now(self) -> float:
        return self._loop.time()

    def cpu(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)
