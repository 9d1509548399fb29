from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tallystick.errors import UsageError
from tallystick.pipeline.columns import Columns

COLUMNS = Columns({"queueOffset": "bigint", "keys": "string"}, nullable=frozenset(("keys",)))
ARROW = pa.schema([("queueOffset", pa.int64()), ("keys", pa.string())])


def test_names_come_in_any_case_and_are_spelled_as_ours() -> None:
    assert COLUMNS.parse(" KEYS, queueoffset") == ("keys", "queueOffset")


@pytest.mark.parametrize("text", ["", "keys,keys", "keys,KEYS", "value", "keys,"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="columns are some of queueOffset, keys, each once"):
        COLUMNS.parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("keys,queueOffst", "queueOffst (did you mean queueOffset?)"),
        ("keys,partition,queueOffset,key", "partition, key (did you mean keys?)"),
        ("queueOffset,KEYS,keys", "keys comes twice"),
    ],
)
def test_it_is_said_which_names_are_none(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(hint)):
        COLUMNS.parse(text)


def test_only_some_columns_may_be_null() -> None:
    schema = COLUMNS.struct(COLUMNS.names, {"kept": "with the schema"})
    assert schema == StructType(
        [StructField("queueOffset", LongType(), False, {"kept": "with the schema"}), StructField("keys", StringType())]
    )
    assert COLUMNS.of_schema(schema) == COLUMNS.names


def test_a_schema_keeps_its_spelling_and_order() -> None:
    schema = StructType().add("KEYS", StringType()).add("queueOffset", LongType(), nullable=False)
    wanted = pa.schema([pa.field("KEYS", pa.string()), pa.field("queueOffset", pa.int64(), nullable=False)])
    assert COLUMNS.arrow_schema(schema, ARROW) == wanted


@pytest.mark.parametrize(
    "schema", [StructType().add("keys", LongType()), StructType().add("keys", StringType(), nullable=False)]
)
def test_a_schema_that_cannot_be_filled_is_refused(schema: StructType) -> None:
    with pytest.raises(UsageError):
        COLUMNS.of_schema(schema)
