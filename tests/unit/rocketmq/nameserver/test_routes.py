from __future__ import annotations

from dataclasses import replace

import pytest

from support.announcing import announcement
from tallystick.rocketmq.nameserver import routes as routes_module
from tallystick.rocketmq.nameserver.routes import Registered, Routes
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig


def addresses(routes: Routes, topic: str = "T1") -> dict[int, str]:
    route = routes.route(topic)
    assert route is not None
    return route.brokers[0].addresses


def perm(routes: Routes, topic: str = "T1") -> int:
    route = routes.route(topic)
    assert route is not None
    return route.queues[0].perm


def with_both() -> Routes:
    routes = Routes()
    routes.register(announcement(0), "master", 0)
    routes.register(announcement(1), "slave", 0)
    return routes


def test_a_master_brings_its_topics_and_a_slave_only_its_address() -> None:
    routes = Routes()
    routes.register(announcement(0), "master", 0)
    routes.register(announcement(1, ["T1", "T2", "T3"]), "slave", 0)
    assert routes.topics() == ["T1", "T2"]
    assert addresses(routes) == {0: "b-0:10911", 1: "b-1:10911"}
    assert routes.clusters() == {"c": ["b"]}


def test_a_slave_learns_where_its_master_is_and_a_master_nothing() -> None:
    routes = Routes()
    assert routes.register(announcement(0), "master", 0) == Registered()
    assert routes.register(announcement(1), "slave", 0) == Registered("b-0:10911", "b-0:10912")
    routes.closed("master")
    assert routes.register(announcement(1), "slave", 0) == Registered()


def test_a_first_registration_with_one_topic_is_refused_and_leaves_nothing() -> None:
    routes = Routes()
    assert routes.register(announcement(0, ["T1"]), "master", 0) is None
    assert (routes.broker_sets(), routes.clusters(), routes.topics()) == ({}, {}, [])
    assert routes.register(announcement(0, []), "master", 0) is not None
    assert routes.register(announcement(0, ["T1"], version=2), "master", 0) is not None
    assert routes.topics() == ["T1"]


def test_the_refusal_leaves_the_rest_of_the_set_alone() -> None:
    routes = with_both()
    assert routes.register(announcement(2, ["T1"]), "third", 0) is None
    assert addresses(routes) == {0: "b-0:10911", 1: "b-1:10911"}


def test_topics_change_with_the_version_only() -> None:
    routes = Routes()
    routes.register(announcement(0), "master", 0)
    changed = {name: TopicConfig(name, 8, 8, perm=4) for name in ("T1", "T2")}
    routes.register(announcement(0, changed), "master", 1)
    assert perm(routes) == 6
    routes.register(announcement(0, changed, version=2), "master", 2)
    assert perm(routes) == 4
    routes.register(announcement(0, ["T1", "T2", "T4"], version=2), "master", 3)
    assert routes.topics() == ["T1", "T2", "T4"]  # one that was missing comes even so


def test_a_topic_missing_in_a_registration_stays_unless_told_otherwise() -> None:
    for delete, left in ((False, ["T1", "T2", "T3"]), (True, ["T3"])):
        routes = Routes(delete_missing_topics=delete)
        routes.register(announcement(0), "master", 0)
        routes.register(announcement(0, ["T3"], version=2), "master", 1)
        assert routes.topics() == left


def test_an_address_has_one_id() -> None:
    routes = with_both()
    routes.register(announcement(0, address="b-1:10911", version=2), "slave", 1)
    assert addresses(routes) == {0: "b-1:10911"}


def test_an_id_stays_with_the_higher_state_version() -> None:
    routes = Routes()
    routes.register(announcement(0, state=2), "master", 0)
    assert routes.register(announcement(0, address="old:1", state=1), "old", 0) == Registered()
    assert addresses(routes) == {0: "b-0:10911"}
    assert routes.data_version("c", "old:1") is None
    routes.register(announcement(0, address="new:1", state=2), "new", 0)
    assert addresses(routes) == {0: "new:1"}


def test_the_last_broker_takes_its_topics_along() -> None:
    routes = with_both()
    routes.unregister("c", "b", "b-0:10911")
    assert addresses(routes) == {1: "b-1:10911"}
    assert perm(routes) == 6
    routes.unregister("c", "b", "b-1:10911")
    assert (routes.route("T1"), routes.topics(), routes.broker_sets(), routes.clusters()) == (None, [], {}, {})
    routes.unregister("c", "b", "b-1:10911")


