import pyarrow as pa
import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.tables.arrow_types import added_columns, check_partitions, type_text, with_columns

TABLE = pa.schema([("n", pa.int64()), ("text", pa.large_string()), ("map", pa.map_(pa.string(), pa.large_string()))])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
        (
            pa.list_(pa.field("element", pa.string())),
            pa.large_list(pa.field("item", pa.large_string(), nullable=False)),
        ),
        (pa.struct([("a", pa.string())]), pa.struct([pa.field("a", pa.string_view(), nullable=False)])),
    ],
)
def test_equal_values_have_equal_types_however_they_are_stored(one: pa.DataType, other: pa.DataType) -> None:
    assert type_text(one) == type_text(other)


def test_what_a_table_lacks_is_added() -> None:
    rows = pa.schema([("text", pa.string()), ("more", pa.float64()), ("n", pa.int64())])
    assert added_columns(TABLE, rows, "t").names == ["more"]
    assert with_columns(TABLE, added_columns(TABLE, rows, "t")).names == ["n", "text", "map", "more"]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.field("n", pa.string()), "column n is int64 in the table, and string in the rows: types are not changed"),
        (pa.field("N", pa.int64()), "names that differ in case alone are one"),
    ],
)
def test_another_type_or_case_is_refused(column: pa.Field, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        added_columns(TABLE, pa.schema([column]), "delta:t")
    assert caught.value.fields == {"table": "delta:t", "column": column.name}


def test_a_column_that_must_have_a_value_is_missed() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(UsageError, match="must have a value in column id"):
        added_columns(table, pa.schema([("n", pa.int64())]), "t")


def test_partitions_are_those_that_were_asked_for() -> None:
    check_partitions(("event_day",), ("event_day",), "t")
    with pytest.raises(UsageError, match="partitioned by carrier, and partition_by says nothing"):
        check_partitions(("carrier",), (), "t")
