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
    other_filters = []
    for filter_ in filters:
        narrowed = _narrowed(selection, filter_)
        if narrowed is None:
            other_filters.append(filter_)
        else:
            selection = narrowed
    return selection, other_filters


def _narrowed(selection: Selection, filter_: Any) -> Selection | None:
    if isinstance(filter_, IsNotNull):
        return selection
    column = getattr(filter_, "attribute", ())
    spans = _spans(filter_)
    if spans is None:
        return None
    if column == ("ledger",):
        return selection.with_ledgers(spans)
    if column == ("entry",) and len(spans) == 1:
        return selection.with_entries(spans[0])
    return None


def _spans(filter_: Any) -> list[IdSpan] | None:
    """The ids for which a comparison holds; None for another filter, or one with something else than whole numbers."""
    if isinstance(filter_, In):
        ids = [value for value in filter_.value if value is not None]  # null equals nothing
        return [IdSpan(value, value) for value in ids] if all(map(_is_id, ids)) else None
    value: Any = getattr(filter_, "value", None)
    if not _is_id(value):
        return None
    if isinstance(filter_, EqualTo | EqualNullSafe):
        return [IdSpan(value, value)]
    if isinstance(filter_, GreaterThan):
        return [IdSpan(first=value + 1)]
    if isinstance(filter_, GreaterThanOrEqual):
        return [IdSpan(first=value)]
    if isinstance(filter_, LessThan):
        return [IdSpan(last=value - 1)]
    if isinstance(filter_, LessThanOrEqual):
        return [IdSpan(last=value)]
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
