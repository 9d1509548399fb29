from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from tallystick.pipeline.times import FIRST_MS, LAST_MS, times_of


def years(*ms: int | None) -> list[int | None]:
    return [None if time is None else time.year for time in times_of(pa.array(ms, pa.int64())).to_pylist()]


def test_milliseconds_are_times() -> None:
    [time, absent] = times_of(pa.array([1_700_000_000_123, None], pa.int64())).to_pylist()
    assert time == datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC) and absent is None
    assert years(FIRST_MS, 0, LAST_MS) == [1, 1970, 9999]
    assert years() == [] and years(None) == [None]


@pytest.mark.parametrize("none", [FIRST_MS - 1, LAST_MS + 1, 1_700_000_000_123_456_789, -(1 << 63), (1 << 63) - 1])
def test_what_is_no_time_is_null(none: int) -> None:
    assert years(0, none, 1) == [1970, None, 1970]
