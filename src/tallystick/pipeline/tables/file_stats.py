"""The least and the largest value of each column of a Parquet file, as Delta keeps them for who seeks rows. Pure."""

from __future__ import annotations

import contextlib
from datetime import date, datetime, timedelta
from typing import Any

MAX_TEXT = 64  # characters of a text that is kept: longer ones help nobody


def column_stats(metadata: Any) -> dict[str, dict[str, Any]]:
    """Returns ``minValues``, ``maxValues`` and ``nullCount`` of columns that are no parts of others; ``metadata`` is
    that of pyarrow. What a row group does not say is left out."""
    least: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(metadata.num_columns):
        groups = [metadata.row_group(number).column(column) for number in range(metadata.num_row_groups)]
        stats = [group.statistics for group in groups]
        name = groups[0].path_in_schema
        if "." in name or any(each is None for each in stats):  # part of a map, a list, a structure
            continue
        if all(each.has_null_count for each in stats):
            nulls[name] = sum(each.null_count for each in stats)
        values = [each for each in stats if each.num_values]  # not of nulls alone
        if values and all(each.has_min_max for each in values):
            with contextlib.suppress(OverflowError):  # Python has no times before the year 1 and behind 9999
                low, high = min(each.min for each in values), max(each.max for each in values)
                if _is_kept(low) and _is_kept(high):
                    least[name], largest[name] = _json(low, is_largest=False), _json(high, is_largest=True)
    return {"minValues": least, "maxValues": largest, "nullCount": nulls}


def _is_kept(value: Any) -> bool:
    """Not of floating point: Parquet leaves NaN out, which is larger than all others for who asks Delta."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    return isinstance(value, int | date) and not isinstance(value, bool)


def _json(value: Any, *, is_largest: bool) -> Any:
    """Times are kept in milliseconds: the largest is rounded up."""
    if isinstance(value, datetime):
        if is_largest and value.microsecond % 1000:
            value += timedelta(milliseconds=1)
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}{'' if value.tzinfo is None else 'Z'}"
    return value.isoformat() if isinstance(value, date) else value
