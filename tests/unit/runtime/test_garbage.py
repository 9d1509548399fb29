"""When what survived a collection is frozen, and when all is looked through again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from support.clocks import ManualClock
from tallystick.runtime import garbage
from tallystick.runtime.garbage import FROZEN_AT_ONCE, FULL_AFTER, LONG_S, LOOK_EVERY_S, Collections


class FakeCollector:
    """Counts what is frozen; ``alive`` is the rest."""

    def __init__(self) -> None:
        self.alive, self.frozen, self.counts = 100, 0, 0
        self.callbacks: list[Callable[[str, dict[str, int]], None]] = []
        self.asked_for: list[tuple[int, int]] = []  # what lived, and what was frozen then
        self.threshold = (700, 10, 10)

    def collect(self) -> None:
        self.asked_for.append((self.alive, self.frozen))

    def get_threshold(self) -> tuple[int, int, int]:
        return self.threshold

    def set_threshold(self, *threshold: int) -> None:
        first, second, third = threshold
        self.threshold = first, second, third

    def freeze(self) -> None:
        self.alive, self.frozen = 0, self.frozen + self.alive

    def unfreeze(self) -> None:
        self.alive, self.frozen = self.alive + self.frozen, 0

    def get_freeze_count(self) -> int:
        self.counts += 1
        return self.frozen


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, few: int = 0, count_after: int = 1) -> None:
        self.clock, self.gc = ManualClock(), FakeCollector()
        monkeypatch.setattr(garbage, "gc", self.gc)
        monkeypatch.setattr(garbage, "FEW", few)
        monkeypatch.setattr(garbage, "COUNT_AFTER", count_after)
        self.collections = Collections(self.clock)
        self.collections.start()

    def collect(self, seconds: float, generation: int = 2) -> None:
        for heard in self.gc.callbacks:
            heard("start", {"generation": generation})
        self.clock.time += seconds
        for heard in self.gc.callbacks:
            heard("stop", {"generation": generation})


async def test_what_survives_a_long_full_collection_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie's loop stood still 2.3 ms for each 1,000 ledgers made since its start, again and again."""
    bench = Bench(monkeypatch)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 100)
    bench.gc.alive = 50
    bench.collect(LONG_S / 2)
    bench.collect(2 * LONG_S, generation=1)
    assert (bench.gc.alive, bench.gc.frozen) == (50, 100)
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 150)


async def test_cycles_that_were_frozen_are_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.gc.alive = 100
    bench.collect(2 * LONG_S)
    bench.collect(2 * LONG_S)
    assert bench.gc.frozen == 200, "twice as much, but it was looked at not long ago"
    bench.clock.time += LOOK_EVERY_S
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (200, 0)
    bench.gc.alive -= 80
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 120)
    bench.clock.time += LOOK_EVERY_S
    bench.gc.alive = 100
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 220), "less than as much again"


async def test_garbage_in_cycles_that_comes_fast_is_found_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what an hour brings was kept, whatever that is."""
    bench = Bench(monkeypatch)
    for alive in (200, 99):
        bench.gc.alive = alive
        bench.collect(2 * LONG_S)
    bench.gc.alive = 10
    bench.collect(2 * LONG_S)
    assert bench.gc.frozen == 409
    bench.gc.alive = 10
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (419, 0)


async def test_what_a_crowd_brings_is_no_reason_to_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 connections that invented ledgers brought a bookie five times what it had: 180 ms, no garbage."""
    bench = Bench(monkeypatch, few=1000)
    bench.clock.time += LOOK_EVERY_S
    for alive in (999, 1):
        bench.gc.alive = alive
        bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 1100), "a thousand more, when it ended"
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (1100, 0)


async def test_what_is_frozen_is_counted_only_where_it_may_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count walks to all of it: 16 ms with what a broker has for 4,000 connections, behind each long collection."""
    bench, collections = Bench(monkeypatch, few=20 * FROZEN_AT_ONCE, count_after=5), 0
    bench.gc.counts = 0
    for _ in range(18):
        bench.gc.alive = FROZEN_AT_ONCE // 2
        bench.collect(2 * LONG_S)
    assert not bench.gc.counts
    while bench.gc.frozen:
        bench.gc.alive = FROZEN_AT_ONCE // 2
        bench.collect(2 * LONG_S)
        collections += 1
    assert collections < 30 and 1 < bench.gc.counts <= 1 + 30 // 5, "it is found all the same"


async def test_behind_each_freeze_the_collector_learns_that_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had begun none before a quarter of all that was ever frozen had come: 65 ms with a million objects."""
    bench = Bench(monkeypatch)
    assert bench.gc.asked_for == [(100, 0), (0, 100)]
    bench.gc.alive = 50
    bench.collect(2 * LONG_S)
    assert len(bench.gc.asked_for) == 2, "not in the middle of another one"
    await asyncio.sleep(0)
    assert bench.gc.asked_for[2:] == [(0, 150)]


async def test_a_look_at_all_is_what_later_growth_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each growth is looked through again once the process is an hour old, or grew once."""
    bench = Bench(monkeypatch)
    for alive in (100, 0, 0):  # the second one is what finds twice as much, the third looks at all
        bench.clock.time += LOOK_EVERY_S
        bench.gc.alive += alive
        bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 200)
    bench.gc.alive = 200
    for _ in range(2):
        bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 400), "twice as much, but all was looked through not long ago"
    bench.clock.time += LOOK_EVERY_S
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (400, 0)


async def test_the_end_of_a_collection_that_began_before_the_start_is_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch)
    bench.clock.time, bench.gc.alive = 10.0, 50
    for heard in bench.gc.callbacks:
        heard("stop", {"generation": 2})
    assert (bench.gc.alive, bench.gc.frozen) == (50, 100)


async def test_another_thread_may_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, faults = Bench(monkeypatch), list[str]()
    loop = asyncio.get_running_loop()
    loop.set_debug(True)  # says what only the loop's own thread may call

    def collect() -> None:
        try:
            bench.collect(2 * LONG_S)
        except RuntimeError as error:
            faults.append(str(error))

    thread = threading.Thread(target=collect)
    thread.start()
    thread.join()
    loop.set_debug(False)
    await asyncio.sleep(0)
    assert not faults and len(bench.gc.asked_for) == 3


def test_a_collection_behind_the_end_of_the_loop_fails_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def made() -> Bench:
        return Bench(monkeypatch)

    bench = asyncio.run(made())
    bench.gc.alive = 50
    bench.collect(2 * LONG_S)
    assert (bench.gc.alive, bench.gc.frozen) == (0, 150)


async def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    assert bench.gc.threshold == (700, 10, FULL_AFTER)
    bench.collections.close()
    assert (bench.gc.callbacks, bench.gc.threshold) == ([], (700, 10, 10))
