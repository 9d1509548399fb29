"""The columns of a frame that is written, against those that a format knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BINARY_OR_STRING = ("binary", "string")


def check_columns(
    schema: StructType, types: Mapping[str, tuple[str, ...]], *, example: str, passed_over: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns the names of a frame's columns as the format spells them, in their order. Raises UsageError for a column
    that the format does not know, and that is not ``passed_over``, that is of another type, or that is there twice."""
    spelled = {name.lower(): name for name in (*types, *passed_over)}
    names = []
    for field in schema.fields:
        name = spelled.get(field.name.lower())
        if name is None:
            raise UsageError(
                f"column {field.name} is none of {', '.join(types)}: select what is to be written, as in {example}"
            )
        if name in types and field.dataType.simpleString() not in types[name]:
            raise UsageError(f"column {name} is of {' or '.join(types[name])}, not of {field.dataType.simpleString()}")
        if name in names:
            raise UsageError(f"a frame that is written has one column {name}, in whatever case")
        names.append(name)
    return tuple(names)
