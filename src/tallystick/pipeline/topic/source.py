"""The Spark data source ``tally-topic``: the messages of topics as rows, pulled from the brokers directly.

The driver's planner process asks for the queues and their ends; a task gets its ranges and the brokers' addresses in
its partition. Reading commits no offsets, but those of a group that a streaming query was given. Messages come as Arrow
batches, bodies checked, in the order of their queue; a dead master's come from its slave (H13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from tallystick.pipeline.following import FollowingReader
from tallystick.pipeline.source import BatchReader, ReadOnlySource
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import BrokerSets, TopicPartition
from tallystick.pipeline.topic.schema import COLUMNS, FORMAT

if TYPE_CHECKING:
    from tallystick.pipeline.planner import QueryPlanner


class TopicDataSource(ReadOnlySource[TopicOptions]):
    columns = COLUMNS
    instead_of_writing = "Send with tallystick.sync.topics(name_server).producer(group) in foreachPartition."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def parse(self, options: Mapping[str, str], *, follows: bool | None) -> TopicOptions:
        return TopicOptions.parse(options, follows=follows)

    def batch_reader(self, options: TopicOptions, schema: StructType) -> TopicSourceReader:
        return TopicSourceReader(options, schema)

    def following_reader(self, options: TopicOptions, schema: StructType) -> TopicFollowingReader:
        return TopicFollowingReader(options, schema)


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
