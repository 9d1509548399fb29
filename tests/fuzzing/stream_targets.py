"""What is read of streams: lists and cursors, where brokers write too, and entries, which anybody's producers wrote."""

from __future__ import annotations

import json
from pathlib import Path

from fuzzing.targets import Target
from support.cursor_bytes import decode_cursor, decode_cursor_state, encode_cursor
from tallystick.bookkeeper.stream.reader import MAX_MESSAGE_BYTES
from tallystick.bookkeeper.wire import managed_ledgers, pulsar_messages
from tallystick.bookkeeper.wire.compression import Compression, compress, decompress
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptEntry, MetadataError
from tallystick.pipeline.stream.block import take_block
from tallystick.pipeline.stream.block_arrays import BlockRun
from tallystick.pipeline.stream.rows import Row, RowRun, arrays_of, row_of

GOLDEN = json.loads((Path(__file__).resolve().parent.parent / "wire" / "golden" / "pulsar.json").read_text())
MAX_BYTES = 64 * 1024
CRC_MAGIC = b"\x0e\x01"


def _golden(kind: str) -> list[bytes]:
    return [bytes.fromhex(case["hex"]) for case in GOLDEN[kind]]


def lists(data: bytes) -> None:
    try:
        info = managed_ledgers.decode_stream(data, where="")
    except MetadataError:
        return
    again = managed_ledgers.encode_stream(info)
    assert managed_ledgers.decode_stream(again, where="") == info


def cursors(data: bytes) -> None:
    try:
        info = decode_cursor(data, where="")
    except MetadataError:
        return
    assert decode_cursor(encode_cursor(info), where="") == info


def cursor_states(data: bytes) -> None:
    try:
        state = decode_cursor_state(data, where="")
    except MetadataError:
        return
    again = decode_cursor_state(managed_ledgers.encode_cursor_state(state), where="")
    assert (again.mark, again.batches, again.properties) == (state.mark, state.batches, state.properties)


def messages(data: bytes) -> None:
    """Behind a CRC nothing would be found."""
    position = Position(7, 3)
    try:
        entry = pulsar_messages.open_entry(data, position=position)
        payload = pulsar_messages.plain_payload(entry, max_bytes=MAX_BYTES)
        for step in pulsar_messages.iter_messages(entry, payload):
            assert len(step) <= pulsar_messages.STEP_FIELDS
    except CorruptEntry as error:
        assert error.position == position


def blocks(data: bytes) -> None:
    """Entries that are read by columns, whose CRC is right whatever they are."""
    entry = CRC_MAGIC + crc32c(data).to_bytes(4, "big") + data
    stop, block = take_block([entry, entry], 0, 3)
    if block is None:
        assert stop == 0
        return
    columns = ["key", "value", "properties", "eventTime", "producer", "sequence", "entry", "batchIndex"]
    rows: list[Row] = []
    for place in range(stop):
        opened = pulsar_messages.open_entry(entry, position=Position(7, 3 + place))
        payload = pulsar_messages.plain_payload(opened, max_bytes=MAX_MESSAGE_BYTES)
        for step in pulsar_messages.iter_messages(opened, payload):
            rows += [row_of(message) for message in step]
    expected = arrays_of([RowRun("s", 7, rows, 0)], columns)
    assert [column.to_pylist() for column in BlockRun("s", 7, block).arrays(columns)] == [
        column.to_pylist() for column in expected
    ]


def compressed(data: bytes) -> None:
    for how in Compression:
        for size in (0, 100, MAX_BYTES):
            try:
                assert len(decompress(data, how, size=size)) == size
            except ValueError:
                continue


TARGETS = (
    Target("lists-of-ledgers", lists, [*_golden("streams"), b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x00"]),
    Target("cursors", cursors, _golden("cursors")),
    Target("cursor-states", cursor_states, _golden("cursor_states")),
    Target("messages", messages, [each[6:] for each in _golden("entries") if each.startswith(CRC_MAGIC)]),
    Target("blocks", blocks, [each[6:] for each in _golden("entries") if each.startswith(CRC_MAGIC)]),
    Target("compressed", compressed, [compress(b"tally" * 20, how) for how in Compression]),
)
