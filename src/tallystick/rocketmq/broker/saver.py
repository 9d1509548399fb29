"""Saves the tables: urgent ones as soon as they change, the others every few seconds, all once more at the end.

All changes of a moment are one save, however many there are: what changes while one runs is in the next. Strangers can
make tables long, and change them again and again: behind a long save is a rest, as long as its bytes. The text is
made on the loop, some milliseconds at a time (on a thread it would hold the interpreter just as long), and written and
synced on a worker. Whoever asked for a change gets the response when the original's own file has it, on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from tallystick.errors import StorageError
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.saves import OnSaved, SendCommand
from tallystick.rocketmq.remoting.slices import in_slices
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

MOST_WAITING = 100_000  # responses, some 40 MB: a disk that stalls holds them all up
PERIOD_S = 5.0  # flushConsumerOffsetInterval
FREE_BYTES = 256 * 1024  # of a save, that are followed by no rest: those of ordinary tables
BYTES_A_SECOND = 16 * 1024 * 1024  # of longer ones, however often they change
MAX_REST_S = 2.0  # clients wait for 3 s
AT_ONCE = 64  # pieces of a text, of some 10 to 100 KB, that are in memory


class SavedTables(Protocol):
    """The tables of some files: see ``BrokerTables``."""

    changed: Callable[[], None]  # is called at each urgent change

    @property
    def changes(self) -> int:
        """How many urgent ones there were."""
        ...

    def unsaved_files(self, *, urgent: bool = False) -> list[str]: ...

    def text(self, name: str) -> Iterator[bytes]: ...

    def saved(self, name: str) -> None: ...

    def failed(self, name: str) -> None: ...

    def is_urgent(self, name: str) -> bool: ...


class Saver:
    """``start`` it; ``close`` it, and its worker after it. Others use it as ``Saves``."""

    def __init__(self, tables: SavedTables, files: ConfigFiles, clock: Clock, events: Events, worker: Worker) -> None:
        self._tables, self._files, self._clock, self._events = tables, files, clock, events
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._due = asyncio.Event()
        self._waiters: list[tuple[int, OnSaved]] = []
        self._task: asyncio.Task[None] | None = None
        self._failing: set[str] = set()
        self._turn = asyncio.Lock()  # of one save: an older text never replaces a newer one
        self._written_bytes = 0  # bytes, since the last rest
        self._closing = asyncio.Event()
        self._saved_change = 0  # changes that are saved
        tables.changed = self._due.set

    @property
    def changes(self) -> int:
        """The number of urgent changes so far."""
        return self._tables.changes

    @property
    def unsaved_files(self) -> frozenset[str]:
        """Returns the files whose last save failed."""
        return frozenset(self._failing)

    def when_saved(self, done: OnSaved) -> None:
        self._wait(self.changes, done)

    def after(self, change: int, done: OnSaved) -> None:
        """Call ``done`` when the change of this number is on the disk, at once if it is; or with the reason why it is
        not, which may be that too many wait already."""
        if change <= self._saved_change:
            done(None)
        else:
            self._wait(change, done)

    def _wait(self, change: int, done: OnSaved) -> None:
        self._due.set()
        if len(self._waiters) < MOST_WAITING:
            self._waiters.append((change, done))
        else:
            done(StorageError("the disk is late, and too many answers wait for it"))

    def send(
        self, send: SendCommand, response: Command, change: int, failure_code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        def done(error: StorageError | None) -> None:
            if error is not None and response.code == ResponseCode.SUCCESS:
                response.code, response.remark = failure_code, f"it was done, but cannot be saved: {error}"
                response.body = b""
            send(response)

        self.after(change, done)

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Returns the tasks that run from ``start`` to ``close``."""
        return [self._task] if self._task is not None else []

    async def close(self) -> None:
        """Save all that is not saved yet."""
        self._closing.set()
        self._due.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self.save()
        self._worker.close()

    async def _run(self) -> None:
        all_at = self._clock.now() + PERIOD_S
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), max(0.0, all_at - self._clock.now()))
            self._due.clear()
            is_all = self._clock.now() >= all_at
            await self.save(urgent=not is_all)
            if is_all:
                all_at = self._clock.now() + PERIOD_S
            rest_s = min(MAX_REST_S, (self._written_bytes - FREE_BYTES) / BYTES_A_SECOND)
            self._written_bytes = 0
            if rest_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), rest_s)

    async def save(self, *, urgent: bool = False) -> None:
        """Save the tables that changed since the last time, and call whoever waits for them."""
        async with self._turn:
            saved_change = self.changes
            failure = await self._save_all(self._tables.unsaved_files(urgent=urgent))
            if failure is None:
                self._saved_change = saved_change
        waiters, self._waiters = self._waiters, []
        await in_slices(self._call_waiters(waiters, saved_change, failure), self._clock)

    def _call_waiters(
        self, waiters: list[tuple[int, OnSaved]], saved_change: int, failure: StorageError | None
    ) -> Iterator[None]:
        for change, done in waiters:
            if change <= saved_change:
                done(failure)
            else:
                self._waiters.append((change, done))
            yield

    async def _save_all(self, names: Sequence[str]) -> StorageError | None:
        """Returns why a file that responses wait for could not be saved, or None."""
        failure = None
        for name in names:
            try:
                await self._save(name)
                self._failing.discard(name)
            except StorageError as error:
                self._tables.failed(name)
                if self._tables.is_urgent(name):
                    failure = error
                if name not in self._failing:
                    self._failing.add(name)
                    self._events.emit("table not saved", file=name, reason=str(error))
        return failure

    async def _save(self, name: str) -> None:
        """Save one file. Raises StorageError."""
        text, files, run = self._tables.text(name), self._files, self._worker.run
        pieces = await self._some(text)
        if len(pieces) < AT_ONCE:
            await run(partial(files.save, name, *pieces))
        else:
            new = await run(partial(files.begin, name))
            try:
                while pieces:
                    await run(partial(new.write, *pieces))
                    pieces = await self._some(text)
                await run(partial(files.finish, name, new))
            finally:
                await run(new.close)
        self._tables.saved(name)

    async def _some(self, text: Iterator[bytes]) -> list[bytes]:
        """Returns the next pieces of a text."""
        pieces = await in_slices(islice(text, AT_ONCE), self._clock)
        self._written_bytes += sum(map(len, pieces))
        return pieces
