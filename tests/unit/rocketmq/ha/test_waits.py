"""Very many waits that are over at once."""

from __future__ import annotations

import asyncio

import pytest

from support.clocks import ManualClock
from tallystick.rocketmq.ha.acks import Settle
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.ha.waits import SETTLES_EACH_TURN, Waits

WAITS = 5 * SETTLES_EACH_TURN


class Bench:
    def __init__(self) -> None:
        self.told: list[list[Settle]] = []
        self.waits = Waits(ManualClock(), HaSettings(sync_flush=True), self.told.append, flushed=0)
        self.tickets = [self.waits.appended(end, flush=True, replicas=False).ticket for end in range(1, WAITS + 1)]

    @property
    def told_tickets(self) -> list[int]:
        return [settle.ticket for settles in self.told for settle in settles]


async def test_what_a_late_disk_ends_is_told_over_many_turns_in_its_order() -> None:
    """11,000 sends were a turn of 28 ms, and a hundred thousand may wait."""
    bench = Bench()
    bench.waits.flushed(WAITS - 1)
    assert len(bench.told_tickets) == SETTLES_EACH_TURN
    bench.waits.flushed(WAITS)  # behind them
    assert len(bench.told_tickets) == SETTLES_EACH_TURN
    while len(bench.told_tickets) < WAITS:
        before = len(bench.told_tickets)
        await asyncio.sleep(0)
        assert 0 < len(bench.told_tickets) - before <= SETTLES_EACH_TURN
    assert bench.told_tickets == bench.tickets
    bench.waits.close()


async def test_who_gives_up_or_closes_tells_all_of_them_at_once_and_each_once() -> None:
    for end_all in (Waits.give_up, Waits.close):
        bench = Bench()
        bench.waits.flushed(WAITS)
        end_all(bench.waits)
        assert bench.told_tickets == bench.tickets
        await asyncio.sleep(0)
        assert bench.told_tickets == bench.tickets
        bench.waits.close()


async def test_after_all_gave_up_the_next_ones_are_told() -> None:
    bench = Bench()
    bench.waits.flushed(WAITS)
    bench.waits.give_up()
    ticket = bench.waits.appended(WAITS + 1, flush=True, replicas=False).ticket
    bench.waits.flushed(WAITS + 1)
    assert bench.told_tickets == [*bench.tickets, ticket]
    bench.waits.close()


async def test_a_fault_in_telling_some_leaves_the_others_their_turn() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    bench, calls = Bench(), list[int]()

    def settled(settles: list[Settle]) -> None:
        calls.append(len(settles))
        if len(calls) == 1:
            raise ZeroDivisionError("a bug")

    bench.waits._settled = settled
    with pytest.raises(ZeroDivisionError):
        bench.waits.flushed(WAITS)
    for _ in range(WAITS):
        await asyncio.sleep(0)
    assert sum(calls) == WAITS
    bench.waits.close()
