"""The comparison of every row of a table with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.acks import AckedRun

NAMED = 5  # rows of each kind of fault that are named


@dataclass(frozen=True)
class Verdict:
    """What the comparison found; all but the first two must be 0. ``faults`` says which rows are wrong, and how."""

    rows: int
    acknowledged: int
    lost: int  # acknowledged and not in the table
    doubled: int
    missing: int  # of the source, acknowledged or not
    different: int  # rows with any column unlike the source's
    out_of_order: int
    faults: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.missing or self.different or self.out_of_order)


@dataclass(frozen=True)
class Place:
    """The columns that say where a row was stored. ``one_log``: the parts follow each other, as ledgers do; a topic's
    queues lie beside each other, and each has an order of its own."""

    part: str
    position: str
    one_log: bool


LEDGERS = Place("ledger", "entry", one_log=True)
QUEUES = Place("queueId", "queueOffset", one_log=False)


def compare(source: pa.Table, table: pa.Table, place: Place, acked: Sequence[AckedRun]) -> Verdict:
    """Every column of every row, as typed Arrow arrays; and every acknowledged row at its place."""
    found = table.sort_by([(place.part, "ascending"), (place.position, "ascending")])
    rows = found["row"].to_numpy()
    inside = np.diff(found[place.part].to_numpy()) == 0
    unique, first_at, counts = np.unique(rows, return_index=True, return_counts=True)
    aligned = found.take(pa.array(first_at))
    wanted = source.take(pa.array(unique))
    unlike = np.zeros(len(unique), bool)
    for name in source.column_names:
        left, right = wanted[name].combine_chunks(), aligned[name].cast(wanted[name].type).combine_chunks()
        same = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(left.is_null(), right.is_null()))
        unlike |= ~same.to_numpy(zero_copy_only=False)
    lost = _lost(found, place, acked)
    missing = np.setdiff1d(source["row"].to_numpy(), unique)
    stepped_back = np.flatnonzero((np.diff(rows) <= 0) & (inside | place.one_log)) + 1
    return Verdict(
        rows=len(rows),
        acknowledged=sum(run.count for run in acked),
        lost=len(lost),
        doubled=len(rows) - len(unique),
        missing=len(missing),
        different=int(unlike.sum()),
        out_of_order=len(stepped_back),
        faults=(
            *named("acknowledged, and not at its place", lost),
            *named("doubled", unique[counts > 1].tolist()),
            *named("missing", missing.tolist()),
            *named("unlike the source", unique[unlike].tolist()),
            *named("out of order", rows[stepped_back].tolist()),
        ),
    )


def named(fault: str, rows: Sequence[int]) -> tuple[str, ...]:
    """A line with the first rows that have a fault; none without any."""
    some = ", ".join(map(str, rows[:NAMED])) + (", …" if len(rows) > NAMED else "")
    return (f"{fault}: row {some}",) if rows else ()


def _lost(found: pa.Table, place: Place, acked: Sequence[AckedRun]) -> list[int]:
    stored = set(zip(*(found[name].to_pylist() for name in (place.part, place.position, "row")), strict=True))
    promised = ((run.part, run.position + i, run.row + i) for run in acked for i in range(run.count))
    return [promise[2] for promise in promised if promise not in stored]
