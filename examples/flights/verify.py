"""Ledgers to a Parquet table through Spark, and the comparison of every row with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights.acks import AckedRun
from examples.flights.data import INTEGERS, STRINGS


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


def ingest(uri: str, ledgers: Sequence[int], table: Path) -> None:
    """Read the ledgers with Spark, straight from the bookies, and write the typed table."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    from tallystick import spark as tally_spark

    names = ["row", *(name for name in ORDER if name != "row")]
    kinds = {"row": LongType()} | dict.fromkeys(INTEGERS, LongType()) | dict.fromkeys(STRINGS, StringType())
    schema = StructType([StructField(name, kinds.get(name, TimestampType())) for name in names])
    session = tally_spark.session(**{"spark.sql.session.timeZone": "UTC"})
    try:
        entries = session.read.format("tally-ledger").options(uri=uri, ledgers=",".join(map(str, ledgers))).load()
        parsed = f.from_json(f.col("payload").cast("string"), schema).alias("flight")
        flights = entries.select("ledger", "entry", parsed).select("ledger", "entry", "flight.*")
        event_time = f.col("time_hour") + f.make_dt_interval(mins=f.col("minute").cast("int"))
        flights.withColumn("event_time", event_time).write.mode("overwrite").parquet(str(table))
    finally:
        session.stop()


ORDER = (
    "row", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip


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
