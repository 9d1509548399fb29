"""What the data sources have in common: one partition of a plan for each task, and a schema that the caller may choose.

The driver's planner process makes the plan; a task gets all it needs in its partition. Options are read anew by each of
Spark's short planner processes, and reading them contacts nobody.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from tallystick.errors import UsageError
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import Columns

PlanT = TypeVar("PlanT")


class TaskPartition(InputPartition, Generic[PlanT]):
    """One task's part of the plan."""

    def __init__(self, partition: PlanT) -> None:
        self.partition = partition


def check_schema(columns: Columns, option_columns: tuple[str, ...] | None, schema: StructType) -> None:
    """``option_columns``: what the option ``columns`` says, if it is given. Raises UsageError."""
    schema_columns = columns.of_schema(schema)
    if option_columns is not None and option_columns != schema_columns:
        raise UsageError("the option columns and the schema differ: give one", schema=",".join(schema_columns))


class ReadOnlySource(DataSource):
    """A format that Spark reads and does not write."""

    instead_of_writing: str

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        with coded():
            raise UsageError(f"{self.name()} cannot be written by Spark. {self.instead_of_writing}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return self.writer(schema, overwrite)


class BatchSource(ReadOnlySource):
    """A format that Spark reads as a finished table alone."""

    instead_of_following: str

    def streamReader(self, schema: StructType) -> Any:
        with coded():
            raise UsageError(
                f"{self.name()} cannot be followed by a streaming query: read it with spark.read, again when there is "
                f"more. {self.instead_of_following}"
            )
