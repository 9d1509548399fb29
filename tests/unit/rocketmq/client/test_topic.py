from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.rocketmq.client.topic import BrokerChoice, QueueChoice, Topic, share
from tallystick.rocketmq.wire.values import BrokerRoute, MessageQueue, QueueRoute, TopicRoute


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


def test_queues_of_a_route() -> None:
    brokers = [
        BrokerRoute("c", "b2", {0: "b2-0"}),
        BrokerRoute("c", "b1", {1: "b1-1"}),
        BrokerRoute("c", "b3", {0: "x"}),
    ]
    routes = [
        QueueRoute("b2", 3, 2, 6),
        QueueRoute("b1", 2, 2, 6),
        QueueRoute("b3", 1, 1, 4),
        QueueRoute("gone", 1, 1, 6),
    ]
    topic = Topic.of_route("T", TopicRoute(brokers, routes))
    assert topic.writable == tuple(queues(2, "b2"))  # b1 has no master, b3 no permission
    assert topic.readable == (*queues(2, "b1"), *queues(3, "b2"), *queues(1, "b3"))
    assert (topic.master("b2"), topic.master("b1"), topic.master("nope")) == ("b2-0", None, None)


@pytest.mark.parametrize(
    ("counts", "taken"),
    [
        ((4, 2**31 - 1), "a"),
        ((65_536, 4), "b"),
        ((32_768, 32_768), "ab"),
        ((40_000, 40_000), "a"),
        ((30_000, 30_000, 30_000), "ab"),
        ((-(2**31), 65_536, 65_536), "ab"),
    ],
)
def test_of_more_queues_than_a_client_can_keep_sets_with_the_most_are_left_out(
    counts: tuple[int, ...], taken: str
) -> None:
    """Anybody who reaches a name server can tell it any number, and each queue is an object here: with none taken, one
    such registration kept all clients from a topic."""
    routes = [QueueRoute(name, count, count, 6) for name, count in zip("abc", counts, strict=False)]
    topic = Topic.of_route("T", TopicRoute([BrokerRoute("c", name, {0: name}) for name in "abc"], routes))
    kept = [queue for route in routes if route.broker in taken for queue in queues(route.count, route.broker)]
    assert (topic.writable, topic.readable) == (tuple(kept), tuple(kept))
    assert topic.left_out == tuple(route.broker for route in routes if route.broker not in taken)


def test_queues_take_turns_past_the_broker_to_avoid() -> None:
    choice = QueueChoice(-1)
    both = [*queues(2, "b1"), *queues(2, "b2")]
    assert [choice.choose(both) for _ in range(5)] == [*both, both[0]]
    assert {choice.choose(both, avoid="b1").broker for _ in range(5)} == {"b2"}
    assert choice.choose(queues(2, "b1"), avoid="b1").broker == "b1"


def test_the_suggested_process_is_asked_until_it_fails_and_again_after_a_while() -> None:
    choice, addresses = BrokerChoice(3.0), {0: "master", 1: "slave", 2: "other"}
    assert choice.choose(addresses, 0, 0) == "master"
    assert choice.choose(addresses, 2, 0) == "other"
    assert choice.choose(addresses, 7, 0) == "master"
    choice.failed("master", 10)
    assert choice.choose(addresses, 0, 10) == "slave"
    assert choice.choose(addresses, 0, 13) == "master"
    choice.failed("master", 20)
    choice.responded("master")
    assert choice.choose(addresses, 0, 20) == "master"
    for address in addresses.values():
        choice.failed(address, 30)
    assert choice.choose(addresses, 1, 30) == "slave"
    assert choice.choose({}, 0, 0) is None


@given(st.integers(0, 40), st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=12, unique=True))
def test_members_share_all_queues_evenly_and_none_twice(count: int, members: list[str]) -> None:
    parts = [share(list(reversed(queues(count))), members, member) for member in sorted(members)]
    assert [queue for part in parts for queue in part] == queues(count)
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_who_is_no_member_has_no_share() -> None:
    assert share(queues(4), ["a", "b"], "c") == []
