"""What was given up of a ledger, as text, and where the next of it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.lost_runs import (
    LOST_KEY,
    MOST_GROUPS,
    encode_lost,
    is_lost,
    joined,
    lost_of,
    next_lost,
    runs_of_lost,
    with_lost,
    without_lost,
)
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import MetadataError, UsageError

RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))).map(
    joined
)


@given(RUNS)
def test_every_set_of_runs_comes_back(runs: tuple[tuple[int, int], ...]) -> None:
    lost = lost_of({LOST_KEY: encode_lost(runs)})
    assert tuple(runs_of_lost(lost)) == runs
    entries = {entry for first, last in runs for entry in range(first, last + 1)}
    for entry in range(70):
        assert is_lost(lost, entry) is (entry in entries)
        assert next_lost(lost, entry) == next((run for run in runs if run[1] >= entry), None)
    assert list(without_lost(range(70), lost)) == [entry for entry in range(70) if entry not in entries]


def test_what_two_bookies_had_of_a_long_striped_ledger_is_one_group() -> None:
    text = encode_lost([(entry, entry) for entry in range(1, 3_000_000, 3)])
    assert text == b"1-2999998:1/3"
    lost = lost_of({LOST_KEY: text})
    assert next_lost(lost, 1_000_001) == (1_000_003, 1_000_003) and is_lost(lost, 2_999_998)
    assert next_lost(lost, 2_999_999) is None


def test_more_than_a_node_takes_is_refused() -> None:
    entries = [number * number for number in range(MOST_GROUPS * 2 + 2)]
    with pytest.raises(UsageError, match="so many runs"):
        encode_lost([(entry, entry) for entry in entries])


@pytest.mark.parametrize("text", [b"some", b"4-3", b"3-4:2/1", b"3-9:0/2", b"3-4 4-5", b"3-4  7-8"])
def test_what_contradicts_itself_is_refused(text: bytes) -> None:
    with pytest.raises(MetadataError):
        lost_of({LOST_KEY: text})


def test_what_was_given_up_before_stays() -> None:
    metadata = LedgerMetadata(1, 1, 1, (Fragment(0, ("b",)),), custom={"of": b"a user"})
    metadata = with_lost(with_lost(metadata, [(7, 8)]), [(3, 3), (9, 9)])
    assert list(runs_of_lost(lost_of(metadata.custom))) == [(3, 3), (7, 9)] and metadata.custom["of"] == b"a user"


def test_metadata_of_format_1_can_say_nothing_of_it() -> None:
    metadata = LedgerMetadata(1, 1, 1, (Fragment(0, ("b",)),), format_version=1, has_password=False)
    with pytest.raises(UsageError, match="format 1"):
        with_lost(metadata, [(0, 0)])
