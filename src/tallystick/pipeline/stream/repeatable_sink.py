"""Writing with the format ``tally-stream`` at least once: rows are in the stream as soon as a task has written them.

A task relays its rows to the driver, which owns the stream (``relay_driver``). Whoever repeats a task or a batch stores
its rows again; none is lost, for a task ends only when all of its are stored. A commit has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tallystick.bookkeeper.stream.producers import sink_producer
from tallystick.errors import UsageError
from tallystick.pipeline.codes import coded
from tallystick.pipeline.driver_port import DriverPort
from tallystick.pipeline.stream.relay import SETTING, RelayRequest
from tallystick.pipeline.stream.relay_task import EntryMaker, Relay
from tallystick.pipeline.stream.sink_options import SinkOptions
from tallystick.pipeline.stream.sink_rows import check_columns, messages_of
from tallystick.pipeline.tasks import of_rows, query_id, this_task
from tallystick.pipeline.worker import leave_out_imports

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_IDLE_S = 1.0  # the driver owns a stream for so long after a task of a batch
QUERY_IDLE_S = 60.0  # and of a query, which has the next batch soon
_BATCH = "batch"  # the producer of batches


class PartRelayed(WriterCommitMessage):
    """All rows of a task are stored, in so many entries."""

    def __init__(self, entries: int) -> None:
        self.entries = entries


class _RepeatableWriter:
    """What both kinds of queries do."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.columns = check_columns(schema, is_raw=options.settings.entry_format == "raw")
        leave_out_imports()

    def write_part(self, batches: Iterator[pa.RecordBatch], producer: str, idle_s: float) -> PartRelayed:
        """Store what a task has, in order. Raises what the driver's appends do, UsageError, Unavailable."""
        leave_out_imports()
        options, port = self.options, DriverPort.parse(this_task().getLocalProperty(SETTING))
        token = "" if port is None else port.token
        request = RelayRequest(token, options.uri, options.stream, options.settings, options.switch, idle_s)
        maker = EntryMaker(options.settings, sink_producer(producer))
        with of_rows(this_task().partitionId(), lambda: maker.count), Relay(port, request) as relay:
            for rows in batches:
                for entries in maker.add(messages_of(rows, self.columns)):
                    relay.send(entries)
            relay.send(maker.take())
            return PartRelayed(relay.finish())

    def require_all(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raises UsageError if a task did not say that its rows are stored."""
        if not all(isinstance(message, PartRelayed) for message in messages):
            raise UsageError("a task said nothing of what it wrote", tasks=len(messages))


class RepeatableBatchWriter(DataSourceArrowWriter, _RepeatableWriter):
    """Writes a frame."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        _RepeatableWriter.__init__(self, options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            return self.write_part(iterator, _BATCH, BATCH_IDLE_S)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with coded():
            self.require_all(messages)


class RepeatableFollowingWriter(DataSourceStreamArrowWriter, _RepeatableWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        _RepeatableWriter.__init__(self, options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            return self.write_part(iterator, query_id(), QUERY_IDLE_S)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with coded():
            self.require_all(messages)
