from __future__ import annotations

import random

import pytest

from support.ha_log import MemoryLog
from tallystick.codec.records import SMALLEST, Row, encode_blank, encode_records
from tallystick.codec.steps import finished
from tallystick.rocketmq.ha.proof import MAX_SPANS, PROOF_BYTES, objection, spans_of
from tallystick.rocketmq.wire.ha import SlaveHello, Span

FILE = 100_000
DATA = random.Random(7).randbytes(3 * FILE + 500)


def master(data: bytes = DATA) -> MemoryLog:
    return MemoryLog(data, file_bytes=FILE)


def hello(log: MemoryLog) -> SlaveHello:
    return SlaveHello("b", log.first, log.end, log.end or None, spans=finished(spans_of(log)))


@pytest.mark.parametrize("end", [1, 499, FILE, FILE + 1, 3 * FILE, len(DATA)])
def test_equal_logs_up_to_the_slaves_end(end: int) -> None:
    assert objection(master(), hello(master(DATA[:end]))) is None


def test_the_files_of_the_two_may_have_other_sizes() -> None:
    assert objection(master(), hello(MemoryLog(DATA[: 2 * FILE + 9], file_bytes=77_777))) is None


def test_nothing_is_compared_with_an_empty_slave() -> None:
    assert finished(spans_of(MemoryLog())) == ()
    assert objection(master(), hello(MemoryLog())) is None


def test_a_log_with_a_place_and_no_bytes_has_nothing_to_prove() -> None:
    """Found by the simulator: a new slave died with half a record."""
    assert objection(master(), SlaveHello("b", 2 * FILE, 2 * FILE, 2 * FILE)) is None


def test_the_proof_is_the_end_of_the_log_and_bounded() -> None:
    spans = finished(spans_of(master()))
    assert sum(span.size for span in spans) == PROOF_BYTES - SMALLEST, "there is no record in it"
    assert spans[-1].offset + spans[-1].size == len(DATA)


