"""Journal payloads: clients' ADD frames by ledger, and fences."""

from __future__ import annotations

import pytest

from support.stores import KEY, entry_bytes, frame, scanned
from tallystick.bookkeeper.bookie.records import Adds, Fence, Noted, by_ledger, decode
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import CorruptRecord


def contents(adds: Adds) -> list[tuple[int, bytes]]:
    return [(entry, adds.run.entry_bytes(place)) for place, entry in enumerate(adds.run.entries)]


def test_a_payload_of_everything() -> None:
    fence, noted = Fence(7, master_key(b"other")), Noted(7, 1 << 62)
    payload = frame(5, 0) + frame(5, 1) + fence.encode() + noted.encode() + frame(6, 3) + frame(5, 2)
    records = list(decode(payload))
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


@pytest.mark.parametrize(
    "garbage", [b"\0" * 40, frame(1, 1)[:-1], Fence(1, KEY).encode()[:-1], Noted(1, 1).encode()[:-1], b"\xff"]
)
def test_what_is_no_record_is_refused(garbage: bytes) -> None:
    with pytest.raises(CorruptRecord):
        list(decode(frame(1, 0) + garbage))


def test_keys_are_not_shown() -> None:
    assert KEY.hex() not in repr(Fence(1, KEY)) and repr(KEY) not in repr(Fence(1, KEY))
