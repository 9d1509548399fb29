"""Whose turn is next."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.runtime.turn_order import PeerQueues, TurnOrderCore


def popped(order: TurnOrderCore[str]) -> list[str]:
    return [order.pop() for _ in range(len(order))]


def test_hosts_have_their_turns_one_after_the_other_and_peers_in_order() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for peer in ("a0", "a1", "a2", "b0", "c0", "c1", "a0"):
        order.add(peer, peer[0], goes_on=False)
    assert popped(order) == ["a0", "b0", "c0", "a1", "c1", "a2"]


def test_those_that_come_and_those_that_go_on_have_them_by_turns() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for peer in ("busy 0", "busy 1", "busy 2", "busy 3"):
        order.add(peer, "a", goes_on=True)
    assert order.pop() == "busy 0"
    for peer in ("came 0", "came 1"):
        order.add(peer, "a", goes_on=False)
    order.add("busy 1", "a", goes_on=False)  # it stays where it is
    assert popped(order) == ["came 0", "busy 1", "came 1", "busy 2", "busy 3"]


PEERS = st.sampled_from([f"{host}{number}" for host in "abc" for number in range(4)])


@example([("go on", "a0"), ("discard", "a0"), ("add", "b0"), ("pop", "b0"), ("pop", "b0")])
@given(st.lists(st.tuples(st.sampled_from(["add", "go on", "pop", "discard"]), PEERS), max_size=60))
def test_whoever_waits_has_a_turn_once_and_soon(steps: list[tuple[str, str]]) -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    waiting: dict[str, int] = {}  # and for how many turns
    for step, peer in steps:
        if step in ("add", "go on"):
            order.add(peer, peer[0], goes_on=step == "go on")
            waiting.setdefault(peer, 0)
        elif step == "discard":
            order.discard(peer)
            waiting.pop(peer, None)
        elif waiting:
            del waiting[order.pop()]
            waiting = {peer: turns + 1 for peer, turns in waiting.items()}
        assert len(order) == len(waiting) and (peer in order) == (peer in waiting)
        assert all(turns <= 2 * 3 * 4 for turns in waiting.values()), "two lanes, three hosts, four peers"
    assert sorted(popped(order)) == sorted(waiting) and not order
    order.add("a0", "a", goes_on=True)
    order.clear()
    assert not order and "a0" not in order


def test_what_peers_have_comes_one_of_each_in_turn_and_in_order_of_each() -> None:
    queues: PeerQueues[str, str] = PeerQueues()
    for item in ("a0.0", "a0.1", "a0.2", "a1.0", "b0.0", "b0.1"):
        queues.put(item[:2], item[0], item)
    found = []
    while queues:
        found.append(queues.pop())
    assert found == ["a0.0", "a0.1", "b0.0", "a0.2", "a1.0", "b0.1"]
    for item in ("a0.3", "a1.1", "a0.4", "b0.2"):
        queues.put(item[:2], item[0], item)
    queues.discard("a0")
    queues.discard("c0")
    assert (len(queues), queues.pop(), queues.pop(), len(queues)) == (2, "a1.1", "b0.2", 0)
    queues.put("a0", "a", "a0.5")
    queues.clear()
    assert not queues and not len(queues)
