from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tallystick.errors import NoSuchMessage
from tallystick.pipeline.topic.fetch import AT_ONCE, FIRST_WINDOW, LARGEST_WINDOW, Pace, fetch_runs
from tallystick.pipeline.topic.plan import QueueRange
from tallystick.rocketmq.wire.values import MessageQueue


def test_it_doubles_while_brokers_give_all_that_is_asked_for() -> None:
    pace, asked = Pace(), []
    for _ in range(8):
        asked.append(pace.count)
        pace.responded(pace.count, pace.count)
    assert asked == [32, 64, 128, 256, 512, 1024, 1024, 1024] and (FIRST_WINDOW, LARGEST_WINDOW) == (32, 1024)


def test_it_falls_to_what_a_broker_gives_at_once() -> None:
    pace = Pace()
    pace.responded(32, 8)
    assert pace.count == 8


def test_the_short_end_of_a_range_says_nothing() -> None:
    pace = Pace()
    pace.responded(32, 32)
    pace.responded(3, 3)
    assert pace.count == 64


async def test_a_few_pulls_are_under_way_and_none_when_nobody_reads_on() -> None:
    under_way, most = 0, 0

    class Pulled:
        def __init__(self, count: int) -> None:
            self.run = range(count)

    class Client:
        async def pull(self, queue: MessageQueue, first: int, count: int) -> Pulled:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(60 if first else 0.001)
                return Pulled(count)
            finally:
                under_way -= 1

    runs = fetch_runs(cast(Any, Client()), [QueueRange(MessageQueue("T", "b", 0), 0, 100_000)])
    assert len((await anext(runs)).run) == FIRST_WINDOW
    await runs.aclose()
    assert (under_way, most) == (0, AT_ONCE)


async def test_what_is_deleted_is_left_out_and_nothing_behind_it() -> None:
    class Pulled:
        def __init__(self, first: int, count: int) -> None:
            self.run = range(first, first + count)

    class Client:
        async def pull(self, queue: MessageQueue, first: int, count: int) -> Pulled:
            if first < 20:
                raise NoSuchMessage("gone", queue=queue, offset=first, first=20, end=60)
            return Pulled(first, count)

    wanted = [QueueRange(MessageQueue("T", "b", 0), 10, 60)]
    runs = fetch_runs(cast(Any, Client()), wanted, fail_on_data_loss=False)
    assert [offset async for pulled in runs for offset in cast(Any, pulled).run] == list(range(20, 60))
    with pytest.raises(NoSuchMessage):
        await anext(fetch_runs(cast(Any, Client()), wanted))
