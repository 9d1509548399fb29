"""What a Pulsar broker keeps of topics and subscriptions, byte for byte, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.cursor_bytes import decode_cursor, decode_cursor_state, encode_cursor
from support.pulsar_entries import decode_entry
from tallystick.bookkeeper.wire import managed_ledgers, pulsar_messages
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.stream_values import AckedRange, CursorState, Position

GOLDEN = json.loads((Path(__file__).parent / "golden" / "pulsar.json").read_text())


ENTRIES = {f"{each['topic']}-{each['entry']}": each for each in GOLDEN["entries"]}


def cases(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in GOLDEN[kind]]


def values(fields: list[Any], name: str) -> list[Any]:
    return [dict(value) if isinstance(value, list) else value for key, value in fields if key == name]


@pytest.mark.parametrize("case", cases("streams"))
def test_lists_of_ledgers_of_pulsar(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    info = managed_ledgers.decode_stream(data, where="here")
    assert managed_ledgers.encode_stream(info) == data
    if case["decoded"] is not None:
        rows = values(case["decoded"], "ledgerInfo")
        found = [(each.ledger, each.entries, each.size, each.timestamp_ms) for each in info.ledgers]
        assert found == [(row["ledgerId"], row.get("entries", 0), row.get("size", 0), row["timestamp"]) for row in rows]
        assert [each.has_counts for each in info.ledgers] == ["entries" in row for row in rows]
        ends = values(case["decoded"], "terminatedPosition")
        assert info.terminated == (Position(ends[0]["ledgerId"], ends[0]["entryId"]) if ends else None)


def test_properties_of_a_ledger_of_pulsar() -> None:
    data = next(case["hex"] for case in GOLDEN["streams"] if case["name"].startswith("with broker entry metadata"))
    assert managed_ledgers.decode_stream(bytes.fromhex(data), where="here").properties == {"index": "3"}


@pytest.mark.parametrize("case", cases("cursors"))
def test_cursors_of_pulsar(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    info = decode_cursor(data, where="here")
    assert encode_cursor(info) == data
    if case["decoded"] is not None:
        fields, state = dict(case["decoded"]), info.state
        assert state is not None
        assert (info.ledger, *state.mark[:2]) == tuple(
            fields[name] for name in ("cursorsLedgerId", "markDeleteLedgerId", "markDeleteEntryId")
        )
        assert info.last_active_ms == fields.get("lastActive", 0)
        assert len(state.acked) == len(values(case["decoded"], "individualDeletedMessages"))


def test_entries_that_pulsar_has_acknowledged_one_by_one() -> None:
    data = next(case["hex"] for case in GOLDEN["cursors"] if case["name"] == "plain/exclusive")
    state = decode_cursor(bytes.fromhex(data), where="here").state
    ranges = (AckedRange(Position(1, 1), Position(1, 2)), AckedRange(Position(1, 3), Position(1, 4)))
    assert state == CursorState(Position(1, 0), ranges)


def test_messages_of_a_batch_that_pulsar_has_acknowledged_one_by_one() -> None:
    data = next(case["hex"] for case in GOLDEN["cursors"] if case["name"].startswith("batch acknowledged"))
    state = decode_cursor(bytes.fromhex(data), where="here").state
    assert state is not None and state.batches == {Position(0, 0): (0b110101,)}


@pytest.mark.parametrize("case", cases("cursor_states"))
def test_entries_of_cursor_ledgers_of_pulsar(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    state = decode_cursor_state(data, where="here")
    assert managed_ledgers.encode_cursor_state(state) == data
    fields = dict(case["decoded"])
    assert state.mark == Position(fields["ledgerId"], fields["entryId"])
    if "individualDeletedMessageRanges" in fields:
        acked = (AckedRange(Position(1, 1), Position(1, 2)), AckedRange(Position(1, 3), Position(1, 4)))
        assert state.acked == acked


def opened(case: dict[str, Any]) -> pulsar_messages.OpenEntry:
    return pulsar_messages.open_entry(bytes.fromhex(case["hex"]), position=Position(case["ledger"], case["entry"]))


def again(case: dict[str, Any]) -> bytes:
    """The entry that we would have made of the same messages."""
    entry = opened(case)
    found = decode_entry(bytes.fromhex(case["hex"]), position=entry.position, max_bytes=10_000)
    return pulsar_messages.encode_entry(
        [pulsar_messages.OutMessage(each.data, each.key, each.event_time_ms, each.properties) for each in found],
        producer=entry.producer,
        sequence=entry.sequence,
        publish_time_ms=entry.publish_time_ms,
        compression=entry.compression,
    )


PLAIN = ("plain", "nobatch", "parted", "sp00e9cial", "busy", "term", "roll")


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith(PLAIN)])
def test_entries_of_pulsar_are_the_bytes_that_we_make(name: str) -> None:
    assert again(ENTRIES[name]) == bytes.fromhex(ENTRIES[name]["hex"])


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith(("lz4", "zlib", "zstd", "snappy"))])
def test_compressed_entries_of_pulsar(name: str) -> None:
    """What compressors make differs; and we say the last number of a batch, as the client of Java does."""
    case, topic = ENTRIES[name], ENTRIES[name]["topic"].removesuffix("-batched")
    theirs = opened(case)
    ours = pulsar_messages.open_entry(again(case), position=theirs.position)
    assert theirs.compression is Compression.parse(topic) and theirs.is_batch == ("batched" in name)
    payload = bytes(pulsar_messages.plain_payload(theirs, max_bytes=10_000))
    assert payload == pulsar_messages.plain_payload(ours, max_bytes=10_000)
    last_number = b"\xc0\x01\x02" if theirs.is_batch else b""
    assert ours.metadata.SerializeToString() == theirs.metadata.SerializeToString() + last_number
    found = decode_entry(bytes.fromhex(case["hex"]), position=theirs.position, max_bytes=10_000)
    if theirs.is_batch:
        assert [each.position.batch_index for each in found] == [0, 1, 2]
        assert [each.sequence for each in found] == [0, 1, 2]
    assert [each.key for each in found] == [f"k{each.sequence}" for each in found]
    assert [each.data.split(b"-x")[0] for each in found] == [
        f"{case['topic']}-{each.sequence:04}".encode() for each in found
    ]
    assert [each.properties for each in found] == [{"n": str(each.sequence)} for each in found]


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith("schema")])
def test_messages_of_pulsar_with_a_schema_and_a_time(name: str) -> None:
    (found,) = pulsar_messages.iter_messages(entry := opened(ENTRIES[name]), entry.payload)
    assert (found[0].event_time_ms, found[0].schema_version) == (1_700_000_000_000 + entry.sequence, bytes(8))
    assert (found[0].ordering_key, found[0].key) == (b"ok", None)


def test_an_entry_with_notes_of_its_broker() -> None:
    case = ENTRIES["with broker entry metadata-0"]
    entry = opened(case)
    assert (entry.broker_time_ms, entry.publish_time_ms) == (1_795_256_599_942, 1_795_256_599_941)
    assert again(case) == bytes.fromhex(case["hex"])[15:]
