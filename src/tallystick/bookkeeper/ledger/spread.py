"""Where the copies of an entry may lie (Q2): rules for the bookies of a write set, and a search by them.

::

    place   0    1    2    3        an entry's write set is Qw places in a row, and the last is followed by the first:
    rack    /a   /b   /a   /b       with Qw = 2 here {0,1} {1,2} {2,3} {3,0}, each with two racks

A rule is asked of one place after the other. The search goes back where none of the bookies fits, and gives up after
``SEARCH_CHECKS``: an arrangement of many places that keeps a rule may exist and not be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import BookieId

DEFAULT_RACK = "/default-rack"
SEARCH_CHECKS = 2_000  # of a rule in one search: some milliseconds
MOST_COMPARISONS = 20_000  # of bookies with places, where no rule can be kept everywhere


@dataclass(frozen=True)
class Location:
    """The machine of a bookie and its rack, ``/rack`` or ``/region/rack``."""

    machine: str
    rack: str

    @property
    def region(self) -> str:
        return self.rack.split("/", 2)[1]


Placed = Sequence[Location | None]  # by place; None while it is free
Rule = Callable[[Placed, int, int], bool]  # whether the bookie at a place fits to the others, at a write quorum


def neighbours(place: int, size: int, write_quorum: int) -> list[int]:
    """Return the other places that have an entry in common with this one."""
    if 2 * write_quorum > size:
        return [other for other in range(size) if other != place]
    return [(place + step) % size for step in range(1 - write_quorum, write_quorum) if step]


def machines_apart(placed: Placed, place: int, write_quorum: int) -> bool:
    here = placed[place]
    return here is None or all(
        (other := placed[near]) is None or other.machine != here.machine
        for near in neighbours(place, len(placed), write_quorum)
    )


def racks_apart(placed: Placed, place: int, write_quorum: int) -> bool:
    here = placed[place]
    return here is None or all(
        (other := placed[near]) is None or other.rack != here.rack
        for near in neighbours(place, len(placed), write_quorum)
    )


def racks_in_each(count: int) -> Rule:
    """Return the rule that each write set has so many racks, or as many as it has places."""

    def fits(placed: Placed, place: int, write_quorum: int) -> bool:
        for members in _sets_of(placed, place, write_quorum):
            racks = {member.rack for member in members if member is not None}
            if len(racks) + members.count(None) < min(count, write_quorum):
                return False
        return True

    return fits


def regions_acknowledge(count: int, ack_quorum: int) -> Rule:
    """Return the rule that any ack quorum has so many regions: no entry is confirmed in fewer."""

    def fits(placed: Placed, place: int, write_quorum: int) -> bool:
        for members in _sets_of(placed, place, write_quorum):
            counts = Counter(member.region for member in members if member is not None)
            if sum(number for _, number in counts.most_common(count - 1)) >= ack_quorum:
                return False
        return True

    return fits


def regions_even(count: int) -> Rule:
    """Return the rule that none of so many regions has more places than an even share, rounded up."""

    def fits(placed: Placed, place: int, write_quorum: int) -> bool:
        here, most = placed[place], -(-len(placed) // count)
        return here is None or sum(other is not None and other.region == here.region for other in placed) <= most

    return fits


def _sets_of(placed: Placed, place: int, write_quorum: int) -> Iterator[list[Location | None]]:
    """Yield what is at the places of each write set that this place is in."""
    size = len(placed)
    firsts = range(place - write_quorum + 1, place + 1) if write_quorum < size else range(1)
    for first in firsts:
        yield [placed[(first + step) % size] for step in range(write_quorum)]


def find(
    placed: Placed,
    candidates: Sequence[Sequence[BookieId]],
    locations: Mapping[BookieId, Location],
    rules: Sequence[Rule],
    write_quorum: int,
) -> list[BookieId] | None:
    """Return different bookies for the free places, each the first of that place's candidates with which all rules can
    be kept. Returns None if there is no such arrangement, or none was found in time."""
    trial, places = list(placed), [place for place, location in enumerate(placed) if location is None]
    chosen, used, checks = list[BookieId](), set[BookieId](), 0
    turns = [_alike_once(candidates[0], locations, used)] if places else []
    while len(chosen) < len(places):
        place = places[len(chosen)]
        for bookie in turns[-1]:
            checks += 1
            trial[place] = locations[bookie]
            if all(rule(trial, place, write_quorum) for rule in rules):
                chosen.append(bookie)
                used.add(bookie)
                if len(chosen) < len(places):
                    turns.append(_alike_once(candidates[len(chosen)], locations, used))
                break
            if checks > SEARCH_CHECKS:
                return None
        else:
            trial[place] = None
            turns.pop()
            if not chosen:
                return None
            used.discard(chosen.pop())
    return chosen


def _alike_once(
    candidates: Sequence[BookieId], locations: Mapping[BookieId, Location], used: set[BookieId]
) -> Iterator[BookieId]:
    """Yield one unused bookie of each location: where one does not fit, neither does another."""
    tried = set[Location]()
    for bookie in candidates:
        if bookie not in used and locations[bookie] not in tried:
            tried.add(locations[bookie])
            yield bookie


def nearest(
    placed: Placed, candidates: Sequence[Sequence[BookieId]], locations: Mapping[BookieId, Location], write_quorum: int
) -> list[BookieId]:
    """Return different bookies for the free places, each with as few others of its machine, then of its rack, beside
    it as the ones before leave. There are as many candidates of each place as places at least."""
    trial, chosen = list(placed), list[BookieId]()
    places = [place for place, location in enumerate(placed) if location is None]
    compares = sum(map(len, candidates[: len(places)])) <= MOST_COMPARISONS
    for place, bookies in zip(places, candidates, strict=True):
        near = [trial[other] for other in neighbours(place, len(trial), write_quorum)] if compares else []
        free = [bookie for bookie in bookies if bookie not in chosen]
        best = min(free, key=lambda bookie: _conflicts(locations[bookie], near))  # called at once
        trial[place] = locations[best]
        chosen.append(best)
    return chosen


def _conflicts(location: Location, near: Placed) -> tuple[int, int]:
    others = [other for other in near if other is not None]
    machines = sum(other.machine == location.machine for other in others)
    return machines, sum(other.rack == location.rack for other in others)


def keeps(placed: Placed, rules: Sequence[Rule], write_quorum: int) -> bool:
    """Whether a whole ensemble keeps all rules."""
    return all(rule(placed, place, write_quorum) for place in range(len(placed)) for rule in rules)


def kept(placed: Placed, rules: Sequence[Rule], write_quorum: int) -> list[int]:
    """Return at how many places of an ensemble each rule is kept: the greater, the better it lies."""
    return [sum(rule(placed, place, write_quorum) for place in range(len(placed))) for rule in rules]
