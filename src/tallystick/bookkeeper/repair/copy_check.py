"""Whether the bookies of one ledger have what is placed on them: by their entry lists, and by reads of samples.

A bookie that gives no list, and one that does not answer, is read instead, under the bound of bytes. What nobody says
is unknown, and never missing (Q15). Nothing is repaired here: what is wrong is a finding (``findings.py``), and is read
again before anything is done about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.findings import MOST_RUNS, CopyFault, FaultKind
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.copying import Copying
from tallystick.bookkeeper.repair.ledger_repair import better_places
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import Place, Runs
from tallystick.bookkeeper.wire.entry_list import EntryList
from tallystick.bookkeeper.wire.lost_runs import lost_of, without_lost
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import NoSuchLedger, TallyError
from tallystick.runtime.pace import Pace


class CopyCheck:
    """Looks at one ledger after the other; ``unknown`` counts the places that nobody could say anything of."""

    def __init__(
        self,
        context: LedgerContext,
        settings: RepairSettings,
        *,
        placement: Placement | None = None,
        within: Pace | None = None,
    ) -> None:
        """``placement``: by which copies should lie apart; none: they lie where they do. ``within`` is the pace of all
        that the process fetches for repair."""
        self._context, self._settings, self._placement = context, settings, placement
        self._pace = Pace(context.clock, settings.bytes_per_s, within=within)
        self.unknown = 0

    async def faults(
        self,
        ledger: LedgerId,
        metadata: LedgerMetadata,
        bookies: RegisteredBookies,
        only: Collection[BookieId] | None = None,
        *,
        samples: int = 0,
    ) -> list[CopyFault]:
        """Return what is wrong with copies on registered bookies, on these alone or on all. ``samples``: so many
        entries of each place are read, and their digests checked."""
        now_ms = self._context.clock.wall_ms()
        faults = list[CopyFault]()
        for place in shortfall.doubles(metadata, dict.fromkeys(only or _named(metadata))):
            faults.append(CopyFault(FaultKind.DOUBLE, place.bookie, (), now_ms))
        if self._placement is not None:
            near = [place.bookie for place, _ in await better_places(self._placement, metadata, bookies, only)]
            faults += [CopyFault(FaultKind.MISPLACED, bookie, (), now_ms) for bookie in dict.fromkeys(near)]
        copying = Copying(self._context.bookies, ledger, metadata, self._settings, self._pace)
        by_bookie = dict[BookieId, list[Place]]()
        for place in shortfall.places(metadata, only):
            if bookies.find(place.bookie) is not None and place.first <= place.last:
                by_bookie.setdefault(place.bookie, []).append(place)
        for bookie, places in by_bookie.items():
            missing, damaged = await self._look(ledger, metadata, copying, bookie, places, samples)
            for kind, runs in ((FaultKind.MISSING, missing), (FaultKind.DAMAGED, damaged)):
                if runs:  # of very many the whole stripe is looked at
                    faults.append(CopyFault(kind, bookie, () if runs.is_cut else runs.all(), now_ms))
        return faults

    async def _look(
        self,
        ledger: LedgerId,
        metadata: LedgerMetadata,
        copying: Copying,
        bookie: BookieId,
        places: Sequence[Place],
        samples: int,
    ) -> tuple[Runs, Runs]:
        """Return the entries that a bookie says it lacks, and those of which it has a bad copy."""
        if self._context.bookies.is_silent(bookie):
            self.unknown += 1
            return Runs(MOST_RUNS), Runs(MOST_RUNS)
        try:
            listed: EntryList | None = await self._context.bookies.entry_list(bookie, ledger)
        except NoSuchLedger:
            listed = None
        except TallyError:  # it has no lists, knows nothing now, or does not answer
            return await self._read(metadata, copying, bookie, places), Runs(MOST_RUNS)
        missing, damaged = Runs(MOST_RUNS), Runs(MOST_RUNS)
        for place in places:
            for entries in shortfall.stripe(metadata, place):
                missing.add([entry for entry in entries if listed is None or entry not in listed])
                await asyncio.sleep(0)
            if samples and listed is not None:
                sample = [entry for entry in self._sample(metadata, place, samples) if entry in listed]
                read = await copying.read(sample, lambda entry: [bookie])
                await self._pace.spend(read.bytes)
                damaged.add(read.missing)
        return missing, damaged

    def _sample(self, metadata: LedgerMetadata, place: Place, size: int) -> Sequence[EntryId]:
        """Return so many entries of a place, ascending; those that were given up are left out."""
        striping = Striping.of(metadata)
        count = striping.count(place.slot, place.first, place.last)
        indices = sorted(self._context.random.sample(range(count), min(size, count)))
        entries = [striping.entry(place.slot, place.first, index) for index in indices]
        return without_lost(entries, lost_of(metadata.custom))

    async def _read(
        self, metadata: LedgerMetadata, copying: Copying, bookie: BookieId, places: Sequence[Place]
    ) -> Runs:
        """Read all that is placed on a bookie. Returns the entries that it lacks, or has damaged; it is asked for no
        more once it does not say."""
        missing = Runs(MOST_RUNS)
        for place in places:
            async for entries in copying.batches(shortfall.stripe(metadata, place)):
                read = await copying.read(entries, lambda entry: [bookie])
                await self._pace.spend(read.bytes)
                missing.add(read.missing)
                if read.unknown:
                    self.unknown += 1
                    return missing
        return missing


def _named(metadata: LedgerMetadata) -> list[BookieId]:
    return [bookie for fragment in metadata.fragments for bookie in fragment.bookies]
