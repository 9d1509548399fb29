from __future__ import annotations

from dataclasses import replace

import pytest

from support.announcing import announcement
from tallystick.codec.steps import finished
from tallystick.rocketmq.nameserver import queues as queues_module
from tallystick.rocketmq.nameserver import routes as routes_module
from tallystick.rocketmq.nameserver.live_brokers import Announcement
from tallystick.rocketmq.nameserver.routes import RegistrationOutcome, RoutesCore
from tallystick.rocketmq.wire.values import DataVersion, TopicConfig


def register(routes: RoutesCore, announced: Announcement, link: object, now: float) -> RegistrationOutcome | None:
    return finished(routes.register(announced, link, now))


def topics(routes: RoutesCore, cluster: str | None = None) -> list[str]:
    return finished(routes.topics(cluster))


def set_writeable(routes: RoutesCore, name: str, writeable: bool) -> int:
    return finished(routes.set_writeable(name, writeable))


def addresses(routes: RoutesCore, topic: str = "T1") -> dict[int, str]:
    route = finished(routes.route(topic))
    assert route is not None
    return route.brokers[0].addresses


def perm(routes: RoutesCore, topic: str = "T1") -> int:
    route = finished(routes.route(topic))
    assert route is not None
    return route.queues[0].perm


def with_both() -> RoutesCore:
    routes = RoutesCore()
    register(routes, announcement(0), "master", 0)
    register(routes, announcement(1), "slave", 0)
    return routes


def test_a_master_brings_its_topics_and_a_slave_only_its_address() -> None:
    routes = RoutesCore()
    register(routes, announcement(0), "master", 0)
    register(routes, announcement(1, ["T1", "T2", "T3"]), "slave", 0)
    assert topics(routes) == ["T1", "T2"]
    assert addresses(routes) == {0: "b-0:10911", 1: "b-1:10911"}
    assert routes.sets.clusters() == {"c": ["b"]}


def test_a_slave_learns_where_its_master_is_and_a_master_nothing() -> None:
    routes = RoutesCore()
    assert register(routes, announcement(0), "master", 0) == RegistrationOutcome()
    assert register(routes, announcement(1), "slave", 0) == RegistrationOutcome("b-0:10911", "b-0:10912")
    list(routes.closed("master"))
    assert register(routes, announcement(1), "slave", 0) == RegistrationOutcome()


def test_a_first_registration_with_one_topic_is_refused_and_leaves_nothing() -> None:
    routes = RoutesCore()
    assert register(routes, announcement(0, ["T1"]), "master", 0) is None
    assert (routes.sets.routes(), routes.sets.clusters(), topics(routes)) == ({}, {}, [])
    assert register(routes, announcement(0, []), "master", 0) is not None
    assert register(routes, announcement(0, ["T1"], version=2), "master", 0) is not None
    assert topics(routes) == ["T1"]


def test_the_refusal_leaves_the_rest_of_the_set_alone() -> None:
    routes = with_both()
    assert register(routes, announcement(2, ["T1"]), "third", 0) is None
    assert addresses(routes) == {0: "b-0:10911", 1: "b-1:10911"}


def test_topics_change_with_the_version_only() -> None:
    routes = RoutesCore()
    register(routes, announcement(0), "master", 0)
    changed = {name: TopicConfig(name, 8, 8, perm=4) for name in ("T1", "T2")}
    register(routes, announcement(0, changed), "master", 1)
    assert perm(routes) == 6
    register(routes, announcement(0, changed, version=2), "master", 2)
    assert perm(routes) == 4
    register(routes, announcement(0, ["T1", "T2", "T4"], version=2), "master", 3)
    assert topics(routes) == ["T1", "T2", "T4"]  # one that was missing comes even so


def test_a_topic_missing_in_a_registration_stays_unless_told_otherwise() -> None:
    for delete, left in ((False, ["T1", "T2", "T3"]), (True, ["T3"])):
        routes = RoutesCore(delete_missing_topics=delete)
        register(routes, announcement(0), "master", 0)
        register(routes, announcement(0, ["T3"], version=2), "master", 1)
        assert topics(routes) == left


