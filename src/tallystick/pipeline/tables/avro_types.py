"""Types of Avro schemas as those of Spark, as its ``from_avro`` has them, and values of the one as those of the other.

Of a union there is one type beside null. A type that contains itself has no column, and types whose values take no byte
are refused: of such ones a short body may have any number.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystick.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = datetime.date.min.toordinal() - _EPOCH, datetime.date.max.toordinal() - _EPOCH
_DAY_MICROS = 86_400_000_000
_FIRST_MICROS, _END_MICROS = _FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS
MOST_DIGITS = 38  # of a DECIMAL
DEEPEST = 64  # types in types
_DECIMAL_BYTES = 64
_EXACT = decimal.Context(prec=2 * MOST_DIGITS)

Convert = Callable[[Any], Any]
Named = Mapping[str, Any]  # schemas by their full names


def without_meanings(schema: Any) -> Any:
    """Returns the schema that values are read with: times are numbers, decimals bytes, of which any can be read."""
    if isinstance(schema, list):
        return [*map(without_meanings, schema)]
    if not isinstance(schema, dict):
        return schema
    inner = {name: without_meanings(schema[name]) for name in ("type", "items", "values", "fields") if name in schema}
    return inner | {name: schema[name] for name in ("name", "size", "symbols") if name in schema}


@dataclass(frozen=True)
class AvroType:
    """``convert`` makes of a value, as it is read without meanings, that of the column; None where they are the same.
    It raises ValueError for one that no column has."""

    spark: DataType
    convert: Convert | None = None


def avro_type(schema: Any, named: Named, around: tuple[str, ...] = ()) -> AvroType:
    """``schema`` is as ``fastavro.parse_schema`` returns it, ``around`` are the names of records that it is in. Raises
    UsageError for what makes no column."""
    if isinstance(schema, list):
        return _union(schema, named, around)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if len(around) > DEEPEST:
        raise UsageError(f"an Avro schema has {DEEPEST} types in one another at most", inside=".".join(around[:4]))
    if (kind == "fixed" and not schema["size"]) or (kind == "record" and not schema["fields"]):
        raise UsageError("a value of Avro takes a byte at least, or a few have any number of them", of=schema["name"])
    if kind == "record":
        return _record(schema, named, around)
    if kind == "array":
        return _array(schema, named, around)
    if kind == "map":
        return _map(schema, named, around)
    logical = {} if isinstance(schema, str) else schema
    return _logical(kind, logical) or _primitive(kind, schema)


def _primitive(kind: str, schema: Any) -> AvroType:
    from pyspark.sql import types

    if kind in ("fixed", "enum"):
        return AvroType(types.BinaryType() if kind == "fixed" else types.StringType())
    simple = {
        "boolean": types.BooleanType(), "int": types.IntegerType(), "long": types.LongType(),
        "float": types.FloatType(), "double": types.DoubleType(), "bytes": types.BinaryType(),
        "string": types.StringType(),
    }  # fmt: skip
    if kind not in simple:
        raise UsageError(f"a value of the Avro type {kind} has no column of its own: leave it out, or add a type to it")
    return AvroType(simple[kind])


def _logical(kind: str, schema: Mapping[str, Any]) -> AvroType | None:
    """Returns the type with a meaning; None for a meaning that nobody knows, which Avro has passed over."""
    from pyspark.sql import types

    meaning = schema.get("logicalType"), kind
    if meaning == ("date", "int"):
        return AvroType(types.DateType(), _day)
    for name, spark in (("timestamp", types.TimestampType()), ("local-timestamp", types.TimestampNTZType())):
        if meaning == (f"{name}-millis", "long"):
            return AvroType(spark, _millis)
        if meaning == (f"{name}-micros", "long"):
            return AvroType(spark, _micros)
    if meaning in (("decimal", "bytes"), ("decimal", "fixed")):
        digits, scale = schema.get("precision", 0), schema.get("scale", 0)
        if not 0 < digits <= MOST_DIGITS or not 0 <= scale <= digits:
            raise UsageError(f"a decimal has 1 to {MOST_DIGITS} digits in a table", precision=digits, scale=scale)
        return AvroType(types.DecimalType(digits, scale), lambda value: _decimal(value, digits, scale))
    return None


def _day(value: int) -> int:
    if not _FIRST_DAY <= value <= _LAST_DAY:
        raise ValueError("beyond the years 1 to 9999")
    return value


def _micros(value: int) -> int:
    if not _FIRST_MICROS <= value < _END_MICROS:
        raise ValueError("beyond the years 1 to 9999")
    return value


def _millis(value: int) -> int:
    return _micros(value * 1000)


def _decimal(value: bytes, digits: int, scale: int) -> decimal.Decimal:
    if len(value) > _DECIMAL_BYTES:
        raise ValueError("longer than the longest number, and long numbers take long")
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= 10**digits:
        raise ValueError(f"more than {digits} digits")
    return decimal.Decimal(number).scaleb(-scale, _EXACT)


def _union(schema: list[Any], named: Named, around: tuple[str, ...]) -> AvroType:
    others = [each for each in schema if each != "null"]
    if len(others) != 1:
        raise UsageError("a union has null and one other type in a table", union=str(schema)[:200])
    inner = avro_type(others[0], named, around)
    convert = inner.convert
    return AvroType(inner.spark, None if convert is None else lambda value: None if value is None else convert(value))


def _record(schema: Any, named: Named, around: tuple[str, ...]) -> AvroType:
    from pyspark.sql.types import StructField, StructType

    name = schema["name"]
    if name in around:
        raise UsageError(f"the Avro type {name} contains itself: no column has such values")
    fields = [(each["name"], avro_type(each["type"], named, (*around, name))) for each in schema["fields"]]
    converts = [(field, kind.convert) for field, kind in fields if kind.convert is not None]

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for field, convert_field in converts:
            value[field] = convert_field(value[field])
        return value

    spark = StructType([StructField(field, kind.spark) for field, kind in fields])
    return AvroType(spark, convert if converts else None)


def _array(schema: Any, named: Named, around: tuple[str, ...]) -> AvroType:
    from pyspark.sql.types import ArrayType

    inner = avro_type(schema["items"], named, (*around, "items"))
    convert = inner.convert
    return AvroType(ArrayType(inner.spark), None if convert is None else lambda value: [*map(convert, value)])


def _map(schema: Any, named: Named, around: tuple[str, ...]) -> AvroType:
    from pyspark.sql.types import MapType, StringType

    inner = avro_type(schema["values"], named, (*around, "values"))
    convert = inner.convert or (lambda value: value)
    return AvroType(
        MapType(StringType(), inner.spark), lambda value: [(key, convert(each)) for key, each in value.items()]
    )
