"""Many READs and entries in one call, against ``wire.v2`` and ``Digest.decode``, the references for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.reads import EntryRun, encode_reads, open_entries, scan_reads
from tallystick.errors import DigestMismatch

kinds = st.sampled_from(DigestType)
payloads = st.lists(st.binary(max_size=60), max_size=8)


def encode(digest: Digest, ledger: int, first: int, bodies: list[bytes]) -> list[bytes]:
    return [
        digest.encode(EntryHeader(ledger, entry, entry - 3, 10 * entry), body)
        for entry, body in enumerate(bodies, first)
    ]


def slow_open(digest: Digest, ledger: int, first: int, entries: list[bytes]) -> EntryRun:
    """One by one, up to the first bad one."""
    run = EntryRun(ledger, first)
    for expected, entry in enumerate(entries, first):
        try:
            header, payload = digest.decode(ledger, expected, entry)
        except DigestMismatch:
            break
        run.lacs.append(header.lac)
        run.lengths.append(header.length)
        run.payloads.append(payload)
    return run


@given(kinds, st.binary(max_size=5), st.integers(0, 1 << 62), st.integers(0, 1 << 50), payloads)
def test_good_entries(kind: DigestType, password: bytes, ledger: int, first: int, bodies: list[bytes]) -> None:
    digest = Digest.of(kind, password)
    run = open_entries(encode(digest, ledger, first, bodies), ledger, first, digest.compute, digest.size)
    assert [bytes(payload) for payload in run.payloads] == bodies
    assert run.lacs == [entry - 3 for entry in range(first, first + len(bodies))]
    assert run.lengths == [10 * entry for entry in range(first, first + len(bodies))]
    assert (run.ledger, run.first, run.last, len(run)) == (ledger, first, first + len(bodies) - 1, len(bodies))


@given(kinds, payloads, st.data())
def test_stops_where_the_reference_refuses(kind: DigestType, bodies: list[bytes], data: st.DataObject) -> None:
    digest = Digest.of(kind)
    entries = encode(digest, 5, 0, bodies)
    if entries:
        which = data.draw(st.integers(0, len(entries) - 1))
        damage = data.draw(st.sampled_from(["cut", "flip", "other entry", "other ledger", "gone", "swap"]))
        entry = bytearray(entries[which])
        if damage == "cut":
            entries[which] = bytes(entry[: data.draw(st.integers(0, len(entry)))])
        elif damage == "flip":
            entry[data.draw(st.integers(0, len(entry) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            entries[which] = bytes(entry)
        elif damage == "other entry":
            entries[which] = digest.encode(EntryHeader(5, which + 1, 0, 0), b"")
        elif damage == "other ledger":
            entries[which] = digest.encode(EntryHeader(6, which, 0, 0), b"")
        elif damage == "gone":
            del entries[which]
        else:
            entries[0], entries[which] = entries[which], entries[0]
    assert open_entries(entries, 5, 0, digest.compute, digest.size) == slow_open(digest, 5, 0, entries)


@given(kinds, st.lists(st.binary(max_size=80), max_size=5))
def test_any_bytes(kind: DigestType, entries: list[bytes]) -> None:
    digest = Digest.of(kind)
    assert open_entries(entries, 0, 0, digest.compute, digest.size) == slow_open(digest, 0, 0, entries)


ids = st.integers(-(1 << 63), (1 << 63) - 1)
good_answers = st.lists(st.tuples(ids, st.binary(max_size=80)), max_size=10)


@given(ids, st.lists(ids, max_size=10))
def test_encode_reads_is_the_reference_in_bulk(ledger: int, entries: list[int]) -> None:
    assert encode_reads(ledger, entries) == b"".join(v2.Read(ledger, entry).encode() for entry in entries)


@given(st.integers(0, 1 << 62), good_answers, st.integers(0, 27), st.data())
def test_scan_reads_takes_the_good_answers_of_one_ledger(
    ledger: int, answers: list[tuple[int, bytes]], torn: int, data: st.DataObject
) -> None:
    frames = [v2.encode_answer(v2.Read(ledger, entry), v2.Code.OK, body) for entry, body in answers]
    odd = data.draw(
        st.sampled_from(
            [
                b"",
                v2.encode_answer(v2.Read(ledger, 5), v2.Code.NO_ENTRY),
                v2.encode_answer(v2.Read(ledger + 1, 5), v2.Code.OK, b"x" * 40),
                v2.encode_answer(v2.Add(ledger, 5, b"", b""), v2.Code.OK),
                v2.encode_answer(v2.Read(ledger, 5, None, 0, 1), v2.Code.OK, b"x" * 40),
                v2.encode_answer(v2.Read(ledger, 5), v2.Code.OK, b"x" * 40)[: 28 + torn],
                b"\xff\xff\xff\xff" + v2.encode_answer(v2.Read(ledger, 5), v2.Code.OK, b"x" * 40)[4:],
                b"\x00\x00\x00\x07" + v2.encode_answer(v2.Read(ledger, 5), v2.Code.OK, b"x" * 40)[4:],
            ]
        )
    )
    stream = bytearray(b"pad" + b"".join(frames) + odd)
    entries, parts, stop = scan_reads(stream, 3, len(stream), ledger)
    stream[:] = bytes(len(stream))  # the parts are copies: the buffer is used again at once
    assert list(zip(entries, map(bytes, parts), strict=True)) == answers
    assert stop == 3 + sum(map(len, frames))


@given(st.binary(max_size=200), st.integers(0, 50))
def test_scan_reads_stays_inside_any_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    entries, parts, stop = scan_reads(data, start, len(data), 0)
    assert start <= stop <= len(data)
    assert stop - start == sum(28 + len(part) for part in parts)
    assert len(entries) == len(parts)
