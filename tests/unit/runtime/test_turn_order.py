"""Whose turn is next."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystick.runtime.turn_order import CREDIT_S, LEAST_S, MOST_S, SPARE, PeerQueues, TurnOrderCore


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


def served(order: TurnOrderCore[str], turns: int) -> Counter[str]:
    """How often each host had a turn, of peers that are called as their hosts and always wait."""
    counts = Counter[str]()
    for _ in range(turns):
        peer = order.pop()
        order.spent(peer, peer, 0.001)
        order.add(peer, peer)
        counts[peer] += 1
    return counts


def test_a_machine_that_has_a_network_for_itself_has_the_share_of_one_host() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    addresses = [f"2001:db8:0:7::{number:x}" for number in range(1, 101)]
    for host in (*addresses, "2001:db8:0:8::1", "10.0.0.1", "10.0.0.2"):
        order.add(host, host)
    counts = served(order, 4_000)
    for host in ("2001:db8:0:8::1", "10.0.0.1", "10.0.0.2"):
        assert 950 <= counts[host] <= 1_050
    assert all(5 <= counts[host] <= 20 for host in addresses), "and its hosts have all the same of that"


def test_the_hosts_of_a_network_have_the_same_share_whatever_the_number_of_their_connections() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(100):
        order.add(f"fd00::1 {number}", "fd00::1")
    order.add("fd00::2 0", "fd00::2")
    counts = Counter(turn(order).split()[0] for _ in range(1_000))
    assert abs(counts["fd00::1"] - counts["fd00::2"]) <= 20


def test_nothing_is_kept_of_networks_that_came_and_went() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(3 * SPARE):
        host = f"2001:db8:{number:x}::1"
        order.add("peer", host)
        order.spent(order.pop(), host, 0.0001)
    assert len(order._hosts) <= SPARE + 2 >= len(order._peers)


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


def test_who_goes_away_between_its_turns_has_no_more_than_its_share() -> None:
    """With turns of less than its credit it had 40 of 100 seconds, of which a hundred others had the rest."""
    order: TurnOrderCore[str] = TurnOrderCore()
    for number in range(100):
        order.add(f"busy{number} 0", f"busy{number}")
    turns = 0
    for _ in range(5000):
        turn(order)  # of somebody else, mostly
        order.add("returning honest", "returning")  # it has had a response
        peer = order.pop()
        order.spent(peer, peer.split()[0], 0.9 * CREDIT_S if peer == "returning honest" else 0.001)
        if peer == "returning honest":
            turns += 1
        else:
            order.add(peer, peer.split()[0])
    assert turns < 200


class Gone:
    """A connection that has a place in nothing but what is looked at."""


def test_nothing_refers_to_a_peer_that_is_gone() -> None:
    """Of each of a thousand hosts a thousand connections were kept, until their hosts had more turns."""
    order: TurnOrderCore[Gone] = TurnOrderCore()
    queues: PeerQueues[Gone, int] = PeerQueues()
    gone = []
    for number in range(100):
        for peer in (Gone(), Gone(), Gone(), Gone()):
            host = f"host{number % 7}"
            if number % 3 == 0:
                order.spent(peer, host, 0.001)  # in a turn for which it did not wait
            order.add(peer, host)
            queues.put(peer, host, number)
            if number % 3 == 1:
                order.pop()
                order.spent(peer, host, 0.001)
                queues.pop()
            order.discard(peer, host)
            queues.discard(peer, host)
            order.spent(None, host, 0.001)
            gone.append(weakref.ref(peer))
            del peer
    assert not any(peer() is not None for peer in gone)


def test_a_host_of_which_nothing_is_known_may_have_had_its_turn_for_one_that_is_gone() -> None:
    """It may be forgotten within that turn; when it was to be forgotten once more, whoever came then met a fault."""
    order: TurnOrderCore[int] = TurnOrderCore()
    order.spent(None, "gone", 0.001)
    for peer in range(2 * SPARE):
        order.spent(peer, str(peer), 0.001)
    order.add(0, "0")
    assert order.pop() == 0
    assert len(order._networks._used) <= SPARE + 2


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


def test_a_host_is_charged_for_turns_of_peers_that_are_gone() -> None:
    """One that connected anew for each request had them all for nothing, and others waited."""
    order: TurnOrderCore[str] = TurnOrderCore()
    order.add("steady 0", "steady")
    order.add("fleeting 0", "fleeting")
    turns = {"steady": 0, "fleeting": 0}
    for number in range(1, 1000):
        peer = order.pop()
        host = peer.split()[0]
        turns[host] += 1
        if host == "fleeting":
            order.discard(peer, host)
            order.spent(None, host, 0.001)
            order.add(f"fleeting {number}", host)
        else:
            order.spent(peer, host, 0.001)
            order.add(peer, host)
    assert turns["steady"] > 400


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


class TwinLevel:
    """What ``TurnOrderCore`` says of keys of one level, without a heap, and with a memory of all."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}
        self.waiting: set[str] = set()
        self.level = self.floor = 0.0

    def add(self, key: str) -> None:
        least = max(self.level, self.floor) - CREDIT_S
        self.used[key] = max(self.used.get(key, least), least)
        self.waiting.add(key)

    def popped(self, key: str) -> None:
        assert key in self.waiting
        assert self.used[key] == min(self.used[each] for each in self.waiting), "it used least"
        self.level = max(self.level, self.used[key])
        self.spent(key, LEAST_S)
        self.waiting.discard(key)

    def spent(self, key: str, seconds: float) -> None:
        cost, level = min(seconds, MOST_S), max(self.level, self.floor)
        used = self.used.get(key)
        self.used[key] = level + cost if used is None else min(used + cost, max(used, level + MOST_S))
        if self.waiting:
            self.floor = max(self.floor, self.level - MOST_S) + cost / (2 * (1 + len(self.waiting)))


