"""What a file says that an operator may change: it is read again when it has changed, on a thread.

A file of ten thousand users takes a fifth of a second to parse, and their keys take longer. Meanwhile it says what it
said before, as it does when it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tallystick.errors import UsageError
from tallystick.runtime.certificates import LOOK_S, WatchedFiles, secret_text
from tallystick.runtime.outside import Outside
from tallystick.runtime.worker import Worker

T = TypeVar("T")


class WatchedText(Generic[T]):
    """``close`` it."""

    def __init__(
        self,
        path: str,
        parse: Callable[[str, str], T],
        outside: Outside,
        failed: Callable[[str], None],
        *,
        every_s: float = LOOK_S,
    ) -> None:
        """``parse`` gets the text and the path; ``failed`` hears why a changed file is no good. It is read at once the
        first time, which raises UsageError."""
        self._path, self._parse, self._failed, self._workers = path, parse, failed, outside.workers
        self.changed: Callable[[], None] = lambda: None  # called when it says something else
        self._watched = WatchedFiles((path,), outside.clock, every_s)
        self._watched.note()
        self._value = self._read()
        self._worker: Worker | None = None  # once the file has changed
        self._is_reading = self._is_old = False  # it has changed since it was read, or that began

    def value(self) -> T:
        """Return what it says; a file that has changed is read, and counts then."""
        self._is_old = self._watched.changed() or self._is_old
        if self._is_old and not self._is_reading:
            self._read_again()
        return self._value

    def close(self) -> None:
        """Read it no more."""
        if self._worker is not None:
            self._worker.close()

    def _read(self) -> T:
        return self._parse(secret_text(self._path), self._path)

    def _read_again(self) -> None:
        if self._worker is None:
            self._worker = self._workers("tally-watched")  # where that fails the next call tries it again
        self._is_reading, self._is_old = True, False
        self._worker.submit(self._read, self._has_read)

    def _has_read(self, value: T | None, error: Exception | None) -> None:
        self._is_reading = False
        if self._is_old:
            self._read_again()
        elif isinstance(error, UsageError):
            self._watched.refused(error)
            self._failed(str(error))
        elif error is not None:
            raise error
        else:
            self._value = value  # type: ignore[assignment]  # without an error it is a T
            self.changed()
