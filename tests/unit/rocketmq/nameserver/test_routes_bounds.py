"""How much of a name server's routes brokers of one host, connection, name or topic can have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.announcing import announcement
from tallystick.codec.steps import Steps, finished
from tallystick.rocketmq.nameserver import live_brokers
from tallystick.rocketmq.nameserver import queues as queues_module
from tallystick.rocketmq.nameserver import routes as routes_module
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.routes import RegistrationOutcome, RoutesCore
from tallystick.rocketmq.wire.values import TopicConfig


def register(routes: RoutesCore, announced: Announcement, link: object, now: float) -> RegistrationOutcome | None:
    return finished(routes.register(announced, link, now))


def topics(routes: RoutesCore, cluster: str | None = None) -> list[str]:
    return finished(routes.topics(cluster))


def test_strangers_are_bounded_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_brokers, "MAX_BROKERS", 3)
    monkeypatch.setattr(queues_module, "MAX_ROUTES", 5)
    routes = RoutesCore()
    for number in range(5):
        one = replace(announcement(0), name=f"b{number}", cluster=f"c{number}", address=f"h:{number}")
        assert (register(routes, one, "stranger", 0) is None) == (number >= 3)
    assert len(routes.sets.routes()) == 3 and list(routes.sets.clusters()) == ["c0", "c1", "c2"]
    assert len(routes._queues) == 5
    list(routes.closed("stranger"))
    assert (routes.sets.routes(), routes.sets.clusters(), topics(routes)) == ({}, {}, [])
    assert (routes._live._live, routes._live._links, len(routes._queues)) == ({}, {}, 0)
    monkeypatch.setattr(live_brokers, "MAX_LINK_BROKERS", 2)
    taken = [register(routes, replace(announcement(0), name=f"b{n}", address=f"h:{n}"), "one", 0) for n in range(3)]
    assert [one is not None for one in taken] == [True, True, False]
    assert register(routes, announcement(0), "master", 0) is not None


def host_of(link: object) -> str:
    return str(link).partition(":")[0]


@pytest.mark.rule("N12")
def test_no_host_takes_the_routes_of_all_and_who_gets_less_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's routes left an honest broker none: it was answered that it is registered."""
    monkeypatch.setattr(queues_module, "MAX_HOST_ROUTES", 3)
    routes = RoutesCore(host_of=host_of)
    stranger = register(routes, announcement(0, ["X1", "X2"], name="x"), "there:1", 0)
    assert stranger == RegistrationOutcome()
    stranger = register(routes, announcement(0, ["X3", "X4", "X5"], name="y"), "there:2", 0)
    assert stranger == RegistrationOutcome(left_out=2)
    assert register(routes, announcement(0, ["T1", "T2", "T3"]), "here:1", 0) == RegistrationOutcome()
    assert topics(routes) == ["X1", "X2", "X3", "T1", "T2", "T3"]
    routes.delete_topic("X1")
    assert register(routes, announcement(0, ["X3", "X4", "X5"], name="y"), "there:2", 1) == RegistrationOutcome(
        left_out=1
    )
    list(routes.closed("there:1"))
    list(routes.closed("there:2"))
    assert register(routes, announcement(0, ["X1", "X2", "X3"], name="z"), "there:3", 2) == RegistrationOutcome()
    list(routes.closed("there:3"))
    list(routes.closed("here:1"))
    assert (dict(routes._queues._by_host), dict(routes._live._host_brokers), len(routes._queues)) == ({}, {}, 0)


def test_routes_count_for_the_host_whose_broker_says_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module, "MAX_HOST_ROUTES", 2)
    routes = RoutesCore(host_of=host_of)
    register(routes, announcement(0), "one:1", 0)
    register(routes, announcement(1), "two:1", 0)
    assert dict(routes._queues._by_host) == {"one": 2}, "a slave says nothing of topics"
    list(routes.closed("one:1"))
    register(routes, announcement(0, address="new:10911"), "three:1", 1)
    assert dict(routes._queues._by_host) == {"three": 2}
    assert register(routes, announcement(0, name="other"), "one:2", 1) == RegistrationOutcome()
    register(routes, announcement(0, address="new:10911"), "one:3", 1)
    assert dict(routes._queues._by_host) == {"one": 4}, "what is known stays where its broker moves to"


