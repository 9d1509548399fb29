"""Runs of frames against ``bookkeeper.wire.v2``, the reference for one frame; torn and lying frames."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import AddRun, ack_adds, encode_adds, next_frame, scan_acks, scan_adds, scan_read_requests

KEY = master_key(b"pw")
LIMIT = 10_000

ids = st.integers(-(1 << 63), (1 << 63) - 1)
payloads = st.lists(st.binary(max_size=100), min_size=1, max_size=8)
kinds = st.sampled_from(DigestType)


def adds(kind: DigestType, ledger: int, first: int, bodies: list[bytes], flags: int = 0) -> list[bytes]:
    """The plain way: one value, one frame."""
    digest, length, frames = Digest.of(kind, b"pw"), 0, []
    for entry, body in enumerate(bodies, first):
        length += len(body)
        data = digest.encode(EntryHeader(ledger, entry, first - 1, length), body)
        frames.append(v2.AddFrame(ledger, entry, KEY, data, flags).encode())
    return frames


@given(kinds, st.integers(0, 1 << 62), st.integers(0, 1 << 62), payloads, st.sampled_from([0, 6]))
def test_encode_adds_is_the_reference_in_bulk(
    kind: DigestType, ledger: int, first: int, bodies: list[bytes], flags: int
) -> None:
    digest = Digest.of(kind, b"pw")
    frames, length = encode_adds(KEY, ledger, first, first - 1, 0, bodies, digest.compute, digest.size, flags)
    expected = adds(kind, ledger, first, bodies, flags)
    assert [frames.joined(i, i + 1) for i in range(len(frames))] == expected
    assert frames.joined(0, len(frames)) == b"".join(frames.parts_of(range(len(frames)))) == b"".join(expected)
    assert b"".join(frames.parts_of(range(0, len(frames), 2))) == b"".join(expected[::2])
    assert length == sum(map(len, bodies))
    assert [frames.length(i) for i in range(len(frames))] == list(itertools.accumulate(map(len, bodies)))
    again, longer = encode_adds(KEY, ledger, first, first - 1, length, bodies, digest.compute, digest.size)
    assert longer == 2 * length
    assert len(again) == len(bodies)


@given(kinds, st.integers(0, 1 << 62), st.integers(0, 1 << 62), payloads, st.binary(max_size=40), st.data())
def test_scan_adds_stops_behind_the_last_whole_plain_add(
    kind: DigestType, ledger: int, first: int, bodies: list[bytes], before: bytes, data: st.DataObject
) -> None:
    frames = adds(kind, ledger, first, bodies)
    stream = before + b"".join(frames)
    end = data.draw(st.integers(len(before), len(stream)))
    run, stop = scan_adds(bytearray(stream), len(before), end, LIMIT)
    whole, position = 0, len(before)
    while whole < len(frames) and position + len(frames[whole]) <= end:
        position += len(frames[whole])
        whole += 1
    assert (len(run), stop) == (whole, position)
    assert run.ledgers == [ledger] * whole
    assert run.entries == list(range(first, first + whole))
    assert run.keys == [KEY] * whole
    assert [stream[a:b] for a, b in zip(run.bounds, run.bounds[1:], strict=False)] == frames[:whole]
    assert run.bounds[-1] == stop
    assert ack_adds(run) == b"".join(
        v2.encode_response(v2.AddFrame(ledger, entry, KEY, b""), Code.OK) for entry in run.entries
    )


OTHERS = [
    v2.ReadFrame(1, 2).encode(),
    v2.ReadFrame(1, -1, KEY, v2.RequestFlag.FENCE).encode(),
    v2.BatchReadFrame(1, 2, 3, 4, 5).encode(),
    v2.AuthFrame(b"x" * 100).encode(),
    adds(DigestType.CRC32C, 1, 0, [b"abc"], v2.RequestFlag.RECOVERY_ADD)[0],
    v2.AddFrame(1, 0, KEY, b"x" * 60, 0, 3).encode(),
    v2.AddFrame(1, 0, KEY, b"x" * 31).encode(),  # no whole entry header
    v2.AddFrame(1, 0, KEY, b"x" * LIMIT).encode(),
    b"\x00\x00\x00\x00" * 20,
    b"\xff\xff\xff\xff" + adds(DigestType.CRC32C, 1, 0, [b"abc" * 40])[0][4:],
]


@pytest.mark.parametrize("other", OTHERS)
@given(before=payloads, after=payloads)
@settings(max_examples=20)
def test_scan_adds_stops_at_anything_else(other: bytes, before: list[bytes], after: list[bytes]) -> None:
    first = b"".join(adds(DigestType.CRC32C, 7, 0, before))
    stream = first + other + b"".join(adds(DigestType.CRC32C, 7, len(before), after))
    run, stop = scan_adds(stream, 0, len(stream), LIMIT)
    assert (len(run), stop) == (len(before), len(first))


@given(st.binary(max_size=300), st.integers(0, 300))
def test_scanners_stay_inside_any_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    run, stop = scan_adds(data, start, len(data), LIMIT)
    assert start <= stop <= len(data)
    assert run.bounds[-1] == stop
    entries, stop = scan_acks(data, start, len(data), 1)
    assert stop == start + 28 * len(entries) <= max(start, len(data))
    bounds = next_frame(data, start, len(data))
    assert bounds is None or start + 4 == bounds[0] <= bounds[1] <= len(data)


@given(st.integers(0, (1 << 32) - 1), payloads)
def test_scan_adds_never_runs_past_a_lying_length(lie: int, bodies: list[bytes]) -> None:
    frames = adds(DigestType.CRC32C, 7, 0, bodies)
    stream = bytearray(b"".join(frames))
    stream[:4] = lie.to_bytes(4, "big")
    run, stop = scan_adds(stream, 0, len(stream), LIMIT)
    assert stop <= len(stream)
    assert all(56 <= b - a - 4 <= LIMIT for a, b in zip(run.bounds, run.bounds[1:], strict=False))


def test_an_empty_run_has_no_answers() -> None:
    assert ack_adds(AddRun()) == b""


@given(st.integers(0, 1 << 62), st.lists(ids, max_size=20), st.integers(0, 27), st.data())
def test_scan_acks_takes_the_good_answers_of_one_ledger(
    ledger: int, entries: list[int], torn: int, data: st.DataObject
) -> None:
    frames = [v2.encode_response(v2.AddFrame(ledger, entry, KEY, b""), Code.OK) for entry in entries]
    odd = data.draw(
        st.sampled_from(
            [
                v2.encode_response(v2.AddFrame(ledger, 5, KEY, b""), Code.FENCED),
                v2.encode_response(v2.AddFrame(ledger + 1, 5, KEY, b""), Code.OK),
                v2.encode_response(v2.ReadFrame(ledger, 5), Code.OK),
                v2.encode_response(v2.ReadFrame(ledger, 5), Code.OK, b"x" * 40),
                v2.encode_response(v2.AddFrame(ledger, 5, KEY, b"", 0, 1), Code.OK),
                v2.encode_response(v2.AddFrame(ledger, 5, KEY, b""), Code.OK)[:torn],
            ]
        )
    )
    stream = b"pad" + b"".join(frames) + odd
    assert scan_acks(stream, 3, len(stream), ledger) == (entries, 3 + 28 * len(entries))


@given(st.binary(max_size=50), st.binary(max_size=10), st.integers(0, 70))
def test_next_frame_waits_for_the_whole(body: bytes, before: bytes, missing: int) -> None:
    stream = before + len(body).to_bytes(4, "big") + body
    end = max(len(before), len(stream) - missing)
    bounds = next_frame(stream, len(before), end)
    if end == len(stream):
        assert bounds == (len(before) + 4, len(stream))
    else:
        assert bounds is None


few = st.integers(-2, 4)


@given(st.lists(st.tuples(few, few | ids), max_size=20), st.sampled_from([b"", *OTHERS[1:]]), st.data())
def test_scan_read_requests_joins_ascending_entries(
    asked: list[tuple[int, int]], behind: bytes, data: st.DataObject
) -> None:
    stream = b"head" + b"".join(v2.ReadFrame(ledger, entry).encode() for ledger, entry in asked) + behind
    end = data.draw(st.integers(4, len(stream)))
    runs, stop = scan_read_requests(stream, 4, end)
    whole = min((end - 4) // 24, len(asked))
    assert stop == 4 + 24 * whole
    assert [(ledger, entry) for ledger, entries in runs for entry in entries] == asked[:whole]
    assert all(len(entries) == 1 for _, entries in runs if entries[0] < 0)
    assert all(list(entries) == sorted({*entries}) for _, entries in runs)
    for (ledger, entries), (next_ledger, next_entries) in itertools.pairwise(runs):
        assert ledger != next_ledger or entries[0] < 0 or next_entries[0] <= entries[-1]


@given(st.lists(st.tuples(st.sampled_from([1, 2, -1]), ids), max_size=6))
def test_ack_adds_names_the_ledger_of_each(adds: list[tuple[int, int]]) -> None:
    run = AddRun([KEY] * len(adds), [ledger for ledger, _ in adds], [entry for _, entry in adds])
    assert ack_adds(run) == b"".join(struct.pack(">IIiqq", 24, v2.header(v2.Op.ADD), 0, *add) for add in adds)
