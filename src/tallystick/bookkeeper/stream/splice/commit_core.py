"""What a commit makes of the list of a stream: the ledgers of a batch are in it and the record says so, or neither.

The record alone says whether a batch is stored: a repeated one changes nothing, whatever its attempts wrote this time.
Ids ascend in the list, as Pulsar sorts by them, so a ledger whose id is not above the last one is copied before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.stream.splice.record import SinkRecord, is_sink, record_of, with_record
from tallystick.bookkeeper.wire.ledger_runs import joined
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import CheckpointLost, StreamFenced, StreamOwned, StreamTerminated


@dataclass(frozen=True, order=True)
class WrittenLedger:
    """A ledger that an attempt wrote and closed."""

    ledger: LedgerId
    entries: int
    size: int


@dataclass(frozen=True)
class Batch:
    """What is to be committed. Rows keep their order inside a ledger; the list has the ledgers by id."""

    application: str
    query: str
    run: str
    number: int
    ledgers: tuple[WrittenLedger, ...]
    offsets: int | None = None  # a digest of where it ends in its source


def require_sink(info: StreamInfo, stream: str) -> None:
    """Raises StreamOwned if an owner of ours, or a Pulsar broker, writes the stream; StreamTerminated."""
    require_no_owner(info, stream)
    if info.terminated is not None:
        raise StreamTerminated(stream=stream)


def require_no_owner(info: StreamInfo, stream: str) -> None:
    """Raises StreamOwned if an owner of ours, or a Pulsar broker, writes the stream: who changes the list under it ends
    it."""
    if not is_sink(info):
        raise StreamOwned(
            "an owner writes this stream: no sink commits to it before it was switched (switch=True)", stream=stream
        )
    if info.ledgers and not info.ledgers[-1].is_closed:
        raise StreamOwned(
            "its newest ledger is open, and sinks have none: a Pulsar broker writes it. Unload the topic there",
            stream=stream,
            ledger=info.ledgers[-1].ledger,
        )


def require_same_query(record: SinkRecord, query: str, application: str, stream: str) -> None:
    """Raises CheckpointLost if another query has committed under the name of the application."""
    if record.query != query:
        raise CheckpointLost(
            f"application {application} has committed batch {record.batch} under query {record.query}, and this is "
            f"query {query}: it began again without its checkpoint, and would store its rows a second time. Restore "
            "the checkpoint, or give it the name of another application if the rows are to be stored again",
            stream=stream,
            application=application,
            query=record.query,
            batch=record.batch,
        )


def require_same_run(record: SinkRecord, run: str, application: str, stream: str) -> None:
    """Raises StreamFenced if another run of the application goes on."""
    if record.run != run:
        raise StreamFenced(
            f"application {application} was started again since: run {record.run} goes on",
            stream=stream,
            application=application,
        )


def is_stored(info: StreamInfo, batch: Batch, stream: str) -> bool:
    """Whether the batch was committed before, with these rows or others. Raises CheckpointLost; StreamFenced if a later
    start of the application goes on, StreamOwned, StreamTerminated."""
    record = record_of(info, batch.application)
    if record is None:
        raise StreamFenced(
            "nothing is known of this application any more: it was forgotten, or the stream was made anew",
            stream=stream,
            application=batch.application,
        )
    require_same_query(record, batch.query, batch.application, stream)
    if batch.number <= record.batch:
        _require_same_offsets(record, batch, stream)
        return True
    require_same_run(record, batch.run, batch.application, stream)
    require_sink(info, stream)
    return False


def _require_same_offsets(record: SinkRecord, batch: Batch, stream: str) -> None:
    """Raises CheckpointLost if the last batch comes again with another end, where both ends are known."""
    if batch.number == record.batch and None not in (batch.offsets, record.offsets) and batch.offsets != record.offsets:
        raise older_copy(batch.application, batch.query, batch.number, record.batch, stream)


def older_copy(application: str, query: str, number: int, stored: int, stream: str) -> CheckpointLost:
    """Returns the error for a batch whose number is stored, and which has other rows."""
    return CheckpointLost(
        f"batch {number} of application {application} comes again, and batch {stored} is committed: its checkpoint is "
        "an older copy, whose next batches may have other rows than those that are stored. Restore the newest "
        "checkpoint, or give the query the name of another application",
        stream=stream,
        application=application,
        query=query,
        batch=stored,
    )


def lacks_batch(application: str, query: str, number: int, stored: int, stream: str) -> CheckpointLost:
    """Returns the error for a stream that lacks batch ``number``, which it had."""
    return CheckpointLost(
        f"batch {number} of application {application} was committed to this stream, which lacks it: its metadata was "
        "put back from an older copy, or it was made anew. Put the newest copy back, or give the query the name of "
        "another application: that goes on, without the batches that are missing. A new checkpoint writes all that the "
        "source still has",
        stream=stream,
        application=application,
        query=query,
        batch=stored,
    )


def to_copy(info: StreamInfo, ledgers: Sequence[WrittenLedger]) -> list[WrittenLedger]:
    """Returns those that the list cannot have behind its last one: they are not above it."""
    last = info.ledgers[-1].ledger if info.ledgers else NO_LEDGER
    return [each for each in ledgers if each.ledger <= last]


def spliced(info: StreamInfo, batch: Batch, now_ms: int) -> StreamInfo:
    """Returns the list with the batch: its ledgers, by id, and the record."""
    assert not to_copy(info, batch.ledgers), "they are above the last one"
    added = [StreamLedger(each.ledger, each.entries, each.size, now_ms) for each in sorted(batch.ledgers)]
    before = record_of(info, batch.application)
    assert before is not None, "it has begun"
    listed = replace(info, ledgers=joined(info.ledgers, added))
    return with_record(listed, batch.application, replace(before, batch=batch.number, offsets=batch.offsets))
