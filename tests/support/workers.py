"""Workers for tests of who uses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.runtime.worker import Worker

T = TypeVar("T")


class WorkerAtOnce(Worker):
    """Neither thread nor delay: what it is given is done before anything else is."""

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        try:
            result, error = call(), None
        except Exception as failed:
            result, error = None, failed
        done(result, error)

    def close(self) -> None:
        """There is nothing to end."""


class HeldWorker(WorkerAtOnce):
    """It does what it was given when it is told to."""

    def __init__(self) -> None:
        self.given: list[Callable[[], None]] = []

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self.given.append(lambda: super(HeldWorker, self).submit(call, done))

    def do_one(self) -> None:
        self.given.pop(0)()
