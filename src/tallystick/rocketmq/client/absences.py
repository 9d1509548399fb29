"""Brokers that left a topic's route, and when the route is asked for again: a core.

A broker that restarts is away for a second, and a route is usually asked for every half minute: for so long the members
of a group would not know that the broker is back, while members that come then ask it who is in the group. A broker
that stays away is looked for less and less often, until the usual requests are often enough.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tallystick.rocketmq.client.topic import Topic

FIRST_PAUSE_S = 1.0
PART = 8  # of the time since a broker left that one question comes after another
MAX_PLACES = 1000  # of one topic: name servers may name any number of brokers

_Place = tuple[str, int]  # a broker set and a broker's id in it


@dataclass(slots=True)
class _Absence:
    places: Set[_Place]
    since: float  # when the last of them left


class AbsencesCore:
    """The places in broker sets, by topic, that had a broker and have none now."""

    def __init__(self, usual_s: float) -> None:
        """``usual_s`` is the time between two requests for a route that lacks no broker."""
        self._usual_s = usual_s
        self._by_topic: dict[str, _Absence] = {}

    def route_found(self, topic: Topic, former: Topic | None, now: float) -> None:
        """A name server gave the route of ``topic``; ``former`` is the route before it."""
        places = _places(topic)
        departures = _places(former) - places if former is not None else frozenset[_Place]()
        absence = self._by_topic.get(topic.name)
        rest = absence.places - places if absence is not None else frozenset[_Place]()
        if departures:
            both = departures | rest
            self._by_topic[topic.name] = _Absence(both if len(both) <= MAX_PLACES else departures, now)
        elif absence is not None and rest:
            absence.places = rest
        else:
            self._by_topic.pop(topic.name, None)

    def pause_s(self, name: str, now: float) -> float | None:
        """Returns how long to wait before the route is asked for again. Returns None if it lacks no broker, or if
        brokers are away for so long that the usual requests are often enough."""
        absence = self._by_topic.get(name)
        if absence is None:
            return None
        pause_s = max(FIRST_PAUSE_S, (now - absence.since) / PART)
        if pause_s < self._usual_s:
            return pause_s
        del self._by_topic[name]
        return None


def _places(topic: Topic) -> frozenset[_Place]:
    return frozenset((broker, id) for broker, ids in topic.addresses.items() for id in ids)
