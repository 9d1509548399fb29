"""Which bookies hold a new fragment (Q2): chosen at random among the writable ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Mapping, Sequence

from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, Ensemble
from tallystick.errors import NotEnoughBookies
from tallystick.runtime.rng import Random

CHANGES_AT_ONCE = 512


def choose(random: Random, writable: Sequence[BookieId], count: int, avoid: Container[BookieId]) -> list[BookieId]:
    """Choose ``count`` different bookies of at least as many, those to avoid only where the others do not suffice."""
    good = [bookie for bookie in writable if bookie not in avoid]
    if len(good) >= count:
        return random.sample(good, count)
    doubtful = [bookie for bookie in writable if bookie in avoid]
    return [*random.sample(good, len(good)), *random.sample(doubtful, count - len(good))]


class Placement:
    """The placement policy of one client. ``quarantine`` has every bookie that failed a write lately; ``changes`` is
    entered for the time of an ensemble change."""

    def __init__(self, directory: BookieDirectory, random: Random, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        # Of one client, when a bookie is lost to thousands of ledgers: what waits together is one commit where the
        # metadata can, and appends wait for as many commits as it takes.
        self.changes = asyncio.Semaphore(CHANGES_AT_ONCE)
        self._directory, self._random = directory, random

    async def new_ensemble(self, size: int, *, never: Collection[BookieId] = ()) -> Ensemble:
        """Choose bookies for a new ledger, none that are in ``never``. Raises NotEnoughBookies, MetadataError."""
        bookies = await self._directory.current()
        writable = [bookie for bookie in bookies.sorted_writable if bookie not in never]
        if len(writable) < size:
            raise NotEnoughBookies(needed=size, available=len(writable), read_only=len(bookies.read_only))
        return tuple(choose(self._random, writable, size, self.quarantine))

    async def without(
        self, failed_bookies: Collection[BookieId], ensemble: Ensemble, *, never: Collection[BookieId] = ()
    ) -> Ensemble:
        """Return the ensemble with other bookies in the places of the failed ones, in as many as there are bookies for.

        Bookies in ``never`` are not taken for that, though they are writable. Raises NotEnoughBookies when there is not
        one, MetadataError.
        """
        places = [slot for slot, bookie in enumerate(ensemble) if bookie in failed_bookies]
        writable, unavailable = (await self._directory.current()).sorted_writable, {*ensemble, *failed_bookies, *never}
        spare = [bookie for bookie in writable if bookie not in unavailable]
        if not spare:
            raise NotEnoughBookies("no other bookie can be had", failed=sorted(failed_bookies), available=len(writable))
        replacements = choose(self._random, spare, min(len(places), len(spare)), self.quarantine)
        new_bookies = list(ensemble)
        for slot, bookie in zip(places, replacements, strict=False):  # those left over keep their bookie
            new_bookies[slot] = bookie
        return tuple(new_bookies)

    async def identities(self, ensemble: Ensemble) -> Mapping[BookieId, Creation | None]:
        """Return the identities of its bookies; call it before the ensemble is stored. Raises MetadataError."""
        return await self._directory.identities(ensemble)
