"""Bookies that are asked last for a while, by all reads of one client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.clocks import ManualClock
from tallystick.bookkeeper.ledger.ranges import Range
from tallystick.bookkeeper.ledger.slow_bookies import NEVER, SlowBookies
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import DigestType
from unit.bookkeeper.ledger.test_fetch import LEDGER, NAMES, collect, payload, store

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench


def test_a_bookie_is_remembered_for_a_while_since_it_failed_last() -> None:
    clock = ManualClock(100.0)
    slow = SlowBookies(clock, 60.0)
    assert not slow and slow.since("a") == NEVER
    slow.add("a")
    clock.time = 130.0
    slow.add("b")
    assert sorted("cba", key=slow.since) == ["c", "a", "b"]  # the older failure first
    clock.time = 160.0
    assert (slow.since("a"), slow.since("b")) == (NEVER, 130.0)
    slow.add("b")
    clock.time = 219.0
    assert slow.since("b") == 160.0
    clock.time = 220.0
    assert slow.since("b") == NEVER and not slow


def test_with_0_seconds_nothing_is_remembered() -> None:
    slow = SlowBookies(ManualClock(), 0.0)
    slow.add("a")
    assert not slow and slow.since("a") == NEVER


@pytest.mark.parametrize(("quorum", "hang"), [(3, ["b1", "b2"]), (2, ["b2"])])
async def test_66_two_that_hang_cost_two_waits_and_the_next_reads_none(
    bench: Bench, quorum: int, hang: list[str]
) -> None:
    await bench.bookie(*NAMES)
    only = store(bench, NAMES, quorum, 0, 2)._replace(first=0, last=0)
    hanging = [bench.bookies[name] for name in hang]
    for bookie in hanging:
        bookie.script = lambda request: None
    client, loop = bench.client(speculative_read_s=1.0, read_timeout_s=60.0), asyncio.get_running_loop()
    began_at = loop.time()
    assert await collect(client, only) == [0]
    waited_s = loop.time() - began_at
    assert quorum - 1 <= waited_s < quorum - 1 + 0.5
    requests = [len(bookie.requests) for bookie in hanging]
    for _ in range(5):
        began_at = loop.time()
        assert await collect(client, only) == [0]
        assert loop.time() - began_at < 0.5
    assert [len(bookie.requests) for bookie in hanging] == requests
    assert client.counts.speculative_reads == quorum - 1


async def test_66_a_late_first_answer_is_harmless_and_one_that_comes_in_time_asks_nobody_else(bench: Bench) -> None:
    b1, b2 = await bench.bookie("b1", "b2")
    only = store(bench, ("b1", "b2"), 2, 0, 0)
    client = bench.client(speculative_read_s=1.0, read_timeout_s=60.0, ask_last_s=0.0)
    assert await collect(client, only) == [0]
    await asyncio.sleep(5)
    assert not b2.requests and client.counts.speculative_reads == 0
    late = []
    b1.script = lambda request: late.append(request)  # nothing is answered yet
    assert await collect(client, only) == [0]
    assert len(b2.requests) == 1
    b1.script = None
    b1.say(b1.default(late[0]) or b"")
    await asyncio.sleep(0.01)
    assert await collect(client, only) == [0]
    assert len(b2.requests) == 1 and client.counts.speculative_reads == 1


@pytest.mark.parametrize("fault", ["code", "damage", "down"])
async def test_who_failed_is_asked_last_by_every_read_for_a_while(bench: Bench, fault: str) -> None:
    b1, _, _ = await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 0)
    if fault == "code":
        b1.misbehave = lambda request: Code.IO_ERROR
    elif fault == "damage":
        b1.entries[LEDGER, 0] = b1.entries[LEDGER, 0][:-1] + b"\x00"
    else:
        b1.script = lambda request: b1.CLOSE
    client = bench.client(ask_last_s=10.0)
    assert await collect(client, stored_range) == [0]
    asked = len(b1.requests)
    assert asked and await collect(client, stored_range) == [0]
    assert len(b1.requests) == asked
    await asyncio.sleep(10.1)
    assert await collect(client, stored_range) == [0]
    assert len(b1.requests) == asked + 1, "it may be well again"


async def test_who_has_not_an_entry_is_not_asked_last(bench: Bench) -> None:
    b1, _, _ = await bench.bookie(*NAMES)
    stored_range = store(bench, NAMES, 3, 0, 0)
    del b1.entries[LEDGER, 0]
    client = bench.client()
    for reads in (1, 2):
        assert await collect(client, stored_range) == [0]
        assert len(b1.requests) == reads
    assert client.counts.read_errors == {"NO_ENTRY": 2}


async def test_70_sticky_reads_begin_at_one_bookie_and_after_its_failure_at_exactly_one_other(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    whole = store(bench, NAMES, 3, 0, 29)
    client = bench.client(sticky_reads=True)

    async def serving() -> list[str]:
        for bookie in bench.bookies.values():
            bookie.requests.clear()
        for entry in range(30):
            assert await collect(client, whole._replace(first=entry, last=entry)) == [entry]
        return [name for name, bookie in bench.bookies.items() if bookie.requests]

    (first,) = await serving()
    assert await serving() == [first]
    await bench.bookies[first].stop()
    (second,) = await serving()
    assert second != first and await serving() == [second]


async def test_70_striped_ledgers_use_all_bookies_sticky_or_not(bench: Bench) -> None:
    await bench.bookie(*NAMES)
    striped = store(bench, NAMES, 2, 0, 29)
    assert await collect(bench.client(sticky_reads=True), striped) == list(range(30))
    assert all(bookie.requests for bookie in bench.bookies.values())
    unstriped = Range(LEDGER + 1, 0, 29, NAMES, 3, DigestType.CRC32C)
    for bookie in bench.bookies.values():
        bookie.requests.clear()
        for entry in range(30):
            bookie.entries[LEDGER + 1, entry] = bench.entry(LEDGER + 1, entry, payload(entry))
    client = bench.client()
    for entry in range(30):
        assert await collect(client, unstriped._replace(first=entry, last=entry)) == [entry]
    assert all(bookie.requests for bookie in bench.bookies.values()), "each entry's first replica"


async def test_70_a_striped_ledger_is_read_past_a_bookie_that_fails_with_sticky_reads_too(bench: Bench) -> None:
    """Each entry is asked for at its own write set."""
    await bench.bookie(*NAMES)
    striped = store(bench, NAMES, 2, 0, 29)
    await bench.bookies[NAMES[LEDGER % 3]].stop()
    client = bench.client(sticky_reads=True)
    for _ in range(2):  # the second time it is known to have failed
        assert await collect(client, striped) == list(range(30))
