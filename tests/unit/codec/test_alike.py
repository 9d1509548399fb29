"""Records that differ in little; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import pytest

from tallystick.codec.alike import AlikeRecords, scan_alike
from tallystick.codec.records import encode_records, hash_utf8, scan_records, topic_field

HOST = bytes(8)
BASE = 1 << 40
BEFORE, AFTER = b"WAIT\x01true\x02UNIQ_KEY\x01", b"\x02CLUSTER\x01c\x02"


def record(at: int, key: bytes, *, queue: tuple[int, int] = (0, 0), topic: str = "T", flags: int = 0) -> bytes:
    properties = BEFORE + key + AFTER
    row = topic_field(topic), *queue, flags, 5, HOST, 0, [(0, b"body", properties)]
    return encode_records([row], BASE + at, 99, HOST)


def log_of(*records: tuple[bytes, tuple[int, int]]) -> bytes:
    log = b""
    for key, queue in records:
        log += record(len(log), key, queue=queue)
    return log


def scan(log: bytes, most: int = 100) -> AlikeRecords | None:
    return scan_alike(log, BASE, b"T", BEFORE, AFTER, 3, -7, most)


def test_what_queues_and_index_get_of_each() -> None:
    log = log_of((b"a", (1, 5)), (b"bb", (1, 6)), (b"c", (2, 0)), (b"d", (1, 7)), (b"e", (1, 9)))
    outcome, run = scan(log), scan_records(log, BASE)
    assert outcome is not None
    stretches, units, hashes, physicals, stored_ms, end = outcome
    assert stretches == [(1, 5, 2), (2, 0, 1), (1, 7, 1), (1, 9, 1)]
    assert physicals == [BASE + position for position in run.positions]
    assert hashes == [hash_utf8(key, 3) for key in (b"a", b"bb", b"c", b"d", b"e")]
    assert units[20:40] == physicals[1].to_bytes(8, "big") + run.sizes[1].to_bytes(4, "big") + b"\xff" * 7 + b"\xf9"
    assert (stored_ms, end) == ([99] * 5, len(log))


@pytest.mark.parametrize("most", [1, 2])
def test_it_takes_no_more_than_it_may(most: int) -> None:
    log = log_of((b"a", (0, 0)), (b"b", (0, 1)), (b"c", (0, 2)))
    outcome = scan(log, most)
    assert outcome is not None
    assert (outcome[0], outcome[-1]) == ([(0, 0, most)], len(log) // 3 * most)


@pytest.mark.parametrize(
    "other",
    [
        record(0, b"x", topic="Other"),
        record(0, b"x", flags=4),
        record(0, b""),
        record(0, b"\x02"),
        record(0, "ä".encode()),
        record(1, b"x"),
        record(0, b"x")[:-1],
        record(0, b"x").replace(b"true", b"True"),
        record(0, b"x").replace(b"\x01c\x02", b"\x01d\x02"),
        b"",
    ],
)
def test_the_first_that_is_another_one_ends_it(other: bytes) -> None:
    assert scan(other) is None
    first = record(0, b"a")
    place = (BASE + len(first)).to_bytes(8, "big")
    behind = other if other == record(1, b"x") else other[:28] + place + other[36:]
    outcome = scan(first + behind)
    assert outcome is not None
    assert outcome[-1] == len(first)
