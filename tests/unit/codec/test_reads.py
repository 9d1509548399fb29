"""Many READs and entries in one call, against ``wire.v2`` and ``Digest.decode``, the references for one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.reads import (
    EvenEntries,
    encode_reads,
    even_entries,
    joined_entries,
    open_entries,
    response_entries,
    scan_reads,
)
from tallystick.errors import DigestMismatch

kinds = st.sampled_from(DigestType)
bodies_of = st.lists(st.binary(max_size=60), max_size=8) | st.integers(0, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=8)  # all alike
)


def encode(digest: Digest, ledger: int, first: int, bodies: list[bytes]) -> list[bytes]:
    return [
        digest.encode(EntryHeader(ledger, entry, entry - 3, 10 * entry), body)
        for entry, body in enumerate(bodies, first)
    ]


Opened = tuple[list[int], list[int], list[bytes]]


def slow_open(digest: Digest, ledger: int, first: int, entries: Sequence[bytes | memoryview]) -> Opened:
    """LACs, lengths and payloads, one by one, up to the first bad entry."""
    lacs, lengths, found = [], [], []
    for expected, entry in enumerate(entries, first):
        try:
            header, payload = digest.decode(ledger, expected, entry)
        except DigestMismatch:
            break
        lacs.append(header.lac)
        lengths.append(header.length)
        found.append(bytes(payload))
    return lacs, lengths, found


def fast_open(digest: Digest, ledger: int, first: int, entries: Sequence[bytes | memoryview]) -> Opened:
    run = open_entries(entries, ledger, first, digest.compute_all, digest.size)
    assert (run.ledger, run.first, run.last) == (ledger, first, first + len(run) - 1)
    return list(run.lacs), list(run.lengths), list(map(bytes, run.payloads))


def as_answered(entries: list[bytes]) -> Sequence[memoryview]:
    answer = v2.decode_response(v2.encode_batch_response(v2.BatchReadFrame(5, 0, 1, 0, 0), Code.OK, entries)[4:])
    assert isinstance(answer, v2.BatchReadResponse)
    return answer.entries


@given(kinds, st.binary(max_size=5), st.integers(0, 1 << 62), st.integers(0, 1 << 50), bodies_of)
def test_good_entries(kind: DigestType, password: bytes, ledger: int, first: int, bodies: list[bytes]) -> None:
    digest = Digest.of(kind, password)
    entries = encode(digest, ledger, first, bodies)
    ids = range(first, first + len(bodies))
    expected = [entry - 3 for entry in ids], [10 * entry for entry in ids], bodies
    assert fast_open(digest, ledger, first, entries) == expected
    assert fast_open(digest, ledger, first, as_answered(entries)) == expected


@given(kinds, bodies_of, st.data())
def test_stops_where_the_reference_refuses(kind: DigestType, bodies: list[bytes], data: st.DataObject) -> None:
    digest = Digest.of(kind)
    entries = encode(digest, 5, 0, bodies)
    if entries:
        which = data.draw(st.integers(0, len(entries) - 1))
        damage = data.draw(st.sampled_from(["cut", "flip", "other entry", "other ledger", "gone", "swap", "copy"]))
        entry = bytearray(entries[which])
        if damage == "cut":
            entries[which] = bytes(entry[: data.draw(st.integers(0, len(entry)))])
        elif damage == "flip":
            entry[data.draw(st.integers(0, len(entry) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            entries[which] = bytes(entry)
        elif damage == "other entry":
            entries[which] = digest.encode(EntryHeader(5, which + 1, 0, 0), bodies[which])
        elif damage == "other ledger":
            entries[which] = digest.encode(EntryHeader(6, which, 0, 0), bodies[which])
        elif damage == "gone":
            del entries[which]
        elif damage == "copy":
            entries[which] = entries[0]
        else:
            entries[0], entries[which] = entries[which], entries[0]
    expected = slow_open(digest, 5, 0, entries)
    assert fast_open(digest, 5, 0, entries) == expected
    assert fast_open(digest, 5, 0, as_answered(entries)) == expected


@pytest.mark.parametrize("kind", [DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC])
def test_every_entry_of_an_even_answer_has_its_digest_checked(kind: DigestType) -> None:
    digest = Digest.of(kind)
    for which in range(6):
        entries = encode(digest, 5, 0, [bytes([number]) * 50 for number in range(6)])
        for at in (31, 32 + digest.size - 1, 32 + digest.size + 49):  # in the header's length, the digest, the payload
            bad = bytearray(entries[which])
            bad[at] ^= 1
            answered = as_answered([*entries[:which], bytes(bad), *entries[which + 1 :]])
            assert isinstance(answered, EvenEntries)
            assert len(open_entries(answered, 5, 0, digest.compute_all, digest.size)) == which


@given(kinds, st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes(kind: DigestType, entries: list[bytes]) -> None:
    digest = Digest.of(kind)
    assert fast_open(digest, 0, 0, entries) == slow_open(digest, 0, 0, entries)


@given(st.integers(0, 50), st.integers(1, 12), st.data())
def test_even_entries_are_those_that_lie_there(size: int, count: int, data: st.DataObject) -> None:
    entries = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(count)]
    found = even_entries(memoryview(b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)))
    assert (found is None) == (count < 4)
    if found is not None:
        assert [bytes(entry) for entry in found] == entries
        cut = slice(*(data.draw(st.none() | st.integers(-count - 1, count + 1)) for _ in range(2)))
        cut = slice(cut.start, cut.stop, data.draw(st.sampled_from([None, 1, 2, -1, -3])))
        assert [bytes(entry) for entry in found[cut]] == entries[cut]
        with pytest.raises(IndexError):
            found[count]


@given(st.integers(4, 8), st.integers(0, 40), st.data())
def test_a_lying_length_is_never_even(count: int, size: int, data: st.DataObject) -> None:
    stream = bytearray((size.to_bytes(4, "big") + bytes(size)) * count)
    which = data.draw(st.integers(0, count - 1)) * (4 + size) + data.draw(st.integers(0, 3))
    stream[which] ^= 1 << data.draw(st.integers(0, 7))
    assert even_entries(memoryview(stream)) is None


def test_long_entries_and_none_are_not_even() -> None:
    assert even_entries(memoryview((8193).to_bytes(4, "big") + bytes(8193))) is None
    assert even_entries(memoryview(((8193).to_bytes(4, "big") + bytes(8193)) * 5)) is None
    assert even_entries(memoryview(b"")) is None


@given(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=8), st.booleans())
def test_response_entries(bodies: list[bytes], even: bool) -> None:
    entries = [body.ljust(5) for body in bodies] if even else bodies
    frames = [v2.encode_response(v2.ReadFrame(3, number), Code.OK, entry) for number, entry in enumerate(entries)]
    assert response_entries(b"".join(frames), len(frames)) == entries


ids = st.integers(-(1 << 63), (1 << 63) - 1)
good_answers = st.lists(st.tuples(ids, st.binary(max_size=80)), max_size=10) | st.integers(0, 60).flatmap(
    lambda size: st.lists(st.tuples(ids, st.binary(min_size=size, max_size=size)), max_size=10)  # all alike
)


@given(ids, st.lists(ids, max_size=10))
def test_encode_reads_is_the_reference_in_bulk(ledger: int, entries: list[int]) -> None:
    assert encode_reads(ledger, entries) == b"".join(v2.ReadFrame(ledger, entry).encode() for entry in entries)


@given(st.integers(0, 1 << 62), good_answers, st.integers(0, 27), st.data())
def test_scan_reads_takes_the_good_answers_of_one_ledger(
    ledger: int, answers: list[tuple[int, bytes]], torn: int, data: st.DataObject
) -> None:
    frames = [v2.encode_response(v2.ReadFrame(ledger, entry), Code.OK, body) for entry, body in answers]
    odd = data.draw(
        st.sampled_from(
            [
                b"",
                v2.encode_response(v2.ReadFrame(ledger, 5), Code.NO_ENTRY),
                v2.encode_response(v2.ReadFrame(ledger + 1, 5), Code.OK, b"x" * 40),
                v2.encode_response(v2.AddFrame(ledger, 5, b"", b""), Code.OK),
                v2.encode_response(v2.ReadFrame(ledger, 5, None, 0, 1), Code.OK, b"x" * 40),
                v2.encode_response(v2.ReadFrame(ledger, 5), Code.OK, b"x" * 40)[: 28 + torn],
                b"\xff\xff\xff\xff" + v2.encode_response(v2.ReadFrame(ledger, 5), Code.OK, b"x" * 40)[4:],
                b"\x00\x00\x00\x07" + v2.encode_response(v2.ReadFrame(ledger, 5), Code.OK, b"x" * 40)[4:],
            ]
        )
    )
    stream = bytearray(b"pad" + b"".join(frames) + odd)
    entries, parts, stop = scan_reads(stream, 3, len(stream), ledger)
    stream[:] = bytes(len(stream))  # the parts are copies: the buffer is used again at once
    assert list(zip(entries, map(bytes, parts), strict=True)) == answers
    assert stop == 3 + sum(map(len, frames))


@given(st.integers(4, 9), st.integers(0, 30), st.data())
def test_scan_reads_judges_each_answer_of_a_run(count: int, size: int, data: st.DataObject) -> None:
    """One flipped bit in length, header, code or ledger: the run ends there, or the length is true for another cut."""
    step = 28 + size
    stream = bytearray().join(
        v2.encode_response(v2.ReadFrame(9, entry), Code.OK, bytes(size)) for entry in range(count)
    )
    which, at = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, 19))
    stream[which * step + at] ^= 1 << data.draw(st.integers(0, 7))
    entries, parts, stop = scan_reads(stream, 0, len(stream), 9)
    assert entries[:which] == list(range(which)) and [len(part) for part in parts[:which]] == [size] * which
    if at >= 4:
        assert (len(entries), stop) == (which, which * step)
    else:
        assert stop == sum(28 + len(part) for part in parts) <= len(stream)


@given(st.binary(max_size=200), st.integers(0, 50))
def test_scan_reads_stays_inside_any_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    entries, parts, stop = scan_reads(data, start, len(data), 0)
    assert start <= stop <= len(data)
    assert stop - start == sum(28 + len(part) for part in parts)
    assert len(entries) == len(parts)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([4, 36]), st.integers(4, 9)), min_size=1, max_size=3))
def test_joined_entries_are_all_of_them(shapes: list[tuple[int, int, int]]) -> None:
    parts = [
        EvenEntries(memoryview(b"".join(bytes(gap) + bytes([at]) * size for at in range(count))), size, gap)
        for size, gap, count in shapes
    ]
    with_plain: list[Sequence[bytes | memoryview]] = [parts[0], [b"a", b"bc"]]
    for mixed in (parts, with_plain):
        joined = joined_entries(mixed)
        assert [bytes(entry) for entry in joined] == [bytes(entry) for part in mixed for entry in part]
    assert isinstance(joined_entries(parts), EvenEntries) == (len({shape[:2] for shape in shapes}) == 1)
