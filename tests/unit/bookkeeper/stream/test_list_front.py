"""What left the front of a list: known while the list begins where it began then."""

from __future__ import annotations

from dataclasses import replace

from tallystick.bookkeeper.stream.list_front import GONE_KEY, gone_end, with_gone
from tallystick.bookkeeper.stream.owned_list import rolled
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger


def ledger(id: int, entries: int | None = None) -> StreamLedger:
    """A closed one, or an open one without ``entries``."""
    if entries is None:
        return StreamLedger(id, has_counts=False)
    return StreamLedger(id, entries, 10 * entries, 1_700_000_000_000)


def listed(*ledgers: StreamLedger, gone: str = "") -> StreamInfo:
    return StreamInfo(ledgers=ledgers, properties={GONE_KEY: gone} if gone else {})


def moved(before: StreamInfo, *ledgers: StreamLedger, ended: tuple[StreamLedger, ...] = ()) -> StreamInfo:
    return with_gone(before, replace(before, ledgers=ledgers), ended)


def test_ledgers_without_entries_one_after_another() -> None:
    info = listed(ledger(1))
    for id in (2, 5):
        info = moved(info, ledger(id), ended=(ledger(info.ledgers[0].ledger, 0),))
        assert gone_end(info) == Position(1, 0)


def test_a_ledger_that_failed_before_it_had_an_entry() -> None:
    info = rolled(ledger(1, 0), 2)(listed(ledger(1))).info
    assert gone_end(info) == Position(1, 0)
    assert gone_end(rolled(ledger(2, 3), 4)(info).info) == Position(1, 0)  # the list begins with 2, as it did


def test_what_retention_deletes_ends_where_its_last_entry_was() -> None:
    info = moved(listed(ledger(1, 4), ledger(2, 3), ledger(5)), ledger(5))
    assert gone_end(info) == Position(2, 3)  # 3 and 4 were empty
    assert gone_end(moved(info, ledger(7), ended=(ledger(5, 0),))) == Position(2, 3)
    assert gone_end(moved(info, ledger(7), ended=(ledger(5, 1),))) == Position(5, 1)


def test_nothing_is_said_of_what_others_deleted() -> None:
    info = moved(listed(ledger(1, 4), ledger(2, 3), ledger(5)), ledger(5))
    by_others = replace(info, ledgers=(ledger(7),))
    assert gone_end(by_others) == EARLIEST
    assert gone_end(moved(by_others, ledger(8), ended=(ledger(7, 0),))) == Position(7, 0)
    for text in ("", "5", "x 5", "2:3", "2:3 05"):
        assert gone_end(listed(ledger(5), gone=text)) == EARLIEST


def test_nothing_is_said_of_a_ledger_that_is_lost() -> None:
    lost = ledger(1, 0)._replace(has_counts=False)
    assert moved(listed(ledger(1)), ledger(2), ended=(lost,)) == listed(ledger(2))


def test_a_list_whose_front_stays_and_one_that_ends() -> None:
    info = listed(ledger(1, 4), ledger(2))
    assert moved(info, ledger(1, 4), ledger(3), ended=(ledger(2, 0),)) == listed(ledger(1, 4), ledger(3))
    assert moved(info, ended=(ledger(2, 0),)) == listed()


def test_a_list_without_ledgers_says_so_until_one_may_have_been_dropped() -> None:
    """A broker makes the next one: nobody knows its number before."""
    info = with_gone(listed(ledger(1)), listed(), (ledger(1, 0),), version=7)
    assert gone_end(info, 8) == Position(1, 0) and gone_end(info) == EARLIEST
    by_broker = replace(info, ledgers=(ledger(4),))
    assert gone_end(by_broker, 9) == Position(1, 0)
    assert gone_end(replace(info, ledgers=(ledger(4, 2), ledger(6))), 10) == Position(1, 0)
    assert gone_end(replace(info, ledgers=(ledger(6),)), 11) == EARLIEST, "the first is dropped"
    again = with_gone(by_broker, listed(gone=by_broker.properties[GONE_KEY]), (ledger(4, 0),), version=9)
    assert gone_end(again, 10) == Position(1, 0)


def test_what_is_known_of_a_list_without_ledgers_is_known_of_the_first_one() -> None:
    info = listed(gone="1:0 v7")
    for before, version in ((info, 7), (replace(info, ledgers=(ledger(4),)), 8)):
        after = with_gone(before, replace(before, ledgers=(*before.ledgers, ledger(9))), version=version)
        assert gone_end(after) == Position(1, 0)
    assert with_gone(info, replace(info, ledgers=(ledger(9),)), version=8).properties == info.properties


def test_other_properties_stay() -> None:
    before = StreamInfo(ledgers=(ledger(1, 4), ledger(2)), properties={"tallystick/expired": "1:3"})
    assert with_gone(before, replace(before, ledgers=(ledger(2),))).properties == {
        **before.properties,
        GONE_KEY: "1:4 2",
    }


def test_ledgers_without_entries_that_go_together_begin_with_the_first() -> None:
    assert gone_end(moved(listed(ledger(1, 0), ledger(2, 0), ledger(5)), ledger(5))) == Position(1, 0)


def test_one_ledger_of_those_that_go_is_open() -> None:
    """Nobody knows how many entries it had."""
    assert gone_end(moved(listed(ledger(1, 4), ledger(2), ledger(5)), ledger(5))) == EARLIEST
