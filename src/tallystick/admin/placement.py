"""Whether the copies of a ledger's entries lie apart, fragment by fragment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.ledger.spread import Location
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerMetadata

MIN_RACKS = 2


@dataclass(frozen=True)
class FragmentPlacement:
    """Where a fragment lies. ``machines_each``, ``racks_each``: how many its entries have at least; it obeys if those
    are as many as the cluster can give a write quorum, of racks two at most. Of ``gone`` bookies, which are not
    registered, the location is guessed from their ids."""

    first: EntryId
    obeys: bool
    machines_each: int
    racks_each: int
    bookies: Mapping[BookieId, Location]
    gone: tuple[BookieId, ...] = ()

    def __str__(self) -> str:
        machines = f"{self.machines_each} machine{'s' if self.machines_each != 1 else ''}"
        racks = f"{self.racks_each} rack{'s' if self.racks_each != 1 else ''}"
        text = (
            f"from {self.first}: {'apart' if self.obeys else 'NOT APART'}, entries on {machines} and {racks} at least"
        )
        places = ", ".join(f"{bookie} ({one.machine} {one.rack})" for bookie, one in self.bookies.items())
        end = f"; not registered: {', '.join(self.gone)}" if self.gone else ""
        return f"{text}: {places}{end}"


def placement_of(
    metadata: LedgerMetadata, registered: RegisteredBookies, locations: Locations
) -> list[FragmentPlacement]:
    """Return where each fragment lies, by the bookies that are registered now."""
    ids = dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.bookies)
    by_bookie = locations.of(registered, ids).by_bookie
    present = [by_bookie[bookie] for bookie in (*registered.writable, *registered.read_only)]
    quorum = metadata.write_quorum
    machines = min(quorum, len({location.machine for location in present}))
    racks = min(quorum, len({location.rack for location in present}), MIN_RACKS)
    striping, placements = Striping.of(metadata), []
    for fragment in metadata.fragments:
        write_sets = [
            [by_bookie[fragment.bookies[slot]] for slot in striping.slots(entry)]
            for entry in range(striping.ensemble_size)
        ]
        machines_each = min(len({location.machine for location in each}) for each in write_sets)
        racks_each = min(len({location.rack for location in each}) for each in write_sets)
        placements.append(
            FragmentPlacement(
                fragment.first,
                machines_each >= machines and racks_each >= racks,
                machines_each,
                racks_each,
                {bookie: by_bookie[bookie] for bookie in fragment.bookies},
                tuple(bookie for bookie in fragment.bookies if registered.find(bookie) is None),
            )
        )
    return placements
