"""Finishes deletions of topics on a worker: the loop serves on, and each answer waits for its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

Done = Callable[[Exception | None], None]


class Finisher(Protocol):
    """Who finishes deletions."""

    @property
    def waiting(self) -> int:
        """How many are not finished."""
        ...

    def finish(self, deletion: Deletion, done: Done) -> None:
        """Call ``done`` when it is durable, or with the reason why it is not."""
        ...


class Deletions(Finisher):
    """``close`` it before the store and the worker."""

    waiting = 0

    def __init__(self, events: Events, worker: Worker) -> None:
        self._events, self._worker = events, worker

    def finish(self, deletion: Deletion, done: Done) -> None:
        """The files go afterwards; nobody waits for that."""
        self.waiting += 1
        self._worker.submit(deletion.note, lambda _, error: done(error))
        self._worker.submit(deletion.unlink, self._unlinked)

    def _unlinked(self, result: None, error: Exception | None) -> None:
        self.waiting -= 1
        if error is not None:
            self._events.emit("files of a deleted topic stay", reason=str(error))

    async def close(self) -> None:
        """What was asked is done first."""
        await self._worker.idle()


class AtOnce(Finisher):
    """Where nobody else waits."""

    waiting = 0

    def finish(self, deletion: Deletion, done: Done) -> None:
        try:
            deletion.run()
        except StorageError as error:
            return done(error)
        done(None)