def test_an_address_has_one_id() -> None:
    routes = with_both()
    register(routes, announcement(0, address="b-1:10911", version=2), "slave", 1)
    assert addresses(routes) == {0: "b-1:10911"}


def test_an_id_stays_with_the_higher_state_version() -> None:
    routes = RoutesCore()
    register(routes, announcement(0, state=2), "master", 0)
    assert register(routes, announcement(0, address="old:1", state=1), "old", 0) == RegistrationOutcome()
    assert addresses(routes) == {0: "b-0:10911"}
    assert routes.data_version("c", "old:1") is None
    register(routes, announcement(0, address="new:1", state=2), "new", 0)
    assert addresses(routes) == {0: "new:1"}


def test_the_last_broker_takes_its_topics_along() -> None:
    routes = with_both()
    routes.unregister("c", "b", "b-0:10911")
    assert addresses(routes) == {1: "b-1:10911"}
    assert perm(routes) == 6
    routes.unregister("c", "b", "b-1:10911")
    assert (finished(routes.route("T1")), topics(routes), routes.sets.routes(), routes.sets.clusters()) == (
        None,
        [],
        {},
        {},
    )
    routes.unregister("c", "b", "b-1:10911")


def test_topics_of_two_broker_sets_have_both() -> None:
    routes = with_both()
    register(routes, announcement(0, ["T2", "T3"], name="d"), "other", 0)
    route = finished(routes.route("T2"))
    assert route is not None
    assert [queue.broker for queue in route.queues] == ["b", "d"]
    assert topics(routes, "c") == ["T1", "T2", "T3"]
    assert topics(routes, "nope") == []
    assert routes.sets.clusters() == {"c": ["b", "d"]}
    routes.delete_topic("T2", "nope")
    assert "T2" in topics(routes)
    routes.delete_topic("T2", "c")
    assert topics(routes) == ["T1", "T3"]
    routes.delete_topic("T1")
    assert topics(routes) == ["T3"]


def test_a_closed_connection_unregisters_who_used_it_last() -> None:
    routes = with_both()
    register(routes, announcement(0), "master again", 1)
    assert list(routes.closed("master")) == []
    assert [gone.address for gone in routes.closed("master again")] == ["b-0:10911"]
    assert addresses(routes) == {1: "b-1:10911"}


def test_brokers_of_a_connection_that_ended_go_one_by_one_and_who_moved_meanwhile_stays() -> None:
    """All connections that ended in one turn, with 10,000 brokers, were one step of 144 ms."""
    routes, names = RoutesCore(), [f"b{number}" for number in range(4)]
    for name in names:
        register(routes, announcement(0, name=name), "gone", 0)
    steps = routes.closed("gone")
    assert next(steps).name == "b0"
    assert len(routes.sets) == 3
    register(routes, announcement(0, name="b2"), "back", 1)
    assert [gone.name for gone in steps] == ["b1", "b3"]
    assert list(routes.sets.routes()) == ["b2"] and list(routes.closed("gone")) == []
    assert [gone.name for gone in routes.closed("back")] == ["b2"]


def test_silence_unregisters_after_the_promised_time() -> None:
    routes = with_both()
    routes.heartbeat("c", "b-1:10911", 60)
    assert routes.expire(120) == []
    assert [gone.address for gone in routes.expire(121)] == ["b-0:10911"]
    assert addresses(routes) == {1: "b-1:10911"}
    routes.heartbeat("c", "nobody", 60)


def test_write_permission_is_wiped_and_given_back() -> None:
    routes = with_both()
    assert set_writeable(routes, "b", False) == 2
    assert perm(routes) == 4
    assert set_writeable(routes, "b", True) == 2
    assert perm(routes) == 6
    assert set_writeable(routes, "nope", True) == 0


