"""When a topic's route is asked for again because a broker left it."""

from __future__ import annotations

from tallystick.rocketmq.client.absences import FIRST_PAUSE_S, MAX_PLACES, AbsencesCore
from tallystick.rocketmq.client.topic import Topic

BOTH = Topic("T", (), (), {"a": {0: "a:1", 1: "a:2"}})
SLAVE = Topic("T", (), (), {"a": {1: "a:2"}})


def test_nothing_is_missing_from_a_first_route_nor_from_one_that_grew() -> None:
    absences = AbsencesCore(30.0)
    absences.route_found(SLAVE, None, 0.0)
    assert absences.pause_s("T", 0.0) is None
    absences.route_found(BOTH, SLAVE, 1.0)
    assert absences.pause_s("T", 1.0) is None


def test_a_broker_that_left_is_looked_for_until_its_place_is_taken() -> None:
    absences = AbsencesCore(30.0)
    absences.route_found(SLAVE, BOTH, 0.0)
    assert absences.pause_s("T", 0.0) == FIRST_PAUSE_S
    absences.route_found(SLAVE, SLAVE, 1.0)
    assert absences.pause_s("T", 1.0) == FIRST_PAUSE_S
    assert absences.pause_s("other", 1.0) is None
    absences.route_found(Topic("T", (), (), {"a": {0: "elsewhere:1", 1: "a:2"}}), SLAVE, 2.0)
    assert absences.pause_s("T", 2.0) is None


def test_what_is_away_for_long_is_looked_for_less_often_and_then_as_usual() -> None:
    absences, now, pauses = AbsencesCore(30.0), 0.0, list[float]()
    absences.route_found(SLAVE, BOTH, now)
    while (pause_s := absences.pause_s("T", now)) is not None:
        pauses.append(pause_s)
        now += pause_s
        absences.route_found(SLAVE, SLAVE, now)
    assert pauses == sorted(pauses) and pauses[0] == FIRST_PAUSE_S < pauses[-1] < 30.0
    assert 200 < now < 300 and len(pauses) < 50
    absences.route_found(SLAVE, SLAVE, now)
    assert absences.pause_s("T", now) is None


def test_one_that_leaves_while_another_is_away_is_looked_for_at_once() -> None:
    absences = AbsencesCore(30.0)
    absences.route_found(SLAVE, BOTH, 0.0)
    absences.route_found(Topic("T", (), (), {}), SLAVE, 100.0)
    assert absences.pause_s("T", 100.0) == FIRST_PAUSE_S
    absences.route_found(SLAVE, Topic("T", (), (), {}), 101.0)
    assert absences.pause_s("T", 101.0) == FIRST_PAUSE_S, "the first is away still"
    absences.route_found(BOTH, SLAVE, 102.0)
    assert absences.pause_s("T", 102.0) is None


def test_routes_that_name_others_each_time_fill_no_memory() -> None:
    absences, before = AbsencesCore(30.0), BOTH
    for turn in range(20):
        route = Topic("T", (), (), {f"{turn}": dict.fromkeys(range(MAX_PLACES // 2), "x:1")})
        absences.route_found(route, before, 0.0)
        before = route
    assert len(absences._by_topic["T"].places) <= MAX_PLACES
