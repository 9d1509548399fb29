"""Whose turn is next."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tallystick.runtime.turn_order import LEAST_S, MOST_S, SPARE, PeerQueues, TurnOrderCore


def popped(order: TurnOrderCore[str]) -> list[str]:
    return [order.pop() for _ in range(len(order))]


def test_hosts_have_their_turns_one_after_the_other_and_peers_in_order() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for peer in ("a0", "a1", "a2", "b0", "c0", "c1", "a0"):
        order.add(peer, peer[0])
    assert popped(order) == ["a0", "b0", "c0", "a1", "c1", "a2"]


def turn(order: TurnOrderCore[str], seconds: float = 0.001) -> str:
    """One that goes on has its turn; who is "honest" has no more to ask."""
    peer = order.pop()
    order.spent(peer, peer.split()[0], seconds)
    if "honest" not in peer:
        order.add(peer, peer.split()[0])
    return peer


def test_a_host_that_used_little_is_next_among_a_hundred_that_have_more_to_do() -> None:
    """By turns of each host it had one of a hundred and one."""
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(4000):
        order.add(f"busy{number % 100} {number}", f"busy{number % 100}")
    for _ in range(500):
        turn(order)
    for _ in range(20):
        order.add("honest", "honest")
        assert turn(order, 0.0001) == "honest"
        for _ in range(10):
            turn(order)


def test_nobody_has_more_than_its_share_however_little_a_turn_of_it_takes() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    seconds = dict.fromkeys((f"host{number} peer" for number in range(4)), 0.0)
    for peer in seconds:
        order.add(peer, peer.split()[0])
    for _ in range(10_000):
        peer = order.pop()
        host = peer.split()[0]
        took = {"host0": 0.0001, "host1": 0.0003}.get(host, 0.003)
        order.spent(peer, host, took)
        seconds[peer] += took + LEAST_S
        order.add(peer, host)
    assert max(seconds.values()) - min(seconds.values()) < 0.02


def test_a_request_that_comes_alone_is_next_of_its_host() -> None:
    """All of them may be behind one address."""
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(400):
        order.spent(f"host {number}", "host", 0.001)  # nobody had to wait for that
    for number in range(400):
        order.add(f"host {number}", "host")
    order.add("host honest", "host")
    assert turn(order) == "host honest"
    for _ in range(1000):
        turn(order)
    order.add("host honest", "host")
    assert turn(order) == "host honest"


def test_newcomers_without_end_do_not_keep_those_waiting_that_are_here() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    order.add("here 0", "here")
    assert turn(order) == "here 0"
    for number in range(2000):
        for newcomer in range(2):
            order.add(f"new{number}.{newcomer} honest", f"new{number}.{newcomer}")
        if turn(order) == "here 0":
            break
    assert number < 1000


def test_one_long_turn_is_charged_as_what_a_turn_may_take() -> None:
    """The process may have been stopped in it."""
    order: TurnOrderCore[str] = TurnOrderCore()
    for peer in ("a 0", "b 0"):
        order.add(peer, peer[0])
    assert turn(order, 60.0) == "a 0"
    assert [turn(order, MOST_S / 4) for _ in range(5)] == ["b 0", "b 0", "b 0", "b 0", "a 0"]


def test_of_those_that_had_turns_and_left_little_is_kept() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(3 * SPARE):
        order.spent(f"host{number} 0", f"host{number}", 0.001)
        order.spent(f"crowd {number}", "crowd", 0.001)
    assert len(order._peers) <= SPARE + 2 and len(order._peers["crowd"]._used) <= SPARE + 1
    for number in range(3 * SPARE):
        order.discard(f"crowd {number}", "crowd")
    assert not order._peers["crowd"]._used


PEERS = st.sampled_from([f"{host}{number}" for host in "abc" for number in range(4)])


@example([("spend", "a0"), ("discard", "a0"), ("add", "a0"), ("pop", "b0"), ("pop", "b0")])
@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "spend", "discard"]), PEERS), max_size=60))
def test_whoever_waits_has_a_turn_once_and_soon(steps: list[tuple[str, str]]) -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    waiting: dict[str, int] = {}  # and for how many turns
    for step, peer in steps:
        if step == "add":
            order.add(peer, peer[0])
            waiting.setdefault(peer, 0)
        elif step == "spend":
            order.spent(peer, peer[0], LEAST_S)
            waiting = {peer: turns - 12 for peer, turns in waiting.items()}  # what it costs the others
        elif step == "discard":
            order.discard(peer, peer[0])
            waiting.pop(peer, None)
        elif waiting:
            del waiting[order.pop()]
            waiting = {peer: turns + 1 for peer, turns in waiting.items()}
        assert len(order) == len(waiting) and (peer in order) == (peer in waiting)
        assert all(turns <= 2 * 3 * 4 for turns in waiting.values()), "three hosts, four peers"
    assert sorted(popped(order)) == sorted(waiting) and not order
    order.add("a0", "a")
    order.clear()
    assert not order and "a0" not in order


def test_what_peers_have_comes_one_of_each_in_turn_and_in_order_of_each() -> None:
    queues: PeerQueues[str, str] = PeerQueues()
    for item in ("a0.0", "a0.1", "a0.2", "a1.0", "b0.0", "b0.1"):
        queues.put(item[:2], item[0], item)
    found = []
    while queues:
        found.append(queues.pop())
    assert found == ["a0.0", "b0.0", "a1.0", "b0.1", "a0.1", "a0.2"]
    for item in ("a0.3", "a1.1", "a0.4", "b0.2"):
        queues.put(item[:2], item[0], item)
    queues.discard("a0", "a")
    queues.discard("c0", "c")
    assert (len(queues), queues.pop(), queues.pop(), len(queues)) == (2, "b0.2", "a1.1", 0)
    queues.put("a0", "a", "a0.5")
    queues.clear()
    assert not queues and not len(queues)
