"""Fields of many messages at once are those that protobuf's own parser finds, or the message is not whole."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.streams_pb2 import SingleMessageMetadata
from tallystick.codec.messages import MOST_PAIRS, scan_messages
from tallystick.pipeline.stream.fields import Field, Fields, Kind, Table

TABLE = Table(
    Field(1, Kind.PAIRS),
    Field(2, Kind.BYTES),
    Field(3, Kind.NUMBER, 31),
    Field(4, Kind.NUMBER),
    Field(5, Kind.NUMBER),
    Field(9, Kind.NUMBER),
)
MESSAGES = st.builds(
    lambda pairs, **fields: single(pairs, **{name: value for name, value in fields.items() if value is not None}),
    st.lists(st.tuples(st.text(max_size=2), st.text(max_size=130)), max_size=3),
    partition_key=st.none() | st.text(max_size=3),
    payload_size=st.none() | st.integers(0, (1 << 31) - 1),
    compacted_out=st.none() | st.booleans(),
    event_time=st.none() | st.integers(0, (1 << 56) - 1),
    null_value=st.none() | st.booleans(),
)


def single(pairs: list[tuple[str, str]], **fields: object) -> bytes:
    message = SingleMessageMetadata(**fields)  # type: ignore[arg-type]  # drawn by name
    for name, value in pairs:
        message.properties.add(key=name, value=value)
    return message.SerializePartialToString()


def read(messages: list[bytes]) -> tuple[bytes, Fields]:
    data = b"".join([b"\x08\x01", *messages])
    sizes = np.array([len(message) for message in messages], np.int64)
    ends = np.cumsum(sizes) + 2
    return data, Fields(TABLE, scan_messages(data, ends - sizes, ends, TABLE.packed))


def agrees(message: bytes, data: bytes, fields: Fields, row: int) -> bool:
    try:
        expected = SingleMessageMetadata.FromString(message)
    except DecodeError:
        return False
    offset, size = (int(column[row]) for column in fields.span(2))
    pairs = [
        tuple(data[int(spans.offsets[at]) :][: int(spans.sizes[at])] for spans in fields.pairs[1:])
        for at in np.flatnonzero(fields.pairs.rows == row)
    ]
    return (
        data[offset : offset + size] == as_bytes(expected.partition_key)
        and pairs == [(as_bytes(each.key), as_bytes(each.value)) for each in expected.properties]
        and bool(fields.has(2)[row]) == expected.HasField("partition_key")
        and bool(fields.has(5)[row]) == expected.HasField("event_time")
        and int(fields.number(3)[row]) == expected.payload_size
        and int(fields.number(5)[row]) == expected.event_time
        and bool(fields.number(4)[row]) == expected.compacted_out
        and bool(fields.number(9)[row]) == expected.null_value
    )


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@given(st.lists(MESSAGES, min_size=1, max_size=6))
def test_what_an_encoder_writes_is_whole(messages: list[bytes]) -> None:
    data, fields = read(messages)
    assert fields.whole.all() and all(agrees(each, data, fields, row) for row, each in enumerate(messages))


@given(st.lists(st.binary(max_size=8) | MESSAGES, min_size=1, max_size=4), st.data())
@example([b"\x12\x00\x12\x01a"], None)  # one field twice: the last counts
@example([b"\x18\x01\x12\x00"], None)  # not in the order of numbers
@example([b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"], None)  # -1
@example([b"\x18\x80\x80\x80\x80\x08"], None)  # more than 31 bits
@example([b"\x18\x80"], None)  # a number that goes on behind the message
@example([b"\x12\x05ab", b"\x12\x01a"], None)  # bytes, too
@example([b"\x0a\x09\x0a\x01a\x12\x01b\x12\x01c"], None)  # a pair with two values: the last counts
@example([b"\x0a\x04\x0a\x01a\x12", b"\x0a\x02\x0a\x00", b"\x0a\x00"], None)  # pairs without a value
def test_of_any_bytes_it_reads_what_is_there_or_nothing(messages: list[bytes], data: st.DataObject | None) -> None:
    if data is not None:
        at = data.draw(st.integers(0, len(messages) - 1))
        place = data.draw(st.integers(0, len(messages[at])))
        messages[at] = messages[at][:place] + data.draw(st.binary(max_size=2)) + messages[at][place + 1 :]
    buffer, fields = read(messages)
    for row in np.flatnonzero(fields.whole).tolist():
        assert agrees(messages[row], buffer, fields, row)


def test_very_many_pairs_are_left_to_the_reference() -> None:
    pairs = [("k", "v")] * MOST_PAIRS
    assert read([single(pairs), single([*pairs, ("k", "v")])])[1].whole.tolist() == [True, False]


@given(st.lists(st.integers(0, (1 << 56) - 1), min_size=1))
def test_numbers_of_many_sizes(numbers: list[int]) -> None:
    fields = read([SingleMessageMetadata(event_time=number).SerializePartialToString() for number in numbers])[1]
    assert fields.number(5).tolist() == numbers and fields.whole.all()
