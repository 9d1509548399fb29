from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.entry_counts import EntryCounts
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger


@given(st.dictionaries(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 2))), st.integers(-1, 13))
def test_it_counts_as_a_plain_look_does(entries: dict[int, int | None], asked: int) -> None:
    entries = dict(sorted(entries.items()))
    listed = [
        StreamLedger(each, has_counts=False) if count is None else StreamLedger(each, count, 0, 1)
        for each, count in entries.items()
    ]
    counts = EntryCounts(StreamInfo(tuple(listed)))
    behind = [each for each in entries if each > asked]
    assert (counts.newest, asked in counts) == (max(entries, default=None), asked in entries)
    assert counts.end(asked) == entries.get(asked)
    assert counts.open_ledgers == [each for each, count in entries.items() if count is None]
    assert counts.listed_from(asked) == min((each for each in entries if each >= asked), default=None)
    assert counts.ledger_after(asked) == min((each for each in behind if entries[each] != 0), default=None)
    assert counts.closed_after(asked) == sum(entries[each] or 0 for each in behind)
