"""The Spark data source ``tally-stream``: the messages of streams as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC; no cursor is moved. Messages come as Arrow batches, digests checked, in the
order of their stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tallystick.errors import UsageError
from tallystick.pipeline.codes import coded
from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.source import TaskPartition, check_schema
from tallystick.pipeline.source_options import options_of_read, to_store
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.schema import COLUMNS, FORMAT
from tallystick.pipeline.stream.sink_options import SinkOptions

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class StreamDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with coded():
            columns = StreamSourceOptions.parse(options_of_read(self.options)).columns
            return COLUMNS.struct(columns, to_store(self.options))

    def reader(self, schema: StructType) -> StreamSourceReader:
        return StreamSourceReader(self._options(schema, follows=False), schema)

    def streamReader(self, schema: StructType) -> StreamFollowingReader:
        return StreamFollowingReader(self._options(schema, follows=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tallystick.pipeline.stream.sink import StreamBatchWriter

        with coded():
            _require_append(overwrite=overwrite)
            return StreamBatchWriter(SinkOptions.parse(options_of_read(self.options), follows=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tallystick.pipeline.stream.sink import StreamFollowingWriter

        with coded():
            _require_append(overwrite=overwrite)
            return StreamFollowingWriter(SinkOptions.parse(options_of_read(self.options), follows=True), schema)

    def _options(self, schema: StructType, *, follows: bool) -> StreamSourceOptions:
        with coded():
            options = options_of_read(self.options, schema)
            stream_options = StreamSourceOptions.parse(options, follows=follows)
            check_schema(COLUMNS, stream_options.columns if "columns" in options else None, schema)
            return stream_options


def _require_append(*, overwrite: bool) -> None:
    if overwrite:
        raise UsageError(
            "a stream is only ever appended to: mode append for a batch, outputMode append or update for a query"
        )


class StreamSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: StreamSourceOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[StreamPartition]]:
        from tallystick.pipeline.stream.survey import partitions_of, survey

        with coded():
            partitions = partitions_of(asyncio.run(survey(self.options)), self.options)
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in partitions or [StreamPartition((), {})]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition, self.row_schema)


class StreamFollowingReader(FollowingReader[StreamSourceOptions]):
    def connect(self) -> QueryPlanner[Any, Any, StreamPartition]:
        from tallystick.pipeline.stream.planner import planner

        return planner(self.options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition, self.row_schema)


def read_rows(partition: InputPartition, schema: StructType) -> Iterator[Any]:
    """The rows of one task, as Arrow batches."""
    from tallystick.pipeline.stream.read import read_partition
    from tallystick.pipeline.stream.rows import SCHEMA

    assert isinstance(partition, TaskPartition)
    return read_partition(partition.partition, COLUMNS.arrow_schema(schema, SCHEMA))
