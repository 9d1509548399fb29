"""What a task of Spark's keeps of its rows until they are a ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.errors import UsageError
from tallystick.pipeline.checkpoint import batch_offsets
from tallystick.pipeline.stream import sink
from tallystick.pipeline.stream.repeatable_sink import PartRelayed, RepeatableFollowingWriter
from tallystick.pipeline.stream.sink import ALL_FEW_BYTES, FEW_BYTES, _Part


class Desk:
    """Instead of the task's worker: counts what is asked."""

    count = 0

    def ask(self, call: Any) -> object:
        self.count += 1
        return object()


class Worker:
    """Runs what is asked with an attempt that keeps its rows."""

    def __init__(self) -> None:
        self.rows = list[OutMessage]()
        self.aborts = 0

    def ask(self, call: Any) -> object:
        return asyncio.run(call(self))

    def sink_attempt(self, ticket: SinkTicket, *place: int) -> Worker:
        return self

    async def append_batch(self, rows: list[OutMessage]) -> None:
        self.rows += rows

    async def close(self) -> None: ...

    def abort(self) -> None:
        self.aborts += 1


@pytest.mark.parametrize(
    "row", [OutMessage(bytes(1000)), OutMessage(b"", key="k" * 1000), OutMessage(b"", properties={"n": "v" * 1000})]
)
def test_rows_are_few_by_all_that_they_have(row: OutMessage) -> None:
    desk: Any = Desk()
    part = _Part(desk, SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings()), (0, 0, 0))
    part.add([row] * 400)
    assert desk.count == 0
    part.add([row] * (FEW_BYTES // 1000 - 400))
    assert desk.count == 2, "it begins an attempt, and hands the rows over"


def test_what_the_driver_gets_of_very_many_tasks_is_bounded() -> None:
    row, desk = OutMessage(bytes(1000)), Desk()
    worker: Any = desk
    handed_over = 0
    for partition in range(0, 2000, 20):
        part = _Part(worker, SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings()), (0, partition, 0))
        desk.count = 0
        while not desk.count:
            part.add([row])
            handed_over += row.size  # at most: the last one is in a ledger
    assert handed_over * 20 < 5 * ALL_FEW_BYTES, "and 30 times as much before"


def test_no_row_is_left_behind_when_a_part_becomes_a_ledger() -> None:
    worker: Any = Worker()
    part = _Part(worker, SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings()), (0, 0, 0))
    rows = [OutMessage(b"%d" % number + bytes(FEW_BYTES // 4)) for number in range(9)]
    for row in rows:
        part.add([row])
    part.finish()
    assert worker.rows == rows


def test_an_attempt_is_given_up_with_its_part() -> None:
    """Else its appends go on, and its ledger stays open, as long as the worker process lives."""
    worker: Any = Worker()
    part = _Part(worker, SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings()), (0, 0, 0))
    part.give_up()
    assert not worker.aborts, "it has none yet"
    part.add([OutMessage(bytes(2 * FEW_BYTES))])
    for _ in range(2):
        part.give_up()
        assert worker.aborts == 1


def test_a_row_that_is_refused_is_looked_for_in_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Worker):
        async def append_batch(self, rows: list[OutMessage]) -> None:
            raise UsageError("an entry is too long", bytes=7)

    refusing = Refusing()
    monkeypatch.setattr(sink, "worker", lambda cluster: refusing)
    monkeypatch.setattr(sink, "this_task", lambda: Mock(partitionId=lambda: 3, attemptNumber=lambda: 0))
    writer: Any = object.__new__(sink.StreamFollowingWriter)
    writer.options, writer.columns = Mock(uri="sqlite:///u"), ("value",)
    batches = [pa.record_batch({"value": [b"1", b"2"]}), pa.record_batch({"value": [bytes(2 * FEW_BYTES)]})]
    ticket = SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings())
    with pytest.raises(UsageError, match=r"too long \(partition=3 rows_taken=3 bytes=7"):
        writer.write_part(iter(batches), ticket, 0)
    assert refusing.aborts == 1


@pytest.mark.parametrize("kind", [sink.StreamFollowingWriter, RepeatableFollowingWriter])
def test_a_batch_is_not_done_before_each_task_has_said_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    """Else the rows of the one that said nothing would be left out, and the batch would be stored."""
    committed = Mock()
    monkeypatch.setattr(sink, "worker", lambda cluster: Mock(ask=committed))
    writer = object.__new__(kind)
    writer.options = Mock(uri="sqlite:///u", checkpoint=None)
    ticket = SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings())
    said: Any = sink.PartWritten(ticket, None, ()) if kind is sink.StreamFollowingWriter else PartRelayed(1)
    for messages in ([said, None], [None, said], [None]):
        with pytest.raises(UsageError, match="a task said nothing of what it wrote"):
            writer.commit(messages, 0)
    assert not committed.called
    writer.commit([said, said], 0)
    assert committed.called == (kind is sink.StreamFollowingWriter)


def test_a_query_says_with_its_batch_where_that_ends_in_its_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By that a batch of an older copy of the checkpoint, with other rows, is not taken for the one that is stored."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{}\n{"v":1}')
    ends: list[int | None] = []

    async def committed(
        bk: Any, options: Any, parts: Any, batch: int, follows: bool, offsets: int | None, is_known: bool
    ) -> None:
        assert (batch, follows) == (3, True)
        ends.append(offsets)

    monkeypatch.setattr(sink, "_committed", committed)
    monkeypatch.setattr(sink, "worker", lambda cluster: Worker())
    writer = object.__new__(sink.StreamFollowingWriter)
    ticket = SinkTicket("t/n/persistent/s", "app", "q", "run", StreamSettings())
    for checkpoint in (str(tmp_path), None, "nosuch://host/checkpoint"):
        writer.options = Mock(uri="sqlite:///u", checkpoint=checkpoint, stream=ticket.stream)
        writer.commit([sink.PartWritten(ticket, None, ())], 3)
    assert ends == [batch_offsets(str(tmp_path), 3), None, None]
