"""Runs of READs of version 3 and of their responses against ``bookkeeper.wire.v3``; frames of strangers."""

from __future__ import annotations

import itertools
import struct
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.v3_frames import bodies_of, failing_tries, framed, mangled, with_each_byte_changed
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.implementation import REFERENCES
from tallystick.codec.v3_reads import (
    encode_v3_read_responses,
    encode_v3_reads,
    scan_v3_read_requests,
    scan_v3_reads,
)

ids = st.integers(0, (1 << 63) - 1) | st.integers(0, 300)
ledgers = ids
lacs = st.none() | st.just(-1) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300)


def read(txn: int, ledger: int = 7, entry: int = 9, **fields: Any) -> bytes:
    header = v3.Header(txn, fields.pop("priority", 0), fields.pop("version", 3))
    return v3.encode_request(v3.ReadRequest(header, ledger, entry, **fields))


def response(txn: int, ledger: int = 7, entry: int = 9, body: bytes | None = b"x", lac: int | None = None) -> bytes:
    return responses.encode_response(responses.ReadResponse(txn, Code.OK, ledger, entry, body, lac))


# Requests


@given(ids, ledgers, st.lists(ids, max_size=20) | st.integers(1, 40).map(lambda count: list(range(250, 250 + count))))
def test_requests_are_the_reference_in_bulk(first_txn: int, ledger: int, entries: list[int]) -> None:
    frames = encode_v3_reads(first_txn, ledger, entries)
    assert frames == b"".join(read(first_txn + at, ledger, entry) for at, entry in enumerate(entries))


RUNS = st.tuples(ids, ledgers | st.just(-1), ids | st.just(-1), st.integers(1, 20), st.integers(0, 2))


@given(st.lists(RUNS, max_size=5), st.data())
def test_scan_read_requests_joins_ascending_entries(
    runs: list[tuple[int, int, int, int, int]], data: st.DataObject
) -> None:
    last = (1 << 63) - 1
    asked = [
        (min(txn + at, last), ledger, min(entry + step * at, last))
        for txn, ledger, entry, count, step in runs
        for at in range(count)
    ]
    plain = list(itertools.takewhile(lambda each: min(each) >= 0, asked))
    stream = b"head" + b"".join(itertools.starmap(read, asked))
    end = data.draw(st.integers(4, len(stream)))
    whole = [bounds for bounds in bodies_of(stream, 4, end)][: len(plain)]
    txn_ids, found, stop = scan_v3_read_requests(stream, 4, end)
    assert stop == (whole[-1][1] if whole else 4)
    assert txn_ids == [txn for txn, _, _ in plain[: len(whole)]]
    expected = [(ledger, entry) for _, ledger, entry in plain[: len(whole)]]
    assert [(ledger, entry) for ledger, entries in found for entry in entries] == expected
    for (ledger, entries), (following_ledger, following) in itertools.pairwise(found):
        assert following_ledger != ledger or following[0] <= entries[-1]
    assert all(list(entries) == sorted(set(entries)) for _, entries in found)


@pytest.mark.parametrize("before", [0, 3, 8, 50, 2000])
@pytest.mark.parametrize(
    "other",
    [
        read(5, entry=-1),
        read(5, ledger=-1),
        read(5, priority=100),
        read(5, version=2),
        read(5, previous_lac=4),
        read(5, timeout_ms=4),
        read(5, master_key=b"x" * 20),
        read(5, master_key=b"x" * 20, fence=True),
        read((1 << 64) - 1),
        framed(read(5)[4:] + b"\xf8\x3f\x01"),
        v3.encode_request(v3.ReadLacRequest(v3.Header(5), 7)),
        v2.ReadFrame(7, 9).encode(),
    ],
)
def test_any_other_request_ends_the_run(other: bytes, before: int) -> None:
    plain = b"".join(read(1000 + at, 7, 50 + at) for at in range(before))
    txn_ids, runs, stop = scan_v3_read_requests(plain + other + plain, 0, 2 * len(plain) + len(other))
    assert (txn_ids, stop) == (list(range(1000, 1000 + before)), len(plain))
    assert runs == ([(7, array("q", range(50, 50 + before)))] if before else [])


