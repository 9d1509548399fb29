from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tallystick.errors import UsageError
from tallystick.pipeline.source_options import options_of_read, to_store

# What Spark 4.3 hands over for CREATE TABLE t USING f OPTIONS (uri 'X', firstEntry '3').
OF_A_TABLE = {
    "provider": "f",
    "owner": "root",
    "uri": "X",
    "firstentry": "3",
    "option.uri": "X",
    "option.firstEntry": "3",
}


def schema(metadata: dict[str, str]) -> StructType:
    return StructType([StructField("entry", LongType(), False, metadata)])


def test_spark_s_own_keys_are_no_options() -> None:
    assert options_of_read(OF_A_TABLE) == {"uri": "X", "firstentry": "3"}
    assert options_of_read({"Uri": "X"}) == {"uri": "X"}


def test_the_options_of_a_table_are_stored_with_its_schema() -> None:
    stored = schema(to_store(OF_A_TABLE))
    assert options_of_read({}, stored) == {"uri": "X", "firstentry": "3"}
    assert options_of_read({"firstEntry": "5"}, stored) == {"uri": "X", "firstentry": "5"}  # those of the query win
    assert to_store({"uri": "X"}) == {}  # no table: nothing is added to anybody's schema
    assert options_of_read({"uri": "X"}, schema({})) == {"uri": "X"}


@pytest.mark.parametrize("name", ["password", "PASSWORDS"])
def test_a_password_is_not_stored(name: str) -> None:
    with pytest.raises(UsageError, match="keeps no password"):
        to_store(OF_A_TABLE | {f"option.{name}": "secret"})
