"""The columns of a format, any part of them that a query asks for, and how many rows come at once.

Spark 4.3 prunes no columns of Python sources, so a projection is the caller's word: the option ``columns``, or a schema
of one's own; each is any part of a format's columns in any order. Names come in any case, as in Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# A batch costs Spark some 43 µs of CPU whatever is in it, and beyond some MiB it leaves the caches: 1 MiB was the best.
BATCH_ROWS = 4096
BATCH_BYTES = 1024 * 1024

HEADERS = "headers"  # the option includeHeaders asks for it
HEADERS_TYPE = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Columns:
    """``types``: names to types as Spark's DDL has them, in the order of the whole row. ``headers``, if it is one of
    them, comes for who asks for it."""

    types: Mapping[str, str]
    nullable: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of who asks for none."""
        return tuple(name for name in self.types if name != HEADERS)

    def parse(self, text: str) -> tuple[str, ...]:
        """The option ``columns``: names parted by commas. Raises UsageError."""
        return self.checked([name.strip() for name in text.split(",")])

    def checked(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names as ours are spelled, if each is one of them and none comes twice. Raises UsageError."""
        spelled = {name.lower(): name for name in self.types}
        columns = [spelled[name.lower()] for name in names if name.lower() in spelled]
        if not columns or len(columns) < len(names) or len(set(columns)) < len(columns):
            raise UsageError(
                f"columns are some of {', '.join(self.types)}, each once: {self._objection(names)}",
                columns=",".join(names),
            )
        return tuple(columns)

    def _objection(self, names: Sequence[str]) -> str:
        """Returns which names are none of ours, or come twice."""
        spelled = {name.lower(): name for name in self.types}
        unknown = [name for name in names if name.lower() not in spelled]
        near = [spelled[each] for name in unknown for each in difflib.get_close_matches(name.lower(), spelled, n=1)]
        if unknown:
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            return f"{', '.join(unknown) if any(unknown) else 'a name is empty'}{hint}"
        twice = sorted({name.lower() for name in names if [each.lower() for each in names].count(name.lower()) > 1})
        return f"{', '.join(spelled[name] for name in twice)} comes twice"

    def struct(self, names: Sequence[str], metadata: Mapping[str, str] | None = None) -> StructType:
        """The columns as Spark's schema. The first one carries ``metadata``, which is stored wherever the schema is."""
        from pyspark.sql import types

        spark = {
            HEADERS_TYPE: types.ArrayType(
                types.StructType(
                    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
                )
            ),
            "bigint": types.LongType(),
            "binary": types.BinaryType(),
            "int": types.IntegerType(),
            "map<string,string>": types.MapType(types.StringType(), types.StringType()),
            "string": types.StringType(),
            "timestamp": types.TimestampType(),
        }
        fields = [types.StructField(name, spark[self.types[name]], name in self.nullable) for name in names]
        fields[0].metadata = dict(metadata or {})
        return types.StructType(fields)

    def of_schema(self, schema: StructType) -> tuple[str, ...]:
        """The columns that a schema asks for. Raises UsageError for one that this format cannot fill."""
        names = self.checked([field.name for field in schema.fields])
        for name, field in zip(names, schema.fields, strict=True):
            if field.dataType.simpleString() != self.types[name]:
                raise UsageError(
                    f"column {name} has the type {self.types[name].upper()}", schema=field.dataType.simpleString()
                )
            if name in self.nullable and not field.nullable:
                raise UsageError(f"column {name} may be null")
        return names

    def arrow_schema(self, schema: StructType, ours: pa.Schema) -> pa.Schema:
        """The Arrow form of what Spark expects, who compares even what may be null. Raises as ``of_schema``."""
        import pyarrow as pa

        fields = zip(self.of_schema(schema), schema.fields, strict=True)
        return pa.schema(
            [ours.field(name).with_name(field.name).with_nullable(field.nullable) for name, field in fields]
        )
