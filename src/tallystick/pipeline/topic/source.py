"""The Spark data source ``tally-topic``: the messages of topics as rows, pulled from the brokers directly.

The driver's planner process asks for the queues and their ends; a task gets its ranges and the brokers' addresses in
its partition. Reading commits no offsets, but those of a group that a streaming query was given. Messages come as Arrow
batches, bodies checked, in the order of their queue; a dead master's come from its slave (H13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.source import ReadOnlySource, TaskPartition, check_schema
from tallystick.pipeline.source_options import options_of_read, to_store
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import BrokerSets, TopicPartition
from tallystick.pipeline.topic.schema import COLUMNS, FORMAT

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class TopicDataSource(ReadOnlySource):
    instead_of_writing = "Send with tallystick.sync.topics(name_server).producer(group) in foreachPartition."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with coded():
            columns = TopicOptions.parse(options_of_read(self.options)).columns
            return COLUMNS.struct(columns, to_store(self.options))

    def reader(self, schema: StructType) -> TopicSourceReader:
        return TopicSourceReader(self._options(schema, follows=False), schema)

    def streamReader(self, schema: StructType) -> TopicFollowingReader:
        return TopicFollowingReader(self._options(schema, follows=True), schema)

    def _options(self, schema: StructType, *, follows: bool) -> TopicOptions:
        with coded():
            options = options_of_read(self.options, schema)
            topic_options = TopicOptions.parse(options, follows=follows)
            check_schema(COLUMNS, topic_options.columns if "columns" in options else None, schema)
            return topic_options


class TopicSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[TopicPartition]]:
        from tallystick.pipeline.topic.survey import survey

        with coded():
            partitions = asyncio.run(survey(self.options))
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        empty = TopicPartition((), BrokerSets({}, self.options.group))
        return [TaskPartition(partition) for partition in partitions or [empty]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition, self.row_schema)


class TopicFollowingReader(FollowingReader[TopicOptions]):
    def connect(self) -> QueryPlanner[Any, Any, TopicPartition]:
        from tallystick.pipeline.topic.planner import planner

        return planner(self.options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition, self.row_schema)


def read_rows(partition: InputPartition, schema: StructType) -> Iterator[Any]:
    """The rows of one task, as Arrow batches."""
    from tallystick.pipeline.topic.arrow import SCHEMA
    from tallystick.pipeline.topic.read import read_partition

    assert isinstance(partition, TaskPartition)
    return read_partition(partition.partition, COLUMNS.arrow_schema(schema, SCHEMA))
