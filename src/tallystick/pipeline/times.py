"""Times of messages as Spark has them. Producers write what they like: some count in other units than ms."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

TIME = pa.timestamp("us", tz="UTC")
# The years 1 to 9999: neither Spark's dates nor Python's have others.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def times_of(ms: pa.Array) -> pa.Array:
    """Returns whole numbers of milliseconds as times; null for one that is none."""
    ends = pc.min_max(ms).as_py()
    if ends["min"] is not None and not (ends["min"] >= FIRST_MS and ends["max"] <= LAST_MS):
        is_time = pc.and_(pc.greater_equal(ms, FIRST_MS), pc.less_equal(ms, LAST_MS))
        ms = pc.if_else(is_time, ms, pa.scalar(None, pa.int64()))
    return pc.multiply(ms, 1000).view(TIME)
