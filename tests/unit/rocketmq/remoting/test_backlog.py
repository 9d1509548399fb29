"""Requests of one read that are too many for one turn of the loop."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any, cast

from support.clocks import ManualClock
from support.waiting import until
from tallystick.rocketmq.remoting.backlog import FULL_S, TURN_S, Backlog
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import request
from tallystick.runtime.clock import SystemClock


class Peer:
    """What a backlog asks of a link."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.alive, self.full, self.late, self.kept = True, False, 0, 0
        self.host = host

    def busy(self, change: int) -> None:
        self.late += change

    def keep(self, size: int) -> None:
        self.kept += size


class Bench:
    """Each request takes a third of a turn."""

    def __init__(self) -> None:
        self.clock, self.served = ManualClock(), list[tuple[Peer, int]]()
        self.begun = 0
        self.backlog = Backlog(self.clock, self._serve, self._begin)

    def _begin(self) -> None:
        self.begun += 1

    def _serve(self, link: Any, command: Any) -> None:
        self.served.append((link, command.code))
        self.clock.time += TURN_S / 3

    def receive(self, peer: Peer, codes: range) -> None:
        self.backlog.received([(cast("Link", peer), request(code)) for code in codes])

    def of(self, peer: Peer) -> list[int]:
        return [code for link, code in self.served if link is peer]

    async def turn(self) -> int:
        """How many were served in it."""
        before = len(self.served)
        await asyncio.sleep(0)
        return len(self.served) - before


async def test_nothing_is_kept_of_a_peer_that_took_no_answers_and_ended() -> None:
    bench, one = Bench(), Peer()
    bench.receive(one, range(4))
    one.full, one.alive = True, False
    await until(lambda: not len(bench.backlog), seconds=5.0)
    assert (bench.of(one), one.late, one.kept) == ([0, 1, 2], 0, 0)


async def test_each_turn_serves_what_it_has_time_for_and_peers_take_turns() -> None:
    bench, one, other = Bench(), Peer(), Peer()
    bench.receive(one, range(8))
    assert bench.of(one) == [0, 1, 2] and (one.late, len(bench.backlog)) == (5, 5) and one.kept > 0
    bench.receive(one, range(8, 9))  # what is read already waits behind
    bench.receive(other, range(4))
    while len(bench.backlog):
        assert 0 < await bench.turn() <= 3
    assert bench.of(one) == list(range(9)) and bench.of(other) == list(range(4))
    assert bench.served.index((other, 3)) < bench.served.index((one, 8))
    assert (one.late, one.kept, other.late, other.kept) == (0, 0, 0, 0)
    assert bench.begun >= 4


async def test_a_peer_that_has_gone_is_served_no_more() -> None:
    bench, one = Bench(), Peer()
    bench.receive(one, range(8))
    one.alive = False
    while len(bench.backlog):
        assert await bench.turn() == 0
    assert len(bench.served) == 3


async def test_a_peer_that_takes_no_answers_gets_no_more_of_them_and_others_do() -> None:
    bench, full, other = Bench(), Peer(), Peer()
    bench.receive(full, range(6))
    full.full = True
    bench.receive(other, range(12))
    while len(bench.of(other)) < 12:
        assert await bench.turn(), "at once"
    for _ in range(5):
        assert await bench.turn() == 0
    assert bench.of(full) == [0, 1, 2]
    full.full = False
    await until(lambda: not len(bench.backlog))
    assert bench.of(full) == list(range(6))


async def test_a_request_that_comes_alone_passes_what_is_left_of_those_of_its_own_host() -> None:
    bench, crowd, lone = Bench(), [Peer() for _ in range(20)], Peer()
    bench.backlog.received([(cast("Link", peer), request(code)) for peer in crowd for code in range(4)])
    while any(len(bench.of(peer)) < 2 for peer in crowd):  # what is left of all of them was put off again
        await bench.turn()
    before = len(bench.served)
    alone = [*(Peer() for _ in range(6)), lone]  # more than a turn has time for
    bench.backlog.received([(cast("Link", peer), request(0)) for peer in alone])
    assert not bench.of(lone)
    while not bench.of(lone):
        await bench.turn()
    assert bench.served.index((lone, 0)) - before < 2 * len(alone)
    bench.backlog.close()


async def test_one_host_keeps_another_waiting_no_longer_with_many_peers_than_with_one() -> None:
    bench, crowd, other = Bench(), [Peer("127.0.0.9") for _ in range(40)], Peer()
    asked = [(cast("Link", peer), request(code)) for peer in (*crowd, other) for code in range(4)]
    bench.backlog.received(asked)
    while len(bench.of(other)) < 2:
        await bench.turn()
    assert len(bench.served) <= 12, "those of the first turn, and some of the crowd before each of the other's"
    bench.backlog.close()


async def test_a_host_that_asks_now_and_then_waits_for_no_round_of_a_hundred_busy_ones() -> None:
    """It had one request for one of each of them: a hundredth of the service, however little it asked."""
    bench, honest = Bench(), Peer()
    busy = [Peer(f"127.0.1.{number % 100}") for number in range(200)]
    bench.backlog.received([(cast("Link", peer), request(code)) for peer in busy for code in range(9)])
    for _ in range(60):
        await bench.turn()
    for code in range(5):
        bench.receive(honest, range(code, code + 1))
        await bench.turn()
        assert code in bench.of(honest), "in the next turn, ahead of all others"
        for _ in range(40):  # their share of it
            await bench.turn()
    bench.backlog.close()


