"""Entries without a good copy, by ledger: a tree of ours, outside of that of the cluster, which originals read whole.

::

    /tallystick<root>/lost/L0000000007      "first-last first-last …", and a line with what else there is to say
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.damage import Tell, decoded, refuse
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.errors import MetadataConflict, MetadataError, NoSuchZnode

_NODE = re.compile(r"L(\d{10,19})", re.ASCII)
_TEXT = re.compile(r"(\d{1,19}-\d{1,19}(?: \d{1,19}-\d{1,19})*)\n([^\n]+)\n(\d{1,19})\n", re.ASCII)
MOST_RUNS = 1000  # of a ledger; what is beyond is found again


@dataclass(frozen=True)
class LostEntries:
    """``runs`` of entries, first and last of each, of which no bookie that answers has a good copy; ``bookie`` alone
    may have them. ``since_ms``: when that was found first."""

    runs: tuple[tuple[EntryId, EntryId], ...]
    bookie: BookieId
    since_ms: int


class LostTree:
    """What is known to be lost in one cluster. Every method raises MetadataError."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._base = driver.store, f"/tallystick{driver.root}/lost"

    def _path(self, ledger: LedgerId) -> str:
        return f"{self._base}/L{ledger:010d}"

    async def note(
        self, ledger: LedgerId, runs: Sequence[tuple[EntryId, EntryId]], bookie: BookieId, now_ms: int
    ) -> None:
        """Say which entries of a ledger are lost. When that was found first stays."""
        path = self._path(ledger)
        while True:
            node = await self._store.get(path)
            since_ms = now_ms if node is None else _decoded(node.data, path).since_ms
            text = " ".join(f"{first}-{last}" for first, last in runs[:MOST_RUNS])
            data = f"{text}\n{bookie}\n{since_ms}\n".encode()
            with contextlib.suppress(MetadataConflict):
                if node is None:
                    await self._store.change(Create(path, data))
                elif node.data != data:
                    await self._store.change(Update(path, data, node.version))
                return

    async def forget(self, ledger: LedgerId) -> None:
        """Nothing of the ledger is lost."""
        with contextlib.suppress(NoSuchZnode):
            await self._store.change(Delete(self._path(ledger)))

    async def all(self, tell: Tell = refuse) -> Mapping[LedgerId, LostEntries]:
        """Returns what is lost, by ledger. ``tell`` hears of nodes that cannot be read."""
        names = await self._store.children(self._base) or []
        paths = {f"{self._base}/{name}": int(match[1]) for name in names if (match := _NODE.fullmatch(name))}
        nodes = dict(sorted((await self._store.get_many(list(paths))).items()))
        return dict(decoded(nodes, lambda path, data: (paths[path], _decoded(data, path)), tell))


def _decoded(data: bytes, path: str) -> LostEntries:
    match = _TEXT.fullmatch(data.decode(errors="replace"))
    if match is None:
        raise MetadataError("what is said of lost entries cannot be read", where=path)
    runs = [run.split("-") for run in match[1].split(" ")]
    return LostEntries(tuple((int(first), int(last)) for first, last in runs), match[2], int(match[3]))
