"""The Spark data source ``tally-topic``: the messages of topics as rows, pulled from the brokers directly.

The driver's planner process asks for the queues and their ends; a task gets its ranges and the brokers' addresses in
its partition. Reading commits no offsets, but those of a group that a streaming query was given. Messages come as Arrow
batches, bodies checked, in the order of their queue; a dead master's come from its slave (H13).
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
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import BrokerSets, TopicPartition
from tallystick.pipeline.topic.schema import COLUMNS, FORMAT
from tallystick.pipeline.topic.sink_options import TopicSinkOptions

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class TopicDataSource(LogSource[TopicOptions]):
    columns = COLUMNS

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> TopicOptions:
        return TopicOptions.parse(options, follows=follows)

    def batch_reader(self, options: TopicOptions, schema: StructType) -> TopicSourceReader:
        return TopicSourceReader(options, schema)

    def following_reader(self, options: TopicOptions, schema: StructType) -> TopicFollowingReader:
        return TopicFollowingReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tallystick.pipeline.topic.sink import TopicBatchWriter

        with coded():
            require_append("a topic", overwrite=overwrite)
            return TopicBatchWriter(TopicSinkOptions.parse(options_of_read(self.options), follows=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tallystick.pipeline.topic.sink import TopicFollowingWriter

        with coded():
            require_append("a topic", overwrite=overwrite)
            return TopicFollowingWriter(TopicSinkOptions.parse(options_of_read(self.options), follows=True), schema)


class TopicSourceReader(BatchReader[TopicOptions, TopicPartition]):
    def plan(self) -> Sequence[TopicPartition]:
        from tallystick.pipeline.topic.survey import survey

        return asyncio.run(survey(self.options))

    def nothing(self) -> TopicPartition:
        return TopicPartition((), BrokerSets({}, self.options.group))

    def rows(self, partition: TopicPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema)


class TopicFollowingReader(FollowingReader[TopicOptions]):
    format_name = FORMAT

    def connect(self) -> QueryPlanner[Any, Any, TopicPartition]:
        from tallystick.pipeline.topic.planner import planner

        return planner(self.options)

    def rows(self, partition: TopicPartition) -> Iterator[Any]:
        return _rows(partition, self.row_schema)


def _rows(partition: TopicPartition, schema: StructType) -> Iterator[Any]:
    from tallystick.pipeline.topic.arrow import SCHEMA
    from tallystick.pipeline.topic.read import read_partition

    return read_partition(partition, COLUMNS.arrow_schema(schema, SCHEMA))
