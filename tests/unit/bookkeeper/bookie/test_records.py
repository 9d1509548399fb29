"""Journal payloads: clients' ADD frames by ledger, and fences."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from support.stores import KEY, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.memtable import MemTables, stored_frame
from tallystick.bookkeeper.bookie.records import Adds, CreationRecord, ExplicitLac, Fence, by_ledger, decode
from tallystick.bookkeeper.bookie.state import State
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import CorruptRecord, StorageError

LAC = bytes(7) + b"\x07" + bytes(7) + b"\x02" + b"crc!"  # of ledger 7, LAC 2


def contents(adds: Adds) -> list[tuple[int, bytes]]:
    return [(entry, adds.run.entry_bytes(place)) for place, entry in enumerate(adds.run.entries)]


def test_a_payload_of_everything() -> None:
    fence, noted = Fence(7, master_key(b"other")), CreationRecord(7, 1 << 62)
    payload = frame(5, 0) + frame(5, 1) + fence.encode() + noted.encode() + frame(6, 3) + frame(5, 2)
    found = list(decode(payload, "", 0))
    assert found[1:3] == [fence, noted]
    adds = [record for record in found if isinstance(record, Adds)]
    assert [record.ledger for record in adds] == [5, 6, 5]
    assert [contents(record) for record in adds] == [
        [(0, entry_bytes(5, 0)), (1, entry_bytes(5, 1))],
        [(3, entry_bytes(6, 3))],
        [(2, entry_bytes(5, 2))],
    ]
    assert all(record.key == KEY for record in adds)


def test_interleaved_ledgers_are_sorted_apart() -> None:
    data, run = scanned([frame(1, 0), frame(2, 0), frame(1, 1), frame(2, 1), frame(3, 9)])
    groups = {adds.ledger: contents(adds) for adds in by_ledger(data, run, [0, 1, 2, 3])}
    assert groups == {
        1: [(0, entry_bytes(1, 0)), (1, entry_bytes(1, 1))],
        2: [(0, entry_bytes(2, 0)), (1, entry_bytes(2, 1))],
    }


def test_each_ledger_of_a_run_has_the_key_that_came_with_it() -> None:
    """Behind a start its writer would be refused else, and the other one's admitted."""
    keys = {1: KEY, 2: master_key(b"other")}
    for order in ((1, 2, 1, 2), (1, 1, 2, 2), (2, 1, 1, 2)):
        payload = b"".join(frame(ledger, entry, key=keys[ledger]) for entry, ledger in enumerate(order))
        assert {record.ledger: record.key for record in decode(payload, "", 0) if isinstance(record, Adds)} == keys


def test_a_replay_knows_of_the_metadata_what_the_look_behind_the_newest_entry_said() -> None:
    def replayed(*parts: bytes) -> tuple[int, bool]:
        ledgers, tables = Ledgers(State()), MemTables()
        for record in decode(b"".join(parts), "", 0):
            record.replay(ledgers, tables)
        return ledgers.alive[7].creation, ledgers.alive[7].unmade

    missing, made = CreationRecord(7, -1).encode(), CreationRecord(7, 99).encode()
    assert replayed(frame(7, 0), missing) == (-1, True)
    assert replayed(frame(7, 0), missing, frame(7, 1)) == (-1, False), "nobody looked since"
    assert replayed(frame(7, 0), missing, frame(7, 1), missing) == (-1, True)
    assert replayed(frame(7, 0), missing, frame(7, 1), made) == (99, False)


def test_every_record_is_written_as_it_was_recorded() -> None:
    """Later versions read these bytes."""
    entry = entry_bytes(5, 1)
    assert stored_frame(KEY, entry) == bytes.fromhex("00000075 0201 0000") + KEY + entry
    filled, ledgers = records.Filled((7, 1 << 60), 3), "0000000000000007 1000000000000000"
    assert filled.encode() == bytes.fromhex(f"0000001c ff05 0001 0000000000000003 {ledgers}")
    assert list(decode(filled.encode(), "", 0)) == [filled]
    before = bytes.fromhex(f"00000014 ff05 0000 {ledgers}")
    assert list(decode(before, "", 0)) == [records.Filled((7, 1 << 60), 0)], "of a version before"
    assert Fence(7, KEY).encode() == bytes.fromhex("00000020 ff01 0000 0000000000000007") + KEY
    assert ExplicitLac(LAC).encode() == bytes.fromhex("00000018 ff03 0000 0000000000000007 0000000000000002") + b"crc!"
    assert CreationRecord(7, -1).encode() == bytes.fromhex("00000014 ff02 0000 0000000000000007 ffffffffffffffff")