def test_no_host_takes_the_places_of_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_brokers, "MAX_HOST_BROKERS", 2)
    routes = RoutesCore(host_of=host_of)
    for number in range(2):
        assert register(routes, announcement(0, name=f"x{number}"), f"there:{number}", 0) is not None
    assert routes.is_full("there:2", announcement(0, name="x2"))
    assert register(routes, announcement(0, name="x2"), "there:2", 0) is None
    assert register(routes, announcement(0, name="x1"), "there:3", 0) is not None, "it is known"
    assert register(routes, announcement(0), "here:1", 0) is not None
    list(routes.closed("there:0"))
    assert register(routes, announcement(0, name="x2"), "there:2", 0) is not None


def test_the_ids_of_a_name_are_bounded_and_its_master_always_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ids of one name were gone through with each registration, each broker that went and each scan,
    and all clients of a topic got their addresses."""
    monkeypatch.setattr(routes_module, "MAX_SET_IDS", 3)
    routes = RoutesCore()
    taken = [register(routes, announcement(number), number, 0) for number in (1, 2, 3, 4, 0)]
    assert [one is not None for one in taken] == [True, True, True, False, True]
    assert list(routes.sets.members("b")) == [0, 1, 2, 3]
    assert register(routes, announcement(9, address="b-2:10911"), 2, 0) is not None, "it leaves another id"
    assert register(routes, announcement(3, address="new:10911"), 5, 0) is not None, "it takes the id of another"
    assert register(routes, announcement(4), 4, 0) is None
    list(routes.closed(5))
    assert register(routes, announcement(4), 4, 0) is not None
    assert list(routes.sets.members("b")) == [0, 1, 4, 9]
    assert register(routes, announcement(0, name="other"), 6, 0) is not None
    assert register(routes, announcement(5, address="b-0:10911"), 0, 0) is None, "a master that is none is one more"


@pytest.mark.parametrize("counts", [(65_537, 4), (4, 2**31 - 1), (-1, 4)])
def test_a_topic_of_more_queues_than_there_can_be_is_left_out(counts: tuple[int, int]) -> None:
    """Clients make an object of each queue."""
    routes = RoutesCore()
    told = announcement(0, {"T": TopicConfig("T", *counts), "U": TopicConfig("U", 65_536, 4)})
    assert register(routes, told, "master", 0) == RegistrationOutcome(left_out=1)
    assert topics(routes) == ["U"]


def test_the_queues_of_a_topic_are_bounded_over_all_sets_and_those_with_most_are_left_out() -> None:
    """One stranger's 65,536 queues took the topic from all clients, also where it was there first."""

    def having(name: str, count: int, version: int = 1) -> RegistrationOutcome | None:
        config = {"T": TopicConfig("T", count, 4), "own": TopicConfig("own", 4, 4)}
        return register(routes, announcement(0, config, name=name, version=version), name, 0)

    def counts() -> dict[str, int]:
        route = finished(routes.route("T"))
        return {queue.broker: queue.count for queue in route.queues} if route is not None else {}

    swept: list[Steps[None]] = []
    routes, none_left = RoutesCore(later=swept.append), RegistrationOutcome(left_out=1)
    assert having("x", 65_536) == RegistrationOutcome() == having("a", 8) == having("b", 4)
    assert counts() == {"a": 8, "b": 4} and sorted(topics(routes)) == ["T", "own"]
    assert having("x", 65_536) == none_left and having("y", 65_537) == none_left
    assert having("b", 65_529, 2) == none_left and counts() == {"a": 8, "b": 4}, "what it had stays"
    list(routes.closed("a"))
    assert having("b", 65_529, 2) == RegistrationOutcome() and counts() == {"b": 65_529}, (
        "taken with the room, not swept yet"
    )
    assert having("a", 7) == RegistrationOutcome() and having("c", 65_529) == none_left, "of equal ones the first stays"
    assert having("a", 8, 2) == RegistrationOutcome() and counts() == {"a": 8}
    assert having("b", 5, 3) == RegistrationOutcome() and counts() == {"a": 8, "b": 5}
    for name in "abcxy":
        list(routes.closed(name))
    for steps in swept:
        finished(steps)
    assert not routes._queues._queues


def test_a_topic_that_many_sets_went_from_is_a_step_of_its_own() -> None:
    """Whoever needs their room looks through all of them, once."""
    routes = RoutesCore(later=lambda steps: None)
    names = [f"T{number}" for number in range(10)]
    assert register(routes, announcement(0, {name: TopicConfig(name, 65_536, 4) for name in names}), "x", 0)
    list(routes.closed("x"))
    assert len(list(routes.register(announcement(0, names), "x", 0))) == len(names)
    assert not any(routes._queues.is_wide(name) for name in names), "there is room in them"
