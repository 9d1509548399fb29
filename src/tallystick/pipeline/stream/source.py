"""The Spark data source ``tally-stream``: the messages of streams as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC; no cursor is moved. Messages come as Arrow batches, digests checked, in the
order of their stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.source import BatchReader, LogSource, require_append
from tallystick.pipeline.source_options import options_of_read
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.schema import COLUMNS, FORMAT
from tallystick.pipeline.stream.sink_options import SinkOptions

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class StreamDataSource(LogSource[StreamSourceOptions]):
    columns = COLUMNS

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> StreamSourceOptions:
        return StreamSourceOptions.parse(options, follows=follows)

    def batch_reader(self, options: StreamSourceOptions, schema: StructType) -> StreamSourceReader:
        return StreamSourceReader(options, schema)

    def following_reader(self, options: StreamSourceOptions, schema: StructType) -> StreamFollowingReader:
        return StreamFollowingReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tallystick.pipeline.stream.repeatable_sink import RepeatableBatchWriter
        from tallystick.pipeline.stream.sink import StreamBatchWriter

        with coded():
            require_append("a stream", overwrite=overwrite)
            options = SinkOptions.parse(options_of_read(self.options), follows=False)
            return (StreamBatchWriter if options.is_once else RepeatableBatchWriter)(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tallystick.pipeline.stream.repeatable_sink import RepeatableFollowingWriter
        from tallystick.pipeline.stream.sink import StreamFollowingWriter

        with coded():
            require_append("a stream", overwrite=overwrite)
            options = SinkOptions.parse(options_of_read(self.options), follows=True)
            return (StreamFollowingWriter if options.is_once else RepeatableFollowingWriter)(options, schema)


class StreamSourceReader(BatchReader[StreamSourceOptions, StreamPartition]):
    def plan(self) -> Sequence[StreamPartition]:
        from tallystick.pipeline.stream.survey import partitions_of, survey

        return partitions_of(asyncio.run(survey(self.options)), self.options)

    def nothing(self) -> StreamPartition:
        return StreamPartition((), {})

    def rows(self, partition: StreamPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema, self.options)


class StreamFollowingReader(FollowingReader[StreamSourceOptions]):
    format_name = FORMAT

    def connect(self) -> QueryPlanner[Any, Any, StreamPartition]:
        from tallystick.pipeline.stream.planner import planner

        return planner(self.options)

    def rows(self, partition: StreamPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema, self.options)


def _rows(partition: StreamPartition, schema: StructType, options: StreamSourceOptions) -> Iterator[Any]:
    from tallystick.pipeline.bookies import keys_of
    from tallystick.pipeline.stream.read import read_partition
    from tallystick.pipeline.stream.rows import SCHEMA

    return read_partition(partition, COLUMNS.arrow_schema(schema, SCHEMA), keys_of(options.uri))