@given(st.integers(0, 30), st.data())
@settings(max_examples=200)
def test_a_request_that_was_changed_anywhere_is_taken_as_protobuf_takes_it_or_not_at_all(
    place: int, data: st.DataObject
) -> None:
    frames = [read(20_000 + at, 7, 500 + at) for at in range(31)]
    frames[place] = data.draw(mangled(frames[place]))
    assert place <= check_requests(b"".join(frames))


def check_requests(stream: bytes) -> int:
    """Compare what is taken with what protobuf takes; returns how many are."""
    txn_ids, runs, stop = scan_v3_read_requests(stream, 0, len(stream))
    asked = [(ledger, entry) for ledger, entries in runs for entry in entries]
    for txn, about, (low, high) in zip(txn_ids, asked, bodies_of(stream, 0, stop), strict=True):
        assert v3.decode_request(stream[low:high]) == v3.ReadRequest(v3.Header(txn), *about)
    return len(txn_ids)


@pytest.mark.parametrize("count", [1, 9])
def test_each_byte_of_a_request_counts(count: int) -> None:
    """Alone and in a row: whatever is taken is what protobuf takes."""
    frames = [read(20_000 + at, 7, 500 + at) for at in range(count)]
    before, after = b"".join(frames[: count // 2]), b"".join(frames[count // 2 + 1 :])
    for frame in with_each_byte_changed(frames[count // 2], len(frames[0])):
        check_requests(before + frame + after)


@pytest.mark.parametrize("count", [2, 20])
def test_a_run_is_of_one_ledger(count: int) -> None:
    stream = b"".join(read(200 + at, 7 + at // count, 50 + at) for at in range(2 * count))
    _, runs, _ = scan_v3_read_requests(stream, 0, len(stream))
    assert [(ledger, list(entries)) for ledger, entries in runs] == [
        (7, list(range(50, 50 + count))),
        (8, list(range(50 + count, 50 + 2 * count))),
    ]


# Responses


@given(
    st.lists(st.tuples(ids, ids, st.binary(max_size=60)), min_size=1, max_size=20)
    | st.tuples(st.integers(250, 300), st.integers(1, 40), st.integers(0, 60)).map(
        lambda run: [(run[0] + at, run[0] + at, bytes([at]) * run[2]) for at in range(run[1])]
    ),
    ledgers,
    lacs,
    st.data(),
)
def test_responses_are_the_reference_in_bulk(
    reads: list[tuple[int, int, bytes]], ledger: int, lac: int | None, data: st.DataObject
) -> None:
    stored = b"".join(v2.encode_response(v2.ReadFrame(ledger, entry), Code.OK, body) for _, entry, body in reads)
    stream = encode_v3_read_responses([txn for txn, _, _ in reads], stored, lac)
    assert stream == b"".join(response(txn, ledger, entry, body, lac) for txn, entry, body in reads)
    cut = data.draw(st.integers(0, min(20, len(stream))))
    buffer = bytearray(b"pad" + stream)
    whole = list(bodies_of(bytes(buffer), 3, len(buffer) - cut))
    txn_ids, entries, bodies, max_lac, stop = scan_v3_reads(buffer, 3, len(buffer) - cut)
    assert list(zip(txn_ids, entries, bodies, strict=True)) == reads[: len(whole)]
    assert stop == (whole[-1][1] if whole else 3)
    assert max_lac == (max(-1, lac) if lac is not None and whole else -1)


def test_no_response_is_no_bytes() -> None:
    assert encode_v3_read_responses([], b"", 5) == b""


@given(st.lists(st.tuples(ledgers, st.sampled_from([0, 5, 40]), st.none() | st.integers(-1, 300)), max_size=40))
def test_responses_of_many_ledgers_are_taken_in_one_go(reads: list[tuple[int, int, int | None]]) -> None:
    stream = b"".join(response(200 + at, ledger, at, bytes(size), lac) for at, (ledger, size, lac) in enumerate(reads))
    txn_ids, entries, bodies, max_lac, stop = scan_v3_reads(stream, 0, len(stream))
    assert (txn_ids, stop) == (list(range(200, 200 + len(reads))), len(stream))
    assert entries == list(range(len(reads)))
    assert list(map(len, bodies)) == [size for _, size, _ in reads]
    assert max_lac == max([-1, *(lac for _, _, lac in reads if lac is not None)])


@pytest.mark.parametrize("before", [0, 3, 8, 50, 2000])
@pytest.mark.parametrize(
    "other",
    [
        response(5, body=None),
        response(5, ledger=-1),
        response(5, entry=-1),
        response((1 << 64) - 1),
        responses.encode_response(responses.ReadResponse(5, Code.OK, 7, 9, b"x", 3, 1234)),
        responses.encode_response(responses.ReadResponse(5, Code.NO_ENTRY, 7, 9)),
        responses.encode_response(responses.ReadResponse(5, Code.FENCED, 7, 9, b"x")),
        responses.encode_response(responses.AddResponse(5, Code.OK, 7, 9)),
        framed(response(5)[4:] + b"\x10\x01"),
        framed(b"\xff" * 40),
    ],
)
def test_any_other_response_ends_the_run(other: bytes, before: int) -> None:
    good = b"".join(response(1000 + at, 7, 50 + at, b"x" * 30, 60) for at in range(before))
    txn_ids, _, _, _, stop = scan_v3_reads(good + other + good, 0, 2 * len(good) + len(other))
    assert (txn_ids, stop) == (list(range(1000, 1000 + before)), len(good))


@given(st.integers(0, 30), st.booleans(), st.data())
@settings(max_examples=200)
def test_a_response_that_was_changed_anywhere_is_taken_as_protobuf_takes_it_or_not_at_all(
    place: int, has_lac: bool, data: st.DataObject
) -> None:
    frames = [response(20_000 + at, 7, 500 + at, b"body", 600 if has_lac else None) for at in range(31)]
    frames[place] = data.draw(mangled(frames[place]))
    assert place <= check_responses(b"".join(frames))


def check_responses(stream: bytes) -> int:
    """Compare what is taken with what protobuf takes; returns how many are."""
    txn_ids, entries, bodies, max_lac, stop = scan_v3_reads(stream, 0, len(stream))
    highest = -1
    for txn, entry, body, (low, high) in zip(txn_ids, entries, bodies, bodies_of(stream, 0, stop), strict=True):
        expected = responses.decode_response(stream[low:high])
        assert isinstance(expected, responses.ReadResponse) and expected.code == Code.OK
        assert (expected.request_id, expected.entry, expected.body) == (txn, entry, body)
        assert expected.lac_updated_ms is None
        highest = max(highest, -1 if expected.max_lac is None else expected.max_lac)
    assert max_lac == highest
    return len(txn_ids)


@pytest.mark.parametrize("lac", [None, 600, -1])
@pytest.mark.parametrize("count", [1, 9])
def test_each_byte_of_a_response_counts(count: int, lac: int | None) -> None:
    frames = [response(20_000 + at, 7, 500 + at, b"body", lac) for at in range(count)]
    before, after = b"".join(frames[: count // 2]), b"".join(frames[count // 2 + 1 :])
    for frame in with_each_byte_changed(frames[count // 2], len(frames[0])):
        check_responses(before + frame + after)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_scanners_stay_inside_any_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    assert scan_v3_read_requests(data, start, len(data)) == ([], [], start)
    assert scan_v3_reads(data, start, len(data)) == ([], [], [], -1, start)


def test_tries_that_fail_cost_no_more_than_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    good = b"".join(response(20_000 + at, 7, 300 + at, b"x" * 40) for at in range(2000))
    asked = b"".join(read(20_000 + at, 7, 300 + at) for at in range(2000))
    with failing_tries(monkeypatch) as tried:
        assert REFERENCES["scan_v3_reads"](good, 0, len(good))[4] == len(good)  # the twins have no tries
        assert REFERENCES["scan_v3_read_requests"](asked, 0, len(asked))[2] == len(asked)
    assert max(tried) <= 256 and sum(tried) <= 2000 + 4 * 2000


def test_a_body_is_copied() -> None:
    buffer = bytearray(response(1, body=b"abc"))
    _, _, [body], _, _ = scan_v3_reads(buffer, 0, len(buffer))
    buffer[:] = bytes(len(buffer))
    assert body == b"abc" and struct.unpack("3s", body) == (b"abc",)
