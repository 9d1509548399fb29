"""The rules of placement, and the search against all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger import spread
from tallystick.bookkeeper.ledger.policies import Policy
from tallystick.bookkeeper.ledger.spread import Location, Placed, Rule
from tallystick.bookkeeper.wire.values import BookieId

LOCATIONS = st.builds(
    lambda machine, region, rack: Location(f"m{machine}", f"/g{region}/r{rack}"),
    st.integers(0, 4),
    st.integers(0, 2),
    st.integers(0, 2),
)
POLICIES = st.builds(
    Policy,
    st.sampled_from(["random", "rack-aware", "region-aware"]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 3),
)


def sizes_of(data: st.DataObject, most: int) -> tuple[int, int, int]:
    size = data.draw(st.integers(1, most))
    write_quorum = data.draw(st.integers(1, size))
    return size, write_quorum, data.draw(st.integers(1, write_quorum))


def sets(placed: Placed, write_quorum: int) -> list[list[Location]]:
    """The locations of each entry's write set, plainly."""
    size = len(placed)
    whole = [location for location in placed if location is not None]
    return [[whole[(entry + step) % size] for step in range(write_quorum)] for entry in range(size)]


@pytest.mark.rule("Q2")
@given(st.data())
def test_q2_the_search_finds_an_ensemble_wherever_there_is_one(data: st.DataObject) -> None:
    size, write_quorum, ack_quorum = sizes_of(data, 4)
    bookies = data.draw(st.lists(LOCATIONS, min_size=size, max_size=5))
    locations = {f"b{number}": location for number, location in enumerate(bookies)}
    demands = data.draw(POLICIES).demands(locations.values(), ack_quorum)
    free: list[Location | None] = [None] * size
    for rules in demands.levels:
        chosen = spread.find(free, [list(locations)] * size, locations, rules, write_quorum)
        if chosen is None:
            assert not any(
                spread.keeps([locations[bookie] for bookie in ensemble], rules, write_quorum)
                for ensemble in permutations(locations, size)
            )
        else:
            assert len(set(chosen)) == size
            assert spread.keeps([locations[bookie] for bookie in chosen], rules, write_quorum)


@pytest.mark.rule("Q2")
@given(st.data())
def test_q2_what_the_rules_say_of_each_write_set(data: st.DataObject) -> None:
    size, write_quorum, ack_quorum = sizes_of(data, 6)
    placed: list[Location | None] = list(data.draw(st.lists(LOCATIONS, min_size=size, max_size=size)))
    count = data.draw(st.integers(1, 3))
    write_sets = sets(placed, write_quorum)

    def keeps(rule: Rule) -> bool:
        return spread.keeps(placed, [rule], write_quorum)

    def apart(parts: list[list[str]]) -> bool:
        return all(len(set(each)) == len(each) for each in parts)

    assert keeps(spread.machines_apart) == apart([[one.machine for one in each] for each in write_sets])
    assert keeps(spread.racks_apart) == apart([[one.rack for one in each] for each in write_sets])
    racks = [len({one.rack for one in each}) for each in write_sets]
    assert keeps(spread.racks_in_each(count)) == (min(racks) >= min(count, write_quorum))
    acknowledgements = [chosen for each in write_sets for chosen in permutations(each, ack_quorum)]
    regions = [len({one.region for one in chosen}) for chosen in acknowledgements]
    assert keeps(spread.regions_acknowledge(count, ack_quorum)) == (min(regions) >= count)


@given(st.data())
def test_without_a_way_to_keep_the_rules_bookies_are_different_all_the_same(data: st.DataObject) -> None:
    size, write_quorum, _ = sizes_of(data, 5)
    bookies = data.draw(st.lists(LOCATIONS, min_size=size, max_size=7))
    locations = {f"b{number}": location for number, location in enumerate(bookies)}
    chosen = spread.nearest([None] * size, [list(locations)] * size, locations, write_quorum)
    assert len(set(chosen)) == size


def test_one_entry_more_on_a_machine_only_where_there_is_no_other() -> None:
    locations = {name: Location("one" if name in "abc" else name, "/r") for name in "abcd"}
    order: list[list[BookieId]] = [list("abcd")] * 3
    assert spread.nearest([None] * 3, order, locations, 2) == ["a", "d", "b"]


def test_a_search_that_takes_too_long_ends() -> None:
    """Forty places, and thirty-nine racks of two bookies each."""
    locations = {f"b{number}": Location(f"m{number}", f"/r{number % 39}") for number in range(78)}
    assert spread.find([None] * 40, [list(locations)] * 40, locations, [spread.racks_apart], 40) is None


def test_the_region_of_a_rack_is_its_first_part() -> None:
    assert [Location("m", rack).region for rack in ("/east/r1", "/r1", "/east/row/r1")] == ["east", "r1", "east"]
