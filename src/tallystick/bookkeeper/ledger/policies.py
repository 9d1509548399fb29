"""The placement policies (Q2): which rules an ensemble keeps, and which of them are given up where no bookies do.

================  =====================================================================================================
``random``        any bookies (``DefaultEnsemblePlacementPolicy``)
``rack-aware``    each from another rack than those it shares entries with; else ``min_racks`` in each write set, and
                  only with ``enforce_min_racks`` is there no ensemble without them; with fewer than two racks as
                  ``random`` (``RackawareEnsemblePlacementPolicy``)
``region-aware``  spread evenly over the regions, and over racks in them; any ack quorum has ``min_regions``, and there
                  is no new ensemble without; a bookie is replaced all the same (``RegionAwareEnsemblePlacementPolicy``)
================  =====================================================================================================

Above all of them: no two copies of an entry on one machine where another can be had.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.spread import (
    Location,
    Rule,
    machines_apart,
    racks_apart,
    racks_in_each,
    regions_acknowledge,
    regions_even,
)

POLICIES = ("random", "rack-aware", "region-aware")


@dataclass(frozen=True)
class Demands:
    """Sets of rules, the best first. ``is_best_effort``: where none of them can be kept, any ensemble will do.
    ``lasting``: what copies are moved for when bookies that allow it have come."""

    levels: Sequence[Sequence[Rule]]
    is_best_effort: bool
    lasting: Sequence[Rule]


@dataclass(frozen=True)
class Policy:
    """A policy and its settings, which are those of the client."""

    name: str = "random"
    min_racks: int = 2
    enforce_min_racks: bool = False
    min_regions: int = 2

    @property
    def is_random(self) -> bool:
        return self.name == "random"

    @property
    def needs_known_rack(self) -> bool:
        """Whether bookies of the default rack are left out: nobody knows which rack theirs is."""
        return not self.is_random and self.enforce_min_racks

    def demands(self, locations: Collection[Location], ack_quorum: int, *, replacing: bool = False) -> Demands:
        """Return what ensembles of bookies at these locations are to keep."""
        if self.name == "region-aware":
            return self._of_regions(len({location.region for location in locations}), ack_quorum, replacing)
        if self.is_random or (len({location.rack for location in locations}) < 2 and not self.enforce_min_racks):
            return Demands([[machines_apart]], is_best_effort=True, lasting=[machines_apart])
        enough = racks_in_each(self.min_racks)
        levels: list[list[Rule]] = [[machines_apart, enough, racks_apart], [machines_apart, enough]]
        levels.append([enough] if self.enforce_min_racks else [machines_apart])
        return Demands(levels, is_best_effort=not self.enforce_min_racks, lasting=levels[1])

    def _of_regions(self, count: int, ack_quorum: int, replacing: bool) -> Demands:
        durable, racks = regions_acknowledge(self.min_regions, ack_quorum), racks_in_each(self.min_racks)
        even = regions_even(max(count, 1))
        lasting: list[Rule] = [machines_apart, durable, racks]
        levels: list[list[Rule]] = [
            [machines_apart, durable, even, racks_apart],
            [machines_apart, durable, even, racks],
            lasting,
            [durable, racks],
        ]
        if not self.enforce_min_racks:
            levels[3:] = [[machines_apart, durable], [durable]]
            if replacing:
                levels.append([machines_apart])
        return Demands(levels, is_best_effort=replacing and not self.enforce_min_racks, lasting=lasting)
