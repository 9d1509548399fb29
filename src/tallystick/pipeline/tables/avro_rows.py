"""Values in Avro as columns: one record a value, of the schema that is given, as Spark's ``from_avro`` reads it.

What does not fit, whatever is wrong with it, is in ``_dead_letter`` as it came: no row is lost, and none ends the
query. Tasks decode, with ``fastavro``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tallystick.errors import UsageError
from tallystick.pipeline.tables.avro_types import AvroType, avro_type, without_meanings
from tallystick.pipeline.tables.files import DEAD_LETTER
from tallystick.pipeline.tables.json_fields import refused_name
from tallystick.pipeline.tables.json_rows import value_column
from tallystick.runtime.extras import require

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

MOST_READS = 1_000_000  # of one value: each is an object in memory, and a body has one in every byte
_SURELY_FEW = 64 * 1024  # bytes of a body
_CHUNK_BYTES = 4 * 1024 * 1024  # of bodies that are decoded together
_HEADER = 5  # a zero, and the number of a schema
# What fastavro raises for bytes that are none of the schema's.
_UNFIT = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, TypeError, ValueError)


class AvroFields:
    """The fields of a schema: ``columns``, names and types of Spark; the ``type`` of its records, which are read with
    the schema ``plain``."""

    def __init__(self, text: str) -> None:
        """``text`` is the schema, or the path of a file that has it. Raises UsageError."""
        require("a schema of Avro", "fastavro")
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType

        self.text = _schema_text(text)
        named: dict[str, Any] = {}
        try:
            schema = parse_schema(json.loads(self.text), named_schemas=named, expand=False)
        except (SchemaParseException, UnknownType, ValueError, TypeError, LookupError, RecursionError) as error:
            shown = f"{type(error).__name__}: {error}"[:300]
            raise UsageError(f"value_schema is no schema of Avro: {shown}", given=text[:200]) from None
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise UsageError("value_schema is an Avro record, whose fields are the columns", given=text[:200])
        self.plain, self.type = without_meanings(schema), avro_type(schema, named)
        self.columns: dict[str, DataType] = {
            each.name: each.dataType for each in cast("StructType", self.type.spark).fields
        }
        self._check_names()

    def _check_names(self) -> None:
        taken = set[str]()
        for name in self.columns:
            reason = refused_name(name)
            if reason is None and name.lower() in taken:
                reason = "differs from another one in case alone"
            if reason is not None:
                raise UsageError(f"field {name!r} of value_schema {reason}")
            taken.add(name.lower())


def _schema_text(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"value_schema of avro is a schema as JSON, or a file that has one, and {given[:200]!r} is neither: {error}"
        ) from None


def avro_rows(source: DataFrame, fields: AvroFields, header: str = "") -> DataFrame:
    """Returns the rows with these fields. Raises UsageError for a source that has no value."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StructField, StructType

    value = value_column(source, "avro")
    others = [name for name in source.columns if name != value]
    renamed = source.select(*(F.col(f"`{name}`").alias(f"_{name}") for name in others), F.col(f"`{value}`"))
    kinds = [StructField(name, kind) for name, kind in fields.columns.items()]
    schema = StructType([*renamed.schema.fields[:-1], *kinds, StructField(DEAD_LETTER, BinaryType())])
    return renamed.mapInArrow(AvroDecoder(fields.text, header), schema)


class AvroDecoder:
    """Makes batches with columns of batches whose last column has the values. It goes to the tasks as its schema."""

    def __init__(self, schema: str, header: str) -> None:
        self._schema, self._header = schema, header

    def __getstate__(self) -> tuple[str, str]:
        return self._schema, self._header

    def __setstate__(self, state: tuple[str, str]) -> None:
        self._schema, self._header = state

    @cached_property
    def _fields(self) -> AvroFields:
        return AvroFields(self._schema)

    @cached_property
    def _type(self) -> AvroType:
        return self._fields.type

    @cached_property
    def _plain(self) -> Any:
        from fastavro import parse_schema

        return _from_zero(parse_schema(self._fields.plain))

    @cached_property
    def _columns(self) -> pa.StructType:
        from pyspark.sql.pandas.types import to_arrow_type

        return to_arrow_type(self._type.spark, timezone="UTC")

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in _chunks(batch):
                yield self._decoded(part)

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        bodies = batch.column(batch.num_columns - 1).to_pylist()
        rows = [None if body is None else self._row(body) for body in bodies]
        try:
            record = pa.array(rows, self._columns)
        except (pa.ArrowException, *_UNFIT):
            rows = [row if self._fits(row) else None for row in rows]
            record = pa.array(rows, self._columns)
        unfit = [body if row is None else None for body, row in zip(bodies, rows, strict=True)]
        dead = pa.array(unfit, pa.binary())
        columns = [*batch.columns[:-1], *record.flatten(), dead]
        names = [*batch.schema.names[:-1], *(field.name for field in self._columns), DEAD_LETTER]
        return pa.RecordBatch.from_arrays(columns, names)

    def _row(self, body: bytes) -> dict[str, Any] | None:
        """Returns the record; None for what is none."""
        from fastavro import schemaless_reader

        start = 0
        if self._header:
            if len(body) < _HEADER or body[0]:
                return None
            start = _HEADER
        stream = io.BytesIO(body) if len(body) <= _SURELY_FEW else _CountedReads(body)
        stream.seek(start)
        try:
            row = cast(dict[str, Any], schemaless_reader(stream, self._plain, None))
            if stream.tell() != len(body):
                return None
            return row if self._type.convert is None else cast(dict[str, Any], self._type.convert(row))
        except _UNFIT:
            return None

    def _fits(self, row: dict[str, Any] | None) -> bool:
        import pyarrow as pa

        try:
            pa.array([row], self._columns)
        except (pa.ArrowException, *_UNFIT):
            return False
        return True


class _CountedReads(io.BytesIO):
    """A long body, which may have more values than one may keep. Raises ValueError then."""

    _left = MOST_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {MOST_READS} values")
        return super().read(size)


class _FromZero(list[Any]):
    """The branches of a union, or the symbols of an enum: a body that has a negative index of one is none.

    fastavro takes any index that a list takes. It adds the length to a negative one before the list sees it, and adds
    nothing here.
    """

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            raise IndexError(index)
        return super().__getitem__(index)


def _from_zero(schema: Any) -> Any:
    """Returns a parsed schema that has no negative indexes."""
    if isinstance(schema, list):
        return _FromZero(map(_from_zero, schema))
    if not isinstance(schema, dict):
        return schema
    inner = {name: _from_zero(part) for name, part in schema.items() if name != "fields"}
    if isinstance(schema.get("fields"), list):
        inner["fields"] = [_from_zero(field) for field in schema["fields"]]
    return inner


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields parts of it whose bodies have so many bytes together, or of one row."""
    import pyarrow.compute as pc

    start = size = 0
    for row, length in enumerate(pc.binary_length(batch.column(batch.num_columns - 1)).to_pylist()):
        if size and size + (length or 0) > _CHUNK_BYTES:
            yield batch.slice(start, row - start)
            start, size = row, 0
        size += length or 0
    yield batch.slice(start)
