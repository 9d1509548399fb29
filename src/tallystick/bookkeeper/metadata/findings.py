"""Faults of copies that the original's workers would not find, by ledger: a tree of ours, outside of the cluster's.

::

    /tallystick<root>/findings/F0000000007      a line each: kind, bookie, runs of entries (* is all), since when
        missing b1:3181 3-4,9-9 1700000000000

An original worker reads the first and the last entry of a fragment, and drops the mark if both are there: a missing
entry in the middle, a bad digest, two copies on one bookie or on one machine are never in the shared tree. Who notes
something writes the node anew, also when it says nothing new: a worker that looked before takes nothing away
(``drop``).
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.store import Create, Delete, Update, Version, Watch
from tallystick.bookkeeper.wire.lost_runs import joined
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.errors import MetadataConflict, MetadataError

_NODE = re.compile(r"F(\d{10,19})", re.ASCII)
_LINE = re.compile(r"([a-z]+) (\S+) (\*|\d{1,19}-\d{1,19}(?:,\d{1,19}-\d{1,19})*) (\d{1,19})", re.ASCII)
MOST_RUNS = 100  # of one fault: of one with more the whole stripe is looked at
MOST_FAULTS = 100  # of one ledger; what is beyond is found again


class FaultKind(enum.Enum):
    """What is, or may be, wrong with copies on a bookie."""

    MISSING = "missing"  # it said that it does not have them
    DAMAGED = "damaged"  # what it has does not match its digest
    DOUBLE = "double"  # it has two places in one fragment
    MISPLACED = "misplaced"  # it is nearer to others that have the same entries than the placement policy allows
    UNSENT = "unsent"  # the ledger's writer closed it before the bookie had acknowledged them


_KINDS = frozenset(kind.value for kind in FaultKind)


@dataclass(frozen=True)
class CopyFault:
    """Copies on ``bookie`` of these ``runs`` of entries, first and last of each; none: of all that are placed there."""

    kind: FaultKind
    bookie: BookieId
    runs: tuple[tuple[EntryId, EntryId], ...]
    since_ms: int


class FindingTree:
    """The findings of one cluster. Every method raises MetadataError."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._store, self._base = driver.store, f"/tallystick{driver.root}/findings"

    def _path(self, ledger: LedgerId) -> str:
        return f"{self._base}/F{ledger:010d}"

    async def note(self, ledger: LedgerId, faults: Sequence[CopyFault]) -> None:
        """Say that copies of a ledger are at fault. When that was said first stays."""
        path = self._path(ledger)
        while True:
            node = await self._store.get(path)
            before = () if node is None else _decoded(node.data, path)
            data = _encoded(_merged(before, faults))
            with contextlib.suppress(MetadataConflict):
                if node is None:
                    await self._store.change(Create(path, data))
                else:
                    await self._store.change(Update(path, data, node.version))
                return

    async def read(self, ledger: LedgerId) -> Versioned[tuple[CopyFault, ...]] | None:
        """Returns None if nothing is said of the ledger."""
        path = self._path(ledger)
        node = await self._store.get(path)
        return None if node is None else Versioned(_decoded(node.data, path), node.version)

    async def drop(self, ledger: LedgerId, version: Version) -> bool:
        """Take away what was said up to this version. Returns False if it is gone, or was written since."""
        try:
            await self._store.change(Delete(self._path(ledger), version))
        except MetadataConflict:
            return False
        return True

    async def ledgers(self) -> list[LedgerId]:
        """Returns the ledgers of which something is said, by id."""
        names = await self._store.children(self._base) or []
        return sorted(int(match[1]) for name in names if (match := _NODE.fullmatch(name)))

    def watch(self, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` when a ledger is added or dropped."""
        return self._store.watch_children(self._base, changed)


def _merged(before: Sequence[CopyFault], faults: Sequence[CopyFault]) -> list[CopyFault]:
    merged = {(fault.kind, fault.bookie): fault for fault in before}
    for fault in faults:
        older = merged.get((fault.kind, fault.bookie))
        runs = fault.runs
        if older is not None:
            runs = joined((*older.runs, *runs)) if older.runs and runs else ()
            fault = replace(fault, since_ms=min(older.since_ms, fault.since_ms))
        merged[fault.kind, fault.bookie] = replace(fault, runs=runs if len(runs) <= MOST_RUNS else ())
    return list(merged.values())[:MOST_FAULTS]


def _encoded(faults: Sequence[CopyFault]) -> bytes:
    lines = list[str]()
    for fault in faults:
        runs = ",".join(f"{first}-{last}" for first, last in fault.runs) or "*"
        lines.append(f"{fault.kind.value} {fault.bookie} {runs} {fault.since_ms}\n")
    return "".join(lines).encode()


def _decoded(data: bytes, path: str) -> tuple[CopyFault, ...]:
    faults = list[CopyFault]()
    for line in data.decode(errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in _KINDS:
            raise MetadataError("a finding of a later version, or of nobody: it cannot be read", where=path)
        runs = () if match[3] == "*" else tuple(_run(run) for run in match[3].split(","))
        faults.append(CopyFault(FaultKind(match[1]), match[2], runs, int(match[4])))
    return tuple(faults)


def _run(text: str) -> tuple[EntryId, EntryId]:
    first, last = text.split("-")
    return int(first), int(last)
