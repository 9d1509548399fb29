"""From the rows of a source to those of a table: one batch of a query, as a frame.

``raw`` is the source's columns. ``json`` is the fields of the objects in the value, and behind an underscore the other
columns of the source; a value that is no such object, or does not fit, is in ``_dead_letter`` as it came, and its
fields are null: no row is lost, and none ends the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.tables.files import DEAD_LETTER
from tallystick.pipeline.tables.json_fields import JsonFields, fields_of_type, refused_name
from tallystick.pipeline.tables.settings import IngestSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

VALUES = ("value", "body", "payload")  # of streams, topics, ledgers
EVENT_TIMES = ("eventTime", "publishTime", "bornTimestamp", "storeTimestamp")  # the first that is not null
_TEXT, _PARSED, _KEYS, _UNFIT = "_tally_text", "_tally_parsed", "_tally_keys", "_tally_unfit"
_CORRUPT = "_tally_corrupt"


class BatchRows:
    """Makes the rows of each batch by the settings of a query."""

    def __init__(self, settings: IngestSettings) -> None:
        self._settings = settings
        self._given = fields_of_type(settings.columns) if settings.columns else None

    def shaped(self, source: DataFrame, table: pa.Schema | None) -> DataFrame:
        """``table``: its columns, None while there is no table. Raises UsageError."""
        schema = self._settings.schema
        if callable(schema):
            rows = schema(source)
        elif schema == "json":
            rows = self._json(source, table)
        else:
            rows = source
        return _plain(self._with_partitions(rows, source))

    def _json(self, source: DataFrame, table: pa.Schema | None) -> DataFrame:
        from pyspark.sql import functions as F

        value = value_column(source)
        ours = [F.col(f"`{name}`").alias(f"_{name}") for name in source.columns if name != value]
        text = F.expr(f"try_validate_utf8(cast(`{value}` as string))")
        texts = source.select(*ours, F.col(f"`{value}`").alias(DEAD_LETTER), text.alias(_TEXT))
        fields = self._given or JsonFields.found(texts.select(_TEXT), _TEXT, table, self._settings.max_columns)
        parsed = texts.select(
            "*",
            F.from_json(
                _TEXT,
                fields.struct(_CORRUPT),
                {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
            ).alias(_PARSED),
            F.json_object_keys(_TEXT).alias(_KEYS),
        ).withColumn(_UNFIT, _is_unfit(None if fields.is_given else (*fields.columns, *fields.empty)))
        columns: list[Column] = [F.col(f"`_{name}`") for name in source.columns if name != value]
        columns += [F.when(~F.col(_UNFIT), F.col(f"{_PARSED}.`{name}`")).alias(name) for name in fields.columns]
        return parsed.select(*columns, F.when(F.col(_UNFIT), F.col(DEAD_LETTER)).alias(DEAD_LETTER))

    def _with_partitions(self, rows: DataFrame, source: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        partitions = self._settings.partitions
        taken = {name.lower() for name in rows.columns}
        if not partitions:
            return rows
        if both := [name for name in partitions if name in taken]:
            raise UsageError(f"partition_by makes the column {both[0]}, and the rows have it: rename that one")
        times = [F.expr(self._settings.event_time)] if self._settings.event_time else []
        for name in EVENT_TIMES:
            times += [F.col(f"`{each}`") for each in (f"_{name}", name) if each.lower() in taken][:1]
        if not times:
            raise UsageError("partition_by needs a time: name it in event_time", columns=", ".join(rows.columns))
        # In UTC whatever the session's time zone is: a row that is read again has the same partition.
        micros = F.unix_micros(F.coalesce(*times))
        days = F.floor(micros / F.lit(86_400_000_000)).cast("int")
        hours = F.pmod(F.floor(micros / F.lit(3_600_000_000)), F.lit(24)).cast("int")
        made = {"event_day": F.date_from_unix_date(days), "event_hour": hours}
        return rows.select("*", *(made[name].alias(name) for name in partitions))


def value_column(source: DataFrame) -> str:
    """Returns the column that has what producers sent. Raises UsageError."""
    for name in VALUES:
        if name in source.columns:
            return name
    raise UsageError(
        f"the schema json reads the column {', '.join(VALUES[:-1])} or {VALUES[-1]}, and the source has none",
        columns=", ".join(source.columns),
    )


def _is_unfit(names: Sequence[str] | None) -> Column:
    """Whether a value is not wholly in its columns; ``names`` are those that it may have, None for any."""
    from pyspark.sql import functions as F

    keys = F.col(_KEYS)
    unfit = F.col(_TEXT).isNull() | F.col(f"{_PARSED}.`{_CORRUPT}`").isNotNull() | keys.isNull()
    unfit = unfit | (F.size(F.array_distinct(keys)) < F.size(keys))
    if names is not None:
        known = F.array(*(F.lit(name) for name in names)) if names else F.array().cast("array<string>")
        unfit = unfit | (F.size(F.array_except(keys, known)) > 0)
    return F.col(DEAD_LETTER).isNotNull() & F.coalesce(unfit, F.lit(True))


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
