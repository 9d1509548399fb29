"""The batch source of streams on local[2], against real bookies."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from support.listed_streams import chunk_entries, pulsar_entry
from support.spark_failures import failure_of
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
RAW = StreamSettings(entry_format="raw")  # what is appended are the bytes of entries: also those of other producers
_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    """A stream of its own for each test."""
    return f"spark/batch/persistent/t{next(_NUMBERS)}"


@pytest.fixture
def read_stream(spark: SparkSession, uri: str) -> Read:
    """A data frame of streams, with options by name."""

    def read(subscribe: str | None = None, **options: object) -> DataFrame:
        named = {} if subscribe is None else {"subscribe": subscribe}
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("tally-stream").options(uri=uri, **named, **texts).load()

    return read


def values(frame: DataFrame) -> list[bytes | None]:
    return [None if row.value is None else bytes(row.value) for row in frame.select("value").collect()]


def until_true(condition: Callable[[], object], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_rows_are_the_messages_in_order(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name) as stream:
        first = stream.append(b"first", key="k", properties={"a": "1", "b": ""}, event_time=1_700_000_000_123)
        batch = stream.append_batch([b"x", OutMessage(b"y", b"\xff\0", 5, {"c": "3"}), b"z"])
        stream.roll_over()
        last = stream.append(b"last")
    rows = read_stream(name, minPartitions=3, includeHeaders="true").collect()
    assert [bytes(row.value) for row in rows] == [b"first", b"x", b"y", b"z", b"last"]
    assert [row.position for row in rows] == [str(first), *map(str, batch), str(last)]
    assert [(row.ledger, row.entry, row.batchIndex) for row in rows] == [
        (first.ledger, 0, None), *((first.ledger, 1, index) for index in range(3)), (last.ledger, 0, None),
    ]  # fmt: skip
    assert [row.key and bytes(row.key) for row in rows] == [b"k", None, b"\xff\0", None, None]
    assert [row.properties for row in rows] == [{"a": "1", "b": ""}, {}, {"c": "3"}, {}, {}]
    headers = [row.headers and [(header.key, bytes(header.value)) for header in row.headers] for row in rows]
    assert headers == [[("a", b"1"), ("b", b"")], None, [("c", b"3")], None, None]
    assert rows[0].eventTime.astimezone(UTC) == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert [row.eventTime is None for row in rows] == [False, True, False, True, True]
    assert [row.sequence for row in rows] == [0, 1, 2, 3, 4]
    assert {(row.stream, row.producer) for row in rows} == {(name, rows[0].producer)} and rows[0].producer
    assert all(row.publishTime is not None for row in rows)


@pytest.mark.parametrize("compression", [None, "lz4", "zlib", "zstd", "snappy"])
def test_every_compression(bk: sync.BookKeeper, read_stream: Read, name: str, compression: str | None) -> None:
    messages = [b"a" * 3000, b"", b"b" * 70_000]
    with bk.open_stream(name, settings=StreamSettings(compression=compression)) as stream:
        stream.append_batch(messages)
        stream.append(messages[0])
    assert values(read_stream(name)) == [*messages, messages[0]]


def test_chunks_are_the_row_of_the_last_one_wherever_a_task_begins(
    bk: sync.BookKeeper, read_stream: Read, name: str
) -> None:
    long, other = b"0123456789" * 30, b"ab" * 20
    parts, others = chunk_entries(long, 20, uuid="long"), chunk_entries(other, 10, uuid="other")
    with bk.open_stream(name, settings=RAW) as stream:
        for part in parts[:-2]:
            stream.append(part)
            stream.append(pulsar_entry(b"between"))
        stream.append(others[0])
        stream.roll_over()
        for part in [*parts[-2:], *others[1:]]:
            last = stream.append(part)
    whole = [b"between"] * (len(parts) - 2) + [long, other]
    for options in ({}, {"minPartitions": 50}, {"maxRecordsPerPartition": 1}):
        assert values(read_stream(name, **options)) == whole
    starting = f'{{"{name}": "{last.ledger}:{last.entry}"}}'
    rows = read_stream(name, startingOffsets=starting).collect()
    assert [(bytes(row.value), row.position, row.sequence) for row in rows] == [(other, str(last), 7)]
    assert values(read_stream(name, endingOffsets=starting)) == whole[:-1]


def test_a_key_without_a_value(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name, settings=RAW) as stream:
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5, partition_key="k", null_value=True)
        front = metadata.SerializeToString()
        stream.append(len(front).to_bytes(4, "big") + front)
        stream.append(pulsar_entry(b"v", key="k"))
    rows = read_stream(name).collect()
    assert [(bytes(row.key), row.value and bytes(row.value)) for row in rows] == [(b"k", None), (b"k", b"v")]


def test_an_open_ledger_is_read_up_to_its_lac_and_stays_writable(
    bk: sync.BookKeeper, read_stream: Read, name: str
) -> None:
    with bk.open_stream(name) as stream:
        for number in range(5):
            stream.append(b"%d" % number)
        stream.roll_over()
        for number in range(5, 9):
            stream.append(b"%d" % number)
        read_so_far = values(read_stream(name))
        assert read_so_far == [b"%d" % number for number in range(len(read_so_far))] and len(read_so_far) >= 8
        until_true(lambda: values(read_stream(name)) == [b"%d" % number for number in range(9)])
        stream.append(b"more")
    assert len(values(read_stream(name))) == 10


def test_from_and_to_positions_and_times(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name, settings=RAW) as stream:
        positions = []
        for number in range(12):
            if number % 4 == 0:
                stream.roll_over()
            positions.append(stream.append(pulsar_entry(b"%d" % number, time_ms=1000 * number)))
    expected = [b"%d" % number for number in range(12)]

    def offsets(number: int) -> str:
        return f'{{"{name}": "{positions[number]}"}}'

    assert values(read_stream(name, startingOffsets=offsets(3), endingOffsets=offsets(9))) == expected[3:9]
    assert values(read_stream(name, startingOffsets="latest")) == []
    assert values(read_stream(name, startingTimestamp=2500, endingTimestamp=8000)) == expected[3:8]
    assert values(read_stream(name, startingTimestamp=99_000)) == []
    assert values(read_stream(name, startingOffsets=f'{{"{name}": "{positions[3].ledger}:4"}}')) == expected[4:]
    text = failure_of(read_stream(name, startingOffsets=offsets(9), endingOffsets=offsets(3)).collect)
    assert "[TALLY-USAGE-ERROR] the query starts after its end in a stream" in text


def test_what_retention_deleted(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name, settings=StreamSettings(retention_s=0.0, retention_bytes=0)) as stream:
        first = stream.append(b"gone")
        stream.roll_over()
        stream.append(b"kept")
        until_true(lambda: stream.trim() or first.ledger not in set(bk.ledgers()))
        assert values(read_stream(name)) == [b"kept"]
        starting = f'{{"{name}": "{first}"}}'
        text = failure_of(read_stream(name, startingOffsets=starting).collect)
        assert "[TALLY-POSITION-TRIMMED] startingOffsets: what was at this position is deleted" in text
        assert "failOnDataLoss=false" in text and f"stream={name}" in text and f"position={first}" in text
        assert values(read_stream(name, startingOffsets=starting, failOnDataLoss="false")) == [b"kept"]


def test_streams_by_names_and_by_pattern(bk: sync.BookKeeper, read_stream: Read) -> None:
    names = [f"spark/pattern/persistent/{topic}" for topic in ("a1", "a2", "b1", "empty-a")]
    for name in names[:3]:
        with bk.open_stream(name) as stream:
            stream.append(name.encode())
    with bk.open_stream(names[3]):
        pass
    assert values(read_stream(",".join([names[2], names[0]]))) == [names[0].encode(), names[2].encode()]
    rows = read_stream(subscribePattern="spark/pattern/.*/(a|empty).*").collect()
    assert [(row.stream, bytes(row.value)) for row in rows] == [(name, name.encode()) for name in names[:2]]
    assert values(read_stream(names[3])) == []


def test_entries_as_they_are_stored(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name, settings=RAW) as stream:
        for data in (b"", b"no message", pulsar_entry(b"x", b"y")):
            stream.append(data)
    rows = read_stream(name, entryFormat="raw").collect()
    assert [bytes(row.value) for row in rows] == [b"", b"no message", pulsar_entry(b"x", b"y")]
    assert [row.entry for row in rows] == [0, 1, 2] and {tuple(row.properties.items()) for row in rows} == {()}
    nulls = ("key", "publishTime", "eventTime", "producer", "sequence", "batchIndex")
    assert all(row[column] is None for row in rows for column in nulls)


def test_bytes_that_are_no_messages_are_an_error_with_their_place(
    bk: sync.BookKeeper, read_stream: Read, name: str
) -> None:
    with bk.open_stream(name, settings=RAW) as stream:
        for data in (pulsar_entry(b"good"), b"no message", pulsar_entry(b"good, too")):
            last = stream.append(data)
    text = failure_of(read_stream(name).collect)
    assert "[TALLY-CORRUPT-ENTRY] the bytes of this entry are no messages: " in text
    assert "entryFormat=raw" in text and f"stream={name} position={last.ledger}:1" in text
    assert values(read_stream(name, endingOffsets=f'{{"{name}": "{last.ledger}:1"}}')) == [b"good"]
    assert values(read_stream(name, startingOffsets=f'{{"{name}": "{last}"}}')) == [b"good, too"]


def test_projections(spark: SparkSession, bk: sync.BookKeeper, read_stream: Read, uri: str, name: str) -> None:
    with bk.open_stream(name) as stream:
        stream.append(b"v", key=b"k", properties={"a": "b"})
    frame = read_stream(name, columns="VALUE,stream")
    assert frame.columns == ["value", "stream"] and values(frame) == [b"v"]
    own = spark.read.format("tally-stream").schema("properties MAP<STRING,STRING>, key BINARY").option("uri", uri)
    assert [(row.properties, bytes(row.key)) for row in own.load(name).collect()] == [({"a": "b"}, b"k")]
    assert read_stream(name).count() == 1
    spark.sql(f"CREATE TEMPORARY VIEW sv USING `tally-stream` OPTIONS (uri '{uri}', subscribe '{name}')")
    assert spark.sql("SELECT CAST(value AS STRING) AS v FROM sv").collect()[0].v == "v"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "t/n/persistent/none"}, "[TALLY-NO-SUCH-STREAM]"),
        ({"subscribePattern": "nothing/.*"}, "[TALLY-NO-SUCH-STREAM] no stream matches subscribePattern"),
        ({"subscribe": "flights"}, "[TALLY-USAGE-ERROR] the name of a stream is tenant/namespace/persistent/topic"),
        ({"subscribes": "t/n/persistent/s"}, "(did you mean subscribe?)"),
        ({}, "[TALLY-USAGE-ERROR] give one of the options subscribe and subscribePattern"),
    ],
)
def test_mistakes_are_named(read_stream: Read, options: dict[str, str], text: str) -> None:
    assert text in failure_of(lambda: read_stream(**options).collect())


def test_a_position_beyond_the_end_is_an_error(bk: sync.BookKeeper, read_stream: Read, name: str) -> None:
    with bk.open_stream(name) as stream:
        position = stream.append(b"v")
    for option in ("startingOffsets", "endingOffsets"):
        beyond = f'{{"{name}": "{position.ledger}:7"}}'
        text = failure_of(read_stream(name, **{option: beyond}).collect)
        assert f"[TALLY-NO-SUCH-POSITION] {option}: the stream does not reach to this position" in text
        assert f"position={position.ledger}:7 end={position.ledger}:1" in text
