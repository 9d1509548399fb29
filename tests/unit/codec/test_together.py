"""Entries that are opened with no object for a payload are those that ``open_entries`` opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.reads import (
    Buffer,
    EntryRun,
    EvenEntries,
    PackedEntries,
    SpreadEntries,
    even_entries,
    joined_entries,
    open_entries,
    open_together,
)

LEDGER, FIRST, COUNT = 7, 250, 270


def stored(digest: Digest, size: int = 10, count: int = COUNT) -> list[bytes]:
    """Entries as a bookie gives them."""
    return [
        digest.encode(EntryHeader(LEDGER, entry, entry - 1, size * (entry + 1)), bytes((entry & 0xFF,)) * size)
        for entry in range(FIRST, FIRST + count)
    ]


def in_a_batch(entries: list[bytes]) -> EvenEntries:
    """The same in a response to a batch read."""
    even = even_entries(memoryview(b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)))
    assert even is not None
    return even


def in_shares(entries: list[bytes]) -> SpreadEntries:
    """The same in three responses of two bookies of a striped ledger."""
    ids = range(FIRST, FIRST + len(entries))
    shares = [[each for each in ids if each % 3], [each for each in ids if not each % 3]]
    shares = [shares[1], shares[0][20:], shares[0][:20]]
    parts = [(share, in_a_batch([entries[each - FIRST] for each in share])) for share in shares]
    spread = SpreadEntries.of(ids, parts)
    assert spread is not None
    return spread


def plain(run: EntryRun) -> tuple[object, ...]:
    return run.ledger, run.first, run.lacs, run.lengths, [bytes(payload) for payload in run.payloads]


def assert_opened_alike(entries: list[bytes] | EvenEntries | SpreadEntries, digest: Digest) -> int:
    buffers: Sequence[Buffer] = list(entries) if isinstance(entries, list) else entries
    run = open_together(buffers, LEDGER, FIRST, digest.compute_all, digest.size)
    assert plain(run) == plain(open_entries(buffers, LEDGER, FIRST, digest.compute_all, digest.size))
    assert run.payload_bytes == sum(map(len, run.payloads))
    return len(run)


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("size", [0, 1, 10])
def test_good_entries_are_opened_alike(kind: DigestType, size: int) -> None:
    digest = Digest.of(kind, b"secret")
    entries = stored(digest, size)
    assert assert_opened_alike(entries, digest) == COUNT
    assert assert_opened_alike(in_a_batch(entries), digest) == COUNT
    assert assert_opened_alike(in_shares(entries), digest) == COUNT


def test_entries_that_bookies_share_come_in_the_order_of_their_ids() -> None:
    entries = stored(Digest.of(DigestType.CRC32C))
    shares = in_shares(entries)
    assert [bytes(entry) for entry in shares.in_order()] == entries == [bytes(entry) for entry in shares]
    assert len(shares) == COUNT and bytes(shares[5]) == entries[5]


def test_shares_that_are_not_even_or_lack_one_are_no_shares() -> None:
    whole = in_shares(stored(Digest.of(DigestType.CRC32C)))
    ids, parts = range(FIRST, FIRST + COUNT), list(whole.parts)
    assert SpreadEntries.of(ids, parts) == whole
    assert SpreadEntries.of(ids, parts[1:]) is None
    assert SpreadEntries.of(ids, [(parts[0][0], list(parts[0][1])), *parts[1:]]) is None
    longer = in_a_batch([bytes(entry) + b"x" for entry in parts[0][1]])
    assert SpreadEntries.of(ids, [(parts[0][0], longer), *parts[1:]]) is None
    assert SpreadEntries.of(ids, []) is None


def test_shares_of_different_sizes_are_opened_each_as_long_as_it_is() -> None:
    digest = Digest.of(DigestType.CRC32C)
    shares, longer = in_shares(stored(digest)), stored(digest, 14)
    ids = shares.parts[1][0]
    other = in_a_batch([longer[each - FIRST] for each in ids])
    mixed = replace(shares, parts=[shares.parts[0], (ids, other), shares.parts[2]])
    assert assert_opened_alike(mixed, digest) == COUNT
    assert {len(entry) for entry in mixed} == {46, 50}


@pytest.mark.parametrize("beyond", [COUNT, 1 << 40])
def test_shares_with_an_id_behind_the_others_are_refused(beyond: int) -> None:
    shares = in_shares(stored(Digest.of(DigestType.CRC32C)))
    (ids, entries), *others = shares.parts
    lie = replace(shares, parts=[([*ids[:-1], FIRST + beyond], entries), *others])
    with pytest.raises(KeyError):
        open_together(lie, LEDGER, FIRST, Digest.of(DigestType.CRC32C).compute_all, 4)


def test_payloads_of_even_entries_stay_where_they_are() -> None:
    digest = Digest.of(DigestType.CRC32C)
    run = open_together(in_a_batch(stored(digest)), LEDGER, FIRST, digest.compute_all, digest.size)
    assert isinstance(run.payloads, EvenEntries) and run.payloads[3].obj is run.payloads[4].obj
    assert list(run.payloads[2:4]) == [run.payloads[2], run.payloads[3]] == list(run.payloads)[2:4]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([DigestType.CRC32C, DigestType.CRC32]), st.data())
def test_of_damaged_entries_those_before_are_opened(kind: DigestType, data: st.DataObject) -> None:
    digest = Digest.of(kind)
    entries = stored(digest)
    at = data.draw(st.integers(0, COUNT - 1))
    place = data.draw(st.integers(0, len(entries[at]) - 1))
    damaged = bytearray(entries[at])
    damaged[place] ^= data.draw(st.integers(1, 255))
    entries[at] = bytes(damaged)
    assert assert_opened_alike(entries, digest) == at
    assert assert_opened_alike(in_a_batch(entries), digest) == at
    assert assert_opened_alike(in_shares(entries), digest) == at


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32])
def test_an_entry_of_another_place_or_ledger_is_not_taken(kind: DigestType) -> None:
    digest = Digest.of(kind)
    entries = stored(digest)
    assert assert_opened_alike([*entries[:9], *entries[10:]], digest) == 9
    other = digest.encode(EntryHeader(LEDGER + 1, FIRST + 5, 0, 0), b"x" * 10)
    assert assert_opened_alike([*entries[:5], other, *entries[6:]], digest) == 5


@pytest.mark.parametrize("size", [0, 20, 35])
def test_entries_that_are_too_short_are_none(size: int) -> None:
    assert assert_opened_alike([bytes(size)] * COUNT, Digest.of(DigestType.CRC32C)) == 0


def test_entries_of_many_sizes_are_packed() -> None:
    digest = Digest.of(DigestType.CRC32C)
    entries = stored(digest)
    entries[4] = digest.encode(EntryHeader(LEDGER, FIRST + 4, 0, 0), b"longer than the others")
    assert assert_opened_alike(entries, digest) == COUNT
    payloads = open_together(entries, LEDGER, FIRST, digest.compute_all, digest.size).payloads
    assert isinstance(payloads, PackedEntries) and len(payloads.data) == sum(map(len, payloads))
    assert payloads[4].tobytes() == b"longer than the others" and payloads[-1].obj is payloads[0].obj


def test_long_entries_are_views() -> None:
    digest = Digest.of(DigestType.CRC32C)
    entries = stored(digest, 9000, 3)
    run = open_together(entries, LEDGER, FIRST, digest.compute_all, digest.size)
    assert isinstance(run.payloads, list) and run.payloads[1].obj is entries[1]
    assert assert_opened_alike(entries, digest) == assert_opened_alike(stored(digest, 5000, 3), digest) == 3
    mixed = [*stored(digest, 2, 270)[:9], *stored(digest, 70_000, 10)[9:]]
    assert isinstance(open_together(mixed, LEDGER, FIRST, digest.compute_all, digest.size).payloads, PackedEntries)


def test_some_of_packed_entries_are_packed_where_they_follow_each_other() -> None:
    values = [b"a", b"", b"bcd", b"e", b"fg"]
    packed, rows = PackedEntries.of(values), range(len(values))
    for start, stop, step in product((None, *range(-6, 7)), (None, *range(-6, 7)), (None, 1, 2, -1)):
        part = packed[start:stop:step]
        expected = values[start:stop:step]
        assert list(map(bytes, part)) == expected and isinstance(part, PackedEntries) == (step in (None, 1))
        if isinstance(part, PackedEntries):
            assert bytes(part.bytes) == b"".join(expected) and list(map(bytes, part[:2])) == expected[:2]
    assert [bytes(packed[at]) for at in rows] == values
    with pytest.raises(IndexError):
        packed[5]


def test_packed_entries_that_are_joined_stay_packed() -> None:
    first, second = PackedEntries.of([b"a", b"bcd", b"e"]), PackedEntries.of([b"", b"fg"])
    cut = first[1:]
    assert isinstance(cut, PackedEntries)
    both = joined_entries([cut, second, first])
    assert isinstance(both, PackedEntries)
    assert list(map(bytes, both)) == [b"bcd", b"e", b"", b"fg", b"a", b"bcd", b"e"]
    assert list(map(bytes, joined_entries([first, [memoryview(b"x")]]))) == [b"a", b"bcd", b"e", b"x"]
