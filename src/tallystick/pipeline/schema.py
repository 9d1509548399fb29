"""The columns of the format ``tally-ledger``.

::

    ledger BIGINT | entry BIGINT | lac BIGINT | length BIGINT | payload BINARY

``lac`` is the writer's last add confirmed when it sent the entry (Q6); ``length`` sums the ledger's payload bytes up to
and with this entry. Spark 4.3 prunes no columns of Python sources, so a projection is the caller's word: the option
``columns``, or a schema of one's own; each is any part of these columns in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS = {"ledger": "bigint", "entry": "bigint", "lac": "bigint", "length": "bigint", "payload": "binary"}


def parse_columns(text: str) -> tuple[str, ...]:
    """The option ``columns``: names parted by commas. Raises UsageError."""
    return checked(tuple(name.strip().lower() for name in text.split(",")))


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` if each is one of ours and none comes twice. Raises UsageError."""
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names or len(set(names)) < len(names):
        raise UsageError(f"columns are some of {', '.join(COLUMNS)}, each once", columns=",".join(names))
    return tuple(names)


def ddl(columns: Sequence[str]) -> str:
    """The columns as Spark writes a schema. None is ever null."""
    return ", ".join(f"{name} {COLUMNS[name]} not null" for name in columns)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow form of what Spark expects, who compares even what may be null. Raises UsageError as ``columns_of``."""
    import pyarrow as pa

    from tallystick.bookkeeper.ledger.arrow import schema_of

    ours = schema_of(columns_of(schema))
    return pa.schema([ours.field(field.name).with_nullable(field.nullable) for field in schema.fields])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for. Raises UsageError for one that this format cannot fill."""
    names = checked([field.name for field in schema.fields])
    for field in schema.fields:
        if field.dataType.simpleString() != COLUMNS[field.name]:
            raise UsageError(
                f"column {field.name} has the type {COLUMNS[field.name].upper()}", asked=field.dataType.simpleString()
            )
    return names