def test_a_proof_has_no_more_spans_than_a_master_takes() -> None:
    data = stored(*[b"short"] * 200, at_ms=1)
    small = MemoryLog(data, file_bytes=len(data) // 50)
    spans = finished(spans_of(small))
    assert len(spans) == MAX_SPANS and objection(MemoryLog(data), hello(small)) is None


def test_a_head_is_looked_for_in_steps() -> None:
    """A message may be as long as its producer likes, and be full of what looks like heads."""
    pieces = [bytes((at >> 16).to_bytes(6, "big") * 10_922 + b"\0\0\0\0") for at in range(0, 16 << 16, 1 << 16)]
    steps = spans_of(MemoryLog(b"".join(pieces), file_bytes=1 << 24))
    count = sum(1 for _ in steps)
    assert count >= 12


def stored(*bodies: bytes, at_ms: int, blank: int = 0) -> bytes:
    """The log of a master, with a blank at its end."""
    rows: list[Row] = [(b"\x05Topic", 0, 0, 0, 7, b"producer", 0, [(0, body, b"") for body in bodies])]
    end = encode_blank(blank).ljust(blank, b"\0") if blank else b""
    return encode_records(rows, 0, at_ms, b"brokers!") + end


LONG = bytes(3 * PROOF_BYTES)  # sent again by its producer, after the master had lost it


@pytest.mark.parametrize(
    ("bodies", "blank"), [((LONG,), 0), ((b"short", LONG), 0), ((b"short", b"short"), PROOF_BYTES + 7)]
)
def test_logs_that_parted_before_a_long_message_or_a_blank_differ(bodies: tuple[bytes, ...], blank: int) -> None:
    """R3: their last bytes are equal, and hold neither a place nor a time."""
    kept, lost = stored(*bodies, at_ms=1000, blank=blank), stored(*bodies, at_ms=1001, blank=blank)
    slave = MemoryLog(kept, file_bytes=1 << 24)
    found = objection(MemoryLog(lost, file_bytes=1 << 24), hello(slave))
    assert found is not None and "differ" in found
    assert objection(MemoryLog(kept + b"more", file_bytes=1 << 24), hello(slave)) is None


def test_a_body_with_its_own_place_in_it_is_not_taken_for_a_head() -> None:
    """R3: only a record has its magic in front of its place; the bytes of a body are equal wherever it was stored."""
    place, body = 1 << 17, bytearray(b"x" * len(LONG))
    at = place - stored(bytes(body), at_ms=1).index(body)
    body[at + 28 : at + 36] = place.to_bytes(8, "big")
    kept, lost = (stored(bytes(body), at_ms=at_ms) for at_ms in (1000, 1001))
    found = objection(MemoryLog(lost, file_bytes=1 << 24), hello(MemoryLog(kept, file_bytes=1 << 24)))
    assert found is not None and "differ" in found


@pytest.mark.parametrize("shift", range(0, 2 * SMALLEST, 7))
def test_the_head_before_the_last_pieces_is_found_wherever_it_is(shift: int) -> None:
    """Also over the border of two pieces of the search, and of two files, and before bytes that look like another."""
    border = 1 << 16
    first = stored(bytes(border - 2 * SMALLEST - 6 + shift), at_ms=1)
    data = stored(bytes(len(first) - SMALLEST - 5), first[:SMALLEST] + LONG, at_ms=1)
    head = len(first)
    for file_bytes in (1 << 24, head):
        spans = finished(spans_of(MemoryLog(data, file_bytes=file_bytes)))
        assert (spans[0].offset, spans[0].size) == (head, SMALLEST)
        assert len(spans) <= MAX_SPANS and sum(span.size for span in spans) <= PROOF_BYTES
        assert [span for span in spans if span.offset == spans[-1].offset] == [spans[-1]]
    assert finished(spans_of(MemoryLog(data[head:], start=head + 1)))[0].offset > head + SMALLEST, (
        "it is in another place"
    )


@pytest.mark.parametrize("place", [0, 1, FILE - 1, FILE, 2 * FILE - 1])
def test_one_other_byte_is_found(place: int) -> None:
    """R3: never a silent divergence."""
    other = bytearray(DATA[: 2 * FILE])
    other[place] ^= 1
    found = objection(master(), hello(master(bytes(other))))
    assert found is not None and "differ" in found and "tally store check" in found


def test_a_master_that_lost_its_end_says_so() -> None:
    found = objection(master(DATA[:1000]), hello(master(DATA[:1001])))
    assert found is not None and "the master lost its end" in found


def test_what_the_master_deleted_cannot_be_gone_on_from() -> None:
    kept = master()
    kept.first = 2 * FILE
    found = objection(kept, hello(master(DATA[:FILE])))
    assert found is not None and "begins at 200000" in found
    assert objection(kept, hello(master(DATA[: 2 * FILE + 5]))) is None, "what both still have agrees"


def test_a_slave_is_not_believed_when_the_master_has_nothing_to_compare_with() -> None:
    """Found by the simulator: the slave ended where the master, after it had lost its end, began."""
    kept = master()
    kept.first = 2 * FILE
    for end, file_bytes in ((2 * FILE, FILE), (2 * FILE + 5, 4 * FILE)):
        found = objection(kept, hello(MemoryLog(DATA[:end], file_bytes=file_bytes)))
        assert found is not None and "nothing before 200000" in found


@pytest.mark.parametrize(
    "forged",
    [
        SlaveHello("b", 0, 10, 5),
        SlaveHello("b", 0, 10, None),
        SlaveHello("b", 0, 10, 10, spans=(Span(0, PROOF_BYTES + 1, 0),)),
        SlaveHello("b", 0, 10, 10, spans=(Span(0, 0, 0),) * 9),
        SlaveHello("b", 0, 10, 10, spans=(Span(len(DATA), 5, 0),)),
        SlaveHello("b", 0, 10, 10, spans=(Span(1 << 60, 5, 0),)),
    ],
)
def test_a_proof_that_none_of_ours_sends(forged: SlaveHello) -> None:
    assert objection(master(), forged) is not None


def test_a_slave_without_any_proof_is_refused() -> None:
    assert objection(master(), SlaveHello("b", 0, 10, 10)) is not None
