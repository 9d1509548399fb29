from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from tallystick.pipeline.ledger.pushdown import push
from tallystick.pipeline.ledger.selection import IdSpan, Selection

HOLDS: dict[type[Any], Any] = {
    EqualTo: lambda id, value: id == value,
    EqualNullSafe: lambda id, value: id == value,
    GreaterThan: lambda id, value: id > value,
    GreaterThanOrEqual: lambda id, value: id >= value,
    LessThan: lambda id, value: id < value,
    LessThanOrEqual: lambda id, value: id <= value,
    In: lambda id, value: id in value,
}
numbers = st.integers(-3, 12)
comparisons = st.builds(
    lambda kind, column, value: kind((column,), value),
    st.sampled_from([kind for kind in HOLDS if kind is not In]),
    st.sampled_from(["ledger", "entry"]),
    numbers,
) | st.builds(
    lambda column, value: In((column,), value), st.sampled_from(["ledger", "entry"]), st.lists(numbers, max_size=4)
)


@given(st.lists(comparisons, max_size=5))
def test_pushed_filters_and_those_left_to_spark_give_the_rows_of_all(filters: list[Any]) -> None:
    selection, left = push(Selection.parse("0-10"), filters)

    def holds(wanted: Any, ledger: int, entry: int) -> bool:
        return bool(HOLDS[type(wanted)]({"ledger": ledger, "entry": entry}[wanted.attribute[0]], wanted.value))

    for ledger in range(12):
        for entry in range(12):
            found = ledger in selection and entry in selection.entries and all(holds(f, ledger, entry) for f in left)
            assert found == (ledger <= 10 and all(holds(f, ledger, entry) for f in filters))


def test_what_spark_sends_for_one_ledger_is_taken_whole() -> None:
    filters: list[Filter] = [IsNotNull(("ledger",)), EqualTo(("ledger",), 7), LessThan(("entry",), 5)]
    selection, left = push(Selection(), filters)
    assert left == []
    assert selection.single_ledgers == (7,) and selection.entries == IdSpan(0, 4)


@pytest.mark.parametrize(
    "other",
    [EqualTo(("lac",), 3), EqualTo(("payload",), b"x"), Not(EqualTo(("ledger",), 3)), IsNull(("ledger",)),
     StringContains(("ledger",), "3"), EqualTo(("ledger",), None), EqualTo(("entry",), 1.5), In(("entry",), (1, 5)),
     In(("ledger",), (1, 2.5))],
)  # fmt: skip
def test_what_is_not_surely_expressed_is_left_to_spark(other: Filter) -> None:
    assert push(Selection(), [other]) == (Selection(), [other])


def test_null_in_a_list_equals_nothing() -> None:
    selection, left = push(Selection(), [In(("ledger",), (None, 4))])
    assert left == [] and selection.single_ledgers == (4,)
