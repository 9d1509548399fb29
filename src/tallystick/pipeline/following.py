"""What the data sources that streaming queries follow have in common."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.offsets import Offset, require_json
from tallystick.pipeline.source import TaskPartition
from tallystick.pipeline.trigger import TriggerLimits

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class FollowingOptions(Protocol):
    @property
    def trigger(self) -> TriggerLimits: ...


OptionsT = TypeVar("OptionsT", bound=FollowingOptions)


class FollowingReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[OptionsT]):
    """Plans in one process for as long as the query runs, which follows the log; reads in the executors, with a copy
    that was made before."""

    format_name: ClassVar[str]

    def __init__(self, options: OptionsT, schema: StructType) -> None:
        self.options, self.row_schema = options, schema
        self._planner: QueryPlanner[Any, Any, Any] | None = None  # made where something is planned: a copy has none

    @abstractmethod
    def connect(self) -> QueryPlanner[Any, Any, Any]:
        """Returns a new planner."""

    @property
    def planner(self) -> QueryPlanner[Any, Any, Any]:
        if self._planner is None:
            self._planner = self.connect()
        return self._planner

    def initialOffset(self) -> Offset:
        with coded():
            return self.planner.initial()

    def prepareForTriggerAvailableNow(self) -> None:
        with coded():
            self.planner.freeze()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with coded():
            limits = TriggerLimits() if isinstance(limit, ReadAllAvailable) else self.options.trigger
            return self.planner.latest(start, limits)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows no limit that is several; what it says of ours is only whether they count.
        limits = self.options.trigger
        if limits.items is not None:
            return ReadMaxRows(limits.items)
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        return ReadAllAvailable() if limits.min_items is None else ReadMinRows(limits.min_items)

    def reportLatestOffset(self) -> Offset | None:
        return self.planner.heads()

    def partitions(self, start: Offset, end: Offset) -> list[TaskPartition[Any]]:
        with coded():
            return [TaskPartition(partition) for partition in self.planner.partitions(start, end)]

    def commit(self, end: Offset) -> None:
        with coded():
            self.planner.commit(end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, TaskPartition)
        return self.rows(partition.partition)

    @abstractmethod
    def rows(self, partition: Any) -> Iterator[Any]:
        """Returns the rows of a task, as Arrow batches."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
        with coded():
            require_json(sys.exception(), self.format_name)
