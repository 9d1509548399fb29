"""The Spark data source ``tally-stream``: the messages of streams as rows, read from the bookies directly.

The driver's planner process alone opens the metadata; a task gets all it needs in its partition (plan.py). Reading
never fences and never goes beyond the LAC; no cursor is moved. Messages come as Arrow batches, digests checked, in the
order of their stream.
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
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition, plan
from tallystick.pipeline.stream.schema import COLUMNS

FORMAT = "tally-stream"


class StreamDataSource(BatchSource):
    instead_of_following = "Outside of Spark, StreamReader.read(follow=True) and tally stream tail follow a stream."
    instead_of_writing = "Append with tallystick.sync.connect(uri).open_stream(name), from one process."

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with coded():
            columns = StreamSourceOptions.parse(options_of_read(self.options)).columns
            return COLUMNS.struct(columns, to_store(self.options))

    def reader(self, schema: StructType) -> StreamSourceReader:
        with coded():
            options = options_of_read(self.options, schema)
            stream_options = StreamSourceOptions.parse(options)
            check_schema(COLUMNS, stream_options.columns if "columns" in options else None, schema)
            return StreamSourceReader(stream_options, schema)


class StreamSourceReader(DataSourceReader):
    """Plans in the planner process, reads in the executors: a copy each, which share only the partitions."""

    def __init__(self, options: StreamSourceOptions, schema: StructType) -> None:
        self.options, self.row_schema = options, schema

    def partitions(self) -> list[TaskPartition[StreamPartition]]:
        from tallystick.pipeline.stream.survey import survey

        options = self.options
        with coded():
            stream_survey = asyncio.run(survey(options))
            partitions = plan(
                stream_survey.spans,
                stream_survey.addresses,
                options.limits,
                is_raw=options.is_raw,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        # Spark turns an empty list into one partition with the value None: an empty plan says the same in our words.
        return [TaskPartition(partition) for partition in partitions or [StreamPartition((), {})]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition, self.row_schema)


def read_rows(partition: InputPartition, schema: StructType) -> Iterator[Any]:
    """The rows of one task, as Arrow batches."""
    from tallystick.pipeline.stream.read import read_partition
    from tallystick.pipeline.stream.rows import SCHEMA

    assert isinstance(partition, TaskPartition)
    return read_partition(partition.partition, COLUMNS.arrow_schema(schema, SCHEMA))
