"""May this writer still write? The bookie looks at a ledger's metadata once a process life, at its first ordinary add.

An empty bookie at an old address, or one that has forgotten a deletion, knows no fence: it would acknowledge a writer
whose ledger was recovered, closed or deleted meanwhile (bookkeeper#4812). Entry 0 of a ledger that is new here needs no
look; every other first add waits for one, with those that follow it. Gone, IN_RECOVERY or CLOSED: refused as fenced.
Adds of recovery never look (they come after CLOSED, too).

A look is a synced read, of many ledgers at once. What cannot be read decides nothing: the add is taken as if nobody had
looked, and is counted; for a while then nobody looks.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.wire.values import LedgerId, LedgerState
from tallystick.errors import MetadataError
from tallystick.runtime.events import Events
from tallystick.runtime.tasks import watch

BATCH_LEDGERS = 512
MAX_TRIES = 3  # of one batch, when the connection breaks in it
ANSWER_S = 1.0  # a look that takes longer counts as unreadable: writers wait for their adds
PAUSE_S = 10.0  # after such a look


class Verdict(enum.Enum):
    ADMIT = "admit"
    REFUSE = "refuse"
    UNKNOWN = "unknown"


def verdict(record: Record | None) -> Verdict:
    """What the metadata says of an ordinary add."""
    if record is None:
        return Verdict.REFUSE
    if record.state is None:
        return Verdict.UNKNOWN
    return Verdict.ADMIT if record.state is LedgerState.OPEN else Verdict.REFUSE


class LookCore:
    """Which ledgers are looked at next, and what became of them."""

    def __init__(self, instance: str) -> None:
        """``instance``: of the bookie's cookie; metadata of another cluster says nothing."""
        self._instance = instance
        self._wanted: dict[LedgerId, None] = {}
        self._batch: dict[LedgerId, None] = {}
        self._tries = 0

    def wanted(self, ledger: LedgerId) -> None:
        if ledger not in self._batch:
            self._wanted[ledger] = None

    def next_batch(self) -> tuple[LedgerId, ...]:
        """What to read now; the same again after a connection that broke. Empty: nothing."""
        if not self._batch:
            self._batch = dict.fromkeys(islice(self._wanted, BATCH_LEDGERS))
            for ledger in self._batch:
                del self._wanted[ledger]
            self._tries = 0
        return tuple(self._batch)

    def read(self, began: Moment, ended: Moment, records: Mapping[LedgerId, Record | None]) -> dict[LedgerId, Verdict]:
        """The batch was read between these moments. Nothing is decided when it must be read again."""
        if self._instance not in (began.instance, ended.instance) or began.instance != ended.instance:
            return self.unreadable()
        if began != ended:
            self._tries += 1
            return self.unreadable() if self._tries >= MAX_TRIES else {}
        return self._end({ledger: verdict(records.get(ledger)) for ledger in self._batch})

    def unreadable(self) -> dict[LedgerId, Verdict]:
        return self._end(dict.fromkeys(self._batch, Verdict.UNKNOWN))

    def _end(self, verdicts: dict[LedgerId, Verdict]) -> dict[LedgerId, Verdict]:
        self._batch = {}
        return verdicts


class Metadata(Protocol):
    async def sync(self) -> Moment: ...

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]: ...


GoOn = Callable[[bool], None]  # hears whether the adds are admitted


class Looks:
    """``hold`` adds until their ledger was looked at. ``active`` is False for a while when nothing could be read."""

    def __init__(
        self, metadata: Metadata, instance: str, settled: Callable[[LedgerId], None], reserve: Callable[[int], None],
        counts: Counts, events: Events, failed: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        """``settled`` hears of ledgers that need no further look, once their adds went on; ``reserve`` of bytes that
        are held here, and (negative) no longer; ``failed`` of an error that leaves them without an answer."""
        self._metadata, self._core = metadata, LookCore(instance)
        self._settled, self._reserve, self._counts, self._events = settled, reserve, counts, events
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._held: dict[LedgerId, list[tuple[GoOn, int]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self.active = True

    def hold(self, ledger: LedgerId, size: int, go_on: GoOn) -> None:
        """``go_on(admitted)`` comes on the loop, in the order of ``hold``, also when nothing can be read."""
        self._held.setdefault(ledger, []).append((go_on, size))
        self._reserve(size)
        self._core.wanted(ledger)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())
            watch([self._looking], self._failed)

    async def _look(self) -> None:
        try:
            await asyncio.sleep(0)  # what came in this turn of the loop shares the look
            while batch := self._core.next_batch():
                self._decide(await self._read(batch))
        finally:
            self._looking = None

    async def _read(self, batch: tuple[LedgerId, ...]) -> dict[LedgerId, Verdict]:
        self._counts.looks += len(batch)
        try:
            async with asyncio.timeout(ANSWER_S):
                began = await self._metadata.sync()
                records = await self._metadata.look_up(batch)
                return self._core.read(began, await self._metadata.sync(), records)
        except (MetadataError, TimeoutError) as error:
            self._pause(str(error) or "the metadata did not answer in time")
            return self._core.unreadable()

    def _pause(self, reason: str) -> None:
        if self.active:
            self._events.emit("ledgers not looked at", seconds=PAUSE_S, reason=reason)
            self.active = False
            self._resume = self._loop.call_later(PAUSE_S, self._look_again)

    def _look_again(self) -> None:
        self.active = True

    def _decide(self, verdicts: dict[LedgerId, Verdict]) -> None:
        for ledger, said in verdicts.items():
            held = self._held.pop(ledger, [])
            if said is Verdict.REFUSE:
                self._counts.looks_refused += 1
                self._events.emit("adds refused", ledger=ledger, reason="by its metadata nobody writes it")
            elif said is Verdict.UNKNOWN:
                self._counts.looks_failed += 1
            for go_on, size in held:
                self._reserve(-size)
                go_on(said is not Verdict.REFUSE)
            if said is not Verdict.REFUSE and self.active:  # else it is looked at when that can be done again
                self._settled(ledger)

    async def close(self) -> None:
        """Look no more; what is held is never answered."""
        if self._resume is not None:
            self._resume.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
