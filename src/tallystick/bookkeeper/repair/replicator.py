"""Repair marked ledgers, and those with findings of ours, some at once, each under the original's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.metadata.lost_entries import LostTree
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.deferrals import Deferrals
from tallystick.bookkeeper.repair.ledger_repair import Deferred, LedgerRepair, Lost, Outcome, Repaired, Tally
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.lost_runs import joined
from tallystick.bookkeeper.wire.underreplication import Mark
from tallystick.bookkeeper.wire.values import MAX_ID, BookieId, EntryId, LedgerId
from tallystick.errors import MetadataError, NoSuchLedger, TallyError, UsageError
from tallystick.runtime.pace import Pace

RETRY_S = 1.0  # after the metadata service did not answer
LEAST_WAIT_S = 0.1  # between two rounds, unless something changed
MOST_LOOKED_AT = 10_000  # marks of one round, and findings


class Replicator:
    """One worker. ``run`` it until it is cancelled; its locks end with ``client``'s session."""

    def __init__(
        self, client: LedgerClient, name: str, settings: RepairSettings, *, within: Pace | None = None
    ) -> None:
        context = client.context
        self._context, self._placement, self._name, self._settings = context, client.placement, name, settings
        self._clock, self._events, self._random = context.clock, context.events, context.random
        self._tree = Underreplication(context.driver)
        self._lost, self._findings = LostTree(context.driver), FindingTree(context.driver)
        self._pace = Pace(context.clock, settings.bytes_per_s, within=within)
        self._deferrals = Deferrals(settings.retry_s, settings.max_retry_s)
        self._changed = asyncio.Event()
        self._is_enabled = False
        self._after: LedgerId = -1  # the ledgers behind it are those of the next round

    @property
    def waiting(self) -> int:
        """How many ledgers could not be repaired yet."""
        return len(self._deferrals)

    async def run(self) -> None:
        """Take marks in hand, for ever."""
        watches = [watch(self._changed.set) for watch in (self._tree.watch_marks, self._tree.watch_switches)]
        watches += [self._context.driver.watch_bookies(self._changed.set), self._findings.watch(self._changed.set)]
        try:
            while True:
                try:
                    self._changed.clear()
                    await self._tree.prepare()
                    self._is_enabled = await self._tree.is_enabled()
                    if self._is_enabled:
                        await self._round()
                except MetadataError as error:
                    self._events.emit("repair put off", reason=str(error))
                    await asyncio.sleep(RETRY_S)
                await self._wait()
        finally:
            for watching in watches:
                watching.cancel()

    async def _wait(self) -> None:
        wait_s, due_at = self._settings.poll_s, self._deferrals.wake_at()
        if due_at is not None and self._is_enabled:
            wait_s = min(wait_s, max(due_at - self._clock.now(), LEAST_WAIT_S))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def _round(self) -> None:
        """Take in hand what is marked and due, in random order: so several workers seldom want the same."""
        marked = await self._next_marked()
        due = [ledger for ledger in marked if self._deferrals.is_due(ledger, self._clock.now())]
        waiting = iter(self._random.sample(due, len(due)))

        async def work() -> None:
            for ledger in waiting:
                if not await self._tree.is_enabled():
                    return
                await self._take(ledger)

        await asyncio.gather(*(work() for _ in range(min(self._settings.ledgers_at_once, len(due)))))

    async def _next_marked(self) -> list[LedgerId]:
        """Return the next ledgers that are marked, or have findings: those that wait keep none from its turn."""
        marked, after = list[LedgerId](), self._after
        async for ledger in self._tree.marks(after):
            marked.append(ledger)
            if len(marked) == MOST_LOOKED_AT:
                break
        findings = [ledger for ledger in await self._findings.ledgers() if ledger > after][:MOST_LOOKED_AT]
        ends = [some[-1] for some in (marked, findings) if len(some) == MOST_LOOKED_AT]
        upto = min(ends, default=MAX_ID)
        ledgers = dict.fromkeys(ledger for ledger in (*marked, *findings) if ledger <= upto)
        self._deferrals.keep(ledgers, after, upto)
        self._after = upto if ends else -1
        return list(ledgers)

    async def _take(self, ledger: LedgerId) -> None:
        """Repair one ledger, unless another worker has it in hand. What the metadata does not tell of it now, or has
        damaged, hinders no other ledger."""
        try:
            if not await self._tree.lock(ledger, self._name):
                self._deferrals.postpone(ledger, self._clock.now() + self._settings.poll_s)
                return
            try:
                await self._context.driver.sync()
                marked, findings = await self._tree.read_mark(ledger), await self._findings.read(ledger)
                if marked is not None or findings is not None:
                    await self._repair(ledger, marked, findings)
            finally:
                await self._tree.unlock(ledger)
        except MetadataError as error:
            self._defer(ledger, Deferred(str(error)))

    def _defer(self, ledger: LedgerId, outcome: Deferred | Lost) -> None:
        if isinstance(outcome, Lost):
            reason = "no bookie that answers has a good copy of entries " + shortfall.text_of(outcome.entries)
            wait_s: float | None = self._settings.max_retry_s
        else:
            reason, wait_s = outcome.reason, outcome.wait_s
        if self._deferrals.defer(ledger, self._clock.now(), wait_s, reason):
            self._events.emit("ledger not repaired", ledger=ledger, reason=reason)

    async def repair_now(
        self, ledger: LedgerId, bookies: tuple[BookieId, ...] = (), *, leaving: tuple[BookieId, ...] = ()
    ) -> Outcome:
        """Look at these bookies of one ledger, marked or not (at all, if none is named), and make good what they lack.
        What those that are ``leaving`` have others get.

        Raises UsageError while another worker has it in hand, NoSuchLedger, and what a repair raises.
        """
        await self._context.driver.read_ledger(ledger)  # before a lock of what is not there
        await self._tree.prepare()
        if not await self._tree.lock(ledger, self._name):
            raise UsageError("another worker has this ledger in hand; see: tally autorecovery status", ledger=ledger)
        try:
            marked, findings = await self._tree.read_mark(ledger), await self._findings.read(ledger)
            outcome = await self._outcome(ledger, bookies, {}, Tally(), leaving)
            # What is marked of others than these was not looked at.
            seen = not bookies or (marked is not None and set(marked.value.bookies) <= set(bookies))
            if isinstance(outcome, Repaired) and not bookies:
                await self._lost.forget(ledger)
            if isinstance(outcome, Repaired) and marked is not None and seen:
                await self._tree.unmark(ledger, marked.version)
            if isinstance(outcome, Repaired) and findings is not None and not bookies:
                await self._findings.drop(ledger, findings.version)
            return outcome
        finally:
            await self._tree.unlock(ledger)

    async def _repair(
        self,
        ledger: LedgerId,
        marked: Versioned[Mark] | None,
        findings: Versioned[tuple[CopyFault, ...]] | None,
    ) -> None:
        """Make good what is said of a ledger, and take it away as it was said when the lock was taken: every entry of
        it was read then."""
        tally, faults, absent = Tally(), list[CopyFault](), list[CopyFault]()
        if findings is not None:
            faults, absent = await self._present(ledger, findings.value)
        if marked is None and absent and not faults:
            return self._defer(ledger, Deferred("no bookie of its findings is registered"))
        bookies = None if marked is None else marked.value.bookies
        named = () if bookies == () else (*(bookies or ()), *(fault.bookie for fault in faults))
        whole = [*(bookies or ()), *(fault.bookie for fault in faults if not fault.runs)]
        runs = {} if bookies == () else _runs_of([fault for fault in faults if fault.bookie not in whole])
        outcome: Outcome = Repaired()
        try:
            if marked is not None or faults:
                misplaced = tuple(fault.bookie for fault in faults if fault.kind is FaultKind.MISPLACED)
                outcome = await self._outcome(ledger, tuple(dict.fromkeys(named)), runs, tally, misplaced=misplaced)
        except MetadataError:
            raise
        except TallyError as error:  # a bookie, or the recovery: another time
            outcome = Deferred(str(error))
        if isinstance(outcome, Repaired):
            await self._lost.forget(ledger)
            if marked is not None:
                await self._tree.unmark(ledger, marked.version)
            if findings is not None and not absent:
                await self._findings.drop(ledger, findings.version)
            self._events.emit(
                "ledger repaired",
                ledger=ledger,
                deleted=outcome.is_deleted,
                entries=tally.entries,
                bytes=tally.bytes,
                mended=tally.mended,
                recovered=tally.recovered,
            )
            return
        if isinstance(outcome, Lost):
            await self._lost.note(ledger, outcome.entries, outcome.bookie, self._clock.wall_ms())
        self._defer(ledger, outcome)

    async def _present(self, ledger: LedgerId, faults: Sequence[CopyFault]) -> tuple[list[CopyFault], list[CopyFault]]:
        """Return the faults of registered bookies, and those of others that the ledger names: whether these are lost is
        the auditor's to say, after its grace."""
        bookies, named = await self._context.driver.bookies(), list[BookieId]()
        with suppress(NoSuchLedger):
            metadata = (await self._context.driver.read_ledger(ledger)).value
            named = shortfall.names(metadata, [fault.bookie for fault in faults])
        present = [fault for fault in faults if bookies.find(fault.bookie) is not None]
        return present, [fault for fault in faults if fault not in present and fault.bookie in named]

    async def _outcome(
        self,
        ledger: LedgerId,
        bookies: tuple[BookieId, ...],
        runs: Mapping[BookieId, Sequence[tuple[EntryId, EntryId]]],
        tally: Tally,
        leaving: tuple[BookieId, ...] = (),
        misplaced: tuple[BookieId, ...] = (),
    ) -> Outcome:
        still_s = {}
        with suppress(NoSuchLedger):
            version = (await self._context.driver.read_ledger(ledger)).version
            still_s[version] = self._deferrals.seen(ledger, version, self._clock.now())
        repair = LedgerRepair(
            self._context,
            self._placement,
            self._settings,
            self._pace,
            ledger,
            bookies,
            tally,
            partial(self._tree.holds, ledger),
            leaving=leaving,
            runs=runs,
            misplaced=misplaced,
        )
        return await repair.run(still_s)


def _runs_of(faults: Sequence[CopyFault]) -> dict[BookieId, list[tuple[EntryId, EntryId]]]:
    """Return the entries of the faults, by bookie, each once."""
    entries_by_bookie = dict[BookieId, list[tuple[EntryId, EntryId]]]()
    for fault in faults:
        entries_by_bookie.setdefault(fault.bookie, []).extend(fault.runs)
    return {bookie: list(joined(runs)) for bookie, runs in entries_by_bookie.items()}
