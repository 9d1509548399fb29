"""Open writers replace a bookie that is registered no more, also those that append nothing.

A bookie that is gone for the grace is lost to an auditor, and a replicator then ends the open ledgers that have it in
their newest ensemble (``repair/steps.py``). A writer that appends notices by itself; an idle one does not. So the
writers of a client watch the registrations together, and change their ensembles when a third of the grace is over::

    away ─► after_s, a third of the grace at most ─► some writers at once, until none has it ─► it may come back
                                                        └─ no other to be had: with the next change of registrations
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol

from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.errors import TallyError
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.rng import Random

SHARE_OF_GRACE = 1 / 3
SPREAD = 0.1  # clients that see a bookie go at once begin over so much of the time later
CHANGED_AT_ONCE = 16  # writers; the next ones begin when these are done
LOOKED_AT_A_TURN = 1024  # writers
RETRY_S = 10.0  # after a round that was not done


class OpenWriter(Protocol):
    """A writer, as what watches for it sees it."""

    @property
    def id(self) -> LedgerId: ...

    @property
    def metadata(self) -> LedgerMetadata:
        """As it knows that they are stored."""
        ...

    def has_any(self, bookies: Collection[BookieId]) -> bool:
        """Return whether one of these is in its newest ensemble, and it is to be replaced there."""
        ...

    async def replace_absent(self, bookies: Collection[BookieId]) -> None:
        """Replace these bookies, unless no other can be had. Raises TallyError, and nothing is changed."""
        ...


class AbsenceCore:
    """Decide which bookies have been away for so long that they are replaced."""

    def __init__(self) -> None:
        self._known: dict[BookieId, None] = {}
        self._due_at: dict[BookieId, float] = {}  # of those that are away
        self._tried: dict[BookieId, None] = {}  # of those, since the registrations changed last

    def named(self, bookies: Collection[BookieId]) -> None:
        """An open ledger names these."""
        self._known.update(dict.fromkeys(bookies))

    def looked(self, registered: Collection[BookieId], now: float, after_s: float) -> None:
        """These are registered. Who has gone is due ``after_s`` from now, once, and again when others have come."""
        self._tried.clear()
        for bookie in registered:
            self._due_at.pop(bookie, None)
        for bookie in self._known:
            if bookie not in registered:
                self._due_at.setdefault(bookie, now + after_s)
        self._known.update(dict.fromkeys(registered))

    def due(self, now: float) -> list[BookieId]:
        """Return who is to be replaced now."""
        return [bookie for bookie, at in self._due_at.items() if at <= now and bookie not in self._tried]

    def tried(self, bookies: Collection[BookieId]) -> None:
        """All writers have replaced these that could."""
        self._tried.update(dict.fromkeys(bookies))

    def wake_at(self) -> float | None:
        """Return when the next one is due; None if nobody is."""
        return min((at for bookie, at in self._due_at.items() if bookie not in self._tried), default=None)


class AbsentBookies:
    """Watches for the writers of one client, once it has any. ``close`` it."""

    def __init__(
        self, driver: MetadataDriver, directory: BookieDirectory, clock: Clock, random: Random, events: Events, *,
        writers: Mapping[LedgerId, OpenWriter], most_s: float,
    ) -> None:  # fmt: skip
        """``writers`` are those that are open now. ``most_s``: a bookie is replaced when it is away for so long, or for
        a third of the grace that the metadata says, if that is less; 0: never."""
        self._tree, self._directory, self._clock, self._events = Underreplication(driver), directory, clock, events
        self._random, self._most_s = random, most_s
        self._core = AbsenceCore()
        self._writers = writers
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        directory.on_change(self._changed.set)

    def opened(self) -> None:
        """Watch for one more writer."""
        if self._most_s and self._task is None:
            self._changed.set()
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                if self._changed.is_set():
                    self._changed.clear()
                    await self._look()
                if due := self._core.due(self._clock.now()):
                    await self._replace(due)
            except Exception as error:
                if not isinstance(error, TallyError):  # a bug of ours: without rounds idle ledgers would be ended
                    self._events.emit("absent bookies not replaced", reason=repr(error))
                await asyncio.sleep(RETRY_S)  # the metadata service does not answer
                self._changed.set()

    async def _wait(self) -> None:
        wake_at = self._core.wake_at()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wake_at is None else max(wake_at - self._clock.now(), 0.0)):
                await self._changed.wait()

    async def _look(self) -> None:
        bookies = await self._directory.current()
        after_s, delay = self._most_s, await self._tree.recovery_delay()
        if delay is not None and delay.value:
            after_s = min(after_s, delay.value * SHARE_OF_GRACE)
        after_s *= 1 + SPREAD * self._random.random()
        writers = list(self._writers.values())
        for at in range(0, len(writers), LOOKED_AT_A_TURN):
            if at:
                await asyncio.sleep(0)
            for writer in writers[at : at + LOOKED_AT_A_TURN]:
                # Also who took a place and went again while nobody could look.
                self._core.named(writer.metadata.ensemble)
        registered = dict.fromkeys((*bookies.writable, *bookies.read_only))  # in their order, as all that follows is
        self._core.looked(registered, self._clock.now(), after_s)

    async def _replace(self, bookies: Collection[BookieId]) -> None:
        """Let the writers that have these replace them, some at once; no further when the registrations change."""
        writers, concerned = list(self._writers.values()), list[OpenWriter]()
        for at in range(0, len(writers), LOOKED_AT_A_TURN):
            concerned += [writer for writer in writers[at : at + LOOKED_AT_A_TURN] if writer.has_any(bookies)]
            await asyncio.sleep(0)
        for at in range(0, len(concerned), CHANGED_AT_ONCE):
            if self._changed.is_set():
                return
            changes = [writer.replace_absent(bookies) for writer in concerned[at : at + CHANGED_AT_ONCE]]
            for result in await asyncio.gather(*changes, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        self._core.tried(bookies)
