"""Runs of ADDs of version 3 and of their responses against ``bookkeeper.wire.v3``; frames of strangers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.v3_frames import bodies_of, failing_tries, framed, mangled, with_each_byte_changed
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, Digest, master_key
from tallystick.bookkeeper.wire.v2 import AddFrame
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import Buffer, encode_adds
from tallystick.codec.implementation import REFERENCES
from tallystick.codec.v3_adds import V3AddRun, ack_v3_adds, encode_v3_adds, most_head_bytes, scan_v3_acks, scan_v3_adds
from tallystick.errors import RemoteProtocolError

KEY, OTHER_KEY = master_key(b"pw"), master_key(b"other")
LIMIT = 4000

ids = st.integers(0, (1 << 63) - 1) | st.integers(0, 300)
ledgers = ids


def body(ledger: int, entry: int, size: int = 40) -> bytes:
    return (ENTRY_HEADER.pack(ledger, entry, -1, 0) + bytes(range(256)) * 20)[:size]


def add(txn: int, ledger: int, entry: int, size: int = 40, key: bytes = KEY, **fields: Any) -> bytes:
    header = v3.Header(txn, fields.pop("priority", 0), fields.pop("version", 3))
    return v3.encode_request(v3.AddRequest(header, ledger, entry, key, body(ledger, entry, size), **fields))


def reference(buffer: bytes, start: int, end: int) -> tuple[list[v3.AddRequest], int]:
    """The plain ADDs as protobuf reads them, one by one, and where the first other frame begins."""
    adds: list[v3.AddRequest] = []
    for low, high in bodies_of(buffer, start, end):
        try:
            request = v3.decode_request(buffer[low:high])
        except RemoteProtocolError:
            return adds, low - 4
        if (
            high - low > LIMIT
            or not isinstance(request, v3.AddRequest)
            or request.header != v3.Header(request.header.request_id)
            or request.recovery
            or (adds and request.deferred_sync != adds[0].deferred_sync)
            or len(request.master_key) != 20
            or len(request.body) < 32
            or request.body[:16] != body(request.ledger, request.entry)[:16]
        ):
            return adds, low - 4
        adds.append(request)
        start = high
    return adds, start


def check(adds: V3AddRun, expected: list[v3.AddRequest]) -> None:
    """Compare what was taken with the requests that it begins."""
    taken, run = expected[: len(adds.txn_ids)], adds.run
    assert all(request.deferred_sync == adds.deferred for request in taken)
    assert adds.txn_ids == [request.header.request_id for request in taken]
    assert run.ledgers == [request.ledger for request in taken]
    assert run.entries == [request.entry for request in taken]
    assert run.keys == [request.master_key for request in taken]
    frames = [AddFrame(each.ledger, each.entry, each.master_key, each.body).encode() for each in taken]
    assert adds.stored == b"".join(frames)
    assert [adds.stored[a:b] for a, b in zip(run.bounds, run.bounds[1:], strict=False)] == frames
    assert (run.bounds[0], run.bounds[-1]) == (0, len(adds.stored))


RUNS = st.tuples(
    ids, ledgers, ids, st.integers(1, 20), st.integers(32, 200), st.sampled_from([KEY, OTHER_KEY]), st.booleans()
)


@given(st.lists(RUNS, max_size=4), st.binary(max_size=10), st.integers(0, 3), st.booleans(), st.data())
def test_plain_adds_are_taken_up_to_the_last_whole_one(
    runs: list[tuple[int, int, int, int, int, bytes, bool]],
    before: bytes,
    step: int,
    is_array: bool,
    data: st.DataObject,
) -> None:
    last = (1 << 63) - 1
    frames = [
        add(min(txn + step * at, last), ledger, min(entry + at, last), size, key, deferred_sync=deferred)
        for txn, ledger, entry, count, size, key, deferred in runs
        for at in range(count)
    ]
    stream = before + b"".join(frames)
    end = data.draw(st.integers(len(before), len(stream)))
    adds, stop = scan_v3_adds(bytearray(stream) if is_array else stream, len(before), end, LIMIT)
    expected, expected_stop = reference(stream, len(before), end)
    assert (len(adds.txn_ids), stop) == (len(expected), expected_stop)
    check(adds, expected)


OTHERS = [
    add(1, 2, 3, priority=100),
    add(1, 2, 3, recovery=True),
    add(1, 2, 3, recovery=True, deferred_sync=True),
    add(1, 2, 3, version=2),
    add(1, 2, 3, key=KEY[:19]),
    add(1, 2, 3, key=KEY + b"x"),
    add(1, 2, 3, 31),
    add(1, 2, 3, LIMIT),
    add(1, -2, 3),
    add(1, 2, -3),
    add((1 << 64) - 1, 2, 3),
    v3.encode_request(v3.AddRequest(v3.Header(1), 2, 3, KEY, body(2, 4))),
    v3.encode_request(v3.AddRequest(v3.Header(1), 2, 3, KEY, body(1, 3))),
    v3.encode_request(v3.ReadRequest(v3.Header(1), 2, 3)),
    v3.encode_request(v3.ForceRequest(v3.Header(1), 2)),
    AddFrame(2, 3, KEY, body(2, 3)).encode(),
    framed(b""),
    b"\xff" * 200,
    framed(add(1, 2, 3)[4:] + b"\xf8\x3f\x01"),  # a field that nobody knows
    framed(add(1, 2, 3)[4:] + add(1, 2, 3)[4:]),  # everything twice
    framed(add(1, 2, 3)[4:] + b"\x28\x01"),  # behind the ADD
]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("before", [0, 1, 7, 8, 9, 70, 300])
def test_any_other_frame_ends_the_run(other: bytes, before: int) -> None:
    frames = [add(1000 + at, 7, 500 + at, 60) for at in range(before)]
    stream = b"".join(frames) + other + b"".join(add(1000 + at, 7, 500 + at, 60) for at in range(20))
    adds, stop = scan_v3_adds(stream, 0, len(stream), LIMIT)
    assert (adds.txn_ids, stop) == (list(range(1000, 1000 + before)), len(stream) - len(stream[stop:]))
    assert stop == len(b"".join(frames))


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("before", [1, 7, 8, 9, 70, 300])
def test_a_run_ends_where_deferred_adds_begin_or_end(deferred: bool, before: int) -> None:
    frames = [add(1000 + at, 7, 500 + at, 60, deferred_sync=deferred ^ (at >= before)) for at in range(before + 20)]
    stream = b"".join(frames)
    adds, stop = scan_v3_adds(stream, 0, len(stream), LIMIT)
    assert (len(adds.txn_ids), adds.deferred, stop) == (before, deferred, len(b"".join(frames[:before])))
    adds, stop = scan_v3_adds(stream, stop, len(stream), LIMIT)
    assert (len(adds.txn_ids), adds.deferred, stop) == (20, not deferred, len(stream))


@given(st.integers(0, 30), st.booleans(), st.data())
@settings(max_examples=200)
def test_a_frame_that_was_changed_anywhere_is_taken_as_protobuf_takes_it_or_not_at_all(
    place: int, deferred: bool, data: st.DataObject
) -> None:
    frames = [add(20_000 + at, 7, 500 + at, 60, deferred_sync=deferred) for at in range(31)]
    frames[place] = data.draw(mangled(frames[place]))
    stream = b"".join(frames)
    adds, stop = scan_v3_adds(stream, 0, len(stream), LIMIT)
    expected, expected_stop = reference(stream, 0, len(stream))
    check(adds, expected)
    assert place <= len(adds.txn_ids) <= len(expected) and stop <= expected_stop


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("count", [1, 9])
def test_each_byte_of_a_head_counts(count: int, deferred: bool) -> None:
    """Alone and in a row: whatever is taken is what protobuf takes."""
    frames = [add(20_000 + at, 7, 500 + at, 60, deferred_sync=deferred) for at in range(count)]
    before, after = b"".join(frames[: count // 2]), b"".join(frames[count // 2 + 1 :])
    for frame in with_each_byte_changed(frames[count // 2], len(frames[0]) if deferred else len(frames[0]) - 40):
        stream = before + frame + after
        adds, _ = scan_v3_adds(stream, 0, len(stream), LIMIT)
        check(adds, reference(stream, 0, len(stream))[0])


@given(st.binary(max_size=300), st.integers(0, 300))
def test_scanners_stay_inside_any_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    adds, stop = scan_v3_adds(data, start, len(data), LIMIT)
    assert adds.stored == b"" and stop == start
    assert scan_v3_acks(data, start, len(data)) == ([], [], [], start)


def test_tries_that_fail_cost_no_more_than_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = b"".join(add(20_000 + at, 7, 300 + at) for at in range(2000))
    responses = acks([(20_000 + at, 7, 300 + at) for at in range(2000)])
    with failing_tries(monkeypatch) as tried:
        adds, stop = REFERENCES["scan_v3_adds"](stream, 0, len(stream), LIMIT)  # the twin has no tries
        assert (len(adds.txn_ids), stop, sum(tried)) == (2000, len(stream), 64 * (2000 // 64) + 2000 % 64)
        assert REFERENCES["scan_v3_acks"](responses, 0, len(responses))[3] == len(responses)
    assert max(tried) <= 256


# Responses


def acks(adds: list[tuple[int, int, int]]) -> bytes:
    return b"".join(
        responses.encode_response(responses.AddResponse(txn, Code.OK, ledger, entry)) for txn, ledger, entry in adds
    )


@given(st.lists(st.tuples(ids, ledgers, ids, st.integers(1, 20), st.integers(0, 1)), max_size=5), st.data())
def test_good_responses_are_the_reference_in_bulk(
    runs: list[tuple[int, int, int, int, int]], data: st.DataObject
) -> None:
    last = (1 << 63) - 1
    adds = [
        (min(txn + at, last), min(ledger + step * at, (1 << 63) - 1), min(entry + at, last))
        for txn, ledger, entry, count, step in runs
        for at in range(count)
    ]
    columns: Any = list(map(list, zip(*adds, strict=True))) or [[], [], []]
    stream = acks(adds)
    assert ack_v3_adds(*columns) == stream
    cut = data.draw(st.integers(0, min(20, len(stream))))
    buffer = bytearray(b"pad" + stream)
    txn_ids, found_ledgers, entries, stop = scan_v3_acks(buffer, 3, len(buffer) - cut)
    whole = len(txn_ids)
    assert [txn_ids, found_ledgers, entries] == [column[:whole] for column in columns]
    assert stop == 3 + len(acks(adds[:whole])) and (whole == len(adds) or stop + 20 + 30 > len(buffer) - cut)


def ack(txn: int, code: Code = Code.OK, ledger: int = 7, entry: int = 9) -> bytes:
    return responses.encode_response(responses.AddResponse(txn, code, ledger, entry))


@pytest.mark.parametrize("before", [0, 3, 8, 50, 2000])
@pytest.mark.parametrize(
    "other",
    [
        ack(5, Code.FENCED),
        ack(5, ledger=-1),
        ack(5, entry=-1),
        ack((1 << 64) - 1),
        framed(ack(5)[4:] + b"\x10\x01"),
        responses.encode_response(responses.ForceResponse(5, Code.OK, 7)),
        responses.encode_response(responses.ReadResponse(5, Code.OK, 7, 9, b"x")),
    ],
)
def test_any_other_response_ends_the_acks(other: bytes, before: int) -> None:
    good = b"".join(ack(1000 + at) for at in range(before))
    stream = good + other + good
    assert scan_v3_acks(stream, 0, len(stream))[0::3] == (list(range(1000, 1000 + before)), len(good))


@given(st.integers(0, 30), st.data())
@settings(max_examples=200)
def test_a_response_that_was_changed_anywhere_is_taken_as_protobuf_takes_it_or_not_at_all(
    place: int, data: st.DataObject
) -> None:
    frames = [ack(20_000 + at, Code.OK, 7, 500 + at) for at in range(31)]
    frames[place] = data.draw(mangled(frames[place]))
    assert place <= check_acks(b"".join(frames))


def check_acks(stream: bytes) -> int:
    """Compare what is taken with what protobuf takes; returns how many are."""
    txn_ids, found_ledgers, entries, stop = scan_v3_acks(stream, 0, len(stream))
    for found, (low, high) in zip(
        zip(txn_ids, found_ledgers, entries, strict=True), bodies_of(stream, 0, stop), strict=True
    ):
        assert responses.decode_response(stream[low:high]) == responses.AddResponse(found[0], Code.OK, *found[1:])
    return len(txn_ids)


@pytest.mark.parametrize("count", [1, 9])
def test_each_byte_of_a_response_counts(count: int) -> None:
    frames = [ack(20_000 + at, Code.OK, 7, 500 + at) for at in range(count)]
    before, after = b"".join(frames[: count // 2]), b"".join(frames[count // 2 + 1 :])
    for frame in with_each_byte_changed(frames[count // 2], len(frames[0])):
        check_acks(before + frame + after)


# Requests of a client


@given(
    ids,
    ledgers,
    st.integers(0, (1 << 63) - 100),
    st.lists(st.binary(max_size=80), min_size=1, max_size=25)
    | st.integers(1, 40).map(lambda count: [b"x" * 30] * count),
    st.sampled_from(DigestType),
    st.sampled_from(["parts", "joined", "pieces"]),
    st.sampled_from([(0, 0, False), (100, 0, True), (0, 1, False)]),
    st.integers(1, 3),
)
def test_requests_are_the_reference_in_bulk(
    first_txn: int,
    ledger: int,
    first: int,
    payloads: list[bytes],
    kind: DigestType,
    form: str,
    flags: tuple[int, int, bool],
    step: int,
) -> None:
    digest, (priority, write_flags, recovery) = Digest.of(kind, b"pw"), flags
    frames, _ = encode_adds(KEY, ledger, first, first - 1, 0, payloads, digest.compute, digest.size, 6 * recovery)
    indexes = range(0, len(payloads), step)
    entries, pieces = range(first, first + len(payloads), step), frames.parts_of(indexes)
    first_txn = min(first_txn, (1 << 64) - 100)
    expected = b"".join(
        v3.encode_request(
            v3.AddRequest(
                v3.Header(first_txn + at, priority),
                ledger,
                first + index,
                KEY,
                frames.joined(index, index + 1)[28:],
                recovery,
                bool(write_flags),
            )
        )
        for at, index in enumerate(indexes)
    )
    forms: dict[str, list[Buffer]] = {
        "parts": pieces,
        "joined": [b"".join(pieces)],
        "pieces": [b"".join(pieces[:1]), b"".join(pieces[1:])],
    }
    encoded = encode_v3_adds(
        first_txn, entries, forms[form], priority=priority, write_flags=write_flags, recovery=recovery
    )
    assert b"".join(encoded) == expected
    if form == "parts":
        assert all(any(part is payload for part in encoded) for payload in pieces[1::2])
        assert encode_v3_adds(first_txn, [], []) == []
    if flags == (0, 0, False) and first_txn < (1 << 63) - 100:
        adds, stop = scan_v3_adds(expected, 0, len(expected), LIMIT)
        assert stop == len(expected) and adds.stored == b"".join(pieces)


@given(txn=st.integers(0, (1 << 64) - 1), ledger=ids, entry=ids, size=st.sampled_from([32, 127, 128, 5000]))
def test_no_head_of_an_add_is_longer_than_the_longest(txn: int, ledger: int, entry: int, size: int) -> None:
    most = most_head_bytes(priority=v3.HIGH_PRIORITY, write_flags=v3.DEFERRED_SYNC)
    frame = add(txn, ledger, entry, size, priority=v3.HIGH_PRIORITY, recovery=True, deferred_sync=True)
    assert len(frame) - 4 - size <= most


def test_the_longest_head_is_hardly_longer_than_there_is_one() -> None:
    most, high = most_head_bytes(priority=v3.HIGH_PRIORITY, write_flags=v3.DEFERRED_SYNC), (1 << 63) - 1
    body = ENTRY_HEADER.pack(high, high, -1, 0) + bytes(5_000_000)
    header = v3.Header((1 << 64) - 1, v3.HIGH_PRIORITY)
    request = v3.AddRequest(header, high, high, KEY, body, recovery=True, deferred_sync=True)
    assert most - 1 <= len(v3.encode_request(request)) - 4 - len(body) <= most
