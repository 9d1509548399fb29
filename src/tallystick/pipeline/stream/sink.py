"""Writing with the format ``tally-stream``: each batch is in the stream once, as a whole, or not at all.

A task writes a ledger of its own; what it has of few rows it hands to the driver, which writes those of all tasks into
one. A commit, on the driver, splices the ledgers of a batch into the stream's list (bookkeeper/stream/splice). Spark
repeats tasks, runs them twice, and commits a batch again after a restart: the stream's record says what is stored.

An application's *query* is the query's id, which comes back with its checkpoint; a *run* is one start of it. It begins
with the first task of its first batch.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.opening import read_or_create
from tallystick.bookkeeper.stream.splice.attempt import SinkAttempt, SinkTicket
from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger, lacks_batch, older_copy
from tallystick.bookkeeper.stream.splice.record import NO_BATCH
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.errors import UsageError
from tallystick.pipeline.bookies import connect_here
from tallystick.pipeline.checkpoint import batch_offsets
from tallystick.pipeline.codes import coded
from tallystick.pipeline.notes import note
from tallystick.pipeline.stream.sink_note import has_written, note_written
from tallystick.pipeline.stream.sink_options import SinkOptions
from tallystick.pipeline.stream.sink_rows import check_columns, messages_of
from tallystick.pipeline.tasks import batch_id, of_rows, query_id, this_task, told
from tallystick.pipeline.worker import TaskWorker, worker

if TYPE_CHECKING:
    import pyarrow as pa

FEW_BYTES = 512 * 1024  # of a task's rows go to the driver: a ledger of their own costs more
ALL_FEW_BYTES = 32 * 1024 * 1024  # about what the driver gets of all tasks, whose number no task knows
_BATCH = "batch"  # the query of batches, which have none
_UNREADABLE = (OSError, ValueError, NotImplementedError)  # of a file system that only the JVM can read


@dataclass(frozen=True)
class WriteCluster:
    """The cluster that a query writes to."""

    uri: str

    async def connect(self) -> BookKeeper:
        return await connect_here(self.uri)


class PartWritten(WriterCommitMessage):
    """What a task did: a ledger, or few rows; ``ticket`` says for which run of the application."""

    def __init__(self, ticket: SinkTicket, ledger: WrittenLedger | None, rows: tuple[OutMessage, ...]) -> None:
        self.ticket, self.ledger, self.rows = ticket, ledger, rows


class _SinkWriter:
    """What both kinds of queries do."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.columns = check_columns(schema, is_raw=options.settings.entry_format == "raw")
        # Who makes a stream condemns what was noted of an earlier one of its name: it is there before a task writes.
        worker(WriteCluster(options.uri)).ask(lambda bk: _existing(bk, options.stream))

    def write_part(self, batches: Iterator[pa.RecordBatch], ticket: SinkTicket, batch: int) -> PartWritten:
        """Write what a task has, in order. Raises UsageError, Unavailable, MetadataError."""
        context = this_task()
        place = batch, context.partitionId(), context.attemptNumber()
        part = _Part(worker(WriteCluster(self.options.uri)), ticket, place)
        try:
            with of_rows(context.partitionId(), lambda: part.count):
                for rows in batches:
                    part.add(list(messages_of(rows, self.columns)))
                return part.finish()
        finally:
            part.give_up()

    def commit_batch(self, messages: Sequence[WriterCommitMessage | None], batch: int, *, follows: bool) -> None:
        """Store the batch. Raises as ``StreamSink.commit`` does, and CheckpointLost for one of a query that follows its
        source (``follows``) if a later one is stored, or the stream lacks the one before."""
        parts = [message for message in messages if isinstance(message, PartWritten)]
        if len(parts) < len(messages):
            raise UsageError("a task said nothing of what it wrote", batch=batch, tasks=len(messages), parts=len(parts))
        if not parts:
            return
        options, offsets = self.options, self._offsets(batch) if follows else None
        application = parts[0].ticket.application
        is_noted = follows and self._has_written(application)
        worker(WriteCluster(options.uri)).ask(
            lambda bk: _committed(bk, options, parts, batch, follows, offsets, is_noted)
        )
        if follows and not is_noted:
            self._note_written(application)

    def _offsets(self, batch: int) -> int | None:
        """Where the batch ends in its source; None if nobody can tell it here."""
        if self.options.checkpoint is None:
            return None
        try:
            return batch_offsets(self.options.checkpoint, batch)
        except _UNREADABLE:
            return None

    def _has_written(self, application: str) -> bool:
        """Whether the query's checkpoint says that it has written this stream; False if nobody can tell it here."""
        options = self.options
        with contextlib.suppress(*_UNREADABLE):
            return options.checkpoint is not None and has_written(options.checkpoint, options.stream, application)
        return False

    def _note_written(self, application: str) -> None:
        """What cannot be noted now is noted with the next batch."""
        options = self.options
        with contextlib.suppress(*_UNREADABLE):
            if options.checkpoint is not None:
                note_written(options.checkpoint, options.stream, application)


