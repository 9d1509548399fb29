"""Two calls that wait for the disk, at the same time: for whoever waits for both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Beside(Protocol):
    """Runs a call beside another one. One caller at a time."""

    def both(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """Run both and wait for both. Raises what one of them raised, ``second``'s error if both did."""
        ...

    def close(self) -> None:
        """Let go of what it needs; a later ``both`` takes it again."""
        ...


class ThreadBeside:
    """Runs ``first`` on a thread of its own, which begins with the first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._call: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._start_lock, self._end_lock = (
            threading.Lock(),
            threading.Lock(),
        )  # taken: the cheapest way to wait for a thread
        self._start_lock.acquire()
        self._end_lock.acquire()

    def both(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._call = first
        self._start_lock.release()
        try:
            second()
        finally:
            self._end_lock.acquire()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._thread is not None:
            self._call = None
            self._start_lock.release()
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            self._start_lock.acquire()
            if self._call is None:
                return
            self._error = None
            try:
                self._call()
            except BaseException as error:
                self._error = error
            self._end_lock.release()