STEPS = st.tuples(
    st.sampled_from(["add", "add", "add", "pop", "pop", "spend", "discard"]), PEERS, st.sampled_from([0, 1, 3, 20, 60])
)


AGAIN = ["add c0", "add c2", "add c1", "discard c1", "add c1", "pop c0", "discard c1", "pop c2"]


@example([(*step.split(), 0) for step in AGAIN])
@settings(max_examples=200)
@given(st.lists(STEPS, min_size=20, max_size=120))
def test_who_used_least_is_next_as_without_a_heap(steps: list[tuple[str, str, int]]) -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    hosts, peers = TwinLevel(), {host: TwinLevel() for host in "abc"}
    for step, peer, quarters in steps:
        host, seconds = peer[0], quarters * MOST_S / 40
        if step == "add":
            order.add(peer, host)
            if peer not in peers[host].waiting:
                if not peers[host].waiting:
                    hosts.add(host)
                peers[host].add(peer)
        elif step == "spend":
            order.spent(peer, host, seconds)
            hosts.spent(host, seconds)
            peers[host].spent(peer, seconds)
        elif step == "discard":
            order.discard(peer, host)
            peers[host].waiting.discard(peer)
            peers[host].used.pop(peer, None)
            if not peers[host].waiting:
                hosts.waiting.discard(host)
        elif order:
            peer = order.pop()
            host = peer[0]
            hosts.popped(host)
            peers[host].popped(peer)
            if peers[host].waiting:
                hosts.add(host)
            order.spent(peer, host, seconds)
            hosts.spent(host, seconds)
            peers[host].spent(peer, seconds)
        for level in (order._networks, *order._hosts.values(), *order._peers.values()):
            assert len(level._heap) <= 2 * len(level._waiting) + 1, "little is kept of those that left"
    assert len(order) == sum(len(level.waiting) for level in peers.values())


@dataclass
class Asker:
    """A host of some connections, each of which asks again so many turns behind its last one."""

    connections: int
    seconds: float
    away: int


SECONDS = st.sampled_from([0.0, CREDIT_S / 3, CREDIT_S * 0.95, CREDIT_S * 1.5, MOST_S, 3 * MOST_S])
ASKERS = st.builds(Asker, st.integers(1, 4), SECONDS, st.just(0))
OTHERS = st.builds(Asker, st.integers(1, 4), SECONDS, st.integers(1, 9))


@given(st.lists(ASKERS, min_size=1, max_size=4), st.lists(OTHERS, max_size=4))
def test_no_host_has_more_than_one_that_always_waits(askers: list[Asker], others: list[Asker]) -> None:
    order: TurnOrderCore[tuple[int, int]] = TurnOrderCore()
    hosts = [*askers, *others]
    back = {(number, peer): 0 for number, host in enumerate(hosts) for peer in range(host.connections)}
    charged = [0.0] * len(hosts)
    for now in range(1500):
        for peer in [peer for peer, at in back.items() if at <= now]:
            del back[peer]
            order.add(peer, str(peer[0]))
        peer = order.pop()
        seconds = hosts[peer[0]].seconds
        order.spent(peer, str(peer[0]), seconds)
        back[peer] = now + 1 + hosts[peer[0]].away
        charged[peer[0]] += min(seconds, MOST_S) + LEAST_S
    most = max(charged)
    assert all(used > most - 3 * MOST_S for used in charged[: len(askers)])


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


def test_one_that_is_gone_waits_no_more_whatever_its_host_is_called_by_then() -> None:
    order: TurnOrderCore[str] = TurnOrderCore()
    for peer in ("a", "b"):
        order.add(peer, "unknown")
    order.discard("a", "127.0.0.1")
    assert popped(order) == ["b"]
