"""Who took a bookie out of a cluster, when, and what came of it: a line for each time, which nothing takes away.

::

    /tallystick<root>/taken-out/1700000000000-bookie-2      JSON: who, command, outcome
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.damage import Tell, decoded, refuse
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataError

_NODE = re.compile(r"(\d{1,19})-(.+)", re.ASCII)


@dataclass(frozen=True)
class TakenOut:
    """``command``: of ``tally bookie``, with what was passed over by it."""

    bookie: BookieId
    who: str
    at_ms: int
    command: str
    outcome: str


class TakenOutTree:
    """The lines of one cluster. Every method raises MetadataError."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._base = driver.store, f"/tallystick{driver.root}/taken-out"

    def creation(self, line: TakenOut) -> Create:
        """Return the change that writes a line: it is made with what the line says was done, or not at all."""
        fields = {"who": line.who, "command": line.command, "outcome": line.outcome}
        return Create(f"{self._base}/{line.at_ms}-{line.bookie}", json.dumps(fields).encode())

    async def note(self, line: TakenOut) -> None:
        """Write a line."""
        await self._store.change(self.creation(line))

    async def all(self, tell: Tell = refuse) -> list[TakenOut]:
        """Return all lines, by time. ``tell`` hears of those that cannot be read."""
        names = await self._store.children(self._base) or []
        places = {f"{self._base}/{name}": match for name in names if (match := _NODE.fullmatch(name))}
        nodes = await self._store.get_many(list(places))

        def line(path: str, data: bytes) -> TakenOut:
            return _decoded(data, path, places[path][2], int(places[path][1]))

        return sorted(decoded(nodes, line, tell), key=lambda line: (line.at_ms, line.bookie))


def _decoded(data: bytes, path: str, bookie: BookieId, at_ms: int) -> TakenOut:
    try:
        fields = json.loads(data)
        return TakenOut(bookie, str(fields["who"]), at_ms, str(fields["command"]), str(fields["outcome"]))
    except (ValueError, KeyError, TypeError):
        raise MetadataError("a line of who was taken out cannot be read", where=path) from None
