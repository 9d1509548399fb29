"""Messages of protobuf in one buffer, by columns; ``pipeline/stream/test_fields.py`` compares with its own parser."""

from __future__ import annotations

from array import array

import pytest

from tallystick.codec.messages import BYTES, NUMBER, PAIRS, Scan, scan_members, scan_messages

SIZE = 3
TABLE = bytes((1, PAIRS, 0, 2, BYTES, 0, SIZE, NUMBER, 31))
PAIR, TEXT, NUMBER_5 = b"\x0a\x06\x0a\x01a\x12\x01b", b"\x12\x02xy", b"\x18\x05"


def numbers(column: bytes) -> list[int]:
    return memoryview(column).cast("q").tolist()


def one(message: bytes) -> Scan:
    return scan_messages(b"--" + message, array("q", [2]), array("q", [2 + len(message)]), TABLE)


def members(data: bytes, *counts: int) -> tuple[int, bytes, Scan]:
    """Batches of one size each, that fill the data."""
    size = len(data) // len(counts)
    starts = array("q", range(0, len(data), size))
    ends = array("q", [start + size for start in starts])
    return scan_members(data, starts, ends, array("q", counts), TABLE, SIZE, 100)


def member(message: bytes, content: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message + content


def test_a_message_has_a_number_the_places_of_bytes_and_of_pairs() -> None:
    whole, present, columns, pairs = one(PAIR + PAIR + TEXT + NUMBER_5)
    assert whole == b"\1" and present == b"\1\1\1" and numbers(columns) == [20, 2, 5]
    assert numbers(pairs) == [0, 6, 1, 9, 1, 0, 14, 1, 17, 1]


def test_what_a_message_lacks_is_nothing() -> None:
    assert one(b"") == (b"\1", bytes(3), bytes(24), b"")
    assert one(TEXT)[1] == b"\0\1\0"


@pytest.mark.parametrize(
    "message", [NUMBER_5 + TEXT, TEXT + TEXT, TEXT[:-1], b"\x18\x80", b"\x20\x01", b"\x0a\x06\x0a\x01a\x12\x02b"]
)
def test_of_a_message_that_is_not_whole_there_is_nothing(message: bytes) -> None:
    assert one(PAIR + message) == (b"\0", bytes(3), bytes(24), b"")


def test_members_follow_the_content_of_those_before_them() -> None:
    batch = member(NUMBER_5, b"12345") + member(TEXT + b"\x18\x01", b"1") + b"more"
    count, contents, (whole, _, columns, _) = members(batch, 2)
    assert (count, numbers(contents), whole) == (1, [6, 21], b"\1\1")
    assert numbers(columns) == [0, 17, 0, 2, 5, 1]


@pytest.mark.parametrize(
    "bad", [member(NUMBER_5, b"1234"), b"\0\0\0\x09" + NUMBER_5 + b"123", member(b"\x20\1", b"12345")]
)
def test_batches_before_one_of_another_form_are_read(bad: bytes) -> None:
    good = member(NUMBER_5, b"12345")
    count, contents, (whole, present, columns, _) = members(good + bad.ljust(len(good))[: len(good)], 1, 2)
    assert (count, numbers(contents), whole) == (1, [6, 0, 0], b"\1\0\0")
    assert present == bytes(6) + b"\1\0\0" and numbers(columns)[-3:] == [5, 0, 0]


def test_places_outside_of_the_buffer_and_other_tables_are_refused() -> None:
    for start, end in ((-1, 2), (0, 5), (7, 8)):
        with pytest.raises(ValueError, match="inside"):
            scan_messages(TEXT, array("q", [start]), array("q", [end]), TABLE)
        with pytest.raises(ValueError, match="inside"):
            scan_members(TEXT, array("q", [start]), array("q", [end]), array("q", [1]), TABLE, SIZE, 100)
    with pytest.raises(ValueError, match="three bytes"):
        scan_messages(TEXT, array("q"), array("q"), TABLE[:-1])
    with pytest.raises(ValueError, match="kinds"):
        scan_messages(TEXT, array("q"), array("q"), bytes((1, 1, 0)))
    with pytest.raises(ValueError, match="has no number"):
        scan_members(TEXT, array("q"), array("q"), array("q"), TABLE, 2, 100)
    with pytest.raises(ValueError, match="some members"):
        members(TEXT, -1)
