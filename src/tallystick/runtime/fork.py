"""What a forked child must not inherit: locks whose holders are threads that it lacks.

A child has one thread, the one that forked. A lock that any other thread held stays locked there for ever; so locks
that a child may need are ``ProcessLock``, new in each child.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ProcessLock:
    """A re-entrant lock for ``with``, which no child of a fork inherits locked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def in_child(self) -> None:
        """Be a lock that nobody holds."""
        self._lock = threading.RLock()


_locks: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_locks):
        lock.in_child()


os.register_at_fork(after_in_child=_in_child)
