"""How many of those that wait for the next message are woken in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME
from tallystick.bookkeeper.ledger import connection
from tallystick.bookkeeper.ledger.follow import LacFollower
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.stream.stream import Stream

MOST_WOKEN = 8
MOST = 2 * MOST_WOKEN  # turns of the loop begin where they like
MANY = 3 * MOST


class Turns:
    """How often something was done in each turn, the newest last."""

    def __init__(self) -> None:
        self.counts = [0]

    def note(self) -> None:
        if not self.counts[-1]:
            asyncio.get_running_loop().call_soon(self.counts.append, 0)
        self.counts[-1] += 1

    def counted(self, method: Callable[..., Awaitable[None]]) -> Callable[..., Coroutine[Any, Any, None]]:
        """Returns the method, each end of which is noted."""

        async def count(*arguments: object) -> None:
            await method(*arguments)
            self.note()

        return count


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Of those that wait for more of a ledger, or for another list."""
    monkeypatch.setattr(connection, "MOST_WOKEN", MOST_WOKEN)
    turns = Turns()
    monkeypatch.setattr(LacFollower, "_wait", turns.counted(LacFollower._wait))
    monkeypatch.setattr(StreamList, "wait", turns.counted(StreamList.wait))
    return turns


async def test_of_cursors_that_wait_an_append_wakes_some_in_each_turn(cluster: SmallCluster, woken: Turns) -> None:
    """Five hundred were one turn of 130 ms; those that no longer wait keep nobody waiting."""
    bk = cluster.client(2)
    async with cluster.client(1).open_stream(NAME) as stream, AsyncExitStack() as stack:
        await stream.append(b"first")
        cursors = [
            await stack.enter_async_context(bk.cursor(NAME, f"c{number}", durable=False)) for number in range(MANY)
        ]
        assert [len(await cursor.read()) for cursor in cursors] == [1] * MANY
        reads = [asyncio.create_task(cursor.read()) for cursor in cursors]
        await asyncio.sleep(2.0)
        for read in reads[::3]:
            read.cancel()
        await stream.append(b"second")
        await asyncio.sleep(2.0)
        got = await asyncio.gather(*reads, return_exceptions=True)
        for number, messages in enumerate(got):
            if number % 3:
                assert not isinstance(messages, BaseException) and [each.data for each in messages] == [b"second"]
            else:
                assert isinstance(messages, asyncio.CancelledError)
        assert sum(woken.counts) >= MANY * 2 / 3 and max(woken.counts) <= MOST
        assert [len(await cursor.read()) for cursor in cursors[::3]] == [1] * len(cursors[::3])


async def roll(stream: Stream) -> None:
    await stream.roll_over()
    await stream.append(b"of the next ledger")


async def terminate(stream: Stream) -> None:
    await stream.append(b"of the next ledger")
    await stream.terminate()


@pytest.mark.parametrize("end", [roll, terminate])
async def test_of_readers_that_follow_the_end_of_a_ledger_wakes_some_in_each_turn(
    cluster: SmallCluster, woken: Turns, end: Callable[[Stream], Awaitable[None]]
) -> None:
    bk, got = cluster.client(2), [list[bytes]() for _ in range(MANY)]
    async with cluster.client(1).open_stream(NAME) as stream, bk.read_stream(NAME) as reader:

        async def follow(messages: list[bytes]) -> None:
            async for message in reader.read(follow=True):
                messages.append(message.data)

        await stream.append(b"first")
        following = [asyncio.create_task(follow(messages)) for messages in got]
        await asyncio.sleep(2.0)
        assert all(each == [b"first"] for each in got)
        await end(stream)
        await asyncio.sleep(2.0)
        assert all(each == [b"first", b"of the next ledger"] for each in got)
        assert sum(woken.counts) >= MANY and max(woken.counts) <= MOST
        await reader.close()
        await asyncio.gather(*following, return_exceptions=True)
