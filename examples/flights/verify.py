"""The comparison of every row of the table with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights.acks import AckedRun


@dataclass(frozen=True)
class Verdict:
    """What the comparison found; all but the first two must be 0."""

    rows: int
    acknowledged: int
    lost: int  # acknowledged and not in the table
    doubled: int
    missing: int  # of the source, acknowledged or not
    different: int  # rows with any column unlike the source's
    out_of_order: int

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.missing or self.different or self.out_of_order)


def compare(source: pa.Table, table: Path, acked: Sequence[AckedRun]) -> Verdict:
    """Every column of every row, as typed Arrow arrays; and every acknowledged row at its ledger and entry."""
    found = pq.read_table(table).sort_by([("ledger", "ascending"), ("entry", "ascending")])
    rows = found["row"].to_numpy()
    unique, first_at = np.unique(rows, return_index=True)
    aligned = found.take(pa.array(first_at))
    wanted = source.take(pa.array(unique))
    unlike = np.zeros(len(unique), bool)
    for name in source.column_names:
        left, right = wanted[name].combine_chunks(), aligned[name].cast(wanted[name].type).combine_chunks()
        same = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(left.is_null(), right.is_null()))
        unlike |= ~same.to_numpy(zero_copy_only=False)
    return Verdict(
        rows=len(rows),
        acknowledged=sum(run.count for run in acked),
        lost=_lost(found, acked),
        doubled=len(rows) - len(unique),
        missing=len(source) - len(unique),
        different=int(unlike.sum()),
        out_of_order=int((np.diff(rows) <= 0).sum()),
    )


def _lost(found: pa.Table, acked: Sequence[AckedRun]) -> int:
    stored = set(zip(*(found[name].to_pylist() for name in ("ledger", "entry", "row")), strict=True))
    promised = ((run.ledger, run.entry + i, run.row + i) for run in acked for i in range(run.count))
    return sum(promise not in stored for promise in promised)
