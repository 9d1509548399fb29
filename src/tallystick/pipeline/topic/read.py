"""One partition, read: its ranges, from the brokers, as Arrow batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing

import pyarrow as pa

from tallystick.pipeline.codes import coded
from tallystick.pipeline.topic.arrow import batches_of
from tallystick.pipeline.topic.brokers import Brokers, TopicClient
from tallystick.pipeline.topic.fetch import fetch_runs
from tallystick.pipeline.topic.plan import TopicPartition
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.pipeline.worker import worker


def read_partition(partition: TopicPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``schema``, whose columns are some of ours.

    Raises NoSuchMessage, NoSuchTopic, BrokerError, Unavailable and its kinds, each with its code in the text.
    """
    if not partition.ranges:
        return

    async def fetch(client: TopicClient) -> AsyncGenerator[pa.RecordBatch, None]:
        columns = COLUMNS.checked(schema.names)
        pulls = fetch_runs(client, partition.ranges, fail_on_data_loss=partition.fail_on_data_loss)
        async with aclosing(batches_of(pulls, columns, decode=partition.decode)) as batches:
            async for arrays in batches:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    with coded(), closing(worker(Brokers(partition.brokers)).iterate(fetch)) as batches:
        yield from batches
