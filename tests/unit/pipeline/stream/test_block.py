"""Entries that are read as a block give the rows that they give one by one, whatever is in them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.usual_entries import ENTRIES, entry_of, sealed, single
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import (
    MOST_BYTES,
    OutMessage,
    encode_entry,
    iter_messages,
    open_entry,
    plain_payload,
)
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.codec.reads import EvenEntries
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.stream.block import MOST_ROWS, take_block
from tallystick.pipeline.stream.block_arrays import BlockRun
from tallystick.pipeline.stream.decode import FEWEST_ONE_BY_ONE, Pace
from tallystick.pipeline.stream.rows import SCHEMA, Row, RowRun, arrays_of, row_of

FIRST = 5


def block_columns(entries: list[bytes]) -> tuple[int, list[list[Any]]]:
    """How many entries are taken, and the columns of their rows; alike of those that lie with gaps in one buffer."""
    columns = columns_of(entries)
    if len({*map(len, entries)}) == 1:
        gap = bytes(36)
        even = EvenEntries(memoryview(b"".join(gap + entry for entry in entries)), len(entries[0]), len(gap))
        assert columns_of(even) == columns
    return columns


def columns_of(payloads: Sequence[bytes | memoryview]) -> tuple[int, list[list[Any]]]:
    stop, block = take_block(payloads, 0, FIRST)
    if block is None:
        assert stop == 0
        return 0, []
    arrays = [part.arrays(SCHEMA.names) for part in BlockRun("s", 7, block).parts()]
    for column in (column for part in arrays for column in part):
        column.validate(full=True)
    assert [column.type for column in arrays[0]] == SCHEMA.types
    return stop, [[value for part in each for value in part.to_pylist()] for each in zip(*arrays, strict=True)]


def reference_columns(entries: list[bytes]) -> list[list[Any]]:
    rows: list[Row] = []
    for place, entry in enumerate(entries, FIRST):
        opened = open_entry(entry, position=Position(7, place))
        for step in iter_messages(opened, plain_payload(opened, max_bytes=MOST_BYTES)):
            rows += [row_of(message) for message in step]
    return [column.to_pylist() for column in arrays_of([RowRun("s", 7, rows, 0)], SCHEMA.names)]


def is_taken(*entries: bytes) -> bool:
    stop, columns = block_columns(list(entries))
    assert not stop or columns == reference_columns(list(entries[:stop]))
    return stop == len(entries)


def batch(*singles: bytes, **fields: Any) -> bytes:
    return entry_of(b"".join(singles), **{"num_messages_in_batch": len(singles), **fields})


def test_members_begin_behind_each_other_whatever_is_in_them() -> None:
    assert is_taken(batch(single(b"12"), single(b"123"), single(b"1")))
    looks_like_a_message = bytes(14) + b"\0\0\0\x02\x18\x0e" + bytes(4)
    assert is_taken(batch(single(bytes(14)), single(looks_like_a_message), single(bytes(4))))


@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_a_block_has_the_rows_of_its_entries(entries: list[bytes]) -> None:
    stop, columns = block_columns(entries)
    assert not stop or columns == reference_columns(entries[:stop])


@settings(max_examples=300)
@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_of_any_bytes_it_reads_what_the_reference_reads(entries: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(entries) - 1))
    body = bytearray(entries[at][6:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    size = min(int.from_bytes(body[:4], "big"), len(body) - 4)
    entries[at] = sealed(bytes(body[4 : 4 + size]), bytes(body[4 + size :]))
    stop, columns = block_columns(entries)
    assert not stop or columns == reference_columns(entries[:stop])


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
def test_bytes_that_are_no_messages_are_not_taken(entries: list[bytes]) -> None:
    assert not is_taken(*entries)


def test_entries_of_one_message_and_batches_are_mixed() -> None:
    def entry(count: int, key: str | bytes | None, how: Compression = Compression.NONE) -> bytes:
        messages = [OutMessage(b"v" * at, key, properties={"n": str(at)}) for at in range(count)]
        return encode_entry(messages, producer="p", sequence=3, publish_time_ms=4, compression=how)

    entries = [entry(3, "k"), entry(1, None), entry(200, b"\0"), entry(1, "é"), entry(5, None, Compression.ZLIB)]
    assert is_taken(*entries, *entries)


def test_the_last_property_of_a_name_counts() -> None:
    properties = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}, {"key": "a", "value": "3"}]
    assert is_taken(entry_of(properties=properties), entry_of(properties=properties[:2]))


def test_a_key_that_is_no_base64_is_a_text() -> None:
    keys = ["%%%", base64.b64encode(b"bytes").decode(), ""]
    assert is_taken(*[entry_of(partition_key=key, partition_key_b64_encoded=True) for key in keys])


def test_texts_that_are_none_are_shown_as_java_does() -> None:
    front = b"\x0a\x01\xff" + b"\x10\x03\x18\x04" + b"\x22\x06\x0a\x01\xc3\x12\x01\xa9" + b"\x32\x01\x80"
    stop, block = take_block([sealed(front, b"v")], 0, FIRST)
    assert stop == 1 and block is not None
    key, properties, producer = BlockRun("s", 7, block).arrays(["key", "properties", "producer"])
    assert (key[0].as_py(), properties[0].as_py(), producer[0].as_py()) == ("�".encode(), [("�", "�")], "�")


def test_messages_that_are_compacted_away_are_left_out() -> None:
    assert is_taken(batch(single(b"1"), single(b"2", compacted_out=True), single(b"3")), entry_of())
    assert is_taken(batch(single(b"1", compacted_out=True)))


def test_messages_without_value_or_key() -> None:
    assert is_taken(entry_of(b"", null_value=True), entry_of(b""), batch(single(b"", null_value=True), single(b"1")))
    assert not is_taken(entry_of(null_partition_key=True, partition_key=""))


def test_what_follows_a_batch_is_nothing() -> None:
    assert is_taken(entry_of(single(b"1") + single(b"23") + b"more", num_messages_in_batch=2))


@pytest.mark.parametrize(
    "bad",
    [
        entry_of(single(b"1") + single(b"2")[:-1], num_messages_in_batch=2),
        entry_of(single(b"1")[:3], num_messages_in_batch=1),
        entry_of(num_messages_in_batch=0),
        entry_of(num_chunks_from_msg=2, uuid="u", chunk_id=0, total_chunk_msg_size=2),
        entry_of(encryption_keys=[b""]),
        entry_of(marker_type=1),
        entry_of(compression=9),
        entry_of(b"bad", compression=Compression.ZLIB.value, uncompressed_size=3),
        entry_of()[:-1] + b"w",
        entry_of()[:9],
        b"",
    ],
)
def test_entries_before_one_that_is_not_usual_are_taken(bad: bytes) -> None:
    good = [entry_of(b"1"), batch(single(b"2"), single(b"3"))]
    stop, columns = block_columns([*good, bad, *good])
    assert stop == 2 and columns == reference_columns(good)
    assert not is_taken(bad)


def test_no_more_is_taken_than_some_batches_hold() -> None:
    entry = entry_of(bytes(BATCH_BYTES // 4))
    even = EvenEntries(memoryview(entry * 20), len(entry), 0)
    assert take_block(even, 0, FIRST)[0] == 8 and take_block(even, 15, FIRST)[0] == 20
    stop, block = take_block([entry] * 20, 0, FIRST)
    assert block is not None and stop == len(block) == 8
    sizes = [part.size for part in BlockRun("s", 7, block).parts()]
    assert sum(sizes) == block.size and max(sizes) <= 2 * BATCH_BYTES
    small = batch(*[single(b"")] * 1000)
    stop, block = take_block([small] * 20, 0, FIRST)
    assert stop == MOST_ROWS // 1000 + 1 and block is not None
    assert [part.row_count for part in BlockRun("s", 7, block).parts()] == [
        BATCH_ROWS,
        BATCH_ROWS,
        9000 - 2 * BATCH_ROWS,
    ]


def test_decompressed_entries_are_bounded() -> None:
    bomb = encode_entry(
        [OutMessage(bytes(BATCH_BYTES))], producer="p", sequence=0, publish_time_ms=1, compression=Compression.ZLIB
    )
    assert take_block([bomb] * 5, 0, FIRST)[0] == 1


def test_blocks_are_looked_for_less_often_where_they_are_rare() -> None:
    pace = Pace()
    for _ in range(5):
        pace.took(0, 0)
        pace.took(1, 10)
    assert pace.one_by_one == FEWEST_ONE_BY_ONE << 5
    pace.took(3, BATCH_BYTES)
    assert pace.one_by_one == FEWEST_ONE_BY_ONE
    for _ in range(50):
        pace.took(0, 0)
    assert pace.one_by_one == BATCH_ROWS
    pace.took(BATCH_ROWS, 0)
    assert pace.one_by_one == FEWEST_ONE_BY_ONE
