"""What is deleted is proven gone twice; many at once wait."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.garbage import BARE, DAY_S, HERE, SEEN, Service, core_of
from tallystick.bookkeeper.bookie.garbage import (
    LOOK_LEDGERS,
    MAX_RESTARTS,
    Finish,
    GarbageCore,
    List,
    Look,
    Wait,
)
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.codec.checksum import crc32c
from tallystick.codec.steps import finished
from tallystick.errors import CorruptRecord

ELSEWHERE = Moment("theirs", 1)


def test_what_lacks_twice_is_deleted() -> None:
    service = Service(2, 5)
    assert service.run(core_of(), [1, 2, 3, 5]) == Finish((1, 3))
    assert service.seen == [List, Look, Wait, List, Look]
    assert service.now == 60.0


def test_with_nothing_missing_one_listing_is_enough() -> None:
    service = Service(1, 2, 3)
    assert service.run(core_of(), [2, 3]) == Finish()
    assert service.seen == [List]


def test_ledgers_without_an_entry_do_not_wait_however_many_they_are() -> None:
    invented = range(BARE, BARE + 500)
    service = Service(*range(100, 300))
    core = core_of()
    assert service.run(core, [*range(300), *invented]) == Finish((*range(100), *invented))
    assert core.waiting.count == 0


def test_nor_do_they_hide_how_much_else_is_gone() -> None:
    invented = range(BARE, BARE + 5000)
    finish = Service(*range(100)).run(core_of(), [*range(250), *invented])
    assert (finish.delete, finish.waiting) == (tuple(invented), 150)


def test_those_that_may_be_invented_wait_and_hold_back_none_of_which_the_metadata_was_seen() -> None:
    """While nobody looks whoever reaches the port can add to ids that nobody made: each deletion waited for a day."""
    unseen = range(SEEN, SEEN + 500)
    core = core_of()
    finish = Service(*range(100, 200)).run(core, [*range(200), *unseen])
    assert (finish.delete, finish.waiting) == (tuple(range(100)), 500)
    assert Service(*range(101, 200)).run(core, [*range(200), *unseen]) == Finish((), 601, DAY_S)
    assert Service().run(core, [*range(90), *unseen[:11]]).waiting == 11, "with the others they are many"


def test_a_listing_alone_proves_nothing() -> None:
    service = Service(1, 2, 3)
    service.listing = set()
    assert service.run(core_of(), [1, 2, 3]) == Finish()


def test_a_record_that_cannot_be_read_is_there() -> None:
    core = core_of()
    finished(core.begin([1]))
    finished(core.listing_ended(HERE, HERE, 0.0))
    assert finished(core.looked(HERE, HERE, {1: Record(None, 7)}, 0.0)) == [Finish()]


def test_metadata_that_was_empty_for_a_while_deletes_nothing() -> None:
    service = Service()
    finish = service.run(core_of(), [1, 2], between=lambda: service.have(1, 2))
    assert finish == Finish()


def test_a_ledger_that_comes_up_again_in_the_second_listing_stays() -> None:
    service = Service(9)

    def back() -> None:
        service.listing.add(1)

    assert service.run(core_of(), [1, 2, 9], between=back) == Finish((2,))


def test_a_ledger_whose_record_comes_up_again_stays() -> None:
    service = Service(9)
    assert service.run(core_of(), [1, 2, 9], between=lambda: service.records.add(1)) == Finish((2,))


def test_metadata_of_another_cluster_is_refused() -> None:
    service = Service(1)
    service.moment = ELSEWHERE
    finish = service.run(core_of(), [1, 2])
    assert not finish.delete
    assert finish.refused and "another cluster" in finish.refused


def test_metadata_that_turns_into_another_clusters_is_refused() -> None:
    service = Service(1)

    def turn() -> None:
        service.moment = ELSEWHERE

    finish = service.run(core_of(), [1, 2], between=turn)
    assert not finish.delete
    assert finish.refused and "another cluster" in finish.refused


@pytest.mark.parametrize("breaks", range(1, MAX_RESTARTS + 1))
def test_a_broken_connection_begins_the_run_again(breaks: int) -> None:
    service = Service(1)
    service.breaks = breaks
    assert service.run(core_of(), [1, 2]) == Finish((2,))
    assert service.seen.count(Wait) >= 1


def test_a_connection_that_breaks_between_sync_and_the_second_read_costs_a_new_first_proof() -> None:
    core = core_of()
    other = Moment("ours", 2)
    finished(core.begin([1]))
    assert finished(core.listing_ended(HERE, HERE, 0.0)) == [Look((1,))]
    assert finished(core.looked(HERE, HERE, {1: None}, 0.0)) == [Wait(60.0)]
    assert core.waited(60.0) == [List()]
    assert finished(core.listing_ended(HERE, HERE, 60.0)) == [Look((1,))]
    assert finished(core.looked(HERE, other, {1: None}, 60.0)) == [List()]
    assert finished(core.listing_ended(other, other, 61.0)) == [Look((1,))]
    assert finished(core.looked(other, other, {1: None}, 61.0)) == [Wait(60.0)], (
        "the first proof was of another connection"
    )


def test_a_connection_that_always_breaks_ends_the_run() -> None:
    service = Service(1)
    service.breaks = 100
    finish = service.run(core_of(), [1, 2])
    assert not finish.delete
    assert finish.refused and "broke again" in finish.refused


def test_a_wait_that_was_cut_short_goes_on() -> None:
    core = core_of()
    finished(core.begin([1]))
    finished(core.listing_ended(HERE, HERE, 10.0))
    finished(core.looked(HERE, HERE, {1: None}, 11.0))
    assert core.waited(50.0) == [Wait(21.0)]


def test_records_are_read_in_bounded_numbers() -> None:
    core, stored = core_of(), list(range(LOOK_LEDGERS + 1))
    finished(core.begin(stored))
    [first] = finished(core.listing_ended(HERE, HERE, 0.0))
    assert first == Look(tuple(stored[:LOOK_LEDGERS]))
    [second] = finished(core.looked(HERE, HERE, dict.fromkeys(first.ledgers), 0.0))
    assert second == Look((LOOK_LEDGERS,))


# -- many at once -----------------------------------------------------------------------------------------------------

MANY = list(range(200))


@pytest.mark.parametrize(
    ("gone", "stored", "waits"),
    [(200, 200, True), (101, 200, True), (100, 200, False), (101, 404, False), (101, 403, True)],
)
def test_many_are_a_share_and_more_than_a_hundred(gone: int, stored: int, waits: bool) -> None:
    service = Service(*range(gone, stored))
    finish = service.run(core_of(), list(range(stored)))
    assert (finish.waiting, len(finish.delete)) == ((gone, 0) if waits else (0, gone))


def test_many_are_deleted_when_the_same_lacked_for_a_day() -> None:
    service, core = Service(), core_of()
    for hour in range(24):
        service.now = hour * 3600.0
        finish = service.run(core, MANY)
        assert (finish.delete, finish.waiting) == ((), 200)
        assert finish.waits_s == pytest.approx(DAY_S - hour * 3600.0)
    service.now = DAY_S
    assert service.run(core, MANY) == Finish(tuple(MANY))


def test_those_that_came_back_in_between_wait_anew() -> None:
    service, core = Service(), core_of()
    service.run(core, MANY)
    service.have(*range(50))
    service.now = DAY_S / 2
    service.run(core, MANY)
    service.have()
    service.now = DAY_S
    finish = service.run(core, MANY)
    assert finish.delete == tuple(range(50, 200))
    assert finish.waiting == 50


def test_the_wait_begins_with_the_proof_however_long_ago_the_last_run_was() -> None:
    service, core = Service(*MANY), core_of()
    assert service.run(core, MANY) == Finish()
    service.have()
    service.now = 2 * DAY_S  # no run had a proof meanwhile: the metadata could not be reached
    finish = service.run(core, MANY)
    assert (finish.delete, finish.waiting, finish.waits_s) == ((), 200, DAY_S)


def test_an_operator_ends_the_wait_and_not_the_proof() -> None:
    service, core = Service(), core_of()
    assert service.run(core, MANY).waiting == 200
    service.now = 1000.0
    assert service.run(core, MANY, override=True) == Finish(tuple(MANY))
    assert service.now == 1060.0
    assert core.waiting.count == 0


def test_a_restart_forgets_no_wait_and_adds_no_time() -> None:
    service, core = Service(), core_of()
    service.run(core, MANY)
    service.now = 10 * 3600.0
    service.run(core, MANY)
    waiting = WaitingDeletions.decode(core.waiting.encode())
    service, core = Service(), core_of(waiting)  # the clock of another process begins anywhere
    service.now = 10.0**9
    assert service.run(core, MANY).waits_s == pytest.approx(14 * 3600.0)
    service.now += 15 * 3600.0
    assert service.run(core, MANY) == Finish(tuple(MANY))


def test_a_wait_for_another_cluster_is_not_ours() -> None:
    service = Service()
    old = WaitingDeletions("theirs")
    finished(old.proven(array("q", MANY), 0.0))
    finished(old.proven(array("q", MANY), DAY_S))
    assert service.run(core_of(old), MANY).waiting == 200


def test_a_small_deletion_forgets_an_old_wait() -> None:
    service, core = Service(), core_of()
    service.run(core, MANY)
    service.have(*MANY[1:])
    assert service.run(core, MANY) == Finish((0,))
    assert core.waiting.count == 0


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:20] + b"\x7f" + data[21:]]
)
def test_a_damaged_file_of_waiting_ledgers_is_noticed(damage: Callable[[bytes], bytes]) -> None:
    waiting = WaitingDeletions("ours")
    finished(waiting.proven(array("q", MANY), 0.0))
    with pytest.raises(CorruptRecord):
        WaitingDeletions.decode(damage(waiting.encode()))


@given(
    stored=st.sets(st.integers(0, 40)),
    first=st.sets(st.integers(0, 40)),
    second=st.sets(st.integers(0, 40)),
    records=st.sets(st.integers(0, 40)),
)
def test_only_what_lacked_everywhere_is_deleted(
    stored: set[int], first: set[int], second: set[int], records: set[int]
) -> None:
    service = Service()
    service.listing, service.records = set(first), set(records)

    def change() -> None:
        service.listing = set(second)

    finish = service.run(core_of(), sorted(stored), between=change)
    assert set(finish.delete) == stored - first - second - records


def test_a_record_that_the_answer_does_not_name_is_there() -> None:
    core = core_of()
    finished(core.begin([1, 2]))
    finished(core.listing_ended(HERE, HERE, 0.0))
    assert finished(core.looked(HERE, HERE, {}, 0.0)) == [Finish()]


# -- ledgers that are newer than the metadata -------------------------------------------------------------------------

OLDER = Moment("ours", 1, newest=100)


def ahead_of(*ledgers: tuple[int, int]) -> GarbageCore:
    core = core_of()
    finished(core.compare(OLDER, ledgers))
    return core


def test_only_what_was_created_after_all_that_the_metadata_has_is_ahead() -> None:
    core = core_of()
    assert finished(core.compare(OLDER, [(1, 100), (2, 101), (3, -1), (4, 500)])) == [2, 4]
    assert finished(core.compare(OLDER, [(1, 100), (2, 101)])) == [], "it is known"
    assert finished(core.compare(OLDER, [(5, 60), (6, 61)], {61})) == [6], "others were made since"
    assert finished(core.compare(Moment("theirs", 1, newest=0), [(1, 100)])) == [], "of another cluster"


def test_what_is_ahead_is_not_deleted_however_long_it_lacks_and_the_rest_is() -> None:
    service, core = Service(), ahead_of((2, 101))
    for _ in range(3):
        service.now += DAY_S
        assert service.run(core, [1, 2]) == Finish((1,), ahead=1)
    assert finished(core.compare(Moment("ours", 1, newest=10**9), [(2, 101)])) == []
    assert service.run(core, [2]) == Finish((), ahead=1), "also when creations went on"


def test_an_operator_gives_up_what_is_ahead() -> None:
    service, core = Service(), ahead_of((2, 101))
    assert service.run(core, [1, 2], override=True) == Finish((1, 2))
    assert service.run(core, []) == Finish()


def test_what_is_ahead_stays_when_another_ledger_gets_its_id_until_an_operator_gives_it_up() -> None:
    service, core = Service(2), ahead_of((2, 101))
    service.other[2] = Record(LedgerState.OPEN, 102)
    assert service.run(core, [2]) == Finish((), ahead=1)
    assert service.run(core, [2], override=True) == Finish((2,))


def test_what_is_in_the_metadata_again_is_ahead_no_more() -> None:
    service, core = Service(2), ahead_of((2, 101))
    service.other[2] = Record(LedgerState.CLOSED, 101)
    assert service.run(core, [2]) == Finish()
    service.have()
    assert service.run(core, [2]) == Finish((2,))


def test_what_is_ahead_is_known_after_a_restart() -> None:
    core = ahead_of((2, 101), (5, 1 << 62))
    waiting = WaitingDeletions.decode(core.waiting.encode())
    assert waiting.ahead == {2: 101, 5: 1 << 62}
    assert Service().run(core_of(waiting), [2, 5, 6]) == Finish((6,), ahead=2)


def test_the_file_of_the_version_before_is_read() -> None:
    data = bytes.fromhex(
        "54414c4c594743310004000000016f7572730000000000000000000000000000000200000000000000010000000000000002"
    )
    waiting = WaitingDeletions.decode(data + crc32c(data).to_bytes(4, "big"))
    assert (waiting.instance, waiting.groups, waiting.ahead) == ("ours", [(0.0, array("q", [1, 2]))], {})
