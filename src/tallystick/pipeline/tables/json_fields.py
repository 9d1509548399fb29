"""Which columns the objects of a batch have, where nobody said: their fields, found in one pass over the texts.

Numbers without a fraction are BIGINT, others DOUBLE, and what is not a number, a truth value or null is STRING: objects
and lists, too, as JSON, and numbers beyond 64 bits. A field that is null wherever it is there makes no column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.tables.files import DEAD_LETTER

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

MAX_NAME = 128
_MEANINGFUL = set(' ,;{}()\n\t=.`"')  # in one or other format's names of columns
_OBJECT = re.compile(r"`(?:[^`]|``)*`|\bOBJECT<")  # what is between quotes is a name


@dataclass(frozen=True)
class JsonFields:
    """``columns``: names and types of Spark. ``empty``: fields that may be there, and make no column."""

    columns: Mapping[str, DataType]
    empty: tuple[str, ...] = ()
    is_given: bool = field(default=False, kw_only=True)  # by the caller, who wants no others

    @classmethod
    def given(cls, text: str) -> JsonFields:
        """From the caller's ``carrier STRING, delay INT``. Raises UsageError."""
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            struct = StructType.fromDDL(text)
        except PySparkException as error:
            shown = str(error).strip().splitlines()[0]
            raise UsageError(
                f"value_schema is names with their types, as in carrier STRING, delay INT: {shown}", given=text
            ) from None
        assert isinstance(struct, StructType), "the type of a row"
        for each in struct.fields:
            if (reason := refused_name(each.name)) is not None:
                raise UsageError(f"field {each.name!r} of value_schema {reason}", given=text)
        return cls({each.name: each.dataType for each in struct.fields}, is_given=True)

    @classmethod
    def found(cls, texts: DataFrame, table: pa.Schema | None, max_columns: int) -> JsonFields:
        """The table's columns with their types, and what the objects in ``texts``, its one column, have besides."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import NullType

        (column,) = texts.columns
        there = _of_table(table)
        objects = texts.where(F.expr(f"ltrim(`{column}`) like '{{%'"))
        row = objects.select(F.expr(f"schema_of_variant_agg(try_parse_json(`{column}`))")).first()
        kinds = _top_fields(row[0]) if row is not None and row[0] is not None else {}
        columns, empty = dict(there), []
        taken = {name.lower() for name in there}
        for name, kind in kinds.items():
            if name in there:
                continue
            if isinstance(kind, NullType):
                empty.append(name)
            elif refused_name(name) is None and name.lower() not in taken and len(columns) < max_columns:
                columns[name] = column_type(kind)
                taken.add(name.lower())
        return cls(columns, tuple(empty[:max_columns]))

    def struct(self, corrupt: str) -> StructType:
        """Returns the schema for ``from_json``, with a column for what does not fit."""
        from pyspark.sql.types import StringType, StructField, StructType

        fields = [StructField(name, kind) for name, kind in self.columns.items()]
        return StructType([*fields, StructField(corrupt, StringType())])


def refused_name(name: str, *, is_ours: bool = False) -> str | None:
    """Returns why a name cannot be that of a column; None for one that can."""
    if not name or len(name) > MAX_NAME:
        return f"has no name of 1 to {MAX_NAME} characters"
    if not is_ours and name.startswith("_"):
        return "begins with an underscore, as those of the source do"
    if not name.isprintable() or _MEANINGFUL & set(name):
        return "has a character that means something in names"
    return None


def column_type(kind: DataType) -> DataType:
    """Returns the type of the column for values of this type."""
    from pyspark.sql import types

    if isinstance(kind, types.DecimalType):
        return types.DoubleType() if kind.scale else types.StringType()
    if isinstance(kind, types.IntegralType):
        return types.LongType()
    if isinstance(kind, types.FractionalType):
        return types.DoubleType()
    return kind if isinstance(kind, types.BooleanType) else types.StringType()


def _top_fields(kind: str) -> dict[str, DataType]:
    """``kind`` is how Spark names the type of a VARIANT: ``OBJECT<a: BIGINT, `b c`: OBJECT<x: STRING>>``."""
    from pyspark.sql.types import DataType, StructType

    parsed = DataType.fromDDL(_OBJECT.sub(lambda match: match[0] if match[0][0] == "`" else "STRUCT<", kind))
    return {each.name: each.dataType for each in parsed.fields} if isinstance(parsed, StructType) else {}


def _of_table(table: pa.Schema | None) -> dict[str, DataType]:
    """The columns of a table that are fields of its JSON: those without an underscore, and no partition."""
    if table is None:
        return {}
    from pyspark.sql.pandas.types import from_arrow_schema

    from tallystick.pipeline.tables.settings import PARTITIONS

    ours = {DEAD_LETTER, *PARTITIONS["hour"]}
    struct = from_arrow_schema(table)
    return {each.name: each.dataType for each in struct.fields if each.name not in ours and each.name[:1] != "_"}
