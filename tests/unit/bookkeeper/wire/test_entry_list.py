"""Lists of entries against the plain set of them."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import entry_list
from tallystick.bookkeeper.wire.entry_list import EntryList, Group, encode_runs
from tallystick.errors import LocalProtocolError, RemoteProtocolError

HEAD = struct.pack(">ii56x", 0, 1)


def runs_of(entries: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][1] == entry - 1:
            runs[-1] = runs[-1][0], entry
        else:
            runs.append((entry, entry))
    return runs


@given(st.sets(st.integers(0, 60)))
def test_a_list_says_which_entries_there_are(entries: set[int]) -> None:
    listed = EntryList.decode(encode_runs(runs_of(entries)))
    assert list(listed.runs()) == runs_of(entries)
    assert listed.last == max(entries, default=-1)
    assert listed.count == len(entries)
    assert [entry for entry in range(70) if entry in listed] == sorted(entries)


def test_a_stripe_is_one_group() -> None:
    stripe = [(entry, entry + 1) for entry in range(2, 3_000_000, 3)]
    listed = EntryList.decode(encode_runs(stripe))
    assert [tuple(group) for group in listed.groups] == [(2, 2_999_999, 2, 3)]
    assert listed.count == 2 * len(stripe)


def test_what_no_number_of_the_format_can_hold_is_another_group() -> None:
    far = 1 << 40
    listed = EntryList.decode(encode_runs([(0, 0), (far, far), (2 * far, 2 * far + (1 << 33))]))
    assert listed.count == 2 + (1 << 33) + 1
    assert list(listed.runs()) == [(0, 0), (far, far), (2 * far, 2 * far + (1 << 33))]
    assert all(group.size < 1 << 31 and group.period < 1 << 31 for group in listed.groups)


def test_sequences_that_touch_are_one_run_however_many_they_are() -> None:
    """A list of 88 bytes from a bookie held the loop for ever."""
    ids = 1 << 63
    every_id = EntryList.decode(HEAD + struct.pack(">qqii", 0, ids - 1, 1, 1))
    assert list(every_id.runs()) == [(0, ids - 1)] and every_id.count == ids
    assert ids - 1 in every_id and ids not in every_id
    two_groups = struct.pack(">qqii", 0, 4, 4, 4) + struct.pack(">qqii", 8, 22, 2, 7)
    touching = EntryList.decode(struct.pack(">ii56x", 0, 2) + two_groups)
    assert list(touching.runs()) == [(0, 9), (15, 16), (22, 23)]
    assert list(EntryList.decode(encode_runs(touching.runs())).runs()) == list(touching.runs())


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 9, 12, 1 << 62])
def test_a_run_of_more_ids_than_a_sequence_has_is_two_groups_at_most(
    first: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_list, "_MAX_INT", 4 if count < 100 else entry_list._MAX_INT)
    listed = EntryList.decode(encode_runs([(first, first + count - 1), (first + count + 2, first + count + 2)]))
    assert list(listed.runs()) == [(first, first + count - 1), (first + count + 2, first + count + 2)]
    assert len(list(listed.groups)) <= 3 and all(group.size <= entry_list._MAX_INT for group in listed.groups)


@pytest.mark.parametrize(
    "group",
    [
        (-1, 5, 1, 1),
        (5, 4, 1, 1),
        (0, 5, 0, 5),
        (0, 5, 2, 1),
        (0, 5, 1, 2),
        (0, 5, 1, 0),
        (0, 0, 1, -1),
        ((1 << 63) - 1, (1 << 63) - 1, 2, 0),
    ],
)
def test_a_group_that_contradicts_itself_is_refused(group: tuple[int, int, int, int]) -> None:
    with pytest.raises(RemoteProtocolError):
        EntryList.decode(HEAD + struct.pack(">qqii", *group))


def test_a_list_of_another_length_version_or_order_is_refused() -> None:
    group = struct.pack(">qqii", 0, 0, 3, 0)
    for data in (b"", HEAD, HEAD + group + b"x", struct.pack(">ii56x", 1, 1) + group, HEAD[:63]):
        with pytest.raises(RemoteProtocolError):
            EntryList.decode(data)
    with pytest.raises(RemoteProtocolError):
        EntryList.decode(struct.pack(">ii56x", 0, 2) + group + struct.pack(">qqii", 2, 2, 1, 0))


def test_a_long_list_is_checked_in_steps_and_searched_without_looking_at_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of 200,000 groups, as many as a frame has, held a client's loop for 0.4 s, and each search for 10 ms."""
    monkeypatch.setattr(entry_list, "_CHECKED_AT_ONCE", 10)
    data = encode_runs((first, first + first % 7) for first in range(0, 100_000, 100))
    listed = EntryList(data)
    assert sum(1 for _ in listed.groups) == 1000 and sum(1 for _ in listed.checks()) == 99
    searched: list[int] = []
    group = EntryList._group

    def counted(listed: EntryList, number: int) -> Group:
        searched.append(number)
        return group(listed, number)

    monkeypatch.setattr(EntryList, "_group", counted)
    assert 50_000 in listed and 49_950 not in listed and 100_000 not in listed and -1 not in listed
    assert len(searched) < 60


def test_to_count_the_entries_of_a_checked_list_looks_at_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of a ledger with 200,000 gaps held a client's loop for 0.18 s, each time that it was counted."""
    listed = EntryList.decode(encode_runs((first, first + first % 7) for first in range(0, 5000, 100)))
    monkeypatch.setattr(EntryList, "groups", property(lambda listed: pytest.fail("all of it is looked at")))
    assert listed.count == sum(1 + first % 7 for first in range(0, 5000, 100))


def test_a_fault_behind_the_first_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_list, "_CHECKED_AT_ONCE", 10)
    good = encode_runs((first, first + first % 7) for first in range(0, 5000, 100))
    last = struct.pack(">qqii", 5, 5, 1, 0)
    listed = EntryList(struct.pack(">ii56x", 0, 51) + good[64:] + last)
    with pytest.raises(RemoteProtocolError):
        list(listed.checks())


@given(st.binary(max_size=120))
def test_bytes_of_a_stranger_are_a_list_or_refused(data: bytes) -> None:
    try:
        listed = EntryList.decode(data)
    except RemoteProtocolError:
        return
    firsts = [group.first for group in listed.groups]
    assert all(a < b for a, b in pairwise(firsts))


def test_a_list_that_is_longer_than_it_may_be_ends_where_that_shows() -> None:
    triangles = ((size * size, size * size + size - 1) for size in range(1, 1000))
    with pytest.raises(LocalProtocolError):
        encode_runs(triangles, max_bytes=64 + 24 * 10)
    assert next(triangles) == (144, 155), "nothing more is asked for"
    assert len(encode_runs([(0, 0), (5, 6)], max_bytes=64 + 24 * 2)) == 64 + 24 * 2


def test_no_object_is_kept_for_each_group_of_a_list_that_is_made() -> None:
    """To free 200,000 of them at once stopped all other threads of a bookie for 30 ms."""
    groups = list[int]()

    def triangles() -> Iterator[tuple[int, int]]:
        for number in range(300):
            yield number * (number + 1) // 2 * 2, number * (number + 1) // 2 * 2
        groups.append(sum(isinstance(each, Group) for each in gc.get_objects()))

    gc.collect()
    gc.disable()  # it would look at such tuples no more
    try:
        before = sum(isinstance(each, Group) for each in gc.get_objects())
        assert len(encode_runs(triangles())) > 100 * 24
    finally:
        gc.enable()
    assert groups[0] - before < 5
