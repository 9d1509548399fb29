"""One of all candidates marks the ledgers of lost bookies: the shell around ``AuditorCore``.

Every look is between two moments of the metadata service that are equal, else it is not one. A ledger is marked when
it named the lost bookie in a listing, and does so in another, synced read after that, with the bookie still absent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from tallystick.bookkeeper.metadata.driver import MetadataDriver, RegisteredBookies, Versioned
from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.auditor_core import AuditorCore, Hold, Lose, Return
from tallystick.bookkeeper.repair.ledger_names import LedgerNames
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataError, MetadataRefused, MetadataUnavailable
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

RETRY_S = 1.0  # after the metadata service did not answer
AT_ONCE = 500  # ledgers that are read together


class Auditor:
    """A candidate, and the auditor once it is elected. ``run`` it until it is cancelled."""

    def __init__(
        self, driver: MetadataDriver, name: str, settings: RepairSettings, clock: Clock, events: Events
    ) -> None:
        self._driver, self._name, self._settings = driver, name, settings
        self._clock, self._events = clock, events
        self._tree = Underreplication(driver)
        self._core = AuditorCore(settings.grace_s)
        self._changed = asyncio.Event()
        self._delay_version: Version | None = None
        self._audit_at = clock.now()  # when all ledgers are listed again
        self._names = LedgerNames(driver)
        self._unmarked: dict[BookieId, None] = {}  # lost ones whose ledgers are still to be marked
        self._returned: dict[BookieId, None] = {}  # whose copies are to be looked at
        self._is_enabled = True
        self.is_elected = False

    @property
    def core(self) -> AuditorCore:
        """What it knows of absent bookies."""
        return self._core

    @property
    def is_at_work(self) -> bool:
        """Whether it is the auditor, and may audit."""
        return self.is_elected and self._is_enabled

    def take_returned(self) -> tuple[BookieId, ...]:
        """Return the bookies that are back since this was called last."""
        returned, self._returned = tuple(self._returned), {}
        return returned

    async def run(self) -> None:
        """Vote, wait, audit; for ever."""
        vote = ""
        watches = [watch(self._changed.set) for watch in (self._tree.watch_votes, self._tree.watch_switches)]
        watches.append(self._driver.watch_bookies(self._changed.set))
        try:
            while True:
                try:
                    self._changed.clear()
                    vote = await self._elected(vote)
                    if self.is_elected:
                        await self._audit()
                    await self._wait()
                except MetadataError as error:
                    self._events.emit("audit put off", reason=str(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            for watching in watches:
                watching.cancel()
            if vote:
                with suppress(MetadataError):
                    await self._tree.withdraw(vote)

    async def _elected(self, vote: str) -> str:
        """Keep our vote up, and see whether it is the lowest. Returns the vote."""
        await self._driver.sync()
        if not vote or not await self._tree.is_own(vote):
            self._step_down("its session ended, and its vote with it")
            await self._tree.prepare()
            vote = await self._tree.vote(self._name)
        if (await self._tree.votes())[:1] != [vote]:
            self._step_down("another vote is older")
        elif not self.is_elected:
            self.is_elected = True
            # Whoever is absent is so from now on: what was seen in another session, or by another, proves nothing.
            self._core = AuditorCore(self._settings.grace_s)
            self._audit_at = self._clock.now()
            self._unmarked.clear()
            await self._tree.begin_recovery_delay(round(self._settings.grace_s))
            self._delay_version = None
            await self._tree.proclaim(self._name)
            self._events.emit("auditor elected", auditor=self._name)
        return vote

    def _step_down(self, reason: str) -> None:
        if self.is_elected:
            self.is_elected = False
            self._events.emit("auditor stepped down", auditor=self._name, reason=reason)

    async def _wait(self) -> None:
        deadlines = [self._audit_at, self._core.wake_at()] if self.is_elected and self._is_enabled else []
        wake_at = min((deadline for deadline in deadlines if deadline is not None), default=None)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wake_at is None else max(wake_at - self._clock.now(), 0.0)):
                await self._changed.wait()

    async def _audit(self) -> None:
        self._is_enabled = await self._tree.is_enabled()
        if not self._is_enabled:
            return
        delay = await self._tree.recovery_delay()
        is_ordered = delay is not None and self._delayed(delay)
        if is_ordered or self._clock.now() >= self._audit_at:
            await self._names.read()
            self._audit_at = self._clock.now() + self._settings.audit_every_s
            self._unmarked.update(dict.fromkeys(self._core.lost))  # repaired by hand, or named by ledgers since
        for action in await self._look(is_ordered=is_ordered):
            if isinstance(action, Lose):
                self._events.emit("bookies lost", bookies=action.bookies)
                self._unmarked.update(dict.fromkeys(action.bookies))
            elif isinstance(action, Hold):
                self._events.emit("audit held back", reason="too many bookies went at once", bookies=action.bookies)
            else:
                self._returned[action.bookie] = None
                self._unmarked.pop(action.bookie, None)
                self._events.emit("bookie back", bookie=action.bookie, absent_s=round(action.absent_s, 1))
        await self._mark(tuple(self._unmarked))
        self._unmarked.clear()
        self._delay_version = None if delay is None else delay.version
        if is_ordered:
            self._events.emit("audit ordered", auditor=self._name, lost=self._core.lost)

    def _delayed(self, delay: Versioned[int]) -> bool:
        """Take over the grace that the metadata says. Returns whether it was written anew with the same number, which
        is an order: audit now."""
        grace_s = float(delay.value) or self._settings.grace_s
        is_same, is_new = grace_s == self._core.grace_s, self._delay_version not in (None, delay.version)
        if self._settings.grace_s:  # 0 is that of a test, or of who knows what a restart costs
            self._core.grace_s = grace_s
        return is_new and is_same

    async def _look(self, *, is_ordered: bool) -> Sequence[Lose | Hold | Return]:
        """Tell the core who is registered now."""
        bookies, all_bookies = await self._registered()
        registered = {*bookies.writable, *bookies.read_only}
        return self._core.looked(self._clock.now(), all_bookies, registered, is_ordered=is_ordered)

    async def _registered(self) -> tuple[RegisteredBookies, list[BookieId]]:
        """Return the registered bookies and all known ones. Raises MetadataUnavailable if that may be old."""
        began = await self._driver.sync()
        bookies, cookies = await self._driver.bookies(), await self._driver.cookies()
        if await self._driver.sync() != began:
            raise MetadataUnavailable("the connection broke while the bookies were listed: it may be old")
        return bookies, sorted({*cookies, *bookies.writable, *bookies.read_only, *self._names.bookies})

    async def _mark(self, lost_bookies: Sequence[BookieId]) -> None:
        if not lost_bookies:
            return
        candidates = await self._names.read(lost_bookies)
        bookies, _ = await self._registered()
        absent = [bookie for bookie in lost_bookies if bookies.find(bookie) is None]
        marked, unreadable = 0, self._names.unreadable
        for at in range(0, len(candidates), AT_ONCE):
            results = await self._mark_those(candidates[at : at + AT_ONCE], absent)
            marked, unreadable = marked + results.count(True), unreadable + results.count(None)
        self._events.emit("ledgers marked", bookies=absent, named=len(candidates), marked=marked, unreadable=unreadable)

    async def _mark_those(self, candidates: Sequence[LedgerId], absent: Sequence[BookieId]) -> list[bool | None]:
        """Mark those that still name an absent bookie in a second look. Returns of each whether it was not marked
        before, None if nobody can read the mark that it has."""
        began = await self._driver.sync()
        missing = await self._names.missing(candidates, absent)
        if await self._driver.sync() != began:
            raise MetadataUnavailable("the connection broke while ledgers were read: they may be old")
        now_ms = self._clock.wall_ms()

        async def mark(ledger: LedgerId, named: Sequence[BookieId]) -> bool | None:
            try:
                return await self._tree.mark(ledger, named, now_ms)
            except (MetadataUnavailable, MetadataRefused):
                raise
            except MetadataError:  # its own: the others are marked all the same
                return None

        return await asyncio.gather(*(mark(ledger, named) for ledger, named in missing.items()))
