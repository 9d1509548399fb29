"""No host takes all the places of a port."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.runtime.places import Places


def test_while_there_are_places_everybody_gets_one() -> None:
    places: Places[int] = Places(3)
    assert [places.arrived(peer, "crowd") for peer in range(3)] == [None] * 3


def test_a_newcomer_of_the_host_that_has_most_goes_itself() -> None:
    places: Places[int] = Places(2)
    assert [places.arrived(peer, "crowd") for peer in range(4)] == [None, None, 2, 3]


def test_a_newcomer_of_another_host_takes_the_place_of_the_one_that_was_quiet_for_longest() -> None:
    quiet_since = {0: 5.0, 1: 1.0, 2: 1.0, 3: 0.0}
    places: Places[int] = Places(3, lambda peer: quiet_since[peer])
    for peer in range(3):
        places.arrived(peer, "crowd")
    assert places.arrived(3, "guest") == 1
    assert places.arrived(4, "guest") == 4, "both have most now: nobody is turned out for an equal"


def test_who_left_makes_room_and_is_forgotten() -> None:
    places: Places[int] = Places(2)
    assert [places.arrived(0, "crowd"), places.arrived(1, "crowd"), places.arrived(2, "crowd")] == [None, None, 2]
    places.left(2)
    places.left(0)
    places.left(0)
    assert places.arrived(3, "crowd") is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_the_bound_holds_and_a_host_below_its_part_is_never_turned_out(events: list[tuple[str, bool]]) -> None:
    places: Places[int] = Places(8)
    here: dict[int, str] = {}
    for peer, (host, leaves) in enumerate(events):
        if leaves and here:
            gone = next(iter(here))
            del here[gone]
            places.left(gone)
        here[peer] = host
        goes = places.arrived(peer, host)
        if goes is not None:
            assert list(here.values()).count(here[goes]) > 8 // 4
            del here[goes]
        assert len(here) <= 8
