"""Where the bookies are: the machine of each by its registration, and its rack.

A rack is, of these, the first that names one: the property ``rack`` of the registration; the client's ``racks.py``.
A machine is the property ``machine``, or the registered host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.racks import Racks
from tallystick.bookkeeper.ledger.spread import DEFAULT_RACK, Location
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.wire.registration import MACHINE, RACK
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo

_MOST_REMEMBERED = 4096  # bookies that are registered no more


@dataclass(frozen=True)
class Map:
    """The locations of the registered bookies and some others. ``share_machines``: of those registered some are on one
    machine, and not all of them."""

    by_bookie: Mapping[BookieId, Location]
    share_machines: bool


class Locations:
    """Those that one client knows; of bookies that were registered once, too."""

    def __init__(self, racks: Racks | None = None) -> None:
        self._racks = racks
        self._by_source: Mapping[BookieId, str] = {}
        self._bookies: RegisteredBookies | None = None
        self._by_bookie: dict[BookieId, Location] = {}
        self._share_machines = False

    async def refresh(self, bookies: RegisteredBookies) -> None:
        """Learn the racks of the registered bookies; call it before ``of`` where racks matter."""
        if self._racks is not None:
            infos = {**bookies.read_only, **bookies.writable}
            await self._racks.refresh(bookies, {bookie: _host(bookie, info) for bookie, info in infos.items()})
            if self._racks.by_bookie is not self._by_source:
                self._by_source, self._bookies = self._racks.by_bookie, None

    def of(self, bookies: RegisteredBookies, others: Iterable[BookieId] = ()) -> Map:
        """Return where the registered bookies are, and ``others``."""
        if bookies is not self._bookies:
            self._bookies = bookies
            self._read(bookies)
        for bookie in others:
            if bookie not in self._by_bookie:
                self._by_bookie[bookie] = self._location(bookie, None)
        return Map(self._by_bookie, self._share_machines)

    def _read(self, bookies: RegisteredBookies) -> None:
        if len(self._by_bookie) > _MOST_REMEMBERED:
            self._by_bookie.clear()
        for registered in (bookies.read_only, bookies.writable):
            for bookie, info in registered.items():
                self._by_bookie[bookie] = self._location(bookie, info)
        machines = {self._by_bookie[bookie].machine for bookie in bookies.writable}
        self._share_machines = 1 < len(machines) < len(bookies.writable)

    def _location(self, bookie: BookieId, info: BookieInfo | None) -> Location:
        properties = info.properties if info is not None else {}
        rack = rack_of(properties.get(RACK)) or rack_of(self._by_source.get(bookie)) or DEFAULT_RACK
        return Location(properties.get(MACHINE) or _host(bookie, info), rack)


def rack_of(text: str | None) -> str | None:
    """Return a rack as it is compared: with a slash before it and none behind. Returns None for none."""
    name = (text or "").strip().strip("/")
    return f"/{name}" if name else None


def _host(bookie: BookieId, info: BookieInfo | None) -> str:
    """Return the registered host; for a bookie without one its id tells as much as there is."""
    if info is not None and info.address is not None:
        return info.address[0]
    return bookie.rpartition(":")[0] or bookie
