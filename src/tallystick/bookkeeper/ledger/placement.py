"""Which bookies hold a new fragment (Q2): chosen at random among the writable ones, as the client's policy allows.

Bookies that failed lately come last, before all rules: one that cannot be had helps nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Mapping, Sequence

from tallystick.bookkeeper.ledger import spread
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.disk_weights import Draw, FreeDisks
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.ledger.policies import Policy
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.ledger.spread import Location
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, Slot
from tallystick.errors import NotEnoughBookies
from tallystick.runtime.rng import Random

CHANGES_AT_ONCE = 512


def choose(random: Draw, writable: Sequence[BookieId], count: int, avoid: Container[BookieId]) -> list[BookieId]:
    """Choose ``count`` different bookies of at least as many, those to avoid only where the others do not suffice."""
    good = [bookie for bookie in writable if bookie not in avoid]
    if len(good) >= count:
        return random.sample(good, count)
    doubtful = [bookie for bookie in writable if bookie in avoid]
    return [*random.sample(good, len(good)), *random.sample(doubtful, count - len(good))]


class Placement:
    """The placement of one client. ``quarantine`` has every bookie that failed a write lately; ``changes`` is entered
    for the time of an ensemble change."""

    def __init__(
        self,
        directory: BookieDirectory,
        random: Random,
        quarantine: Quarantine,
        policy: Policy | None = None,
        locations: Locations | None = None,
        disks: FreeDisks | None = None,
    ) -> None:
        self.quarantine = quarantine
        # Of one client, when a bookie is lost to thousands of ledgers: what waits together is one commit where the
        # metadata can, and appends wait for as many commits as it takes.
        self.changes = asyncio.Semaphore(CHANGES_AT_ONCE)
        self._directory, self._random = directory, random
        self._policy, self._locations = policy or Policy(), locations or Locations()
        self._disks = disks

    async def new_ensemble(self, striping: Striping, *, never: Collection[BookieId] = ()) -> Ensemble:
        """Choose bookies for a new ledger, none that are in ``never``. Raises NotEnoughBookies, MetadataError."""
        bookies, size = await self._current(), striping.ensemble_size
        writable = [bookie for bookie in bookies.sorted_writable if bookie not in never]
        if len(writable) < size:
            raise NotEnoughBookies(needed=size, available=len(writable), read_only=len(bookies.read_only))
        return tuple(self._chosen(bookies, writable, [None] * size, striping))

    async def without(
        self,
        failed_bookies: Collection[BookieId],
        ensemble: Ensemble,
        striping: Striping,
        *,
        never: Collection[BookieId] = (),
    ) -> Ensemble:
        """Return the ensemble with other bookies in the places of the failed ones, in as many as there are bookies for.

        Bookies in ``never`` are not taken for that, though they are writable. Raises NotEnoughBookies when there is not
        one, MetadataError.
        """
        bookies = await self._current()
        places = [slot for slot, bookie in enumerate(ensemble) if bookie in failed_bookies]
        writable, unavailable = bookies.sorted_writable, {*ensemble, *failed_bookies, *never}
        spare = [bookie for bookie in writable if bookie not in unavailable]
        if not spare:
            raise NotEnoughBookies("no other bookie can be had", failed=sorted(failed_bookies), available=len(writable))
        new_bookies, replaceable = list(ensemble), places[: len(spare)]  # those left over keep their bookie
        kept: list[BookieId | None] = list(ensemble)
        for place in replaceable:
            kept[place] = None
        chosen = self._chosen(bookies, spare, kept, striping, replaced=ensemble)
        for place, bookie in zip(replaceable, chosen, strict=True):
            new_bookies[place] = bookie
        return tuple(new_bookies)

    async def better(
        self, slot: Slot, ensemble: Ensemble, striping: Striping, *, never: Collection[BookieId] = ()
    ) -> BookieId | None:
        """Return a bookie for the place of one that is too near to others of its entries, with which more places keep
        the policy's rules. Returns None if that place keeps them, or no bookie helps. Raises MetadataError."""
        bookies, quorum = await self._current(), striping.write_quorum
        locations = self._locations.of(bookies, ensemble).by_bookie
        present = [locations[bookie] for bookie in (*bookies.writable, *ensemble)]
        rules = self._policy.demands(present, striping.ack_quorum, replacing=True).lasting
        placed = [locations[bookie] for bookie in ensemble]
        if all(rule(placed, slot, quorum) for rule in rules):
            return None
        try:
            new = await self.without((ensemble[slot],), ensemble, striping, never=never)
        except NotEnoughBookies:
            return None
        moved = [locations[bookie] for bookie in new]
        return new[slot] if spread.kept(moved, rules, quorum) > spread.kept(placed, rules, quorum) else None

    async def _current(self) -> RegisteredBookies:
        bookies = await self._directory.current()
        if not self._policy.is_random:
            await self._locations.refresh(bookies)
        return bookies

    def _chosen(
        self,
        bookies: RegisteredBookies,
        spare: Sequence[BookieId],
        kept: Sequence[BookieId | None],
        striping: Striping,
        *,
        replaced: Ensemble = (),
    ) -> list[BookieId]:
        """Choose spare bookies for the free places. Raises NotEnoughBookies if the policy allows none."""
        draw = self._disks.draw(bookies.sorted_writable) if self._disks is not None else self._random
        first = choose(draw, spare, kept.count(None), self.quarantine)
        locations = self._locations.of(bookies, replaced)
        if self._policy.is_random and not locations.share_machines:
            return first
        return self._spread(draw, first, spare, kept, striping, locations.by_bookie, replaced)

    def _spread(
        self,
        draw: Draw,
        first: Sequence[BookieId],
        spare: Sequence[BookieId],
        kept: Sequence[BookieId | None],
        striping: Striping,
        locations: Mapping[BookieId, Location],
        replaced: Ensemble,
    ) -> list[BookieId]:
        """Return bookies for the free places, in the order of the draw ``first`` where rules do not say otherwise."""
        quorum, demands = (
            striping.write_quorum,
            self._policy.demands(
                [locations[bookie] for bookie in (*spare, *kept) if bookie is not None],
                striping.ack_quorum,
                replacing=bool(replaced),
            ),
        )
        placed = [None if bookie is None else locations[bookie] for bookie in kept]
        if self._policy.is_random and self._keeps(placed, first, locations, quorum, demands.levels[0]):
            return list(first)
        good = [bookie for bookie in spare if bookie not in self.quarantine]
        pools = [good] if len(good) >= len(first) else [[*good, *(b for b in first if b in self.quarantine)]]
        if not demands.is_best_effort:
            pools.append(list(spare))  # rather one that failed than no ensemble
        for pool in pools:
            rest = [bookie for bookie in pool if bookie not in first]
            order = [*(bookie for bookie in first if bookie in pool), *draw.sample(rest, len(rest))]
            candidates = self._candidates(order, kept, locations, replaced)
            for rules in demands.levels:
                chosen = spread.find(placed, candidates, locations, rules, quorum)
                if chosen is not None:
                    return chosen
            if demands.is_best_effort:
                return spread.nearest(placed, candidates, locations, quorum)
        places = {locations[bookie] for bookie in (*spare, *kept) if bookie is not None}
        raise NotEnoughBookies(
            "no bookies that the placement policy allows",
            policy=self._policy.name,
            available=len(spare),
            racks=len({location.rack for location in places}),
            regions=len({location.region for location in places}),
        )

    def _keeps(
        self,
        placed: spread.Placed,
        chosen: Sequence[BookieId],
        locations: Mapping[BookieId, Location],
        write_quorum: int,
        rules: Sequence[spread.Rule],
    ) -> bool:
        rest = iter(chosen)
        whole = [locations[next(rest)] if location is None else location for location in placed]
        return spread.keeps(whole, rules, write_quorum)

    def _candidates(
        self,
        order: Sequence[BookieId],
        kept: Sequence[BookieId | None],
        locations: Mapping[BookieId, Location],
        replaced: Ensemble,
    ) -> list[Sequence[BookieId]]:
        """Return the candidates of each free place: first those of the rack of the bookie that is replaced there."""
        if self._policy.needs_known_rack:
            order = [bookie for bookie in order if locations[bookie].rack != spread.DEFAULT_RACK]
        candidates = list[Sequence[BookieId]]()
        for place, bookie in enumerate(kept):
            if bookie is None and replaced and not self._policy.is_random:
                rack = locations[replaced[place]].rack
                candidates.append(sorted(order, key=lambda other: locations[other].rack != rack))  # now
            elif bookie is None:
                candidates.append(order)
        return candidates

    async def identities(self, ensemble: Ensemble) -> Mapping[BookieId, Creation | None]:
        """Return the identities of its bookies; call it before the ensemble is stored. Raises MetadataError."""
        return await self._directory.identities(ensemble)
