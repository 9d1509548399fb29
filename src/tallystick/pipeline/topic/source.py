"""The Spark data source ``tally-topic``: the messages of a topic as rows, pulled from the brokers directly.

The driver's planner process asks for the queues and their ends; a task gets its ranges and the brokers' addresses in
its partition. Reading commits no offsets. Messages come as Arrow batches, bodies checked, in the order of their queue;
a dead master's come from its slave (H13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tallystick.pipeline.codes import coded
from tallystick.pipeline.source import BatchSource, TaskPartition, check_schema
from tallystick.pipeline.source_options import options_of_read, to_store
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import TopicPartition, plan
from tallystick.pipeline.topic.schema import COLUMNS

FORMAT = "tally-topic"


class TopicDataSource(BatchSource):
    instead_of_following = "Outside of Spark, RocketMQ.consumer and tally message read --follow follow a topic."
    instead_of_writing = "Send with tallystick.sync.topics(name_server).producer(group) in foreachPartition."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with coded():
            columns = TopicOptions.parse(options_of_read(self.options)).columns
            return COLUMNS.struct(columns, to_store(self.options))

    def reader(self, schema: StructType) -> TopicSourceReader:
        with coded():
            options = options_of_read(self.options, schema)
            topic_options = TopicOptions.parse(options)
            check_schema(COLUMNS, topic_options.columns if "columns" in options else None, schema)
            return TopicSourceReader(topic_options, schema)


class TopicSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[TopicPartition]]:
        from tallystick.pipeline.topic.survey import survey

        with coded():
            topic_survey = asyncio.run(survey(self.options))
            partitions = plan(topic_survey.extents, topic_survey.brokers, self.options.decode, self.options.limits)
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in partitions or [TopicPartition((), topic_survey.brokers)]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tallystick.pipeline.topic.arrow import SCHEMA
        from tallystick.pipeline.topic.read import read_partition

        assert isinstance(partition, TaskPartition)
        return read_partition(partition.partition, COLUMNS.arrow_schema(self.row_schema, SCHEMA))
