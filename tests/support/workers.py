"""A worker for tests of who uses one: what it is given is done before anything else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.runtime.worker import Worker

T = TypeVar("T")


class WorkerAtOnce(Worker):
    """Neither thread nor delay."""

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        try:
            result, error = call(), None
        except Exception as failed:
            result, error = None, failed
        done(result, error)

    def close(self) -> None:
        """There is nothing to end."""
