"""Types of Arrow as texts that are equal for the same values, however they are stored; and what a table lacks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


def type_text(type_: pa.DataType) -> str:
    """Returns ``struct<a: int64>``, whether the parts may be null or not."""
    import pyarrow.types as types

    if types.is_large_string(type_) or types.is_string_view(type_):
        return "string"
    if types.is_large_binary(type_) or types.is_binary_view(type_):
        return "binary"
    if types.is_struct(type_):
        return f"struct<{', '.join(f'{each.name}: {type_text(each.type)}' for each in type_)}>"
    if types.is_map(type_):
        return f"map<{type_text(type_.key_type)}, {type_text(type_.item_type)}>"
    if types.is_list(type_) or types.is_large_list(type_):
        return f"list<{type_text(type_.value_type)}>"
    return str(type_)


def added_columns(table: pa.Schema, rows: pa.Schema, name: str) -> pa.Schema:
    """Returns the columns of rows that a table lacks. Raises UsageError for one that it has with another type, or under
    a name that differs in case alone, or that it must have and rows have not."""
    import pyarrow as pa

    spelled = {each.name.lower(): each for each in table}
    added = []
    for column in rows:
        there = spelled.get(column.name.lower())
        if there is None:
            added.append(column)
        elif there.name != column.name:
            raise UsageError(
                f"the table has the column {there.name}, and the rows have {column.name}: names that differ in case "
                "alone are one. Rename it in a schema function",
                table=name,
                column=column.name,
            )
        elif type_text(there.type) != type_text(column.type):
            raise UsageError(
                f"column {column.name} is {type_text(there.type)} in the table, and {type_text(column.type)} in the "
                "rows: types are not changed. Cast or rename it in a schema function, or write another table",
                table=name,
                column=column.name,
            )
    given = {each.name.lower() for each in rows}
    for column in table:
        if not column.nullable and column.name.lower() not in given:
            raise UsageError(
                f"the table must have a value in column {column.name}, and the rows have no such column: add it in a "
                "schema function",
                table=name,
                column=column.name,
            )
    return pa.schema(added)


def check_partitions(table: tuple[str, ...], partition_by: tuple[str, ...], name: str) -> None:
    """Raises UsageError for a table that is partitioned otherwise than it was asked for."""
    if table != partition_by:
        raise UsageError(
            f"the table is partitioned by {', '.join(table) or 'nothing'}, and partition_by says "
            f"{', '.join(partition_by) or 'nothing'}: give it the table's, or write a table of its own",
            table=name,
        )


def with_columns(schema: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Returns ``schema`` with columns behind its own."""
    import pyarrow as pa

    return pa.schema([*schema, *new])
