"""Group commit without a timer: what is staged while one commit is written is the next one.

Responses that wait for durability are held here until a commit that began after them has returned, and leave as one
write a connection: of very many connections some in each turn of the loop, and hosts have their turns
(``runtime/turn_order.py``). Those to deferred adds wait for the write of their commit alone, and a commit for which no
other response waits is not synced: the next one that is takes it along. A commit that finds the disk full is tried
again until there is space: nothing staged is ever forgotten, its responses are only late. Any other failure is the end:
nobody knows what is on the disk, so no response leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Protocol

from tallystick.bookkeeper.bookie.journals import StagedCommit
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.errors import DiskFull
from tallystick.runtime.clock import Clock
from tallystick.runtime.turn_order import PeerQueues
from tallystick.runtime.turn_steps import TurnSteps
from tallystick.runtime.worker import Worker

STAGED_BYTES = 64 * 1024 * 1024  # beyond it connections are not read until a commit returned
RETRY_S = 1.0
DELIVER_EACH_TURN = 256  # connections: with what the kernel does for each, some milliseconds
RESUME_EACH_TURN = 256  # connections that waited for room


class ResponseReceiver(Hashable, Protocol):
    """A connection, as the committer sees it."""

    peer: str  # its host

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
        self._until_written: ResponsesByCommit = {}
        self._until_synced: ResponsesByCommit = {}
        self._written = self._synced = storage.newest_commit  # so far the commits are; nothing is staged yet
        self._wanted = self._synced  # and so far they are to be synced
        # What is true, and had no time in its turn.
        self._late: PeerQueues[ResponseReceiver, tuple[ResponseReceiver, Sequence[bytes]]] = PeerQueues()
        self._late_turn: asyncio.Handle | None = None
        self._blocked: deque[ResponseReceiver] = deque()
        self._resumes, self._resuming = TurnSteps(RESUME_EACH_TURN), False
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
        self._wanted = max(self._wanted, commit)
        self._hold(self._until_synced, connection, responses, commit)

    def hold_until_written(self, connection: ResponseReceiver, responses: Sequence[bytes], commit: int) -> None:
        """Deliver these when the operating system has this commit, which is the storage's newest."""
        self._hold(self._until_written, connection, responses, commit)

    def _hold(
        self, held: ResponsesByCommit, connection: ResponseReceiver, responses: Sequence[bytes], commit: int
    ) -> None:
        held.setdefault(commit, {}).setdefault(connection, []).extend(responses)
        self._kick()

    def flush(self) -> None:
        """Make durable what is staged, though no response waits for it."""
        if self._storage.staged:
            self._wanted = self._storage.newest_commit
            self._kick()

    def _kick(self) -> None:
        self.idle.clear()
        if not (self._busy or self._kicked):
            # In the next turn of the loop: the connections that are read in this one share the commit.
            self._kicked = True
            self._loop.call_soon(self._start)

    def forget(self, connection: ResponseReceiver) -> None:
        """It is gone, and gets nothing that is late."""
        self._late.discard(connection, connection.peer)
        self._look_whether_idle()

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
        if self._storage.staged:
            self._busy = True
            commit = self._storage.take()
            self._in_flight = commit.size
            self._write(commit)
        elif self._wanted > self._synced:
            self._busy = True
            self._sync(self._written)
        else:
            self._deliver()

    def _write(self, commit: StagedCommit) -> None:
        """Write a commit, and sync it if a response waits for that: in one go, unless others wait for the write."""
        started = self._clock.now()
        needs_sync = self._wanted > self._synced
        at_once = needs_sync and commit.number not in self._until_written

        def done(_: None, error: Exception | None) -> None:
            if error is None:
                self._counts.commits += 1
                self._counts.commit_seconds += self._clock.now() - started
                self._written, self._in_flight = commit.number, 0
                if self._stuck:
                    self._stuck = False
                    self._full(None)
                if needs_sync and not (at_once or self._dead):
                    self._sync(commit.number)
                    self._deliver()
                else:
                    self._finish(commit.number if at_once else self._synced)
            elif isinstance(error, DiskFull) and not self._dead:
                self._stuck = True
                self._full(error)
                self._retry = self._loop.call_later(RETRY_S, self._write, commit)
            else:
                self._fail(error)

        do = self._storage.commit if at_once else self._storage.write
        self._worker.submit(lambda: do(commit), done)

    def _sync(self, number: int) -> None:
        """Make durable what was written, which is all up to this commit."""
        started = self._clock.now()

        def done(_: None, error: Exception | None) -> None:
            if error is None:
                self._counts.commit_seconds += self._clock.now() - started
                self._finish(number)
            else:
                self._fail(error)

        self._worker.submit(self._storage.sync, done)

    def _fail(self, error: Exception) -> None:
        self._dead = True
        self._on_failed(error)

    def _finish(self, synced: int) -> None:
        self._busy, self._synced = False, synced
        # What comes next first: the thread works while the responses of this commit are sent.
        if self._storage.staged or self._wanted > self._synced:
            self._start()
        self._deliver()
        self._committed()
        self._unblock()

    def _unblock(self) -> None:
        if self._blocked and not (self.congested or self._resuming):
            self._resuming = True
            self._resumes.run(self._resume_all())

    def _resume_all(self) -> Iterator[None]:
        """Until there is no room again."""
        try:
            while self._blocked and not self.congested:
                self._blocked.popleft().resume()
                yield
        finally:
            self._resuming = False

    def _deliver(self) -> None:
        """Deliver the responses that have become true."""
        ready: list[tuple[ResponseReceiver, list[bytes]]] = []
        for responses, number in (self._until_written, self._written), (self._until_synced, self._synced):
            if responses:
                for commit in sorted([commit for commit in responses if commit <= number]):
                    ready += responses.pop(commit).items()
        if self._late or len(ready) > DELIVER_EACH_TURN:
            for connection, responses_of_it in ready:
                self._late.put(connection, connection.peer, (connection, responses_of_it))
            if self._late_turn is None:
                self._deliver_late()
        else:
            for connection, responses_of_it in ready:
                connection.deliver(responses_of_it)
        self._look_whether_idle()

    def _deliver_late(self) -> None:
        """Deliver to as many as this turn has time for."""
        self._late_turn = None
        for _ in range(DELIVER_EACH_TURN):
            if not self._late:
                break
            connection, responses = self._late.pop()
            connection.deliver(responses)
        if self._late:
            self._late_turn = self._loop.call_soon(self._deliver_late)
        self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if not (self._busy or self._kicked or self._until_written or self._until_synced or self._late):
            self.idle.set()
