from __future__ import annotations

import pytest

from tallystick.errors import NoSuchEntry, UsageError
from tallystick.pipeline.ledger.bounds import EARLIEST, LATEST, LedgerBound


def test_words_and_entries() -> None:
    assert LedgerBound.parse("o", "") == LedgerBound("o", LATEST)
    assert LedgerBound.parse("o", " Earliest ") == LedgerBound("o", EARLIEST)
    bound = LedgerBound.parse("o", '{"7": 3, "8": -1, "9": "latest", "10": -2, "11": "earliest"}')
    assert [bound.entry(ledger, 5) for ledger in (7, 8, 9, 10, 11)] == [3, 5, 5, 0, 0]
    assert bound.entry(12, 5) == 0  # one that is not named, as a ledger that is new to a query
    assert LedgerBound().entry(12, 5) == 5
    assert bound.is_moving and LedgerBound().is_moving
    assert not any(LedgerBound.parse("o", text).is_moving for text in ("earliest", '{"7": 3, "10": -2}'))


@pytest.mark.parametrize(
    "text",
    ["first", "7", "[]", '{"7": 1.5}', '{"7": -3}', '{"7": true}', '{"7": "x"}', '{"x": 1}', '{"-1": 1}',
     '{"\u0667": 1}', '{"1_0": 1}', '{" 7 ": 1}', '{"07": 1}'],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="startingOffsets is latest, earliest, or JSON as in"):
        LedgerBound.parse("startingOffsets", text)


def test_an_entry_that_is_not_there_is_an_error() -> None:
    bound = LedgerBound.parse("startingOffsets", '{"7": 5}')
    assert bound.entry(7, 5) == 5
    with pytest.raises(NoSuchEntry, match="startingOffsets: the ledger does not reach to this entry") as raised:
        bound.entry(7, 4)
    assert raised.value.fields == {"ledger": 7, "entry": 5, "end": 4}
    with pytest.raises(UsageError, match="names a ledger that the query does not read"):
        bound.check({8})
