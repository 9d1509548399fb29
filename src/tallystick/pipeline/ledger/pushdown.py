"""Spark's pushed filters as narrower selections: only what a selection expresses exactly; Spark does the rest.

A filter that is claimed and not applied gives wrong rows without a word, so each branch here is an equivalence: the
columns are never null, ids are whole numbers, and every comparison is a span of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tallystick.pipeline.ledger.selection import IdSpan, Selection


def push(selection: Selection, filters: Sequence[Filter]) -> tuple[Selection, list[Filter]]:
    """The selection after all filters that it can express, and the other filters."""
    left = []
    for wanted in filters:
        narrowed = _narrowed(selection, wanted)
        if narrowed is None:
            left.append(wanted)
        else:
            selection = narrowed
    return selection, left


def _narrowed(selection: Selection, wanted: Any) -> Selection | None:
    if isinstance(wanted, IsNotNull):
        return selection
    column = getattr(wanted, "attribute", ())
    spans = _spans(wanted)
    if spans is None:
        return None
    if column == ("ledger",):
        return selection.with_ledgers(spans)
    if column == ("entry",) and len(spans) == 1:
        return selection.with_entries(spans[0])
    return None


def _spans(wanted: Any) -> list[IdSpan] | None:
    """The ids for which a comparison holds; None for another filter, or one with something else than whole numbers."""
    if isinstance(wanted, In):
        ids = [value for value in wanted.value if value is not None]  # null equals nothing
        return [IdSpan(value, value) for value in ids] if all(map(_is_id, ids)) else None
    value: Any = getattr(wanted, "value", None)
    if not _is_id(value):
        return None
    if isinstance(wanted, EqualTo | EqualNullSafe):
        return [IdSpan(value, value)]
    if isinstance(wanted, GreaterThan):
        return [IdSpan(first=value + 1)]
    if isinstance(wanted, GreaterThanOrEqual):
        return [IdSpan(first=value)]
    if isinstance(wanted, LessThan):
        return [IdSpan(last=value - 1)]
    if isinstance(wanted, LessThanOrEqual):
        return [IdSpan(last=value)]
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
