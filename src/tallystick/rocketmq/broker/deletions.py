"""Finishes deletions of topics, and notes what else goes, on a worker: the loop serves on, and each response waits for
the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

OnDeleted = Callable[[Exception | None], None]


class Finisher(Protocol):
    """A part that finishes deletions."""

    @property
    def pending_count(self) -> int:
        """How many deletions are not finished."""
        ...

    def finish(self, deletion: Deletion, done: OnDeleted) -> None:
        """Call ``done`` when the deletion is durable, or with the reason why it is not."""
        ...

    def note(self, call: Callable[[], None], done: OnDeleted) -> None:
        """The same of anything that ``call`` makes durable, and that has no files."""
        ...


class Deletions(Finisher):
    """Finishes deletions on the worker. ``close`` it before the store and the worker."""

    pending_count = 0

    def __init__(self, events: Events, worker: Worker) -> None:
        self._events, self._worker = events, worker

    def finish(self, deletion: Deletion, done: OnDeleted) -> None:
        """Make a deletion durable on the worker, then call ``done``. The files are deleted after that."""
        self.pending_count += 1
        self._worker.submit(deletion.note, lambda _, error: done(error))
        self._worker.submit(deletion.unlink, self._unlinked)

    def note(self, call: Callable[[], None], done: OnDeleted) -> None:
        self.pending_count += 1

        def noted(result: None, error: Exception | None) -> None:
            self.pending_count -= 1
            done(error)

        self._worker.submit(call, noted)

    def _unlinked(self, result: None, error: Exception | None) -> None:
        self.pending_count -= 1
        if error is not None:
            self._events.emit("files of a deleted topic stay", reason=str(error))

    async def close(self) -> None:
        """Wait until all deletions are finished."""
        await self._worker.idle()


class AtOnce(Finisher):
    """Finishes each deletion at once, for brokers that serve nobody else meanwhile."""

    pending_count = 0

    def finish(self, deletion: Deletion, done: OnDeleted) -> None:
        self.note(deletion.run, done)

    def note(self, call: Callable[[], None], done: OnDeleted) -> None:
        try:
            call()
        except StorageError as error:
            return done(error)
        done(None)