GARBAGE = {
    "zeros": b"\0" * 40,
    "half an entry": frame(1, 1)[:-1],
    "an entry without a whole header": bytes.fromhex("00000024 0201 0000") + bytes(32),
    "half a fence": Fence(1, KEY).encode()[:-1],
    "half a creation": CreationRecord(1, 1).encode()[:-1],
    "a longer fence": bytes.fromhex("00000021 ff01 0000") + bytes(29),
    "a shorter creation": bytes.fromhex("00000013 ff02 0000") + bytes(15),
    "a byte": b"\xff",
    "half an explicit LAC": ExplicitLac(LAC).encode()[:-1],
    "a shorter explicit LAC": bytes.fromhex("00000013 ff03 0000") + bytes(15),
    "a longer explicit LAC": bytes.fromhex("00000029 ff03 0000") + bytes(37),
    "half of an unknown one": bytes.fromhex("00000014 ff7f 0000") + bytes(15),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_record_is_refused(garbage: bytes) -> None:
    with pytest.raises(CorruptRecord) as refused:
        list(decode(frame(1, 0) + garbage, "/journal/1", 8212))
    assert refused.value.fields == {"path": "/journal/1", "offset": 8212 + len(frame(1, 0))}


@pytest.mark.parametrize(
    ("kind", "version"),
    [(0x0201, 1), (0xFF01, 1), (0xFF02, 7), (0xFF03, 1), (0xFF04, 1), (0xFF05, 2), (0xFF06, 0), (0x0000, 0)],
)
@pytest.mark.parametrize("body", [b"", bytes(28), bytes(60)])
def test_a_record_of_a_newer_version_is_named(kind: int, version: int, body: bytes) -> None:
    newer = struct.pack(">IHH", 4 + len(body), kind, version) + body
    found = decode(frame(1, 0) + newer + frame(1, 1), "/journal/1", 8212)
    assert isinstance(next(found), Adds)
    with pytest.raises(StorageError, match="start the version of tallystick that wrote it") as refused:
        next(found)
    assert not isinstance(refused.value, CorruptRecord), "it is not damaged"
    assert refused.value.fields == {
        "path": "/journal/1",
        "offset": 8212 + len(frame(1, 0)),
        "type": f"0x{kind:04x}",
        "version": version,
    }


@dataclass(frozen=True)
class LongFence(Fence):
    """A fence with a key of any length, as a later version might write it."""

    @classmethod
    def decode(cls, body: bytes) -> LongFence:
        return cls(int.from_bytes(body[:8], "big"), body[8:])


def test_a_new_version_of_a_record_is_an_entry_in_the_table_and_the_old_one_is_still_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = Fence(7, KEY).encode()
    monkeypatch.setitem(records._READERS, 0xFF01, (Fence.decode, LongFence.decode))
    new = struct.pack(">IHHq", 4 + 8 + 32, 0xFF01, 1, 8) + bytes(32)
    found = list(decode(old + frame(1, 0) + new, "", 0))
    assert (found[0], found[2]) == (Fence(7, KEY), LongFence(8, bytes(32)))
    ledgers, tables = Ledgers(State()), MemTables()
    for record in found:
        record.replay(ledgers, tables)
    assert {ledger: (each.key, each.fenced) for ledger, each in ledgers.alive.items()} == {
        7: (KEY, True),
        1: (KEY, False),
        8: (bytes(32), True),
    }
    assert Fence(7, KEY).encode()[4:8] == bytes.fromhex("ff01 0001"), "what is written is of the newest version"


def test_keys_are_not_shown() -> None:
    assert KEY.hex() not in repr(Fence(1, KEY)) and repr(KEY) not in repr(Fence(1, KEY))
