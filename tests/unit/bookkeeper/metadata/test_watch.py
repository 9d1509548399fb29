"""Watchers: on their own loop, whatever thread tells them; and taking a place."""

from __future__ import annotations

import asyncio
import threading

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.metadata.watch import Watchers, children_key, keys_of, take_place
from tallystick.errors import MetadataConflict


async def test_a_callback_runs_on_the_loop_of_its_watcher() -> None:
    watchers, heard, where = Watchers(), asyncio.Event(), []

    def changed() -> None:
        where.append(threading.current_thread())
        heard.set()

    watchers.add("/1", changed)
    await asyncio.to_thread(watchers.notify, "/1")
    async with asyncio.timeout(10):
        await heard.wait()
    assert where == [threading.current_thread()]


def test_a_node_that_is_another_one_now_is_news_of_its_parent_too() -> None:
    """It went and came in one change: a registration of another process, or a lease."""
    first, written, other = Znode(b"", 0, 1, 5), Znode(b"x", 1, 1, 5), Znode(b"", 0, 2, 7)
    for before, after in ((None, first), (first, None), (first, other)):
        assert keys_of("/a/b", before, after) == ["/a/b", children_key("/a")]
    assert keys_of("/a/b", first, written) == ["/a/b"]
    assert keys_of("/a/b", first, first) == []


async def test_only_watchers_of_the_key_are_told() -> None:
    watchers, heard = Watchers(), []
    first = watchers.add("/1", lambda: heard.append(1))
    watchers.add("/2", lambda: heard.append(2))
    assert watchers.keys() == ["/1", "/2"]
    watchers.notify("/2")
    watchers.notify("/3")
    await asyncio.sleep(0)
    assert heard == [2]
    watchers.notify("/1")
    first.cancel()
    first.cancel()
    await asyncio.sleep(0)
    assert heard == [2], "cancelled while the call was on its way"
    assert watchers.keys() == ["/2"]


def test_a_watcher_whose_loop_is_closed_is_forgotten() -> None:
    watchers = Watchers()

    async def add() -> None:
        watchers.add("/1", lambda: None)

    asyncio.run(add())
    watchers.notify("/1")
    assert watchers.keys() == []


async def test_a_place_is_taken_when_it_becomes_free() -> None:
    watchers = Watchers()
    free, attempts = list[bool](), list[bool]()

    async def take() -> bool:
        attempts.append(bool(free))
        return attempts[-1]

    taking = asyncio.ensure_future(take_place("bookie-1", take, lambda changed: watchers.add("/1", changed), 10.0))
    await until(lambda: watchers.keys() == ["/1"] and attempts == [False])
    watchers.notify("/1")
    await until(lambda: attempts == [False, False])
    assert not taking.done()
    free.append(True)
    watchers.notify("/1")
    await taking
    assert attempts == [False, False, True]
    assert watchers.keys() == []


async def test_a_place_that_becomes_free_during_an_attempt_is_tried_again() -> None:
    watchers, attempts = Watchers(), list[bool]()

    async def take() -> bool:
        is_free = bool(attempts)
        if not is_free:
            watchers.notify("/1")
            await asyncio.sleep(0.01)
        attempts.append(is_free)
        return is_free

    await take_place("bookie-1", take, lambda changed: watchers.add("/1", changed), 5.0)
    assert attempts == [False, True]


async def test_a_place_that_stays_taken_is_a_conflict() -> None:
    watchers = Watchers()

    async def take() -> bool:
        return False

    with pytest.raises(MetadataConflict) as caught:
        await take_place("bookie-1", take, lambda changed: watchers.add("/1", changed), 0.02)
    assert caught.value.bookie == "bookie-1"
    assert watchers.keys() == []
