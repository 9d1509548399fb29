"""What a task that writes at least once hands over, and what it says then, without Spark and without a driver."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

from tallystick.bookkeeper.stream.splice.attempt import MOST_MESSAGES
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, iter_messages, open_entry, plain_payload
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.pipeline.driver_port import DriverPort
from tallystick.pipeline.stream import repeatable_sink
from tallystick.pipeline.stream.relay import RelayRequest
from tallystick.pipeline.stream.relay_task import EntryMaker
from tallystick.pipeline.stream.repeatable_sink import (
    BATCH_IDLE_S,
    QUERY_IDLE_S,
    PartRelayed,
    RepeatableBatchWriter,
    RepeatableFollowingWriter,
)
from tallystick.pipeline.stream.sink_options import SinkOptions

ROWS = [b"%d" % number for number in range(MOST_MESSAGES + 5)]


class Relay:
    """Instead of the connection to the driver: what comes is stored when somebody waits for it."""

    made: list[Relay] = []  # noqa: RUF012  # the test empties it

    def __init__(self, port: DriverPort, request: RelayRequest) -> None:
        self.port, self.request = port, request
        self.entries, self.stored = list[bytes](), 0
        self.made.append(self)

    def send(self, entries: list[bytes]) -> None:
        self.entries += entries

    def finish(self) -> int:
        self.stored = len(self.entries)
        return self.stored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The producers of the entries that are made."""
    producers = list[str]()

    def maker(settings: Any, producer: str) -> EntryMaker:
        producers.append(producer)
        return EntryMaker(settings, producer)

    task = SimpleNamespace(partitionId=lambda: 0, getLocalProperty=lambda name: "h|7|token")
    monkeypatch.setattr(repeatable_sink, "this_task", lambda: task)
    monkeypatch.setattr(repeatable_sink, "query_id", lambda: "the query")
    monkeypatch.setattr(repeatable_sink, "Relay", Relay)
    monkeypatch.setattr(repeatable_sink, "EntryMaker", maker)
    yield producers
    Relay.made.clear()


@pytest.mark.parametrize(
    ("kind", "idle_s", "producer"),
    [(RepeatableBatchWriter, BATCH_IDLE_S, "batch"), (RepeatableFollowingWriter, QUERY_IDLE_S, "the query")],
)
def test_a_task_has_ended_when_all_of_its_rows_are_stored(
    producers: list[str], kind: type[Any], idle_s: float, producer: str
) -> None:
    writer = object.__new__(kind)
    given = {"uri": "sqlite:///u", "stream": "t/n/persistent/s", "delivery": "at-least-once", "entryFormat": "raw"}
    writer.options = SinkOptions.parse(given, {}, follows=kind is RepeatableFollowingWriter)
    writer.columns = ("value",)
    batches = [pa.record_batch({"value": ROWS[:7]}), pa.record_batch({"value": ROWS[7:]})]
    said = writer.write(iter(batches))
    [relay] = Relay.made
    assert relay.entries == ROWS and isinstance(said, PartRelayed) and said.entries == len(ROWS) == relay.stored
    assert (relay.port, relay.request.token) == (DriverPort("h", 7, "token"), "token")
    assert (relay.request.stream, relay.request.idle_s) == ("t/n/persistent/s", idle_s)
    [name] = producers
    assert producer in name


def test_the_sequence_of_a_producer_goes_on_from_entry_to_entry() -> None:
    options = SinkOptions.parse({"uri": "sqlite:///u", "stream": "t/n/persistent/s"}, {}, follows=True)
    maker = EntryMaker(options.settings, "p")
    entries = [entry for some in maker.add(map(OutMessage, ROWS)) for entry in some] + maker.take()
    messages = []
    for number, entry in enumerate(entries):
        opened = open_entry(entry, position=Position(1, number))
        for step in iter_messages(opened, plain_payload(opened, max_bytes=1 << 20)):
            messages += step
    assert len(entries) == 2 and [bytes(each.data) for each in messages] == ROWS
    assert [each.sequence for each in messages] == list(range(len(ROWS)))
