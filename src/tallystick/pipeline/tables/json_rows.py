"""The objects in the values of messages as columns: a frame of any source, read once or followed.

The fields are columns, and behind an underscore are the other columns of the source. A value that is no object, or does
not fit in the columns, is in ``_dead_letter`` as it came, and its fields are null: no row is lost, and none ends the
query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.pipeline.tables.files import DEAD_LETTER
from tallystick.pipeline.tables.json_fields import JsonFields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALUES = ("value", "body", "payload")  # of streams, topics, ledgers
_TEXT, _PARSED, _KEYS, _UNFIT = "_tally_text", "_tally_parsed", "_tally_keys", "_tally_unfit"
_CORRUPT = "_tally_corrupt"


def value_texts(source: DataFrame) -> DataFrame:
    """Returns a frame with the values alone, as text; null for what is none."""
    return source.select(_text(value_column(source)).alias(_TEXT))


def json_rows(source: DataFrame, fields: JsonFields) -> DataFrame:
    """Returns the rows with these fields. Raises UsageError for a source that has no value."""
    from pyspark.sql import functions as F

    value = value_column(source)
    others = [name for name in source.columns if name != value]
    ours = [F.col(f"`{name}`").alias(f"_{name}") for name in others]
    texts = source.select(*ours, F.col(f"`{value}`").alias(DEAD_LETTER), _text(value).alias(_TEXT))
    parsed = texts.select(
        "*",
        F.from_json(
            _TEXT, fields.struct(_CORRUPT), {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        ).alias(_PARSED),
        F.json_object_keys(_TEXT).alias(_KEYS),
    ).withColumn(_UNFIT, _is_unfit(None if fields.is_given else (*fields.columns, *fields.empty)))
    columns: list[Column] = [F.col(f"`_{name}`") for name in others]
    columns += [F.when(~F.col(_UNFIT), F.col(f"{_PARSED}.`{name}`")).alias(name) for name in fields.columns]
    return parsed.select(*columns, F.when(F.col(_UNFIT), F.col(DEAD_LETTER)).alias(DEAD_LETTER))


def _text(value: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"try_validate_utf8(cast(`{value}` as string))")


def value_column(source: DataFrame, schema: str = "json") -> str:
    """Returns the column that has what producers sent. Raises UsageError."""
    for name in VALUES:
        if name in source.columns:
            return name
    raise UsageError(
        f"the schema {schema} reads the column {', '.join(VALUES[:-1])} or {VALUES[-1]}, and the source has none",
        columns=", ".join(source.columns),
    )


def _is_whole() -> Column:
    """Whether nothing follows the object, which Spark's readers of JSON would pass over: it is one field of another."""
    from pyspark.sql import functions as F

    ends = "_tally_value", "_tally_end"
    around = F.concat(F.lit(f'{{"{ends[0]}":'), F.col(_TEXT), F.lit(f',"{ends[1]}":0}}'))
    return F.json_object_keys(around) == F.array(*(F.lit(each) for each in ends))


def _is_unfit(names: Sequence[str] | None) -> Column:
    """Whether a value is not wholly in its columns; ``names`` are those that it may have, None for any."""
    from pyspark.sql import functions as F

    keys = F.col(_KEYS)
    unfit = F.col(_TEXT).isNull() | F.col(f"{_PARSED}.`{_CORRUPT}`").isNotNull() | keys.isNull()
    unfit = unfit | (F.size(F.array_distinct(keys)) < F.size(keys)) | ~_is_whole()
    if names is not None:
        known = F.array(*(F.lit(name) for name in names)) if names else F.array().cast("array<string>")
        unfit = unfit | (F.size(F.array_except(keys, known)) > 0)
    return F.col(DEAD_LETTER).isNotNull() & F.coalesce(unfit, F.lit(True))
