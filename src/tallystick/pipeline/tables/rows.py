"""From the rows of a source to those of a table: one batch of a query, as a frame.

``raw`` is the source's columns. ``json`` is the fields of the objects in the value; where nobody says which, those that
the table has, and those that the values of this batch have besides. ``avro`` is the fields of the record in the value.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.tables.avro_rows import AvroFields, avro_rows
from tallystick.pipeline.tables.json_fields import JsonFields, refused_name
from tallystick.pipeline.tables.json_rows import json_rows, value_texts
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.runtime.arguments import instance

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_EPOCH = date(1970, 1, 1).toordinal()
# Since then, of the years 1 to 9999: libraries of tables have no others.
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
EVENT_TIMES = ("eventTime", "publishTime", "bornTimestamp", "storeTimestamp")  # the first that is not null


class BatchRows:
    """Makes the rows of each batch by the settings of a query."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._avro = AvroFields(settings.value_schema) if settings.schema == "avro" else None
        given = settings.value_schema and self._avro is None
        self._given = JsonFields.given(settings.value_schema) if given else None

    def shaped(self, source: DataFrame, table: pa.Schema | None) -> DataFrame:
        """``table``: its columns, None while there is no table. Raises UsageError."""
        from pyspark.sql import DataFrame

        schema = self._settings.schema
        if callable(schema):
            rows = instance(schema(source), DataFrame, "what a schema function returns")
        elif self._avro is not None:
            rows = avro_rows(source, self._avro, self._settings.value_header)
        elif schema == "json":
            fields = self._given or JsonFields.found(value_texts(source), table, self._settings.max_columns)
            rows = json_rows(source, fields)
        else:
            rows = source
        return _plain(self._with_partitions(rows, source))

    def _with_partitions(self, rows: DataFrame, source: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        partitions = self._settings.partitions
        taken = {name.lower() for name in rows.columns}
        if not partitions:
            return rows
        if both := [name for name in partitions if name in taken]:
            raise UsageError(f"partition_by makes the column {both[0]}, and the rows have it: rename that one")
        times = [_event_time(rows, self._settings.event_time)] if self._settings.event_time else []
        for name in EVENT_TIMES:
            times += [F.col(f"`{each}`") for each in (f"_{name}", name) if each.lower() in taken][:1]
        if not times:
            raise UsageError("partition_by needs a time: name it in event_time", columns=", ".join(rows.columns))
        # In UTC whatever the session's time zone is: a row that is read again has the same partition.
        micros = F.unix_micros(F.coalesce(*times))
        days = F.floor(micros / F.lit(86_400_000_000)).cast("int")
        hours = F.pmod(F.floor(micros / F.lit(3_600_000_000)), F.lit(24)).cast("int")
        days = F.when(days.between(_FIRST_DAY, _LAST_DAY), days)  # those of a clock that counts otherwise have no day
        hours = F.when(days.isNotNull(), hours)
        made = {"event_day": F.date_from_unix_date(days), "event_hour": hours}
        return rows.select("*", *(made[name].alias(name) for name in partitions))


def _event_time(rows: DataFrame, text: str) -> Column:
    """Returns the time that an expression of the settings is. Raises UsageError for one that is none of these rows."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F
    from pyspark.sql import types

    try:
        column = F.expr(text)
        kind = rows.select(column).schema.fields[0].dataType
    except AnalysisException as error:
        why = str(error).strip().partition("\n")[0].rstrip("; ")
        raise UsageError(f"event_time is an expression of SQL over the table's columns: {why}", given=text) from None
    if not isinstance(kind, types.TimestampType | types.TimestampNTZType | types.DateType | types.NullType):
        raise UsageError(
            f"event_time is a timestamp, not of {kind.simpleString()}: convert it, as in try_to_timestamp(at) or "
            "timestamp_millis(ms)",
            given=text,
        )
    return column


def _plain(rows: DataFrame) -> DataFrame:
    """The same in types that every table has. Raises UsageError for the others."""
    from pyspark.sql import functions as F
    from pyspark.sql import types

    columns: list[Column] = []
    for field in rows.schema.fields:
        column = F.col(f"`{field.name}`")
        if isinstance(field.dataType, types.ByteType | types.ShortType):
            column = column.cast("int").alias(field.name)
        if not _is_storable(field.dataType):
            raise UsageError(
                f"column {field.name} has the type {field.dataType.simpleString()}, which tables have not: cast it in "
                "a schema function"
            )
        if (reason := refused_name(field.name, is_ours=True)) is not None:
            raise UsageError(f"column {field.name!r} {reason}: rename it in a schema function")
        columns.append(column)
    return rows.select(*columns)


def _is_storable(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return _is_storable(kind.elementType)
    if isinstance(kind, types.MapType):
        return _is_storable(kind.keyType) and _is_storable(kind.valueType)
    if isinstance(kind, types.StructType):
        return all(_is_storable(each.dataType) for each in kind.fields)
    return isinstance(
        kind,
        types.BinaryType | types.BooleanType | types.DateType | types.FractionalType | types.IntegralType
        | types.StringType | types.TimestampType | types.TimestampNTZType,
    )  # fmt: skip


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow form of a frame's columns, each of which may be null."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([each.with_nullable(True) for each in to_arrow_schema(schema, timezone="UTC")])