def test_acting_masters_lose_write_permission() -> None:
    routes = RoutesCore(acting_masters=True)
    register(routes, announcement(0, acting_master=True), "master", 0)
    register(routes, announcement(1, acting_master=True), "slave", 0)
    list(routes.closed("master"))
    assert perm(routes) == 4
    assert addresses(routes) == {0: "b-1:10911"}  # shown in the master's place
    assert routes.sets.members("b") == {1: "b-1:10911"}
    register(routes, announcement(1, ["T1", "T5"], version=2, acting_master=True), "slave", 1)
    assert perm(routes, "T5") == 4  # the slave with the lowest id says what the topics are


def test_without_the_setting_a_slave_stays_a_slave() -> None:
    routes = RoutesCore()
    register(routes, announcement(1, acting_master=True), "slave", 0)
    assert addresses(routes) == {1: "b-1:10911"}


@pytest.mark.parametrize("acting_master", [None, False])
def test_the_topics_of_a_slave_without_master_count_unless_it_is_too_old(acting_master: bool | None) -> None:
    routes = RoutesCore()
    register(routes, announcement(1, acting_master=acting_master), "slave", 0)
    assert topics(routes) == ([] if acting_master is None else ["T1", "T2"])


def test_the_version_is_that_of_the_last_registration() -> None:
    routes = with_both()
    register(routes, announcement(0, version=5), "master", 0)
    assert routes.data_version("c", "b-0:10911") == DataVersion(0, 0, 5)
    assert routes.data_version("c", "nobody") is None


def test_a_set_is_in_the_cluster_of_its_last_registration() -> None:
    routes = RoutesCore()
    for number in range(3):
        register(routes, replace(announcement(0), cluster=f"c{number}"), "link", 0)
    assert routes.sets.clusters() == {"c2": ["b"]}
    routes.unregister("whichever", "b", announcement(0).address)
    assert routes.sets.clusters() == {} and topics(routes) == []


def test_what_is_kept_for_a_connection_is_counted_until_it_goes() -> None:
    routes = RoutesCore()
    register(routes, announcement(0, ["T" * 500, "S" * 500]), "master", 0)
    register(routes, announcement(1), "slave", 0)
    assert 1000 < routes.held_bytes("master") < 2000  # the topics of a set are counted once
    assert 0 < routes.held_bytes("slave") < 500
    list(routes.closed("master"))
    assert routes.held_bytes("master") == 0
    assert 1000 < routes.held_bytes("slave") < 2000  # they live on with the slave
    routes.delete_topic("T" * 500)
    assert 500 < routes.held_bytes("slave") < 1000
    list(routes.closed("slave"))
    assert routes.held_bytes("slave") == 0


def test_a_broker_that_changes_its_name_leaves_no_set_behind() -> None:
    """Names without end over one connection were kept for ever: each was the same broker."""
    routes = RoutesCore()
    for number in range(3):
        register(routes, announcement(0, name=f"b{number}", address="b:10911"), "link", 0)
    assert list(routes.sets.routes()) == ["b2"]
    list(routes.closed("link"))
    assert not routes.sets.routes() and not topics(routes) and not routes.sets.clusters()


MANY = [f"T{number}" for number in range(3 * queues_module.STEP_TOPICS)]


def test_the_topics_of_a_registration_are_taken_in_steps() -> None:
    """30,000 were a turn of the loop of a fifth of a second."""
    routes = RoutesCore()
    steps = routes.register(announcement(0, MANY), "master", 0)
    for count in (1, 2, 3):
        next(steps)
        assert len(topics(routes)) == count * queues_module.STEP_TOPICS
        assert routes.data_version("c", "b-0:10911") is None, "nobody is told that it has all"
    assert finished(steps) == RegistrationOutcome()
    assert routes.data_version("c", "b-0:10911") == DataVersion(0, 0, 1)


@pytest.mark.parametrize("how", ["its connection ends", "it says so", "it is registered again", "another has its set"])
def test_a_registration_that_is_overtaken_ends(how: str) -> None:
    routes = RoutesCore()
    steps = routes.register(announcement(0, MANY), "master", 0)
    next(steps)
    if how == "its connection ends":
        list(routes.closed("master"))
    elif how == "it says so":
        routes.unregister("c", "b", "b-0:10911")
    elif how == "it is registered again":
        register(routes, announcement(0, ["T1", "T2"], version=2), "again", 0)
    else:
        register(routes, announcement(0, ["T1", "T2"], address="other:10911"), "other", 0)
        list(routes.closed("other"))
    before = topics(routes)
    assert finished(steps) is None
    assert topics(routes) == before
    again = how == "it is registered again"
    assert routes.data_version("c", "b-0:10911") == (DataVersion(0, 0, 2) if again else None)
    list(routes.closed("master"))
    list(routes.closed("again"))
    assert (topics(routes), len(routes._queues), dict(routes._queues._by_host)) == ([], 0, {})


