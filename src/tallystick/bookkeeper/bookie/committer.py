"""Group commit without a timer: what is staged while one commit is written is the next one.

Responses that wait for durability are held here until a commit that began after them has returned, and leave as one
write a connection. A commit that finds the disk full is tried again until there is space: nothing staged is ever
forgotten, its responses are only late. Any other failure is the end: nobody knows what is on the disk, so no response
leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tallystick.bookkeeper.bookie.journal import Commit
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.errors import DiskFull
from tallystick.runtime.clock import Clock
from tallystick.runtime.worker import Worker

STAGED_BYTES = 64 * 1024 * 1024  # beyond it connections are not read until a commit returned
RETRY_S = 1.0


class ResponseReceiver(Protocol):
    """A connection, as the committer sees it."""

    def deliver(self, responses: Sequence[bytes]) -> None: ...

    def resume(self) -> None:
        """There is room again."""
        ...


ResponsesByCommit = dict[int, dict[ResponseReceiver, list[bytes]]]  # by the commit with which they are true


class Committer:
    """Commit what is staged, and ``hold`` responses until then; ``idle`` is set while nothing is on its way.

    All methods run on the loop.
    """

    def __init__(
        self,
        storage: Storage,
        worker: Worker,
        clock: Clock,
        counts: Counts,
        *,
        full: Callable[[DiskFull | None], None],
        committed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``full(error)`` hears that a commit found no space, ``full(None)`` that it succeeded after all;
        ``committed()`` comes after each commit, ``failed(error)`` once, when the bookie must stop."""
        self._storage, self._worker, self._clock, self._counts = storage, worker, clock, counts
        self._full, self._committed, self._on_failed = full, committed, failed
        self._loop = asyncio.get_running_loop()
        self._responses: ResponsesByCommit = {}
        self._blocked: list[ResponseReceiver] = []
        self._in_flight = self._reserved = 0  # bytes
        self._busy = self._kicked = self._stuck = self._dead = self._pressed = False
        self._retry: asyncio.TimerHandle | None = None
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def staged_bytes(self) -> int:
        return self._in_flight + self._storage.staged_bytes + self._reserved

    @property
    def congested(self) -> bool:
        """Whether connections should wait before they bring more."""
        return self._pressed or self.staged_bytes > STAGED_BYTES

    def hold(self, connection: ResponseReceiver, responses: Sequence[bytes], commit: int) -> None:
        """Deliver these when this commit, the storage's newest or an older one, is durable."""
        self._responses.setdefault(commit, {}).setdefault(connection, []).extend(responses)
        self._kick()

    def flush(self) -> None:
        """Make durable what is staged, though no response waits for it."""
        if self._storage.staged:
            self._kick()

    def _kick(self) -> None:
        self.idle.clear()
        if not (self._busy or self._kicked):
            # In the next turn of the loop: the connections that are read in this one share the commit.
            self._kicked = True
            self._loop.call_soon(self._start)

    def block(self, connection: ResponseReceiver) -> None:
        """Call its ``resume`` when there is room again."""
        self._blocked.append(connection)

    def reserve(self, change: int) -> None:
        """Count so many bytes more (or less) that are held elsewhere and will be staged."""
        self._reserved += change
        if change < 0:
            self._unblock()

    def press(self, pressed: bool) -> None:
        """Memory holds more than checkpoints keep up with, or does no longer: ``congested`` follows."""
        self._pressed = pressed
        self._unblock()

    def close(self) -> None:
        """Begin no further commit."""
        self._dead = True
        if self._retry is not None:
            self._retry.cancel()

    def _start(self) -> None:
        self._kicked = False
        if self._dead:
            return
        if not self._storage.staged:  # all of it is durable: no commit is under way either
            self._deliver(self._storage.newest_commit)
            return
        self._busy = True
        commit = self._storage.take()
        self._in_flight = commit.size
        self._write(commit)

    def _write(self, commit: Commit) -> None:
        started = self._clock.now()

        def done(_: None, error: Exception | None) -> None:
            if error is None:
                self._counts.commits += 1
                self._counts.commit_seconds += self._clock.now() - started
                self._finish(commit.number)
            elif isinstance(error, DiskFull) and not self._dead:
                self._stuck = True
                self._full(error)
                self._retry = self._loop.call_later(RETRY_S, self._write, commit)
            else:
                self._dead = True
                self._on_failed(error)

        self._worker.submit(lambda: self._storage.commit(commit), done)

    def _finish(self, number: int) -> None:
        self._busy, self._in_flight = False, 0
        if self._stuck:
            self._stuck = False
            self._full(None)
        # The next commit first: the thread writes while the responses of this one are sent.
        if self._storage.staged:
            self._start()
        self._deliver(number)
        self._committed()
        self._unblock()

    def _unblock(self) -> None:
        blocked = () if self.congested else tuple(self._blocked)
        del self._blocked[: len(blocked)]
        for connection in blocked:
            connection.resume()

    def _deliver(self, number: int) -> None:
        """Deliver the responses of commits up to this one, which are durable."""
        for commit in sorted(commit for commit in self._responses if commit <= number):
            for connection, responses in self._responses.pop(commit).items():
                connection.deliver(responses)
        if not (self._busy or self._kicked or self._responses):
            self.idle.set()
