"""What the data sources have in common: one partition of a plan for each task, and a schema that the caller may choose.

The driver's planner process makes the plan; a task gets all it needs in its partition. Options are read anew by each of
Spark's short planner processes, and reading them contacts nobody.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tallystick.errors import UsageError
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import Columns
from tallystick.pipeline.source_options import options_of_read, to_store

PlanT = TypeVar("PlanT")


class SourceOptions(Protocol):
    """The options of a format, checked."""

    @property
    def columns(self) -> tuple[str, ...]: ...


OptionsT = TypeVar("OptionsT", bound=SourceOptions)


class TaskPartition(InputPartition, Generic[PlanT]):
    """One task's part of the plan."""

    def __init__(self, partition: PlanT) -> None:
        self.partition = partition


class LogSource(DataSource, Generic[OptionsT]):
    """A format that Spark reads as a finished table, and that streaming queries follow."""

    columns: ClassVar[Columns]

    @abstractmethod
    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> OptionsT:
        """Returns the options of a streaming query, or of a batch; ``follows`` is None where that is not known yet.
        Raises UsageError."""

    @abstractmethod
    def batch_reader(self, options: OptionsT, schema: StructType) -> DataSourceReader: ...

    @abstractmethod
    def following_reader(self, options: OptionsT, schema: StructType) -> DataSourceStreamReader: ...

    def schema(self) -> StructType:
        with coded():
            names = self.parse(options_of_read(self.options), follows=None).columns
            return self.columns.struct(names, to_store(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return self.batch_reader(self._checked(schema, follows=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self.following_reader(self._checked(schema, follows=True), schema)

    def _checked(self, schema: StructType, *, follows: bool) -> OptionsT:
        with coded():
            given = options_of_read(self.options, schema)
            options = self.parse(given, follows=follows)
            schema_columns = self.columns.of_schema(schema)
            if "columns" in given and options.columns != schema_columns:
                raise UsageError("the option columns and the schema differ: give one", schema=",".join(schema_columns))
            return options


def require_append(what: str, *, overwrite: bool) -> None:
    """Raises UsageError for a write that replaces what there is."""
    if overwrite:
        raise UsageError(
            f"{what} is only ever appended to: mode append for a batch, outputMode append or update for a query"
        )


class ReadOnlySource(LogSource[OptionsT]):
    """A format that Spark reads and does not write."""

    instead_of_writing: ClassVar[str]

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        with coded():
            raise UsageError(f"{self.name()} cannot be written by Spark. {self.instead_of_writing}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return self.writer(schema, overwrite)


class BatchReader(DataSourceReader, Generic[OptionsT, PlanT]):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: OptionsT, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    @abstractmethod
    def plan(self) -> Sequence[PlanT]:
        """Returns what each task reads. Raises what planning raises."""

    @abstractmethod
    def nothing(self) -> PlanT:
        """Returns the part of a task that has nothing to read."""

    def partitions(self) -> list[TaskPartition[PlanT]]:
        with coded():
            partitions = self.plan()
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in partitions or [self.nothing()]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, TaskPartition)
        return self.rows(partition.partition)

    @abstractmethod
    def rows(self, partition: PlanT) -> Iterator[Any]:
        """Returns the rows of a task, as Arrow batches."""