def test_topics_of_two_broker_sets_have_both() -> None:
    routes = with_both()
    routes.register(announcement(0, ["T2", "T3"], name="d"), "other", 0)
    route = routes.route("T2")
    assert route is not None
    assert [queue.broker for queue in route.queues] == ["b", "d"]
    assert routes.topics("c") == ["T1", "T2", "T3"]
    assert routes.topics("nope") == []
    assert routes.clusters() == {"c": ["b", "d"]}
    routes.delete_topic("T2", "nope")
    assert "T2" in routes.topics()
    routes.delete_topic("T2", "c")
    assert routes.topics() == ["T1", "T3"]
    routes.delete_topic("T1")
    assert routes.topics() == ["T3"]


def test_a_closed_connection_unregisters_who_used_it_last() -> None:
    routes = with_both()
    routes.register(announcement(0), "master again", 1)
    assert routes.closed("master") == []
    assert [gone.address for gone in routes.closed("master again")] == ["b-0:10911"]
    assert addresses(routes) == {1: "b-1:10911"}


def test_silence_unregisters_after_the_promised_time() -> None:
    routes = with_both()
    routes.heartbeat("c", "b-1:10911", 60)
    assert routes.expire(120) == []
    assert [gone.address for gone in routes.expire(121)] == ["b-0:10911"]
    assert addresses(routes) == {1: "b-1:10911"}
    routes.heartbeat("c", "nobody", 60)


def test_write_permission_is_wiped_and_given_back() -> None:
    routes = with_both()
    assert routes.set_writeable("b", False) == 2
    assert perm(routes) == 4
    assert routes.set_writeable("b", True) == 2
    assert perm(routes) == 6
    assert routes.set_writeable("nope", True) == 0


def test_acting_masters_lose_write_permission() -> None:
    routes = Routes(acting_masters=True)
    routes.register(announcement(0, acting_master=True), "master", 0)
    routes.register(announcement(1, acting_master=True), "slave", 0)
    routes.closed("master")
    assert perm(routes) == 4
    assert addresses(routes) == {0: "b-1:10911"}  # shown in the master's place
    assert routes.members("b") == {1: "b-1:10911"}
    routes.register(announcement(1, ["T1", "T5"], version=2, acting_master=True), "slave", 1)
    assert perm(routes, "T5") == 4  # the slave with the lowest id says what the topics are


def test_without_the_setting_a_slave_stays_a_slave() -> None:
    routes = Routes()
    routes.register(announcement(1, acting_master=True), "slave", 0)
    assert addresses(routes) == {1: "b-1:10911"}


@pytest.mark.parametrize("acting_master", [None, False])
def test_the_topics_of_a_slave_without_master_count_unless_it_is_too_old(acting_master: bool | None) -> None:
    routes = Routes()
    routes.register(announcement(1, acting_master=acting_master), "slave", 0)
    assert routes.topics() == ([] if acting_master is None else ["T1", "T2"])


def test_the_version_is_that_of_the_last_registration() -> None:
    routes = with_both()
    routes.register(announcement(0, version=5), "master", 0)
    assert routes.data_version("c", "b-0:10911") == DataVersion(0, 0, 5)
    assert routes.data_version("c", "nobody") is None


def test_strangers_are_bounded_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "MAX_BROKERS", 3)
    monkeypatch.setattr(routes_module, "MAX_ROUTES", 5)
    routes = Routes()
    for number in range(5):
        one = replace(announcement(0), name=f"b{number}", cluster=f"c{number}", address=f"h:{number}")
        assert (routes.register(one, "stranger", 0) is None) == (number >= 3)
    assert len(routes.broker_sets()) == 3 and list(routes.clusters()) == ["c0", "c1", "c2"]
    assert sum(len(queues) for queues in routes._topics.values()) == 5
    routes.closed("stranger")
    assert (routes.broker_sets(), routes.clusters(), routes.topics()) == ({}, {}, [])
    assert (routes._live, routes._links, routes._route_count) == ({}, {}, 0)
    monkeypatch.setattr(routes_module, "MAX_LINK_BROKERS", 2)
    taken = [routes.register(replace(announcement(0), name=f"b{n}", address=f"h:{n}"), "one", 0) for n in range(3)]
    assert [one is not None for one in taken] == [True, True, False]
    assert routes.register(announcement(0), "master", 0) is not None


