"""Finishes deletions of topics on a thread: the loop serves on, and each answer waits for its own."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import StorageError
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.runtime.events import Events
from tallystick.runtime.worker import ThreadWorker

Done = Callable[[Exception | None], None]
Finish = Callable[[Deletion, Done], None]  # calls ``done`` when it is durable, or with the reason why it is not


class Deletions:
    """``close`` it before the store."""

    def __init__(self, events: Events) -> None:
        self._events, self._worker = events, ThreadWorker("tally-delete")

    def finish(self, deletion: Deletion, done: Done) -> None:
        """As ``Finish``. The files go afterwards; nobody waits for that."""
        self._worker.submit(deletion.note, lambda _, error: done(error))
        self._worker.submit(deletion.unlink, self._unlinked)

    def _unlinked(self, result: None, error: Exception | None) -> None:
        if error is not None:
            self._events.emit("files of a deleted topic stay", reason=str(error))

    async def close(self) -> None:
        """What was asked is done first."""
        await self._worker.run(_nothing)
        self._worker.close()


def finish_at_once(deletion: Deletion, done: Done) -> None:
    """Where nobody else waits."""
    try:
        deletion.run()
    except StorageError as error:
        return done(error)
    done(None)


def _nothing() -> None:
    """What is queued after it finds the thread idle."""
