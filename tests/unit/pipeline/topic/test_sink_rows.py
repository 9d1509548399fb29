"""Rows of a frame as messages, and the order in which a task sends them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tallystick.errors import UsageError
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.pipeline.topic.sink_order import sorted_rows
from tallystick.pipeline.topic.sink_rows import decode_row, encode_row, rows_of, topic_columns
from tallystick.rocketmq.wire.record import Message


def schema(text: str) -> StructType:
    struct = StructType()
    for part in text.split(", "):
        name, _, kind = part.partition(" ")
        struct.add(name, kind)
    return struct


def rows(columns: tuple[str, ...], *arrays: list[object]) -> list[Message]:
    batch = pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], list(columns))
    return [decode_row(encode_row(row)).message("T") for row in rows_of(batch, columns)]


def test_columns_may_have_the_names_of_kafka_or_those_of_a_frame_that_was_read() -> None:
    assert topic_columns(schema("Value string, KEY string")) == ("body", "keys")
    read = COLUMNS.struct(COLUMNS.names)
    columns = topic_columns(read)
    assert columns == COLUMNS.names
    assert {"body", "keys", "tags", "properties", "flag"} <= set(columns)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("key string", "column value"),
        ("value string, body binary", "one column"),
        ("value string, other string", "column other is none of value"),
        ("value string, VALUE string", "has one column value, in whatever case"),
        ("value string, queueId integer, QUEUEID integer", "has one column queueId, in whatever case"),
        ("value integer", "column value is of binary or string, not of int"),
    ],
)
def test_a_frame_that_is_no_messages_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        topic_columns(schema(text))


def test_a_row_becomes_a_message() -> None:
    first, second = rows(("body", "keys", "tags", "flag"), ["a", "b"], ["k1 k2", None], ["t", ""], [7, None])
    assert (first.body, list(first.keys), first.tags, first.flag) == (b"a", ["k1 k2"], "t", 7)
    assert (second.body, list(second.keys), second.tags, second.flag) == (b"b", [], None, 0)


def test_properties_of_the_system_are_not_copied_and_the_others_have_one_order() -> None:
    pairs = pa.array(
        [[("z", "1"), ("UNIQ_KEY", "x"), ("TALLY_SINK", "y"), ("a", None)]], pa.map_(pa.string(), pa.string())
    )
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), pairs], ["body", "properties"])
    (row,) = rows_of(batch, ("body", "properties"))
    assert row.properties == [("a", ""), ("z", "1")]


@pytest.mark.parametrize("body", [None, b""])
def test_a_row_without_a_value_is_refused(body: bytes | None) -> None:
    with pytest.raises(UsageError, match="no value"):
        rows(("body",), [body])


@pytest.mark.parametrize("memory_bytes", [1, 300, 1 << 20])
def test_rows_come_sorted_whatever_their_order_and_the_memory(memory_bytes: int) -> None:
    chance = random.Random(1)
    some = [chance.randbytes(chance.randrange(20)) for _ in range(500)]
    expected = sorted(some)
    chance.shuffle(some)
    assert list(sorted_rows(some, memory_bytes)) == expected
    assert list(sorted_rows([], memory_bytes)) == []


def test_rows_that_are_in_memory_at_the_end_are_merged_with_those_in_files() -> None:
    some = [b"%d" % (number * 7 % 10) for number in range(10)]
    for count in range(1, 11):
        assert list(sorted_rows(some[:count], 200)) == sorted(some[:count])
