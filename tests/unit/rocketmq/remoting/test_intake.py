"""Whose requests are cut in which turn, without sockets."""

from __future__ import annotations

import weakref

import pytest

from support.clocks import ManualClock
from tallystick.rocketmq.remoting import intake
from tallystick.rocketmq.remoting.backlog import TURN_S
from tallystick.rocketmq.remoting.intake import TURN_BYTES, TURN_REQUESTS, Intake
from tallystick.rocketmq.wire.remoting import Command, request


class Source:
    """A connection that got so many requests; to cut a few of them takes ``seconds``."""

    def __init__(self, clock: ManualClock, count: int, seconds: float, body_bytes: int, host: str) -> None:
        self._clock, self._seconds, self._body = clock, seconds, bytes(body_bytes)
        self.left, self.in_the_way, self.waits = count, False, 0
        self.host, self.alive = host, True

    @property
    def ready(self) -> bool:
        return self.left > 0 and not self.in_the_way

    def take(self, *, most: int, most_bytes: int) -> list[Command]:
        count = min(self.left, most, max(1, most_bytes // max(1, len(self._body))))
        self.left -= count
        self._clock.time += self._seconds
        return [request(34, {}, self._body) for _ in range(count)]

    def wait(self) -> None:
        self.waits += 1


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.intake: Intake[Source] = Intake(self.clock)

    def source(self, count: int, seconds: float = 0.0, body_bytes: int = 0, host: str = "127.0.0.1") -> Source:
        source = Source(self.clock, count, seconds, body_bytes, host)
        self.intake.received(source)
        return source

    def turn(self) -> list[Source]:
        return [source for source, _ in self.intake.turn(self.clock.now() + TURN_S)]


def test_a_little_of_everybody_is_one_turn() -> None:
    bench = Bench()
    sources = [bench.source(2) for _ in range(50)]
    assert bench.turn() == [source for source in sources for _ in range(2)]
    assert not bench.intake.due and not any(source.waits for source in sources)


def test_a_turn_ends_with_its_number_and_who_waits_comes_first_in_the_next() -> None:
    bench = Bench()
    large, small = bench.source(3 * TURN_REQUESTS), bench.source(1)
    first = bench.turn()
    assert len(first) == TURN_REQUESTS and small in first[: 2 * intake._REQUESTS_AT_ONCE + 1]
    assert large.waits == 1 and bench.intake.due
    late = bench.source(1)
    assert bench.turn().index(late) <= intake._REQUESTS_AT_ONCE
    bench.turn()
    bench.turn()
    assert not large.left and not bench.intake.due


def test_a_turn_ends_with_its_time_and_who_was_not_asked_is_not_read_on() -> None:
    bench = Bench()
    sources = [bench.source(8, seconds=TURN_S / 3) for _ in range(7)]
    assert [len(set(bench.turn())) for _ in range(3)] == [3, 3, 1]
    assert [source.waits for source in sources] == [0, 0, 0, 1, 1, 1, 1]


def test_a_turn_ends_with_its_bytes_and_one_request_is_always_taken() -> None:
    bench = Bench()
    source = bench.source(3, body_bytes=2 * TURN_BYTES)
    assert [len(bench.turn()) for _ in range(3)] == [1, 1, 1]
    small = bench.source(1000, body_bytes=64 * 1024)
    assert len(bench.turn()) == TURN_BYTES // (64 * 1024)
    assert not source.left and small.left


def test_who_has_something_in_the_way_says_when_it_may_go_on() -> None:
    bench = Bench()
    source = bench.source(3)
    source.in_the_way = True
    assert bench.turn() == [] and not bench.intake.due
    source.in_the_way = False
    bench.intake.received(source)
    assert bench.turn() == [source] * 3


def test_a_host_with_hundreds_of_connections_keeps_the_others_waiting_no_longer_than_one_with_a_single_one() -> None:
    bench = Bench()
    for _ in range(400):
        bench.source(1, seconds=TURN_S, host="127.0.0.9")
    others = [bench.source(1, seconds=TURN_S) for _ in range(2)]
    turns = [source for _ in range(4) for source in bench.turn()]
    assert [turns.index(other) for other in others] == [1, 3]


def test_a_request_that_comes_alone_passes_those_that_go_on_with_theirs() -> None:
    """Of the same host, too: all of them may be behind one address."""
    bench = Bench()
    for _ in range(40):
        bench.source(1000, seconds=TURN_S)
    for _ in range(80):  # all of them had one
        bench.turn()
    alone = bench.source(1, seconds=TURN_S)
    assert alone in [*bench.turn(), *bench.turn()]


def test_each_of_many_gets_its_share_of_a_turn_however_few_are_ready() -> None:
    """All that a peer sends may be put off: in time each of thousands had a thousand requests waiting."""
    bench = Bench()
    bench.intake.share(4000)
    greedy = [bench.source(TURN_REQUESTS) for _ in range(2)]
    for _ in range(5):
        turn = bench.turn()
        assert [turn.count(source) for source in greedy] == [intake._REQUESTS_AT_ONCE] * 2
    assert [source.waits > 0 for source in greedy] == [True, True] and bench.intake.due
    bench.intake.share(1)
    assert len(bench.turn()) == TURN_REQUESTS


def test_a_share_counts_all_that_a_turn_takes_of_a_connection() -> None:
    bench = Bench()
    share = 3 * intake._REQUESTS_AT_ONCE
    bench.intake.share(intake._REQUESTS // share)
    greedy = [bench.source(TURN_REQUESTS) for _ in range(2)]
    for _ in range(3):
        turn = bench.turn()
        assert [intake._REQUESTS_AT_ONCE + share > turn.count(source) >= share for source in greedy] == [True, True]


def test_who_came_with_a_connection_that_has_a_fault_has_a_turn_all_the_same() -> None:
    """Those before it may have more, and those behind it were not asked."""
    bench = Bench()

    class Faulty(Source):
        def take(self, *, most: int, most_bytes: int) -> list[Command]:
            self.left = 0
            raise ValueError("a fault here")

    before, faulty = bench.source(100), Faulty(bench.clock, 1, 0.0, 0, "127.0.0.1")
    bench.intake.received(faulty)
    behind = bench.source(1)
    with pytest.raises(ValueError, match="a fault here"):
        bench.turn()
    turn = bench.turn()
    assert behind in turn and before in turn and not before.left
    assert not bench.intake.due


def test_nothing_is_kept_of_a_connection_that_ends_before_its_turn() -> None:
    bench = Bench()
    gone = weakref.ref(source := bench.source(1))
    source.alive = False
    bench.intake.discard(source)
    assert not bench.intake.due
    del source
    assert gone() is None


def test_nothing_is_kept_of_a_connection_that_ends_as_as_its_requests_are_cut() -> None:
    bench = Bench()

    class Broken(Source):
        def take(self, *, most: int, most_bytes: int) -> list[Command]:
            self.alive, self.left = False, 0
            bench.intake.discard(self)
            return []

    broken = Broken(bench.clock, 1, 0.001, 0, "127.0.0.1")
    bench.intake.received(broken)
    assert not bench.turn()
    gone = weakref.ref(broken)
    del broken
    assert gone() is None
