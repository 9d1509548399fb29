"""One partition, read: its ranges, from the bookies, as Arrow batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing

import pyarrow as pa

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.errors import NoSuchEntry
from tallystick.pipeline.bookies import BookieAddresses
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.notes import note
from tallystick.pipeline.stream.decode import RangeDecoder
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.rows import RowRun, arrays_of, bytes_of
from tallystick.pipeline.stream.schema import COLUMNS, FORMAT
from tallystick.pipeline.worker import worker


def read_partition(partition: StreamPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``schema``, whose columns are some of ours.

    Raises CorruptEntry, DigestMismatch, NoSuchEntry, Unavailable and its kinds, each with its code in the text.
    """
    if not partition.ranges:
        return

    async def fetch(client: BookieClient) -> AsyncGenerator[pa.RecordBatch, None]:
        columns = COLUMNS.checked(schema.names)
        async with aclosing(_batches(_row_runs(client, partition))) as batches:
            async for runs in batches:
                yield pa.RecordBatch.from_arrays(arrays_of(runs, columns), schema=schema)

    with coded(), closing(worker(BookieAddresses(partition.addresses)).iterate(fetch)) as batches:
        yield from batches


async def _row_runs(client: BookieClient, partition: StreamPartition) -> AsyncGenerator[RowRun, None]:
    for range_ in partition.ranges:
        decoder = RangeDecoder(client, range_, is_raw=partition.is_raw)
        try:
            async with aclosing(fetch_runs(client, range_.ranges)) as runs:
                async for run in runs:
                    async with aclosing(decoder.steps(run)) as steps:
                        async for rows in steps:
                            yield rows
        except NoSuchEntry as error:
            if partition.fail_on_data_loss:
                raise NoSuchEntry(
                    f"{error.message}; it was deleted after the query was planned, or lost: failOnDataLoss=false "
                    "leaves out the rest of its ledger",
                    **{"stream": range_.stream, **error.fields},
                ) from error
            note(FORMAT, f"the rest of a ledger is left out: stream={range_.stream} {error}")


async def _batches(row_runs: AsyncGenerator[RowRun, None]) -> AsyncGenerator[list[RowRun], None]:
    """Some rows at a time. Closes the runs at its end."""
    batch: list[RowRun] = []
    rows = size = 0
    async with aclosing(row_runs):
        async for run in row_runs:
            for part in _parts(run):
                batch.append(part)
                rows, size = rows + len(part.rows), size + part.size
                if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield batch
                    batch, rows, size = [], 0, 0
    if batch:
        yield batch


def _parts(run: RowRun) -> Iterator[RowRun]:
    """A run in pieces that are no more than a batch."""
    if run.size <= 2 * BATCH_BYTES:  # what was taken until it was enough is seldom more
        yield run
        return
    first = size = 0
    for at, row in enumerate(run.rows):
        row_bytes = bytes_of([row])
        if at > first and size + row_bytes > BATCH_BYTES:
            yield run._replace(rows=run.rows[first:at], size=size)
            first, size = at, 0
        size += row_bytes
    yield run._replace(rows=run.rows[first:], size=size)
