"""Journal payloads: clients' ADD frames by ledger, and fences."""

from __future__ import annotations

import struct

import pytest

from support.stores import KEY, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie.memtable import stored_frame
from tallystick.bookkeeper.bookie.records import Adds, Fence, Noted, by_ledger, decode
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import CorruptRecord, StorageError


def contents(adds: Adds) -> list[tuple[int, bytes]]:
    return [(entry, adds.run.entry_bytes(place)) for place, entry in enumerate(adds.run.entries)]


def test_a_payload_of_everything() -> None:
    fence, noted = Fence(7, master_key(b"other")), Noted(7, 1 << 62)
    payload = frame(5, 0) + frame(5, 1) + fence.encode() + noted.encode() + frame(6, 3) + frame(5, 2)
    records = list(decode(payload, "", 0))
    assert records[1:3] == [fence, noted]
    adds = [record for record in records if isinstance(record, Adds)]
    assert [record.ledger for record in adds] == [5, 6, 5]
    assert [contents(record) for record in adds] == [
        [(0, entry_bytes(5, 0)), (1, entry_bytes(5, 1))], [(3, entry_bytes(6, 3))], [(2, entry_bytes(5, 2))]
    ]  # fmt: skip
    assert all(record.key == KEY for record in adds)


def test_interleaved_ledgers_are_sorted_apart() -> None:
    data, run = scanned([frame(1, 0), frame(2, 0), frame(1, 1), frame(2, 1), frame(3, 9)])
    groups = {adds.ledger: contents(adds) for adds in by_ledger(data, run, [0, 1, 2, 3])}
    assert groups == {
        1: [(0, entry_bytes(1, 0)), (1, entry_bytes(1, 1))],
        2: [(0, entry_bytes(2, 0)), (1, entry_bytes(2, 1))],
    }


def test_every_record_is_written_as_it_was_recorded() -> None:
    """Later versions read these bytes."""
    entry = entry_bytes(5, 1)
    assert stored_frame(KEY, entry) == bytes.fromhex("00000075 0201 0000") + KEY + entry
    assert Fence(7, KEY).encode() == bytes.fromhex("00000020 ff01 0000 0000000000000007") + KEY
    assert Noted(7, -1).encode() == bytes.fromhex("00000014 ff02 0000 0000000000000007 ffffffffffffffff")


GARBAGE = {
    "zeros": b"\0" * 40,
    "half an entry": frame(1, 1)[:-1],
    "an entry without a whole header": bytes.fromhex("00000024 0201 0000") + bytes(32),
    "half a fence": Fence(1, KEY).encode()[:-1],
    "half a creation": Noted(1, 1).encode()[:-1],
    "a longer fence": bytes.fromhex("00000021 ff01 0000") + bytes(29),
    "a shorter creation": bytes.fromhex("00000013 ff02 0000") + bytes(15),
    "a byte": b"\xff",
    "half of an unknown one": bytes.fromhex("00000014 ff7f 0000") + bytes(15),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_record_is_refused(garbage: bytes) -> None:
    with pytest.raises(CorruptRecord) as refused:
        list(decode(frame(1, 0) + garbage, "/journal/1", 8212))
    assert refused.value.fields == {"path": "/journal/1", "offset": 8212 + len(frame(1, 0))}


@pytest.mark.parametrize(("kind", "version"), [(0x0201, 1), (0xFF01, 1), (0xFF02, 7), (0xFF03, 0), (0x0000, 0)])
@pytest.mark.parametrize("body", [b"", bytes(28), bytes(60)])
def test_a_record_of_a_newer_version_is_named(kind: int, version: int, body: bytes) -> None:
    newer = struct.pack(">IHH", 4 + len(body), kind, version) + body
    found = decode(frame(1, 0) + newer + frame(1, 1), "/journal/1", 8212)
    assert isinstance(next(found), Adds)
    with pytest.raises(StorageError, match="start the version of tallystick that wrote it") as refused:
        next(found)
    assert not isinstance(refused.value, CorruptRecord), "it is not damaged"
    assert refused.value.fields == {
        "path": "/journal/1", "offset": 8212 + len(frame(1, 0)), "type": f"0x{kind:04x}", "version": version,
    }  # fmt: skip


def test_keys_are_not_shown() -> None:
    assert KEY.hex() not in repr(Fence(1, KEY)) and repr(KEY) not in repr(Fence(1, KEY))
