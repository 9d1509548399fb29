"""The elected auditor's look at copies: of each ledger after its close and once a day, of a bookie that is back.

::

    a bookie is back ─▶ the ledgers that name it      closed since the last round ─▶ those      a day is over ─▶ all
                                       each: CopyCheck ─▶ findings ─▶ replicators

Ids of ledgers ascend, as a rule: what is beyond the highest of the last round is new, and of what was open then it is
looked whether it is closed now. A ledger with an id of somebody's choice waits for the next day. When all were looked
at last stands in the metadata, so that the next auditor does not begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.findings import FindingTree
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.repair.auditor import Auditor
from tallystick.bookkeeper.repair.copy_check import CopyCheck
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.errors import MetadataConflict, MetadataError, MetadataUnavailable

AT_ONCE = 500  # ledgers whose metadata are read together
IDLE_SHARE = 10  # a round is followed by ten times as long without one
MOST_FINDINGS = 10_000  # ledgers that wait with findings: nothing more is looked for


class CopyAudit:
    """Works while its auditor is the elected one. ``run`` it until it is cancelled."""

    def __init__(
        self, context: LedgerContext, placement: Placement, auditor: Auditor, settings: RepairSettings
    ) -> None:
        self._context, self._auditor, self._settings = context, auditor, settings
        self._driver, self._events, self._clock = context.driver, context.events, context.clock
        self._findings = FindingTree(context.driver)
        self._check = CopyCheck(context, settings, placement=placement)
        self._last = _LastAudit(context.driver)
        self._highest: LedgerId | None = None  # of the last round; None before the first of this auditor
        self._open: dict[LedgerId, None] = {}  # what was open then
        self._returned: dict[BookieId, None] = {}  # whose copies are still to be looked at

    async def run(self) -> None:
        """Look, wait, look; for ever."""
        while True:
            began_at = self._clock.now()
            try:
                if not self._auditor.is_at_work:
                    self._highest = None
                else:
                    await self._round()
            except MetadataError as error:
                self._events.emit("audit put off", reason=str(error))
            # A listing of very many ledgers takes its time: it is seldom under way.
            await asyncio.sleep(max(self._settings.close_check_s, IDLE_SHARE * (self._clock.now() - began_at)))

    async def _round(self) -> None:
        self._returned.update(dict.fromkeys(self._auditor.take_returned()))
        if self._returned:
            await self._look(lambda ledger: True, lambda ledger, metadata: True, tuple(self._returned))
            self._returned.clear()
        at_ms, now_ms = await self._last.read(), self._clock.wall_ms()
        is_due = at_ms is None or now_ms - at_ms >= self._settings.audit_every_s * 1000 or now_ms < at_ms
        is_first, highest, open_ones = self._highest is None, self._highest, self._open
        self._open = {}

        def is_new(ledger: LedgerId, metadata: LedgerMetadata) -> bool:
            if not metadata.is_closed:
                self._open[ledger] = None
            self._highest = ledger if self._highest is None else max(self._highest, ledger)
            return is_due or (not is_first and metadata.is_closed)

        def may_be_new(ledger: LedgerId) -> bool:
            return is_due or highest is None or ledger > highest or ledger in open_ones

        if is_first:
            self._highest = -1
        looked = await self._look(may_be_new, is_new, None, samples=is_due)
        if is_due:
            await self._last.write(now_ms)
            self._events.emit("copies audited", ledgers=looked, unknown=self._check.unknown)
            self._check.unknown = 0

    async def _look(
        self,
        is_candidate: Callable[[LedgerId], bool],
        is_chosen: Callable[[LedgerId, LedgerMetadata], bool],
        only: Collection[BookieId] | None,
        *,
        samples: bool = False,
    ) -> int:
        """Look at the ledgers that are chosen by their ids, and then by their metadata. Returns their number."""
        began, looked = await self._driver.sync(), 0
        ledgers = [ledger async for ledger in self._driver.ledgers() if is_candidate(ledger)]
        for at in range(0, len(ledgers), AT_ONCE):
            chosen = list[tuple[LedgerId, LedgerMetadata]]()
            for ledger, node in (await self._driver.read_ledgers(ledgers[at : at + AT_ONCE])).items():
                try:
                    metadata = wire.decode(node.data, where=f"ledger {ledger}", ctime_ms=node.ctime_ms)
                except MetadataError:
                    continue
                if is_chosen(ledger, metadata):
                    chosen.append((ledger, metadata))
                await asyncio.sleep(0)
            looked += len(chosen)
            await self._check_those(chosen, only, samples)
            if not self._auditor.is_at_work or await self._driver.sync() != began:
                raise MetadataUnavailable("another is the auditor, or the connection broke")
        return looked

    async def _check_those(
        self, ledgers: list[tuple[LedgerId, LedgerMetadata]], only: Collection[BookieId] | None, samples: bool
    ) -> None:
        if not ledgers:
            return
        if len(await self._findings.ledgers()) >= MOST_FINDINGS:
            raise MetadataUnavailable("so many ledgers with findings wait that no more are looked for")
        bookies, waiting = await self._driver.bookies(), iter(ledgers)
        count = self._settings.sample_entries if samples else 0

        async def work() -> None:
            for ledger, metadata in waiting:
                faults = await self._check.faults(ledger, metadata, bookies, only, samples=count)
                if faults:
                    await self._findings.note(ledger, faults)
                    kinds = sorted({fault.kind.value for fault in faults})
                    names = sorted({fault.bookie for fault in faults})
                    self._events.emit("copies at fault", ledger=ledger, kinds=kinds, bookies=names)

        await asyncio.gather(*(work() for _ in range(max(1, self._settings.ledgers_at_once))))


class _LastAudit:
    """When all ledgers were looked at last: a node of ours, outside of what the original reads."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._path = driver.store, f"/tallystick{driver.root}/audited"

    async def read(self) -> int | None:
        """Returns milliseconds of the wall clock, None if that was never, or nobody can read it."""
        node = await self._store.get(self._path)
        return int(node.data) if node is not None and node.data.isdigit() else None

    async def write(self, now_ms: int) -> None:
        node, data = await self._store.get(self._path), b"%d" % now_ms
        with suppress(MetadataConflict):  # another auditor was faster
            await self._store.change(
                Create(self._path, data) if node is None else Update(self._path, data, node.version)
            )
