"""``tallyLocks.json``: loaded at the start, saved when a queue has a new owner, who hears of it then.

It may have very many lines, and strangers can have it written again and again: a ``Saver`` of its own does that, so
that topics and groups do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.config_files import LOCKS, ConfigFiles
from tallystick.rocketmq.broker.locks import LIVE_S, LockTable, QueueLocksCore
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire import dialect
from tallystick.runtime.clock import Clock


class LockFile:
    """The file of ``locks``, as a ``Saver`` sees it. Made, used and changed on the loop; ``take_role`` loads it."""

    def __init__(self, files: ConfigFiles, clock: Clock, standing: Standing) -> None:
        self._files, self._clock, self._standing = files, clock, standing
        self.changed: Callable[[], None] = lambda: None
        self._is_awaited = False  # somebody waits for it
        self.locks = QueueLocksCore(changed=self._change)

    def take_role(self, *, is_new: bool) -> None:
        """Take up a role; call it while nothing is being saved. A slave has no locks, and does not know any when it
        becomes a master. ``is_new``: the log is empty, so there are none. Raises CorruptRecord for a damaged file,
        StorageError."""
        self._is_awaited = False
        if self._standing.is_slave:
            self._files.remove(LOCKS)
            self.locks.begin()
            return
        table = self._files.load(LOCKS, lambda text: dialect.read_as(text, LockTable, bounded=False))
        quiet_s = LIVE_S if table is None and not is_new else 0.0
        self.locks.begin(table, self._clock.now(), quiet_s=quiet_s)
        if table is None and is_new:
            self._save_none()

    @property
    def changes(self) -> int:
        return self.locks.changes

    def unsaved_files(self, *, urgent: bool = False) -> list[str]:
        """Returns the file's name if there are new owners or, without ``urgent``, if owners went. A slave writes no
        file."""
        is_due = self._is_awaited or (self.locks.dirty and not urgent)
        return [LOCKS] if is_due and not self._standing.is_slave else []

    def text(self, name: str) -> Iterator[bytes]:
        """Yields the file piece by piece. It counts as saved from now on: see ``failed``."""
        self._is_awaited = False
        return self.locks.text(self._clock.now())

    def saved(self, name: str) -> None:
        """The text that was taken last is on the disk."""

    def failed(self, name: str) -> None:
        """The text could not be saved, and must be tried again."""
        self._is_awaited = True

    def is_urgent(self, name: str) -> bool:
        """Whether a response waits for the file."""
        return self._is_awaited

    def _save_none(self) -> None:
        """Write an empty file: a later start then knows that there were no locks."""
        try:
            self._files.save(LOCKS, *self.text(LOCKS))
        except StorageError:
            self.failed(LOCKS)  # the saver tries again, and tells of it

    def _change(self) -> None:
        self._is_awaited = True
        self.changed()
