"""The appends that are not stored yet, against a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.appends import Appends


def test_order_is_kept_through_several_ledgers() -> None:
    appends = Appends[str]()
    for item in "abcde":
        appends.append(item, 10)
    assert appends.take(3, 1000) == (["a", "b", "c"], 30)
    assert appends.stored(1) == ["a"]
    appends.send_on()
    assert appends.waiting_count == len(appends) == 4
    assert appends.take(9, 1000) == (["b", "c", "d", "e"], 40)
    assert appends.stored(4) == ["b", "c", "d", "e"] and appends.bytes == 0 and not len(appends)


def test_the_item_that_fills_a_ledger_still_goes_to_it() -> None:
    appends = Appends[str]()
    for item in "abc":
        appends.append(item, 10)
    assert appends.take(9, 15) == (["a", "b"], 20) and appends.waiting_count == 1
    appends.append("d", 10)
    assert appends.take(9, 10) == (["c"], 10), "it is full with just that"


def test_all_that_is_left_by_whether_it_was_sent() -> None:
    appends = Appends[str]()
    for item in "abc":
        appends.append(item, 1)
    appends.take(2, 1000)
    assert [list(part) for part in appends.take_all()] == [["a", "b"], ["c"]]
    assert [list(part) for part in appends.take_all()] == [[], []] and appends.bytes == 0


@given(st.lists(st.tuples(st.sampled_from(["append", "take", "stored", "send_on"]), st.integers(0, 5))))
def test_as_a_list_with_a_place_in_it(steps: list[tuple[str, int]]) -> None:
    appends, items, sent, added = Appends[int](), list[int](), 0, 0
    for step, number in steps:
        if step == "append":
            appends.append(added, number)
            items.append(added)
            added += 1
        elif step == "take":
            taken, _ = appends.take(number, 1 << 60)
            assert taken == items[sent : sent + number]
            sent += len(taken)
        elif step == "stored":
            done = appends.stored(number)
            assert done == items[: min(number, sent)]
            del items[: len(done)]
            sent -= len(done)
        else:
            appends.send_on()
            sent = 0
        assert (len(appends), appends.waiting_count) == (len(items), len(items) - sent)
