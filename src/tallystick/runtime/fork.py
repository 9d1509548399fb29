"""What a forked child must not inherit: locks whose holders are threads that it lacks.

A child has one thread, the one that forked. A lock that any other thread held stays locked there for ever; so locks
that a child may need are ``ProcessLock``, new in each child. Locks inside a C library cannot be made new: threads that
use such a library do so inside a ``ForkGate``, and a fork waits until none is inside.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

from tallystick.errors import UsageError

FORK_WAIT_S = 30.0  # a fork goes on without a call that does not return: only the child cannot use it then


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


class ForkGate:
    """Enter with ``with`` around calls into a library that keeps locks of its own; forks happen while nobody is inside.

    ``prepare`` is called then, in the parent: it gives up what a child must not have. Calls must be short: a fork waits
    for them, up to ``FORK_WAIT_S``. If they last longer, it happens without ``prepare``, and in the child to enter
    raises UsageError.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._condition = threading.Condition()
        self._inside = self._forking = 0
        self._unprepared = self._barred = False
        os.register_at_fork(before=self.before, after_in_parent=self.in_parent, after_in_child=self.in_child)

    def __enter__(self) -> None:
        if self._barred:
            raise UsageError("this process was forked while a metadata call hung; start it as a new process instead")
        with self._condition:
            while self._forking:
                self._condition.wait()
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def before(self) -> None:
        """A fork is about to happen: let nobody in, and wait for those inside."""
        with self._condition:
            self._forking += 1
            self._unprepared = not self._condition.wait_for(lambda: not self._inside, FORK_WAIT_S)
            if not self._unprepared:
                self._prepare()

    def in_parent(self) -> None:
        """The fork has happened, or failed."""
        with self._condition:
            self._forking -= 1
            self._condition.notify_all()

    def in_child(self) -> None:
        """Be a gate that nobody is inside."""
        self._condition = threading.Condition()
        self._inside = self._forking = 0
        self._barred = self._barred or self._unprepared


_locks: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_locks):
        lock.in_child()


os.register_at_fork(after_in_child=_in_child)
