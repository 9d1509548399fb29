"""Writing with the format ``tally-topic``: each message once, where brokers know how, else at least once.

A task sends its rows to one queue, in an order that is the same whenever it is repeated. Each message has an identity
by which a broker of ours passes over what it has (rocketmq/broker/sink_checks); so whoever repeats a task or a batch
sends what is missing. A batch is not one step: consumers may see a part of it before the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tallystick.errors import CheckpointLost, NoSuchTopic, UsageError
from tallystick.pipeline.checkpoint import batch_offsets, last_batch
from tallystick.pipeline.codes import coded
from tallystick.pipeline.notes import note
from tallystick.pipeline.option_values import AT_LEAST_ONCE, ONCE
from tallystick.pipeline.stages import is_told, tasks_of_stage
from tallystick.pipeline.tasks import batch_id, of_rows, query_id, this_task
from tallystick.pipeline.topic.options import client_settings
from tallystick.pipeline.topic.schema import FORMAT
from tallystick.pipeline.topic.sink_options import TopicSinkOptions
from tallystick.pipeline.topic.sink_order import sorted_rows
from tallystick.pipeline.topic.sink_part import OncePart, RepeatablePart
from tallystick.pipeline.topic.sink_rows import encode_row, rows_of, topic_columns
from tallystick.pipeline.topic.sink_sets import add_sets
from tallystick.pipeline.worker import worker
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.sinking import SinkPlace, SinkSender, differs
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.wire.values import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = "batch"  # the query of batches, which have none


@dataclass(frozen=True)
class SinkBrokers:
    """The brokers that a query writes to, by their name servers."""

    name_servers: tuple[str, ...]
    security: BrokerSecurity | None = None

    async def connect(self) -> SinkSender:
        return SinkSender(await topics(self.name_servers, settings=client_settings(self.security)))


class PartSent(WriterCommitMessage):
    """What a task did. ``place`` is None where rows have no identity; ``newest`` is the batch that was recorded before,
    ``new_count`` how many messages were new."""

    def __init__(self, place: SinkPlace | None, newest: int, new_count: int) -> None:
        self.place, self.newest, self.new_count = place, newest, new_count


class BatchEnd(NamedTuple):
    """Where a batch of a query ends in its source, as a digest."""

    batch: int
    offsets: int


class _SinkWriter:
    """What both kinds of queries do."""

    def __init__(self, options: TopicSinkOptions, schema: StructType) -> None:
        self.options, self.columns = options, topic_columns(schema)
        self.brokers = SinkBrokers(options.name_servers, options.security)
        self.queues, self.is_once = worker(self.brokers).ask(lambda sender: look_up(sender, options))
        self.sets = self._sets()

    def _sets(self) -> tuple[str, ...]:
        """Returns the broker sets that the query may have sent to, as far as its checkpoint can tell."""
        options = self.options
        if options.checkpoint is None or not self.is_once:
            return ()
        try:
            return add_sets(options.checkpoint, options.topic, {queue.broker for queue in self.queues})
        except (OSError, ValueError, NotImplementedError):  # a file system that only the JVM can write
            return ()

    def write_part(
        self, batches: Iterator[pa.RecordBatch], application: str, query: str, batch: int, offsets: int = 0
    ) -> PartSent:
        """Send what a task has. ``offsets``: a digest of where the batch ends in its source, 0 where nobody knows it.
        Raises NonDeterministicReplay, CheckpointLost, BrokerError, Unavailable, UsageError."""
        rows = (row for some in batches for row in rows_of(some, self.columns))
        partition, queues, sets, topic = this_task().partitionId(), self.queues, self.sets, self.options.topic
        if not self.is_once:
            first = partition % len(queues)
            repeatable = RepeatablePart(worker(self.brokers), topic, [*queues[first:], *queues[:first]])
            with of_rows(partition, lambda: repeatable.count):
                return PartSent(None, -1, repeatable.send_all(rows))
        place = SinkPlace(topic, application, query, batch, self._partition_count(partition), partition)
        start = worker(self.brokers).ask(lambda sender: sender.begin(place, queues, sets))
        if start.newest > batch:
            return PartSent(place, start.newest, 0)
        encoded = map(encode_row, rows)
        part = OncePart(worker(self.brokers), place, start, offsets)
        with of_rows(partition, lambda: part.count):
            new = part.send_all(sorted_rows(encoded) if self.options.is_sorted else encoded)
        return PartSent(place, start.newest, new)

    def _partition_count(self, partition: int) -> int:
        count = self.options.partitions
        if count is None:
            return tasks_of_stage()
        if partition >= count:
            raise UsageError("the option partitions says fewer than there are", partitions=count, partition=partition)
        if is_told() and (task_count := tasks_of_stage()) != count:
            raise UsageError(
                "the option partitions says more than there are: leave it out", partitions=count, are=task_count
            )
        return count

    def sent(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> list[PartSent]:
        """Returns what the tasks did. Raises NonDeterministicReplay, UsageError if one did not say it."""
        parts = [message for message in messages if isinstance(message, PartSent)]
        if len(parts) < len(messages):
            raise UsageError("a task said nothing of what it sent", batch=batch, tasks=len(messages), parts=len(parts))
        for part in parts:
            if part.place is not None and part.place.partitions != len(parts):
                if self.options.partitions is not None:
                    raise UsageError(
                        f"the option partitions says {part.place.partitions}, and the frame has {len(parts)}: give "
                        "that, and the name of another application, since what is sent already says otherwise",
                        topic=self.options.topic,
                        application=part.place.application,
                        batch=batch,
                    )
                raise differs(
                    part.place, f"it has {len(parts)} partitions, and tasks were told {part.place.partitions}"
                )
        return parts


class TopicBatchWriter(DataSourceArrowWriter, _SinkWriter):
    """Writes a frame: one batch, whose number is ``txnVersion``."""

    def __init__(self, options: TopicSinkOptions, schema: StructType) -> None:
        _SinkWriter.__init__(self, options, schema)
        assert options.version is not None, "checked with the options"
        self.application, self.version = options.application or uuid.uuid4().hex, options.version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            return self.write_part(iterator, self.application, _BATCH, self.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with coded():
            parts = self.sent(messages, self.version)
        newest = max((part.newest for part in parts), default=-1)
        if newest >= self.version and not any(part.new_count for part in parts):
            note(FORMAT, f"version {self.version} of {self.application} is sent already: {newest} is recorded")


class TopicFollowingWriter(DataSourceStreamArrowWriter, _SinkWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: TopicSinkOptions, schema: StructType) -> None:
        """Spark makes one for each batch, when its own log has where that ends."""
        _SinkWriter.__init__(self, options, schema)
        self.end = self._end()

    def _end(self) -> BatchEnd | None:
        """Returns where the batch ends; None where the checkpoint cannot be read from here, as ``sets`` knows."""
        checkpoint = self.options.checkpoint
        if checkpoint is None or not self.sets or (batch := last_batch(checkpoint)) < 0:
            return None
        return BatchEnd(batch, batch_offsets(checkpoint, batch))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with coded():
            query, batch = query_id(), batch_id()
            offsets = self.end.offsets if self.end is not None and self.end.batch == batch else 0
            part = self.write_part(iterator, self.options.application or query, query, batch, offsets)
            if part.newest > batch:
                raise CheckpointLost(
                    f"batch {batch} comes again, and batch {part.newest} is recorded: the checkpoint is an older copy, "
                    "whose next batches may have other rows than those that were sent. Restore the newest checkpoint, "
                    "or give the query the name of another application",
                    topic=self.options.topic,
                    query=query,
                    batch=part.newest,
                )
            return part

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with coded():
            self.sent(messages, batchId)


async def look_up(sender: SinkSender, options: TopicSinkOptions) -> tuple[tuple[MessageQueue, ...], bool]:
    """Returns the topic's queues, and whether messages are sent once. Raises UsageError if they are to be and a broker
    does not know how; NoSuchTopic."""
    try:
        queues = await sender.queues(options.topic)
    except NoSuchTopic as error:
        raise NoSuchTopic(
            "there is no such topic, and a sink makes none: make it with `tally topic create`", topic=options.topic
        ) from error
    if options.delivery == AT_LEAST_ONCE:
        return queues, False
    unaware = await sender.unaware(options.topic, [queue.broker for queue in queues])
    if not unaware:
        return queues, True
    why = f"broker {', '.join(unaware)} does not know messages that it has: it is an original, or an older one of ours"
    if options.delivery == ONCE:
        raise UsageError(f"{why}, so nothing is sent exactly once. Take delivery=at-least-once, or write a stream")
    note(FORMAT, f"{why}. Rows are sent at least once: a task or a batch that is repeated sends its rows again")
    return queues, False
