"""What all readers of a client do in one turn of the loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.turn_work import MOST_WORK, PART_WORK, TurnWork


async def test_a_turn_has_an_end_and_those_that_wait_go_on_some_at_a_time() -> None:
    turn, order = TurnWork(), list[int]()

    async def work(number: int) -> None:
        if turn.did(PART_WORK):
            await turn.wait()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(40)]
    tasks[30].cancel()
    counts = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        counts.append(len(order))
    a_turn = MOST_WORK // PART_WORK
    assert order == [number for number in range(40) if number != 30]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= a_turn and counts[-1] == 39


async def test_one_whose_turn_came_may_go_without_it() -> None:
    turn = TurnWork()
    assert turn.did(MOST_WORK)
    gone, next_one = [asyncio.create_task(turn.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    await next_one
    assert not turn.did(1)


async def test_those_that_went_take_no_place_of_others() -> None:
    turn = TurnWork()
    assert turn.did(MOST_WORK)
    gone = [asyncio.create_task(turn.wait()) for _ in range(1000)]
    await asyncio.sleep(0)
    for each in gone:
        each.cancel()
    await asyncio.sleep(0)
    last = asyncio.create_task(turn.wait())
    for _ in range(3):
        await asyncio.sleep(0)
    assert last.done()


@pytest.mark.parametrize("is_cursor", [False, True])
async def test_forty_followers_get_a_hundred_messages_in_many_turns(cluster: SmallCluster, is_cursor: bool) -> None:
    """A thousand cursors that got 60 messages were a turn of 113 ms."""
    bk, got, of_turn = cluster.client(2), 0, list[int]()

    async def follow(number: int) -> None:
        nonlocal got
        async for _ in messages(bk, number if is_cursor else None):
            got += 1
            if not of_turn[-1]:
                asyncio.get_running_loop().call_soon(of_turn.append, 0)
            of_turn[-1] += 1

    async with cluster.client().open_stream(NAME) as stream:
        await stream.append(b"first")
        of_turn.append(0)
        followers = [asyncio.create_task(follow(number)) for number in range(40)]
        await asyncio.sleep(5.0)
        assert got == 40
        await asyncio.gather(*[stream.append(b"x") for _ in range(100)])
        await asyncio.sleep(5.0)
        assert got == 40 * 101 and max(of_turn) <= MOST_WORK
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


async def test_others_have_turns_while_long_batches_are_read(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fifty batches many come with one read of a bookie."""
    waits, wait = 0, TurnWork.wait

    async def counted(turn: TurnWork) -> None:
        nonlocal waits
        waits += 1
        await wait(turn)

    async with cluster.client(1).open_stream(NAME) as stream:
        for _ in range(50):
            await stream.append_batch([b"x"] * MOST_WORK)
        await asyncio.sleep(0.3)
        async with cluster.client(2).cursor(NAME, "billing", durable=False) as cursor:
            monkeypatch.setattr(TurnWork, "wait", counted)
            assert len(await cursor.read(50 * MOST_WORK)) == 50 * MOST_WORK
            assert waits >= 49


async def test_of_very_many_that_are_acknowledged_at_once_each_turn_does_some(cluster: SmallCluster) -> None:
    """5,000 were a turn of 75 ms."""
    async with cluster.client(1).open_stream(NAME) as stream:
        positions = await asyncio.gather(*[stream.append(b"x") for _ in range(4 * MOST_WORK)])
        await asyncio.sleep(0.3)
        async with cluster.client(2).cursor(NAME, "billing", durable=False) as cursor:
            left = [await cursor.refresh()]
            calls = (cursor.ack, cursor.ack_up_to)
            acks = [asyncio.ensure_future(calls[number % 2](at)) for number, at in enumerate(positions)]
            while left[-1]:
                await asyncio.sleep(0)
                left.append(cursor.backlog)
            await asyncio.gather(*acks)
            assert left[0] == len(positions)
            assert max(before - after for before, after in itertools.pairwise(left)) <= MOST_WORK


async def messages(bk: BookKeeper, number: int | None) -> AsyncIterator[object]:
    if number is None:
        async with bk.read_stream(NAME) as reader:
            async for message in reader.read(follow=True):
                yield message
    else:
        async with bk.cursor(NAME, f"c{number}", durable=False) as cursor:
            async for message in cursor:
                yield message
