"""The elected auditor's look at copies: of each ledger after its close and once a day, of a bookie that is back.

::

    a bookie is back ─▶ the ledgers that name it   ┐
    closed since the last round ─▶ those           ┼─▶ each: CopyCheck ─▶ findings ─▶ replicators
    a day is over ─▶ all, slowly                   ┘

Ids of ledgers ascend, as a rule: what is beyond the highest of the last round is new, and of what was open then it is
looked whether it is closed now. A ledger with an id of somebody's choice waits for the next day. The look at all goes
beside the others, at a pace of its own: appends wait for what bookies do for it. When all were looked at last stands in
the metadata, so that the next auditor does not begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.findings import CopyFault, FindingTree
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.repair.auditor import Auditor
from tallystick.bookkeeper.repair.copy_check import CopyCheck
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.errors import MetadataConflict, MetadataError, MetadataRefused, MetadataUnavailable
from tallystick.runtime.pace import Pace

AT_ONCE = 500  # ledgers whose metadata are read together
MOST_DIGITS = 19  # of a number of milliseconds
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
        paced = Pace(context.clock, settings.bytes_per_s)
        self._new_check = partial(CopyCheck, context, settings, placement=placement, within=paced)
        self._check = self._new_check()
        self._last = _LastAudit(context.driver)
        self._seen: _Seen | None = None  # None before the first round of this auditor
        self._all: _AllSoFar | None = None  # None: all were looked at
        self._returned: dict[BookieId, None] = {}  # whose copies are still to be looked at

    async def run(self) -> None:
        """Look, wait, look; for ever."""
        async with asyncio.TaskGroup() as both:
            # A listing of very many ledgers takes its time: it is seldom under way.
            both.create_task(self._repeat(self._look_at_what_changed, IDLE_SHARE))
            both.create_task(self._repeat(self._look_at_all_if_due, 0))

    async def _repeat(self, look: Callable[[], Awaitable[None]], idle_share: int) -> None:
        while True:
            began_at = self._clock.now()
            try:
                await look()
            except MetadataError as error:
                self._events.emit("audit put off", reason=str(error))
            await asyncio.sleep(max(self._settings.close_check_s, idle_share * (self._clock.now() - began_at)))

    async def _look_at_what_changed(self) -> None:
        if not self._auditor.is_at_work:
            self._seen = None
            return
        self._returned.update(dict.fromkeys(self._auditor.take_returned()))
        if self._returned:
            returned = tuple(self._returned)
            async for _ in self._looks(self._driver.ledgers(), lambda ledger, metadata: True, returned):
                pass
            self._returned.clear()
        before, now = self._seen, _Seen()

        def is_closed_now(ledger: LedgerId, metadata: LedgerMetadata) -> bool:
            now.highest = max(now.highest, ledger)
            if not metadata.is_closed:
                now.open[ledger] = None
            return before is not None and metadata.is_closed

        ledgers = self._driver.ledgers()
        if before is not None:
            now.highest = before.highest
            ledgers = (ledger async for ledger in ledgers if ledger > before.highest or ledger in before.open)
        async for _ in self._looks(ledgers, is_closed_now):
            pass
        self._seen = now  # after a fault all of the round is looked at again

    async def _look_at_all_if_due(self) -> None:
        """After a fault it goes on where it was."""
        if not self._auditor.is_at_work:
            self._all = None
            return
        if self._all is None:
            at_ms, now_ms, every_s = await self._last.read(), self._clock.wall_ms(), self._settings.audit_every_s
            if at_ms is not None and 0 <= now_ms - at_ms < every_s * 1000:
                return
            self._all = _AllSoFar(now_ms, self._new_check(), await self._pace_of_all())
        so_far = self._all
        left = (ledger async for ledger in self._driver.ledgers() if ledger > so_far.highest)
        async for highest, looked in self._looks(left, lambda ledger, metadata: True, so_far=so_far):
            so_far.highest, so_far.looked = highest, so_far.looked + looked
        await self._last.write(so_far.began_ms)
        self._events.emit("copies audited", ledgers=so_far.looked, unknown=so_far.check.unknown)
        self._all = None

    async def _pace_of_all(self) -> Pace:
        """As slow as the settings say, unless a quarter of the time until the next one is due would not do."""
        per_s = self._settings.audit_ledgers_per_s
        if per_s:
            number = 0
            async for _ in self._driver.ledgers():
                number += 1
            per_s = max(per_s, number / (self._settings.audit_every_s / 4))
        return Pace(self._clock, per_s)

    async def _looks(
        self,
        ledgers: AsyncIterator[LedgerId],
        is_chosen: Callable[[LedgerId, LedgerMetadata], bool],
        only: Collection[BookieId] | None = None,
        *,
        so_far: _AllSoFar | None = None,
    ) -> AsyncIterator[tuple[LedgerId, int]]:
        """Look at the ledgers that are chosen by their metadata. Yields the highest id of the next ones that were read,
        and how many of them were looked at."""
        began = await self._driver.sync()
        async for some in _some(ledgers, AT_ONCE):
            chosen = list[tuple[LedgerId, LedgerMetadata]]()
            for ledger, node in (await self._driver.read_ledgers(some)).items():
                try:
                    metadata = wire.decode(node.data, where=f"ledger {ledger}", ctime_ms=node.ctime_ms)
                except MetadataError:
                    continue
                if is_chosen(ledger, metadata):
                    chosen.append((ledger, metadata))
                await asyncio.sleep(0)
            await self._check_those(chosen, only, so_far)
            if not self._auditor.is_at_work or await self._driver.sync() != began:
                raise MetadataUnavailable("another is the auditor, or the connection broke")
            yield some[-1], len(chosen)

    async def _check_those(
        self,
        ledgers: list[tuple[LedgerId, LedgerMetadata]],
        only: Collection[BookieId] | None,
        so_far: _AllSoFar | None,
    ) -> None:
        if not ledgers:
            return
        if len(await self._findings.ledgers()) >= MOST_FINDINGS:
            raise MetadataUnavailable("so many ledgers with findings wait that no more are looked for")
        bookies, waiting = await self._driver.bookies(), iter(ledgers)
        check, count = (self._check, 0) if so_far is None else (so_far.check, self._settings.sample_entries)

        async def work() -> None:
            for ledger, metadata in waiting:
                try:
                    faults = await check.faults(ledger, metadata, bookies, only, samples=count)
                    if faults and await self._is_there(ledger):
                        await self._note(ledger, faults)
                except (MetadataUnavailable, MetadataRefused):
                    for _ in waiting:  # nobody takes another one
                        pass
                    raise
                except MetadataError:  # what its metadata, or a finding of before, says: it hinders no other ledger
                    check.unknown += 1
                if so_far is not None:
                    await so_far.pace.spend(1)

        await asyncio.gather(*(work() for _ in range(max(1, self._settings.ledgers_at_once))))

    async def _note(self, ledger: LedgerId, faults: Sequence[CopyFault]) -> None:
        await self._findings.note(ledger, faults)
        kinds, names = {fault.kind.value for fault in faults}, {fault.bookie for fault in faults}
        self._events.emit("copies at fault", ledger=ledger, kinds=sorted(kinds), bookies=sorted(names))

    async def _is_there(self, ledger: LedgerId) -> bool:
        """Bookies drop what was deleted since its metadata were read: nothing is wrong then."""
        return bool(await self._driver.read_ledgers([ledger]))


@dataclass
class _Seen:
    """What a round saw: the next one looks at what is beyond it, or was open."""

    highest: LedgerId = -1
    open: dict[LedgerId, None] = field(default_factory=dict)


@dataclass
class _AllSoFar:
    """How far a look at all ledgers is."""

    began_ms: int
    check: CopyCheck
    pace: Pace  # ledgers by the second
    highest: LedgerId = -1
    looked: int = 0


async def _some(ledgers: AsyncIterator[LedgerId], size: int) -> AsyncIterator[list[LedgerId]]:
    some = list[LedgerId]()
    async for ledger in ledgers:
        some.append(ledger)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


class _LastAudit:
    """When all ledgers were looked at last: a node of ours, outside of what the original reads."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._path = driver.store, f"/tallystick{driver.root}/audited"

    async def read(self) -> int | None:
        """Returns milliseconds of the wall clock, None if that was never, or nobody can read it."""
        node = await self._store.get(self._path)
        is_time = node is not None and node.data.isdigit() and len(node.data) <= MOST_DIGITS
        return int(node.data) if node is not None and is_time else None

    async def write(self, now_ms: int) -> None:
        node, data = await self._store.get(self._path), b"%d" % now_ms
        with suppress(MetadataConflict):  # another auditor was faster
            await self._store.change(
                Create(self._path, data) if node is None else Update(self._path, data, node.version)
            )