class _Part:
    """What one task writes: kept while it is little, from then on in a ledger."""

    def __init__(self, task_worker: TaskWorker[BookKeeper], ticket: SinkTicket, place: tuple[int, int, int]) -> None:
        """``place``: the batch, the partition, and which attempt at it this is."""
        self._worker, self._ticket, self._place = task_worker, ticket, place
        self._rows: list[OutMessage] = []
        self._bytes = self.count = 0  # of all rows
        # Of n tasks the driver gets ALL_FEW_BYTES * (1 + ln(n / 64)) at most: 190 MiB of 10,000.
        self._few_bytes = min(FEW_BYTES, ALL_FEW_BYTES // (place[1] + 1))
        self._attempt: SinkAttempt | None = None

    def add(self, rows: list[OutMessage]) -> None:
        self._rows += rows
        self.count += len(rows)
        self._bytes += sum([row.size for row in rows])
        if self._attempt is None and self._bytes > self._few_bytes:
            self._attempt = self._worker.ask(self._begin)
        if (attempt := self._attempt) is not None:
            some, self._rows = self._rows, []
            self._worker.ask(lambda bk: attempt.append_batch(some))

    async def _begin(self, bk: BookKeeper) -> SinkAttempt:
        return bk.sink_attempt(self._ticket, *self._place)

    def finish(self) -> PartWritten:
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return PartWritten(self._ticket, None, tuple(self._rows))
        return PartWritten(self._ticket, self._worker.ask(lambda bk: attempt.close()), ())

    def give_up(self) -> None:
        """Stop what was not finished."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._worker.ask(lambda bk: _aborted(attempt))


async def _existing(bk: BookKeeper, stream: str) -> None:
    await read_or_create(bk.stream_context, stream)


async def _begun(bk: BookKeeper, options: SinkOptions, ticket: SinkTicket) -> StreamSink:
    """The ticket's run goes on, and those before it are over."""
    return await bk.open_sink(
        ticket.stream, ticket.application, ticket.query, run=ticket.run, switch=options.switch, settings=ticket.settings
    )


async def _aborted(attempt: SinkAttempt) -> None:
    attempt.abort()


async def _committed(
    bk: BookKeeper,
    options: SinkOptions,
    parts: Sequence[PartWritten],
    batch: int,
    follows: bool,
    offsets: int | None,
    is_known: bool = False,
) -> None:
    """The last thing is a sweep, which a later commit repeats: what it leaves costs space alone. ``is_known``: a
    batch of the query was committed to the stream before."""
    ticket = parts[0].ticket
    sink = await _begun(bk, options, ticket)
    if follows:
        about = ticket.application, ticket.query
        if batch < sink.batch:
            raise older_copy(*about, batch, sink.batch, ticket.stream)
        # Spark commits each batch of a query, those without rows, too.
        if sink.batch < batch - 1 and (is_known or sink.batch != NO_BATCH):
            raise lacks_batch(*about, batch - 1, sink.batch, ticket.stream)
    ledgers = [part.ledger for part in parts]
    if sink.batch < batch and any(part.rows for part in parts):
        async with sink.attempt(batch) as attempt:
            for part in parts:
                await attempt.append_batch(part.rows)
            ledgers.append(await attempt.close())
    if (await sink.commit(batch, ledgers, offsets=offsets)).was_stored and not follows:
        note(
            "tally-stream",
            f"txnVersion {batch} of {ticket.application} is left out, with all its rows: the last one that "
            f"{ticket.stream} has of it is {sink.batch}. Versions ascend",
        )
    await sink.trim()
    await sink.sweep()


class StreamBatchWriter(DataSourceArrowWriter, _SinkWriter):
    """Writes a frame: one batch, whose number is ``txnVersion``."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        _SinkWriter.__init__(self, options, schema)
        assert options.application is not None and options.version is not None, "checked with the options"
        self.ticket = SinkTicket(options.stream, options.application, _BATCH, uuid.uuid4().hex, options.settings)
        self.version = options.version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            return self.write_part(iterator, self.ticket, self.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with coded():
            self.commit_batch(messages, self.version, follows=False)


class StreamFollowingWriter(DataSourceStreamArrowWriter, _SinkWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        _SinkWriter.__init__(self, options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            query, run = query_id(), told("spark.jobGroup.id")
            application = self.options.application or query
            ticket = SinkTicket(self.options.stream, application, query, run, self.options.settings)
            if this_task().partitionId() == 0:
                # Not only with its first commit: a driver that was stopped before that would end the one that took its
                # place, when it goes on.
                worker(WriteCluster(self.options.uri)).ask(lambda bk: _begun(bk, self.options, ticket))
            return self.write_part(iterator, ticket, batch_id())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with coded():
            self.commit_batch(messages, batchId, follows=True)
