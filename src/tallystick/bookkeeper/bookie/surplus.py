"""The copies of a bookie that nobody needs: of CLOSED ledgers that name other bookies in its place now.

A bookie that was away for long comes back with what others have meanwhile::

    round ─► every ledger with entries here, by synced metadata ─► so many at once? they wait (``garbage.py``)
                  a gap later, some at a time: shed (``repair/surplus.py``) ─► drop

Only entries go. Key, fence and creation stay: a writer that outlived the ledger is refused as before, also while nobody
can look at the metadata, and who copies entries here again is let in, which a deleted ledger would refuse. Nothing of a
ledger is dropped that was added to since it was proven a surplus: that is in memory until a checkpoint, and may be a
copy that the metadata names. (The original deletes without a look at who should have the entries.)
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tallystick.bookkeeper.bookie.collection_orders import Order
from tallystick.bookkeeper.bookie.garbage import GarbageRules
from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions, WaitingFile
from tallystick.bookkeeper.metadata.store import Creation, Znode
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.lost_runs import lost_of
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, LedgerId, LedgerMetadata
from tallystick.codec.steps import Steps
from tallystick.errors import CorruptRecord, DiskFull, MetadataError, StorageError
from tallystick.runtime.turn_steps import in_turns

SURPLUS_FILE = "waiting-surplus"
FIRST_ROUND_S = 3600.0  # after the start
WAITING_ROUND_S = 3600.0  # while some wait: the file keeps what has passed
PAGE_LEDGERS = 512  # whose metadata is read together
SHED_LEDGERS = 64  # that are locked together
SHOWN_LEDGERS = 10  # in an event
_PART = 16  # ledgers whose metadata is decoded in one turn


def surplus_metadata(
    ledger: LedgerId, node: Znode | None, bookie: BookieId, identity: LedgerIdentity | None
) -> LedgerMetadata | None:
    """Return the metadata of a ledger of which a bookie needs nothing; None if it may need anything.

    It needs nothing of a CLOSED ledger that names it nowhere, if this is the ledger which is stored here. Of one with
    lost entries its copies may be the last.
    """
    if node is None or identity is None or identity.deleted or identity.creation == UNKNOWN:
        return None
    try:
        metadata = wire.decode(node.data, where=f"ledger {ledger}", ctime_ms=node.ctime_ms)
        has_lost = bool(lost_of(metadata.custom))
    except MetadataError:
        return None
    is_named = any(bookie in fragment.bookies for fragment in metadata.fragments)
    is_surplus = metadata.is_closed and not is_named and identity.creation == node.creation
    return metadata if is_surplus and not has_lost else None


class SurplusCore:
    """Decide what is dropped of what was found: all, but that very much at once waits."""

    def __init__(self, rules: GarbageRules, waiting: WaitingDeletions) -> None:
        self._rules, self.waiting = rules, waiting
        self._found_at: float | None = None  # when this process last found any

    def found(
        self, surplus: Sequence[LedgerId], stored: int, now: float, *, override: bool = False
    ) -> Steps[tuple[LedgerId, ...]]:
        """Take the surplus of a round, ascending, of so many ``stored`` ledgers with entries. Returns what need not
        wait."""
        elapsed_s = 0.0 if self._found_at is None else now - self._found_at
        self._found_at, rules = now, self._rules
        if override or len(surplus) <= rules.large_count or len(surplus) <= rules.large_share * stored:
            self.waiting.groups = []
            return tuple(surplus)
        ledgers = array("q", surplus)
        yield from self.waiting.proven(ledgers, elapsed_s)
        self.waiting.drop_due(rules.patience_s)
        return (yield from self.waiting.without(ledgers))

    @property
    def waits_s(self) -> float:
        """How long it is until the first of those that wait may go."""
        return max(0.0, self._rules.patience_s - self.waiting.longest_s)


class SurplusCopies(OwnCopies):
    """What is stored of ledgers that name others, and what drops it; ``rounds`` is an endless task."""

    def begin(
        self,
        rules: GarbageRules,
        wait_s: float,
        file: WaitingFile,
        *,
        drop: Callable[[Callable[[], Iterable[LedgerId]]], Awaitable[Sequence[LedgerId]]],
        save: Callable[[], Awaitable[None]],
        report: Callable[[int], None],
    ) -> None:
        """Call this first. ``drop`` drops the entries of ledgers, ``save`` moves all that is in memory to the disk,
        ``report`` hears how many ledgers wait."""
        self._rules, self._wait_s, self._file = rules, wait_s, file
        self._drop, self._save, self._report = drop, save, report
        self._order, self._has_order = Order.SOON, asyncio.Event()
        self._core = SurplusCore(rules, self._waiting())
        file.begin(self._core.waiting)

    def _waiting(self) -> WaitingDeletions:
        try:
            waiting = self._file.read()
        except CorruptRecord as error:
            self.outside.events.emit("wait of large deletions begins anew", reason=str(error))
            waiting = None
        return waiting if waiting is not None and waiting.instance == self.instance else WaitingDeletions(self.instance)

    def ordered(self, order: Order) -> None:
        """An operator ordered a collection: there is a round soon, and with NOW nothing waits."""
        self._order = Order.NOW if Order.NOW in (order, self._order) else order
        self._has_order.set()

    async def rounds(self, shed: Shed) -> None:
        """Look and drop, for ever."""
        pause_s = min(self._wait_s, FIRST_ROUND_S)
        while True:
            is_override = await self._next(pause_s) is Order.NOW
            try:
                await self.round(shed, override=is_override)
            except (MetadataError, DiskFull) as error:
                self.outside.events.emit("surplus copies not looked for", reason=str(error))
            pause_s = min(self._wait_s, WAITING_ROUND_S) if self._core.waiting.count else self._wait_s

    async def _next(self, pause_s: float) -> Order | None:
        try:
            async with asyncio.timeout(pause_s):
                await self._has_order.wait()
        except TimeoutError:
            return None
        order, self._order = self._order, Order.SOON
        self._has_order.clear()
        return order

    async def round(self, shed: Shed, *, override: bool = False) -> int:
        """Do one round. Returns of how many ledgers the entries were dropped. Raises MetadataError, DiskFull."""
        stored = sorted(ledger for ledger in self._storage.ledger_ids() if self._has_entries(ledger))
        surplus = await self._first_look(stored)
        now = self.outside.clock.now()
        ledgers = await in_turns(self._core.found(surplus, len(stored), now, override=override))
        await self._keep()
        dropped, counts = list[LedgerId](), self.counts
        if ledgers:
            await self._save()
            await asyncio.sleep(self._rules.gap_s)
            for at in range(0, len(ledgers), SHED_LEDGERS):
                dropped += await shed(self, ledgers[at : at + SHED_LEDGERS])
        counts.surplus_rounds += 1
        counts.surplus_ledgers = len(surplus) - len(dropped)
        return len(dropped)

    def _has_entries(self, ledger: LedgerId) -> bool:
        return self._storage.last_entry(ledger) != NO_ENTRY and ledger not in self._storage.limbo

    async def _first_look(self, stored: Sequence[LedgerId]) -> list[LedgerId]:
        surplus = list[LedgerId]()
        for at in range(0, len(stored), PAGE_LEDGERS):
            nodes = await self.metadata(stored[at : at + PAGE_LEDGERS])
            for count, (ledger, node) in enumerate(nodes.items(), 1):
                if self.needless(ledger, node) is not None:
                    surplus.append(ledger)
                if not count % _PART:
                    await asyncio.sleep(0)
        return surplus

    def needless(self, ledger: LedgerId, node: Znode | None) -> LedgerMetadata | None:
        """Return the metadata of a ledger of which this bookie stores entries that it does not need, else None."""
        if not self._has_entries(ledger):
            return None
        return surplus_metadata(ledger, node, self.bookie, self._storage.identities.identity(ledger))

    async def _keep(self) -> None:
        """Save what waits, and say so."""
        waiting = self._core.waiting
        try:
            await self._worker.run(lambda: self._file.write(waiting))
        except StorageError as error:  # the wait is longer after a restart, no less safe
            self.outside.events.emit("wait of a large deletion not saved", reason=str(error))
        if waiting.count != self.counts.surplus_waiting:
            self.counts.surplus_waiting = waiting.count
            self._report(waiting.count)
        if waiting.count:
            reason = "so many at once name others; if that is right: tally bookie collect --now"
            hours = round(self._core.waits_s / 3600, 1)
            self.outside.events.emit("surplus copies wait", count=waiting.count, hours=hours, reason=reason)

    async def fence(self, ledgers: Iterable[LedgerId]) -> None:
        """Fence ledgers, durably: no entry of a dropped one is what a writer is refused by."""
        for ledger in ledgers:
            self._storage.close_to_writers(ledger)
        await self._synced()

    async def drop(self, creations: Mapping[LedgerId, Creation], checkpoints: int) -> Sequence[LedgerId]:
        """Drop the entries of these ledgers, which ``fence`` had, and whose locks are held since before the metadata
        named this bookie nowhere. Returns whose entries are gone.

        ``checkpoints`` is how many there had been (``counts``) before it was seen that the locks are held still: since
        then what came is in memory, and stays.
        """

        def candidates() -> Iterator[LedgerId]:
            for ledger, creation in creations.items():
                identity = self._storage.identities.identity(ledger)
                if identity is None or identity.creation != creation or not self._has_entries(ledger):
                    continue
                if self.counts.checkpoints == checkpoints:
                    yield ledger

        dropped = await self._drop(candidates)
        self._storage.damages.forget(dropped)
        self.counts.surplus_dropped += len(dropped)
        if dropped:
            shown, reason = dropped[:SHOWN_LEDGERS], "others have all their entries, and they name this bookie nowhere"
            self.outside.events.emit("surplus copies dropped", count=len(dropped), ledgers=shown, reason=reason)
        return dropped


Shed = Callable[[SurplusCopies, Sequence[LedgerId]], Coroutine[Any, Any, Sequence[LedgerId]]]  # returns what it dropped