def test_a_set_is_in_the_cluster_of_its_last_registration() -> None:
    routes = Routes()
    for number in range(3):
        routes.register(replace(announcement(0), cluster=f"c{number}"), "link", 0)
    assert routes.clusters() == {"c2": ["b"]}
    routes.unregister("whichever", "b", announcement(0).address)
    assert routes.clusters() == {} and routes.topics() == []


def test_what_is_kept_for_a_connection_is_counted_until_it_goes() -> None:
    routes = Routes()
    routes.register(announcement(0, ["T" * 500, "S" * 500]), "master", 0)
    routes.register(announcement(1), "slave", 0)
    assert 1000 < routes.held_bytes("master") < 2000  # the topics of a set are counted once
    assert 0 < routes.held_bytes("slave") < 500
    routes.closed("master")
    assert routes.held_bytes("master") == 0
    assert 1000 < routes.held_bytes("slave") < 2000  # they live on with the slave
    routes.delete_topic("T" * 500)
    assert 500 < routes.held_bytes("slave") < 1000
    routes.closed("slave")
    assert routes.held_bytes("slave") == 0


def test_a_broker_that_changes_its_name_leaves_no_set_behind() -> None:
    """Names without end over one connection were kept for ever: each was the same broker."""
    routes = Routes()
    for number in range(3):
        routes.register(announcement(0, name=f"b{number}", address="b:10911"), "link", 0)
    assert list(routes.broker_sets()) == ["b2"]
    routes.closed("link")
    assert not routes.broker_sets() and not routes.topics() and not routes.clusters()


def host_of(link: object) -> str:
    return str(link).partition(":")[0]


def test_no_host_takes_the_routes_of_all_and_who_gets_less_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's routes left an honest broker none: it was answered that it is registered."""
    monkeypatch.setattr(routes_module, "MAX_HOST_ROUTES", 3)
    routes = Routes(host_of=host_of)
    stranger = routes.register(announcement(0, ["X1", "X2"], name="x"), "there:1", 0)
    assert stranger == Registered()
    stranger = routes.register(announcement(0, ["X3", "X4", "X5"], name="y"), "there:2", 0)
    assert stranger == Registered(left_out=2)
    assert routes.register(announcement(0, ["T1", "T2", "T3"]), "here:1", 0) == Registered()
    assert routes.topics() == ["X1", "X2", "X3", "T1", "T2", "T3"]
    routes.delete_topic("X1")
    assert routes.register(announcement(0, ["X3", "X4", "X5"], name="y"), "there:2", 1) == Registered(left_out=1)
    routes.closed("there:1")
    routes.closed("there:2")
    assert routes.register(announcement(0, ["X1", "X2", "X3"], name="z"), "there:3", 2) == Registered()
    routes.closed("there:3")
    routes.closed("here:1")
    assert (dict(routes._host_routes), dict(routes._host_brokers), routes._route_count) == ({}, {}, 0)


def test_routes_count_for_the_host_whose_broker_says_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "MAX_HOST_ROUTES", 2)
    routes = Routes(host_of=host_of)
    routes.register(announcement(0), "one:1", 0)
    routes.register(announcement(1), "two:1", 0)
    assert dict(routes._host_routes) == {"one": 2}, "a slave says nothing of topics"
    routes.closed("one:1")
    routes.register(announcement(0, address="new:10911"), "three:1", 1)
    assert dict(routes._host_routes) == {"three": 2}
    assert routes.register(announcement(0, name="other"), "one:2", 1) == Registered()
    routes.register(announcement(0, address="new:10911"), "one:3", 1)
    assert dict(routes._host_routes) == {"one": 4}, "what is known stays where its broker moves to"


def test_no_host_takes_the_places_of_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "MAX_HOST_BROKERS", 2)
    routes = Routes(host_of=host_of)
    for number in range(2):
        assert routes.register(announcement(0, name=f"x{number}"), f"there:{number}", 0) is not None
    assert routes.is_full("there:2") and routes.register(announcement(0, name="x2"), "there:2", 0) is None
    assert routes.register(announcement(0, name="x1"), "there:3", 0) is not None, "it is known"
    assert routes.register(announcement(0), "here:1", 0) is not None
    routes.closed("there:0")
    assert routes.register(announcement(0, name="x2"), "there:2", 0) is not None