async def test_who_sends_much_in_a_request_has_fewer_of_them_served() -> None:
    bench, much, little = Bench(), Peer("127.0.1.1"), Peer("127.0.1.2")
    body = bytes(3 * 1024 * 1024)  # to store it takes twice as long as to serve its request
    bench.backlog.received([(cast("Link", much), request(code, {}, body)) for code in range(30)])
    bench.receive(little, range(30))
    while len(bench.of(little)) < 30:
        await bench.turn()
    assert 8 <= len(bench.of(much)) <= 16
    bench.backlog.close()


async def test_of_a_peer_that_has_ended_nothing_waits() -> None:
    bench, one = Bench(), Peer()
    bench.receive(one, range(8))
    bench.backlog.closed(cast("Link", one))
    assert not len(bench.backlog) and not bench.backlog._order._peers[one.host]._used
    assert await bench.turn() == 0


async def test_what_comes_while_others_wait_has_no_time_of_its_own() -> None:
    """A crowd had the time of a turn twice: its newest requests at once, and those that waited."""
    bench, one, other = Bench(), Peer(), Peer()
    bench.receive(one, range(8))
    bench.receive(other, range(2))
    assert not bench.of(other) and (one.late, other.late) == (5, 2)
    assert await bench.turn() == 3 and bench.of(other), "in its turn, before all that waited"
    bench.receive(other, range(2, 4))
    assert len(bench.served) == 6
    while len(bench.backlog):
        await bench.turn()
    assert bench.of(one) == list(range(8)) and bench.of(other) == list(range(4))


async def test_only_peers_that_take_no_answers_hold_up_nobody() -> None:
    bench, full, other = Bench(), Peer(), Peer()
    bench.receive(full, range(4))
    full.full = True
    await bench.turn()
    bench.receive(other, range(2))
    assert bench.of(other) == [0, 1], "at once"
    bench.receive(other, range(2, 8))
    assert await bench.turn() == 3, "and what is put off in the next turn of the loop"
    bench.backlog.close()


async def test_while_only_peers_that_take_no_answers_wait_one_turn_is_due() -> None:
    """Each request of others that came meanwhile left a turn behind, and each of these made another."""
    bench, full, other = Bench(), Peer(), Peer()
    bench.receive(full, range(4))
    full.full = True
    for _ in range(20):
        bench.receive(other, range(8))
        while other.late:
            await bench.turn()
    begun, now = bench.begun, asyncio.get_running_loop().time()
    await until(lambda: bench.begun >= begun + 4)
    assert asyncio.get_running_loop().time() - now > 2 * FULL_S
    bench.backlog.close()


async def test_thousands_of_peers_that_take_no_answers_are_no_work_for_the_loop() -> None:
    """Each had a turn of its own to find that it takes none: more than a turn of the loop has time for, without end."""
    turns = 0

    def begin() -> None:
        nonlocal turns
        turns += 1

    backlog = Backlog(SystemClock(), lambda link, command: time.sleep(2 * TURN_S if turns == 1 else 0.0), begin)
    peers = [Peer(f"127.0.1.{number % 100}") for number in range(6000)]
    backlog.received([(cast("Link", peer), request(0)) for peer in peers])  # the first one takes all of the turn
    for peer in peers:
        peer.full = True
    for _ in range(10):
        await asyncio.sleep(FULL_S)
    assert turns < 40, "one of each pause, behind those in which it was seen that they take none"
    for peer in peers:
        peer.full = False
    await until(lambda: not len(backlog))
    backlog.close()


async def test_nothing_is_kept_of_a_peer_that_ends_as_it_is_served() -> None:
    bench, one = Bench(), Peer()
    bench.receive(one, range(4))
    serve, gone = bench.backlog._serve, weakref.ref(one)

    def end(link: Any, command: Any) -> None:
        serve(link, command)
        link.alive = False
        bench.backlog.closed(link)

    bench.backlog._serve = end
    await until(lambda: not len(bench.backlog))
    bench.served.clear()
    del one
    assert gone() is None


async def test_what_comes_of_a_peer_that_takes_no_answers_waits_behind_what_is_there() -> None:
    bench, full, other = Bench(), Peer(), Peer()
    bench.receive(full, range(4))
    full.full = True
    await bench.turn()
    bench.receive(full, range(4, 6))
    bench.receive(other, range(1))
    assert bench.of(full) == [0, 1, 2] and bench.of(other) == [0]
    full.full = False
    await until(lambda: not len(bench.backlog))
    assert bench.of(full) == list(range(6))


async def test_who_took_no_answers_and_has_gone_waits_no_more() -> None:
    bench, gone, closed, other = Bench(), Peer(), Peer(), Peer()
    bench.receive(gone, range(4))
    bench.receive(closed, range(4))
    gone.full = closed.full = True
    await bench.turn()
    gone.alive = closed.alive = False
    bench.backlog.closed(cast("Link", closed))
    bench.receive(other, range(8))
    await until(lambda: not len(bench.backlog))
    assert bench.of(other) == list(range(8)) and not bench.of(closed)


async def test_when_nothing_waits_any_more_requests_are_served_as_they_come() -> None:
    bench, one = Bench(), Peer()
    bench.receive(one, range(4))
    await until(lambda: not len(bench.backlog))
    await asyncio.sleep(0)
    bench.receive(one, range(4, 5))
    assert bench.of(one) == list(range(5))


async def test_a_request_that_waits_counts_with_its_header() -> None:
    """It may have a mebibyte, and counted as 512 bytes."""
    bench, one = Bench(), Peer()
    bench.receive(one, range(8))
    bench.backlog.received([(cast("Link", one), request(8, {"bname": "x" * 1_000_000}))])
    assert one.kept > 1_000_000
    await until(lambda: not len(bench.backlog))
    assert one.kept == 0
