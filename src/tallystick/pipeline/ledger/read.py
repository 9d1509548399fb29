"""One partition, read: its ranges, from the bookies, as Arrow batches in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from tallystick.bookkeeper.ledger.arrow import Batching, batches_of
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs, open_without_objects
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.reads import EntryRun
from tallystick.errors import NoSuchEntry
from tallystick.pipeline.bookies import BookieAddresses, keys_of
from tallystick.pipeline.codes import coded
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.data_loss import ranges_left
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition
from tallystick.pipeline.ledger.schema import COLUMNS, FORMAT
from tallystick.pipeline.notes import note
from tallystick.pipeline.worker import worker


def read_partition(partition: LedgerPartition, schema: pa.Schema, options: LedgerOptions) -> Iterator[pa.RecordBatch]:
    """Batches of exactly ``schema``, whose columns are some of ours. ``options`` say by which keys and passwords.

    Raises DigestMismatch, EntryLost, NoSuchEntry, Unauthorized, UsageError, Unavailable and its kinds, each with its
    code in the text.
    """
    if not partition.ranges:
        return

    async def fetch(client: BookieClient) -> AsyncGenerator[pa.RecordBatch, None]:
        batching = Batching(COLUMNS.checked(schema.names), BATCH_ROWS, BATCH_BYTES)
        runs = (
            fetch_runs(client, partition.ranges, opener=open_without_objects)
            if partition.fail_on_data_loss
            else _runs_left(client, partition)
        )
        async with aclosing(batches_of(runs, batching)) as batches:
            async for batch in batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    with coded():
        partition = _unlocked(partition, options)
        peers = BookieAddresses(partition.addresses, keys_of(options.uri))
        with closing(worker(peers).iterate(fetch)) as batches:
            yield from batches


def _unlocked(partition: LedgerPartition, options: LedgerOptions) -> LedgerPartition:
    """Return the partition with the passwords of this machine for the one digest that is keyed."""
    ranges = (
        one._replace(password=options.password_of(one.ledger)) if one.digest_type is DigestType.HMAC else one
        for one in partition.ranges
    )
    return replace(partition, ranges=tuple(ranges))


async def _runs_left(client: BookieClient, partition: LedgerPartition) -> AsyncGenerator[EntryRun, None]:
    """What there is: of a ledger that was deleted after the query was planned the rest is left out, of others what an
    operator gave up."""
    for ledger, ranges in groupby(partition.ranges, key=attrgetter("ledger")):
        try:
            async with aclosing(fetch_runs(client, ranges_left(ranges, FORMAT), opener=open_without_objects)) as runs:
                async for run in runs:
                    yield run
        except NoSuchEntry as error:
            note(FORMAT, f"the rest of a ledger is left out: ledger={ledger} {error}")
