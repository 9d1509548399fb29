"""One partition, read: its ranges, from the bookies, as Arrow batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing

import pyarrow as pa

from tallystick.bookkeeper.ledger.arrow import Batching, batches_of
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.pipeline.bookies import BookieAddresses
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.ledger.plan import LedgerPartition
from tallystick.pipeline.ledger.schema import COLUMNS
from tallystick.pipeline.worker import worker


def read_partition(partition: LedgerPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``schema``, whose columns are some of ours.

    Raises DigestMismatch, NoSuchEntry, Unavailable and its kinds, each with its code in the text.
    """
    if not partition.ranges:
        return

    async def fetch(client: BookieClient) -> AsyncGenerator[pa.RecordBatch, None]:
        batching = Batching(COLUMNS.checked(schema.names), BATCH_ROWS, BATCH_BYTES)
        async with aclosing(batches_of(fetch_runs(client, partition.ranges), batching)) as batches:
            async for batch in batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    with coded(), closing(worker(BookieAddresses(partition.addresses)).iterate(fetch)) as batches:
        yield from batches
