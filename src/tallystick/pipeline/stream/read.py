"""One partition, read: its ranges, from the bookies, as Arrow batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing
from itertools import groupby

import pyarrow as pa

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs, open_without_objects
from tallystick.codec.reads import EntryRun, joined_entries
from tallystick.errors import EntryLost, NoSuchEntry, TallyError
from tallystick.pipeline.bookies import BookieAddresses, Keys
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.data_loss import ranges_left
from tallystick.pipeline.notes import note
from tallystick.pipeline.stream.block_arrays import BlockRun
from tallystick.pipeline.stream.decode import RangeDecoder
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.rows import RowRun, arrays_of
from tallystick.pipeline.stream.schema import COLUMNS, FORMAT
from tallystick.pipeline.worker import worker


def read_partition(partition: StreamPartition, schema: pa.Schema, keys: Keys = ()) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``schema``, whose columns are some of ours.

    Raises CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry, Unavailable and its kinds, each with its code in its
    text.
    """
    if not partition.ranges:
        return

    async def fetch(client: BookieClient) -> AsyncGenerator[pa.RecordBatch, None]:
        columns = COLUMNS.checked(schema.names)
        async with aclosing(_batches(_row_runs(client, partition), columns)) as batches:
            async for arrays in batches:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    with coded(), closing(worker(BookieAddresses(partition.addresses, keys)).iterate(fetch)) as batches:
        yield from batches


async def _row_runs(client: BookieClient, partition: StreamPartition) -> AsyncGenerator[RowRun | BlockRun, None]:
    for range_ in partition.ranges:
        decoder = RangeDecoder(client, range_, is_raw=partition.is_raw)
        ranges = range_.ranges if partition.fail_on_data_loss else ranges_left(range_.ranges, FORMAT)
        try:
            async with aclosing(_joined(fetch_runs(client, ranges, opener=open_without_objects))) as runs:
                async for run in runs:
                    async with aclosing(decoder.steps(run)) as steps:
                        async for rows in steps:
                            yield rows
        except EntryLost as error:
            raise EntryLost(
                f"{error.message}: failOnDataLoss=false leaves out what is lost",
                **{"stream": range_.stream, **error.fields},
            ) from error
        except NoSuchEntry as error:
            if partition.fail_on_data_loss:
                raise NoSuchEntry(
                    f"{error.message}; it was deleted after the query was planned, or lost: failOnDataLoss=false "
                    "leaves out the rest of its ledger",
                    **{"stream": range_.stream, **error.fields},
                ) from error
            note(FORMAT, f"the rest of a ledger is left out: stream={range_.stream} {error}")


async def _joined(runs: AsyncGenerator[EntryRun, None]) -> AsyncGenerator[EntryRun, None]:
    """The payloads of runs that follow each other, as many together as make a batch. Closes the runs at its end."""
    parts: list[EntryRun] = []
    count = size = 0
    async with aclosing(runs):
        try:
            async for run in runs:
                if parts and (run.ledger, run.first) != (parts[-1].ledger, parts[-1].last + 1):
                    yield _as_one(parts)
                    parts, count, size = [], 0, 0
                parts.append(run)
                count, size = count + len(run), size + run.payload_bytes
                if size >= BATCH_BYTES or count >= BATCH_ROWS:
                    yield _as_one(parts)
                    parts, count, size = [], 0, 0
        except TallyError:  # what came before it comes first
            if parts:
                yield _as_one(parts)
            raise
        if parts:
            yield _as_one(parts)


def _as_one(runs: Sequence[EntryRun]) -> EntryRun:
    payloads = joined_entries([run.payloads for run in runs])
    return EntryRun(runs[0].ledger, runs[0].first, payloads=payloads)


async def _batches(
    row_runs: AsyncGenerator[RowRun | BlockRun, None], columns: Sequence[str]
) -> AsyncGenerator[list[pa.Array], None]:
    """The columns of some rows at a time. Closes the runs at its end."""
    batch: list[RowRun | BlockRun] = []
    rows = size = 0
    async with aclosing(row_runs):
        async for run in row_runs:
            for part in run.parts():
                batch.append(part)
                rows, size = rows + part.row_count, size + part.size
                if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield _arrays(batch, columns)
                    batch, rows, size = [], 0, 0
    if batch:
        yield _arrays(batch, columns)


def _arrays(batch: Sequence[RowRun | BlockRun], columns: Sequence[str]) -> list[pa.Array]:
    """One array for each column, over all rows."""
    pieces: list[list[pa.Array]] = []
    for _, same_kind in groupby(batch, key=type):
        runs = list(same_kind)
        pieces += [run.arrays(columns) for run in runs if isinstance(run, BlockRun)]
        row_runs = [run for run in runs if isinstance(run, RowRun)]
        if row_runs:
            pieces.append(arrays_of(row_runs, columns))
    return pieces[0] if len(pieces) == 1 else [pa.concat_arrays(column) for column in zip(*pieces, strict=True)]
