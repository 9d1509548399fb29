from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from tallystick.errors import UsageError
from tallystick.pipeline.ledger.schema import COLUMNS


def test_the_whole_schema() -> None:
    schema = COLUMNS.struct(COLUMNS.names)
    assert schema.simpleString() == "struct<ledger:bigint,entry:bigint,lac:bigint,length:bigint,payload:binary>"
    assert not any(field.nullable or field.metadata for field in schema)


def test_a_projection_is_a_schema_too() -> None:
    assert COLUMNS.struct(COLUMNS.parse("payload,ledger")).simpleString() == "struct<payload:binary,ledger:bigint>"


def test_any_part_of_our_columns_in_any_order_is_honoured() -> None:
    assert COLUMNS.of_schema(StructType().add("payload", BinaryType()).add("ledger", LongType())) == (
        "payload",
        "ledger",
    )


@pytest.mark.parametrize(
    "schema",
    [
        StructType().add("value", BinaryType()),
        StructType().add("entry", IntegerType()),
        StructType().add("payload", StringType()),
        StructType(),
    ],
)
def test_a_schema_that_cannot_be_filled_is_refused(schema: StructType) -> None:
    with pytest.raises(UsageError):
        COLUMNS.of_schema(schema)
