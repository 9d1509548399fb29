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


def test_who_never_spoke_keeps_no_place_from_others_of_however_many_hosts() -> None:
    speakers = {0, 1}
    places: Places[int] = Places(4, has_spoken=speakers.__contains__)
    for peer in range(4):
        places.arrived(peer, f"host {peer}")
    assert places.arrived(4, "guest") == 2, "the oldest one that says nothing"
    speakers.add(4)
    assert [places.arrived(5, "another"), places.arrived(6, "one more")] == [3, 5]
    speakers.add(6)
    speakers.add(7)
    assert places.arrived(7, "the last") == 7, "all others spoke"
    assert not places._silent


def test_who_never_spoke_goes_for_nobody_of_a_host_with_more_places() -> None:
    places: Places[int] = Places(30, has_spoken=lambda peer: peer >= 100)
    for peer in range(20):
        places.arrived(peer, f"small {peer}")
    assert [places.arrived(peer, "crowd") for peer in range(100, 112)] == [None] * 10 + [110, 111]
    assert [places.arrived(peer, "crowd") for peer in (20, 21)] == [20, 21], "itself, though it never spoke"


def test_who_never_spoke_goes_for_nobody_of_a_host_with_one_place_more() -> None:
    places: Places[int] = Places(2, has_spoken=lambda peer: peer >= 100)
    places.arrived(0, "small")
    assert [places.arrived(peer, "crowd") for peer in (100, 101)] == [None, 101]


def test_who_never_spoke_is_found_behind_many_of_smaller_hosts() -> None:
    places: Places[int] = Places(30, has_spoken=lambda peer: peer >= 100)
    for peer in range(20):
        places.arrived(peer, f"small {peer}")
    for peer in range(20, 30):
        places.arrived(peer, "crowd")
    assert [places.arrived(peer, "crowd") for peer in (100, 101)] == [100, 20], "by one of the next newcomers"


def test_of_the_host_that_has_most_who_never_spoke_goes_first() -> None:
    speakers = set(range(0, 8, 2))
    places: Places[int] = Places(8, has_spoken=speakers.__contains__)
    for peer in range(8):
        places.arrived(peer, "crowd")
    assert [places.arrived(peer, "crowd") for peer in (8, 9)] == [1, 3]


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


@given(st.lists(st.tuples(st.sampled_from("aaabbc"), st.sampled_from(("comes", "comes", "leaves", "speaks")))))
def test_who_goes_is_the_quietest_of_a_host_that_has_most(events: list[tuple[str, str]]) -> None:
    here: dict[int, str] = {}
    quiet_since: dict[int, float] = {}
    places: Places[int] = Places(8, quiet_since.__getitem__)
    for now, (host, event) in enumerate(events):
        of_host = [peer for peer in here if here[peer] == host]
        if event == "comes":
            here[now], quiet_since[now] = host, now
            goes = places.arrived(now, host)
            assert (goes is not None) == (len(here) > 8)
            if goes is not None:
                sizes = {one: list(here.values()).count(one) for one in here.values()}
                assert sizes[here[goes]] == max(sizes.values())
                mates = [peer for peer in here if here[peer] == here[goes]]
                assert goes == (now if sizes[host] == max(sizes.values()) else min(mates, key=quiet_since.__getitem__))
                del here[goes]
        elif of_host and event == "leaves":
            places.left(of_host[0])
            del here[of_host[0]]
        elif of_host:
            quiet_since[of_host[0]] = now
    assert sum(map(len, places._peers.values())) == len(here)
    assert all(len(peers._by_quiet) <= 2 * len(peers) for peers in places._peers.values())


def test_a_storm_of_newcomers_is_not_compared_with_all_who_are_there() -> None:
    asked: list[int] = []

    def quiet_since(peer: int) -> float:
        asked.append(peer)
        return 0.0

    places: Places[int] = Places(1000, quiet_since)
    for peer in range(1000):
        places.arrived(peer, "crowd")
    assert [places.arrived(1000 + number, f"guest {number}") for number in range(100)] == list(range(100))
    assert len(asked) < 3000
