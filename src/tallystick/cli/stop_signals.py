"""SIGTERM, and SIGHUP where the terminal was closed, end a command in order, as Ctrl-C does.

What it owns is given back, and what it has stored is said: a stream whose owner was killed is nobody else's for 10 s.
Servers have handlers of their own while they run.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class StopSignals:
    """Make them interrupts while this is entered. What was ignored before, as by nohup, stays ignored."""

    def __init__(self) -> None:
        self.status = 128 + signal.SIGINT  # the exit code, by the shell's habit, of a command that was interrupted
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._stop)
                self._taken.append(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number in self._taken:
            signal.signal(number, signal.SIG_DFL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.status = 128 + number
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio's, which cancels the work, while a loop runs
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        else:  # a script's job in the background ignores Ctrl-C, but not this
            raise KeyboardInterrupt
