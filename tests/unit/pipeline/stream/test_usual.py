"""Usual entries are read as the reference reads them, and what is not usual is left to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.usual_entries import ENTRIES, entry_of, sealed, single
from tallystick.bookkeeper.wire.pulsar_messages import (
    MOST_BYTES,
    iter_messages,
    open_entry,
    plain_payload,
)
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptEntry
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.stream.rows import Row, row_of
from tallystick.pipeline.stream.usual import take_usual

ENTRY = 9


def taken(entry: bytes) -> list[Row] | None:
    rows: list[Row] = []
    place, size = take_usual(rows, [entry], 0, ENTRY)
    assert place or not (rows or size)
    return plain(rows) if place else None


def expected(entry: bytes) -> list[Row]:
    opened = open_entry(entry, position=Position(7, ENTRY))
    steps = iter_messages(opened, plain_payload(opened, max_bytes=MOST_BYTES))
    return plain([row_of(message) for step in steps for message in step])


def plain(rows: list[Row]) -> list[Row]:
    return [(*row[:2], None if row[2] is None else bytes(row[2]), *row[3:]) for row in rows]


@given(ENTRIES)
def test_what_producers_write_is_usual_and_read_as_by_the_reference(entry: bytes) -> None:
    assert taken(entry) == expected(entry)


@settings(max_examples=300)
@given(ENTRIES, st.data())
def test_no_damaged_entry_is_usual(entry: bytes, data: st.DataObject) -> None:
    """The CRC is made good again, so that what is behind it is looked at."""
    body = bytearray(entry[6:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for damaged in (bytes(body), cut):
        entry = b"\x0e\x01" + crc32c(damaged).to_bytes(4, "big") + damaged
        try:
            rows = expected(entry)
        except CorruptEntry:
            assert taken(entry) is None
        else:
            assert taken(entry) in (rows, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_chunks_from_msg": 2, "chunk_id": 0, "uuid": "u", "total_chunk_msg_size": 9},
        {"marker_type": 0},
        {"num_messages_in_batch": 5000},
        {"num_messages_in_batch": 0},
        {"compression": 77},
    ],
    ids=str,
)
def test_what_has_more_to_it_is_left_to_the_reference(fields: dict[str, Any]) -> None:
    assert taken(entry_of(**fields)) is None


def test_encrypted_and_faulty_entries_are_left_to_the_reference() -> None:
    assert taken(entry_of(encryption_keys=[b"k"])) is None
    whole = entry_of()
    assert taken(whole) == expected(whole)
    assert taken(whole[:-1] + b"w") is None  # its CRC is wrong
    assert taken(whole[6:]) is None  # it has no CRC
    assert taken(b"") is None
    assert taken(sealed(MessageMetadata(producer_name="p").SerializePartialToString(), b"")) is None


@pytest.mark.parametrize(
    "payload",
    [
        single(b"a") + single(b"b", sequence_id=0) + single(b"c", compacted_out=True),
        single(b"", null_value=True)
        + single(b"b", partition_key="k", null_partition_key=True)
        + single(b"c", event_time=0),
    ],
)
def test_what_a_batch_has_of_each_message(payload: bytes) -> None:
    entry = entry_of(payload, num_messages_in_batch=3)
    assert taken(entry) == expected(entry)


def test_a_batch_whose_last_message_is_cut_off_gives_no_row() -> None:
    rows: list[Row] = []
    good, cut = entry_of(), entry_of(single(b"aaa") + single(b"bbb")[:-1], num_messages_in_batch=2)
    assert take_usual(rows, [good, cut], 0, ENTRY) == (1, 1)
    assert len(rows) == 1


def test_it_stops_when_there_are_enough_rows_for_a_batch() -> None:
    entry = entry_of(b"x" * (BATCH_BYTES // 2))
    rows: list[Row] = []
    assert take_usual(rows, [entry] * 5, 1, ENTRY) == (3, BATCH_BYTES)
    assert [row[0] for row in rows] == [ENTRY + 1, ENTRY + 2]
    rows = []
    assert take_usual(rows, [entry_of(b"")] * (BATCH_ROWS + 5), 0, 0) == (BATCH_ROWS, 0)
