"""The shell around ``RetryCore``, one for all writers of a client, gives degraded writers their bookies back.

A round looks at who is registered, asks each missing bookie that is due for a sign of life (one read, for all writers)
and the metadata who it is, and then lets the writers concerned change their ensembles or send to the bookie again, some
in each turn of the loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.degraded import RetryCore
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.replicas import BookieIdentities
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, LedgerId
from tallystick.errors import TallyError
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

WRITERS_A_TURN = 16  # of the loop
FAILED_S = 1.0  # between two rounds when one was not done


class DegradedWriter(Protocol):
    """A writer that lacks bookies."""

    @property
    def id(self) -> LedgerId: ...

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]: ...

    async def restore(self, identities: BookieIdentities) -> None:
        """Replace missing bookies, or go on with those that answer, and are who they were. Raises nothing."""
        ...


class Restorer:
    """Restore degraded writers: they ``join``, and ``leave`` when they lack nothing or have ended."""

    def __init__(self, bookies: BookieClient, directory: BookieDirectory, clock: Clock, events: Events) -> None:
        self._bookies, self._directory, self._clock, self._events = bookies, directory, clock, events
        self.joined = 0  # how often a writer lost bookies that nothing could replace
        self._writers: dict[DegradedWriter, None] = {}
        self._retries = RetryCore()
        self._registrations_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        directory.on_change(self._registrations_changed.set)

    @property
    def writers(self) -> tuple[DegradedWriter, ...]:
        """The writers that lack bookies now."""
        return tuple(self._writers)

    def join(self, writer: DegradedWriter, *, is_news: bool) -> None:
        """Restore this writer; again when it lacks other bookies too. ``is_news`` counts it in ``joined``."""
        self._writers[writer] = None
        self.joined += is_news
        for bookie in writer.missing_bookies:
            self._retries.missed(bookie, self._clock.now())
        if self._task is None:
            self._registrations_changed.clear()
            self._task = asyncio.create_task(self._run())

    def leave(self, writer: DegradedWriter) -> None:
        self._writers.pop(writer, None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._writers:
            await self._wait()
            is_changed = self._registrations_changed.is_set()
            self._registrations_changed.clear()
            if is_changed:
                self._retries.changed(self._clock.now())
            try:
                await self._round(is_changed)
            except TallyError:  # the metadata service does not answer: the next round
                pass
            except Exception as error:  # a bug of ours: without rounds no writer would ever get a bookie back
                self._events.emit("degraded ledgers not restored", reason=repr(error))
                await asyncio.sleep(FAILED_S)
        self._task = None

    async def _wait(self) -> None:
        wake_at = self._retries.wake_at(self._missing_bookies())
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wake_at is None else max(wake_at - self._clock.now(), 0.0)):
                await self._registrations_changed.wait()

    async def _round(self, is_changed: bool) -> None:
        due_bookies = self._retries.take_due(self._missing_bookies(), self._clock.now())
        writable = (await self._directory.current()).writable
        candidates = [bookie for bookie in due_bookies if bookie in writable]
        signs = await asyncio.gather(*(self._lives(bookie) for bookie in candidates))
        identities = await self._directory.identities(
            [bookie for bookie, lives in zip(candidates, signs, strict=True) if lives]
        )
        concerned = [
            writer
            for writer in self._writers
            if is_changed or any(bookie in due_bookies for bookie in writer.missing_bookies)
        ]
        for number, writer in enumerate(concerned, start=1):
            await writer.restore(identities)
            if number % WRITERS_A_TURN == 0:
                await asyncio.sleep(0)

    async def _lives(self, bookie: BookieId) -> bool:
        """Return whether a bookie answers anything at all; version 2 has no other request that costs so little."""
        ledger = next((writer.id for writer in self._writers if bookie in writer.missing_bookies), None)
        if ledger is None:
            return False
        try:
            await self._bookies.read(bookie, ledger, NO_ENTRY)
        except TallyError:
            return False
        return True

    def _missing_bookies(self) -> list[BookieId]:
        return list(dict.fromkeys(bookie for writer in self._writers for bookie in writer.missing_bookies))
