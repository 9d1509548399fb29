"""Who gave up entries of a ledger, when and which: a line for each time, which nothing takes away.

::

    /tallystick<root>/given-up/G0000000007-1700000000000      JSON: who, at_ms, last_entry, lost, bookies
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.damage import Tell, decoded, refuse
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.errors import MetadataError

_NODE = re.compile(r"G(\d{10,19})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True)
class GivenUp:
    """``lost``: runs of entries, as text; ``last_entry``: the ledger's end. ``bookies`` were gone, and may have had
    them."""

    ledger: LedgerId
    who: str
    at_ms: int
    last_entry: EntryId
    lost: str
    bookies: tuple[BookieId, ...]


class GivenUpTree:
    """The lines of one cluster. Every method raises MetadataError."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._base = driver.store, f"/tallystick{driver.root}/given-up"

    async def note(self, line: GivenUp) -> None:
        """Write a line."""
        fields = {"who": line.who, "last_entry": line.last_entry, "lost": line.lost, "bookies": line.bookies}
        await self._store.change(Create(f"{self._base}/G{line.ledger:010d}-{line.at_ms}", json.dumps(fields).encode()))

    async def all(self, tell: Tell = refuse) -> list[GivenUp]:
        """Returns all lines, by ledger and time. ``tell`` hears of those that cannot be read."""
        names = await self._store.children(self._base) or []
        places = {f"{self._base}/{name}": match for name in names if (match := _NODE.fullmatch(name))}
        nodes = await self._store.get_many(list(places))

        def line(path: str, data: bytes) -> GivenUp:
            return _decoded(data, path, int(places[path][1]), int(places[path][2]))

        return sorted(decoded(nodes, line, tell), key=lambda line: (line.ledger, line.at_ms))


def _decoded(data: bytes, path: str, ledger: LedgerId, at_ms: int) -> GivenUp:
    try:
        fields = json.loads(data)
        bookies = tuple(map(str, fields["bookies"]))
        return GivenUp(ledger, str(fields["who"]), at_ms, int(fields["last_entry"]), str(fields["lost"]), bookies)
    except (ValueError, KeyError, TypeError):
        raise MetadataError("a line of what was given up cannot be read", where=path) from None