def test_a_change_that_was_not_taken_whole_is_taken_the_next_time() -> None:
    """Whoever registers again with the same version has changed nothing, or so it seems."""
    routes = RoutesCore()
    register(routes, announcement(0, MANY), "master", 0)
    changed = {name: TopicConfig(name, 8, 8, perm=4) for name in MANY}
    next(routes.register(announcement(0, changed, version=2), "master", 1))
    assert (perm(routes, MANY[0]), perm(routes, MANY[-1])) == (4, 6)
    register(routes, announcement(0, changed, version=2), "master", 2)
    assert perm(routes, MANY[-1]) == 4


def test_topics_that_a_registration_lacks_go_in_steps() -> None:
    routes = RoutesCore(delete_missing_topics=True)
    register(routes, announcement(0, MANY), "master", 0)
    steps = routes.register(announcement(0, ["T1", "T2"], version=2), "master", 1)
    next(steps)
    assert 2 < len(topics(routes)) < len(MANY)
    finished(steps)
    assert topics(routes) == ["T1", "T2"]


def test_silent_brokers_are_unregistered_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "MOST_EXPIRED", 2)
    routes = RoutesCore()
    for number in range(3):
        register(routes, announcement(0, name=f"b{number}"), number, 0)
    assert [len(routes.expire(500)) for _ in range(3)] == [2, 1, 0]


def again(
    routes: RoutesCore, digest: bytes = b"d", link: str = "master", address: str = "b-0:10911"
) -> RegistrationOutcome | None:
    return routes.registered_again("c", address, digest, link, 200)


def test_a_broker_that_says_the_same_again_is_recognized() -> None:
    """To read and take in 30,000 topics takes a hundred times as long."""
    routes = RoutesCore()
    register(routes, replace(announcement(0), digest=b"d"), "master", 0)
    register(routes, replace(announcement(1), digest=b"s"), "slave", 0)
    register(routes, replace(announcement(0), digest=b"d"), "master", 0)
    assert again(routes) == RegistrationOutcome()
    assert again(routes, b"s", "slave", "b-1:10911") == RegistrationOutcome("b-0:10911", "b-0:10912")
    assert routes.expire(300) == [], "it was heard"
    for other in ({"digest": b"e"}, {"digest": b""}, {"link": "slave"}, {"address": "nobody"}):
        assert again(routes, **other) is None


@pytest.mark.parametrize("what", ["deleted", "left", "joined", "gone", "restored", "another cluster", "left out"])
def test_a_broker_whose_set_has_changed_is_registered_anew(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = RoutesCore()
    if what == "left out":
        monkeypatch.setattr(queues_module, "MAX_ROUTES", 1)
    register(routes, replace(announcement(0), digest=b"d"), "master", 0)
    assert (again(routes) is None) == (what == "left out")
    if what == "deleted":
        routes.delete_topic("T1")
    elif what == "joined":
        register(routes, announcement(1), "slave", 0)
    elif what == "left":
        register(routes, announcement(1), "slave", 0)
        register(routes, replace(announcement(0), digest=b"d"), "master", 0)
        list(routes.closed("slave"))
    elif what in ("gone", "restored"):
        register(routes, announcement(0, address="other:10911"), "other", 0)
        list(routes.closed("other"))
        if what == "restored":
            register(routes, announcement(0, address="third:10911"), "third", 0)
    elif what == "another cluster":
        register(routes, announcement(0, cluster="c2"), "other", 0)
    assert again(routes) is None
    assert register(routes, replace(announcement(0), digest=b"d"), "master", 0) is not None
