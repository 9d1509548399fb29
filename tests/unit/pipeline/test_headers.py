from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tallystick.errors import UsageError
from tallystick.pipeline.columns import HEADERS
from tallystick.pipeline.headers import TYPES, headers_of
from tallystick.pipeline.option_values import OptionValues
from tallystick.pipeline.stream.schema import COLUMNS

PROPERTIES = [[("a", "1"), ("b", "ü")], [], [("c", "")]]
ROWS = [[{"key": "a", "value": b"1"}, {"key": "b", "value": "ü".encode()}], None, [{"key": "c", "value": b""}]]


def test_names_and_values_and_null_without_any() -> None:
    properties = pa.array(PROPERTIES, pa.map_(pa.string(), pa.string()))
    assert headers_of(properties).to_pylist() == ROWS
    assert headers_of(properties.slice(1)).to_pylist() == ROWS[1:]
    assert headers_of(properties.slice(3)).to_pylist() == []


def test_the_type_is_what_spark_expects() -> None:
    struct = COLUMNS.struct([HEADERS])
    assert to_arrow_schema(struct, timezone="UTC") == pa.schema(list(TYPES.items()))
    assert COLUMNS.of_schema(struct) == (HEADERS,)


def wanted(**given: str) -> tuple[str, ...]:
    return OptionValues(given, {"columns": "", "includeHeaders": ""}).columns(COLUMNS)


def test_headers_come_for_who_asks_for_them() -> None:
    assert HEADERS not in wanted() == wanted(includeHeaders="false") == COLUMNS.names
    assert wanted(includeHeaders="true") == (*COLUMNS.names, HEADERS)
    assert wanted(columns="headers,key") == (HEADERS, "key")
    assert wanted(columns="key", includeHeaders="true") == ("key",)
    with pytest.raises(UsageError, match="includeHeaders is false or true"):
        wanted(includeHeaders="yes")
