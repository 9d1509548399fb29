"""The thread that owns a SQLite connection: runs calls, looks for others' changes. One for each file and process.

All drivers of a process share it, so that many clients are one connection and one poller. Changes
that wait together are one transaction, with one sync for all of them. Reads come after the changes that were asked for
before them, unless another process holds the write lock: then the changes wait, and reads go on. Other processes'
commits show in ``PRAGMA data_version``, asked for every 50 ms while anyone watches; it does not show own commits, whose
keys the store tells, and an expiry is no commit at all: at the earliest one the thread looks too.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TypeVar

from tallystick.bookkeeper.metadata.sqlite_calls import Call, Results, attempt, is_locked
from tallystick.bookkeeper.metadata.sqlite_file import GATE, file_id_of, lock_holder
from tallystick.bookkeeper.metadata.sqlite_leases import Lease, LeaseKeeper, boot_now
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.bookkeeper.metadata.store import Update
from tallystick.bookkeeper.metadata.watch import Watchers
from tallystick.errors import MetadataError, MetadataUnavailable, UsageError
from tallystick.runtime.fork import ProcessLock

T = TypeVar("T")

POLL_S = 0.05
BUSY_TIMEOUT_S = 10.0  # how long a call waits for another process's lock
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.01  # between two attempts to get it
MAX_TOGETHER = 512  # calls of one turn, changes of one transaction

_threads: dict[str, SqliteThread] = {}
_threads_lock = ProcessLock()
os.register_at_fork(after_in_child=_threads.clear)


class SqliteThread:
    """Get it with ``acquire`` and give it back with ``release``; it ends with its last user, or with the process."""

    def __init__(self, path: str) -> None:
        self.tree, self.watchers = SqliteTree(path), Watchers()
        self._users = 0
        self._queue: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._pending_changes: deque[Call] = deque()
        self._locked_out: list[Call] = []  # reads; rare: while another process opens or closes the file
        self._retry_at, self._pause_s = 0.0, FIRST_PAUSE_S
        self._keeper = LeaseKeeper(self.tree.leases)
        self._poll_at = 0.0
        self._data_version = (0, 0)
        self._last_states: dict[str, object] = {}  # what is watched, as seen last
        self._ends: dict[str, float] = {}  # when some of it expires, unless a lease is renewed
        self._unsettled: set[Call] = set()  # of those that were taken
        self._results = Results()
        self._last: Call | None = None
        self._has_failed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="tally-sqlite", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, path: str) -> SqliteThread:
        with _threads_lock:
            thread = _threads.get(path)
            if thread is None or thread.is_stale:
                thread = _threads[path] = cls(path)
            thread._users += 1
            return thread

    @property
    def is_stale(self) -> bool:
        """Returns whether another file is at the path now than the one that is open, or the thread failed."""
        return self._has_failed or self.tree.file.file_id not in (None, file_id_of(self.tree.path))

    # -- from event loops ---------------------------------------------------------------------------------------------

    async def call(self, job: Callable[[], T], *, writes: bool = False, update: Update | None = None) -> T:
        """Run ``job`` on the thread. With ``writes``: after all changes before it, and what it changed is durable.
        ``update``: what it does, if it does nothing else: those that wait together may be one statement.

        Raises what it raises; MetadataUnavailable when another process kept the lock for ``BUSY_TIMEOUT_S``;
        MetadataError when the thread has failed.
        """
        self._check_usable()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(Call(job, writes, time.monotonic() + BUSY_TIMEOUT_S, loop, future, update=update))
        return await future

    def post(self, job: Callable[[], object], *, writes: bool = False) -> None:
        """Run ``job`` like ``call`` does, with nobody waiting for it; its MetadataError is dropped."""
        self._check_usable()
        self._queue.put(Call(job, writes, time.monotonic() + BUSY_TIMEOUT_S))

    def watched(self, key: str) -> None:
        """Note the state of ``key`` before the caller's next request: a change after that is told."""
        self.post(partial(self._look, [key]))

    async def release(self) -> None:
        """Wait for all calls before it, and leave; the last user closes the connection."""
        self._check_usable()
        with _threads_lock:
            self._users -= 1
            is_last = not self._users
            if is_last and _threads.get(self.tree.path) is self:
                del _threads[self.tree.path]
        if is_last:
            loop = asyncio.get_running_loop()
            end: asyncio.Future[None] = loop.create_future()
            self._queue.put(Call(lambda: None, False, 0.0, loop, end, ends=True))
            await end

    def _check_usable(self) -> None:
        if self._pid != os.getpid():  # SQLite forbids it, and the thread is not here
            raise UsageError("a metadata connection does not survive a fork; connect again", path=self.tree.path)

    # -- on the thread: calls -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # nobody foresaw it, and nobody may wait for ever
            self._has_failed = True
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))
            self._refuse_all(error)
        assert self._last is not None
        try:
            self.tree.close()
        finally:
            self._settle([self._last])

    def _refuse_all(self, error: BaseException) -> None:
        """Fail all calls, these and later ones, until the last user leaves. Sessions end: nobody renews them."""
        self._keeper.drop_all()
        self.watchers.notify_all()  # they look again, and hear of it
        calls = list(self._unsettled)
        while True:
            for call in calls:
                if call.ends:
                    self._last = call
                else:
                    call.result, call.error = (
                        None,
                        MetadataError(
                            f"the metadata file is used no more after an unexpected error: {error!r}",
                            path=self.tree.path,
                        ),
                    )
                    call.error.__cause__ = error
            self._settle([call for call in calls if not call.ends])
            if self._last is not None:
                return
            calls = [self._queue.get()]

    def _serve(self) -> None:
        while self._last is None or self._pending_changes or self._locked_out:
            calls = self._take()
            self._pending_changes.extend(call for call in calls if call.writes)
            if self._pending_changes and time.monotonic() >= self._retry_at:
                self._write()
            if self._locked_out and time.monotonic() >= self._retry_at:
                calls, self._locked_out = self._locked_out + calls, []
            for call in calls:
                if call.ends:
                    self._last = call
                elif not call.writes:
                    self._read(call)
            self._tick()

    def _take(self) -> list[Call]:
        """Returns the next calls. Returns none when something else is due first."""
        now, wait = time.monotonic(), float("inf")
        if self._pending_changes or self._locked_out:
            wait = self._retry_at - now
        if self.watchers:
            wait = min(wait, self._poll_at - now)
        calls: list[Call] = []
        with contextlib.suppress(queue.Empty):
            calls.append(self._queue.get(timeout=None if wait == float("inf") else max(wait, 0.0)))
            while len(calls) < MAX_TOGETHER:
                calls.append(self._queue.get_nowait())
        self._unsettled.update(calls)
        return calls

    def _read(self, call: Call) -> None:
        with GATE:
            attempt(call)
        if is_locked(call.error) and time.monotonic() < call.deadline:
            self._locked_out.append(call)
            self._retry_at = max(self._retry_at, time.monotonic() + self._pause_s)
        else:
            self._settle([call])

    def _write(self) -> None:
        """Run the changes that wait in one transaction, each a part of its own."""
        calls = [self._pending_changes.popleft() for _ in range(min(len(self._pending_changes), MAX_TOGETHER))]
        try:
            with GATE, self.tree.transaction():
                for _, run in groupby(calls, lambda call: call.update is not None):
                    self._write_run(list(run))
        except BaseException as error:
            if is_locked(error):
                self._wait_for_lock(calls, error)
                return
            for call in calls:
                call.result, call.error = None, copy.copy(error)
        self._pause_s = FIRST_PAUSE_S
        # A pause before more, in which other processes get at the lock.
        self._retry_at = time.monotonic() + (FIRST_PAUSE_S if self._pending_changes else 0.0)
        changed_keys = dict.fromkeys(self.tree.take_changed_keys())
        self._settle(calls)
        try:
            self._look([key for key in changed_keys if key in self.watchers])
        except MetadataError:
            self._data_version = (0, 0)  # the next poll looks at everything

    def _write_run(self, calls: list[Call]) -> None:
        """Run calls in order. A run of updates is one statement; where one fails, each is tried and told by itself."""
        updates = [call.update for call in calls if call.update is not None]
        if len(updates) > 1 and len({update.path for update in updates}) == len(updates):
            together = Call(partial(self.tree.update_all, updates), True, 0.0)
            self._attempt(together)
            if together.result:
                for call in calls:
                    call.result = call.error = None
                return
        for call in calls:
            self._attempt(call)

    def _attempt(self, call: Call) -> None:
        """Run one call as a part of the transaction."""
        attempt(call)
        if call.error is not None and not self.tree.file.in_transaction:
            raise call.error  # SQLite has undone all of it, as it does when the disk is full

    def _wait_for_lock(self, calls: list[Call], error: BaseException) -> None:
        now = time.monotonic()
        self._pending_changes.extendleft(reversed([call for call in calls if call.deadline > now]))
        overdue = [call for call in calls if call.deadline <= now]
        if overdue:
            holder = lock_holder(self.tree.path)
        for call in overdue:
            call.error = MetadataUnavailable(
                f"another process has kept the metadata file locked for {BUSY_TIMEOUT_S:g} s",
                path=self.tree.path,
                **holder,
            )
            call.error.__cause__ = error
        self._settle(overdue)
        self._retry_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _settle(self, calls: list[Call]) -> None:
        self._unsettled.difference_update(calls)
        self._results.settle(calls)

    # -- on the thread: sessions --------------------------------------------------------------------------------------

    def hold(self, lease: Lease, lapsed: Callable[[], None]) -> None:
        """Keep a session's lease up from now on. ``lapsed``: it had ended, and was renewed. Raises MetadataError."""
        self._keeper.hold(lease, lapsed)

    def drop(self, lease: Lease) -> None:
        """End a session's lease: its nodes are as good as deleted."""
        self._keeper.drop(lease.owner)

    # -- on the thread: what watchers hear ----------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        if self.watchers and now >= self._poll_at:
            self._poll_at = now + POLL_S
            with GATE:
                self._poll()

    def _poll(self) -> None:
        if len(self._last_states) > 2 * len(self.watchers) + 1024:
            self._last_states = {key: state for key, state in self._last_states.items() if key in self.watchers}
            self._ends = {key: end for key, end in self._ends.items() if key in self.watchers}
        with contextlib.suppress(MetadataError):  # watchers hear of it when the file can be read again
            data_version = self.tree.file.data_version()
            if data_version != self._data_version:
                self._look(self.watchers.keys())
                # Asked before the look: a commit between the two shows in it, and once more at the next tick.
                self._data_version = data_version
            elif self._ends and (now := boot_now()) >= min(self._ends.values()):
                self._look([key for key, end in self._ends.items() if now >= end])

    def _look(self, keys: list[str]) -> None:
        """Tell the watchers of these keys what differs from the last look. Raises MetadataError: look again."""
        for key, (state, end) in self.tree.sights(keys).items() if keys else ():
            if self._last_states.setdefault(key, state) != state:
                self._last_states[key] = state
                self.watchers.notify(key)
            if end is None:
                self._ends.pop(key, None)
            else:
                self._ends[key] = end
