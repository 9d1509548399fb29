"""The store of a simulated process: sessions that expire, servers that lag, requests and responses that are lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tallystick.bookkeeper.metadata.changes import apply
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.errors import MetadataUncertain, ZnodeChanged, ZnodeExists
from tallystick.sim.remote_store import RemoteStore
from tallystick.sim.store_service import ADDRESS, StoreFaults, StoreService
from tallystick.sim.virtual.loop import VirtualClock, VirtualLoop
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace

SESSION_S = 2.0


class Setting:
    """A service, and processes with a store each."""

    def __init__(self, loop: VirtualLoop) -> None:
        rng = random.Random(1)
        self.fabric = Fabric(rng, Trace(loop.time))
        self.service = StoreService(self.fabric, rng, StoreFaults(), VirtualClock(loop))
        self._loop = loop

    def store(self, number: int) -> tuple[RemoteStore, Process]:
        process = Process(self._loop, f"p{number}", f"10.0.1.{number}")
        return RemoteStore(self.service, process, SESSION_S), process


Story = Callable[[Setting], Coroutine[Any, Any, None]]


def live(story: Story) -> None:
    loop = VirtualLoop(max_seconds=1000.0, max_turns=100_000)

    async def begin() -> None:
        await story(Setting(loop))

    try:
        loop.run_until_complete(begin())
    finally:
        loop.abandon()


def test_a_session_outlives_neither_its_process_nor_a_long_pause() -> None:
    async def story(setting: Setting) -> None:
        (one, died), (other, paused), (watcher, _) = map(setting.store, (1, 2, 3))
        await one.change(Create("/one", ephemeral=True))
        await other.change(Create("/other", ephemeral=True))
        told = list[str]()
        watcher.watch("/one", lambda: told.append("one"))
        other.watch("/any", lambda: told.append("any"))
        died.die()
        paused.pause()
        await asyncio.sleep(SESSION_S / 2)
        assert set(await watcher.get_many(["/one", "/other"])) == {"/one", "/other"}
        await asyncio.sleep(SESSION_S * 1.5)
        assert await watcher.get_many(["/one", "/other"]) == {}
        assert told == ["one"] and other.is_connected, "it knows of nothing yet"
        paused.go_on()
        await asyncio.sleep(SESSION_S)
        assert len(other.owners) == 2 and told == ["one", "any"] and other.generation == 1

    live(story)


def test_who_is_cut_off_knows_that_he_is_not_connected() -> None:
    async def story(setting: Setting) -> None:
        store, process = setting.store(1)
        await store.change(Create("/one", ephemeral=True))
        setting.fabric.cut([(process.address, ADDRESS)])
        with pytest.raises(MetadataUncertain):
            await store.change(Create("/two"))
        assert not store.is_connected
        setting.fabric.heal()
        await asyncio.sleep(SESSION_S)
        assert store.is_connected and len(store.owners) == 2
        assert await store.get("/one") is None and await store.get("/two") is None

    live(story)


def test_a_change_whose_response_was_lost_is_a_success() -> None:
    async def story(setting: Setting) -> None:
        (store, _), (other, _) = map(setting.store, (1, 2))
        for number in range(100):
            setting.service.faults = StoreFaults(lose_response=0.5, lose_request=0.1)
            try:
                await store.change(Create(f"/{number}", b"1"))
                await store.change(Update(f"/{number}", b"2", 0))
            except MetadataUncertain:
                continue
            setting.service.faults = StoreFaults()
            node = await other.get(f"/{number}")
            assert node is not None and node.data == b"2"
            with pytest.raises(ZnodeExists):
                await other.change(Create(f"/{number}", b"1"))
            with pytest.raises(ZnodeChanged):
                await other.change(Update(f"/{number}", b"2", 0))

    live(story)


def test_a_server_that_lags_shows_what_was_until_it_catches_up_and_then_tells_who_watches() -> None:
    async def story(setting: Setting) -> None:
        setting.service.faults = StoreFaults(longest_lag_s=1.0)
        (store, _), (other, _) = map(setting.store, (1, 2))
        await asyncio.sleep(1.0)
        await store.change(Create("/folder/one"))
        assert await store.get("/folder/one") is not None and await other.get("/folder/one") is None
        told = list[str]()
        other.watch("/folder/one", lambda: told.append("one"))
        other.watch_children("/folder", lambda: told.append("folder"))
        await asyncio.sleep(1.5)
        assert sorted(told) == ["folder", "one"] and await other.children("/folder") == ["one"]
        await store.change(Create("/folder/two"))
        assert await other.get("/folder/two") is None
        await other.sync()
        assert await other.children("/folder") == ["one", "two"]

    live(story)


def test_another_store_has_a_session_of_its_own_which_ends_with_it() -> None:
    async def story(setting: Setting) -> None:
        store, _ = setting.store(1)
        another = await store.another(session_timeout_s=1.0)
        await another.change(Create("/lease", ephemeral=True))
        await store.change(Create("/mine", ephemeral=True))
        await another.close()
        assert set(await store.get_many(["/lease", "/mine"])) == {"/mine"}
        assert len(setting.service.sessions) == 1
        setting.service.sessions[0].expire()
        assert await store.get("/mine") is None and len(store.owners) == 2

    live(story)


def test_a_number_whose_nodes_may_have_been_made_is_not_used_again() -> None:
    """Somebody finds them, and deletes them; what was made then would have the name of what is deleted."""

    async def story(setting: Setting) -> None:
        (store, _), (other, _) = map(setting.store, (1, 2))
        service, numbers = setting.service, list[int]()

        def create(number: int) -> list[Create]:
            if not numbers:
                service.faults = StoreFaults(lose_response=1.0)
                delete_soon()
            numbers.append(number)
            return [Create(f"/made/{number}", b"x")]

        def delete_soon() -> None:
            if service.tree.find("/made/0") is None:
                asyncio.get_running_loop().call_later(0.0001, delete_soon)
                return
            service.tree.transact(lambda: apply(service.tree, [Delete("/made/0")], ""))
            service.faults = StoreFaults()

        assert await store.create_next("/ids", create) == 1 and numbers == [0, 1]
        assert await other.children("/made") == ["1"]

    live(story)


def test_a_number_whose_nodes_were_made_is_the_one_though_the_response_is_lost() -> None:
    async def story(setting: Setting) -> None:
        (store, _), (other, _) = map(setting.store, (1, 2))
        for number in range(50):
            setting.service.faults = StoreFaults(lose_response=0.3, lose_request=0.2)
            try:
                taken = await store.create_next("/ids", lambda number: [Create(f"/made/{number}", b"x")])
            except MetadataUncertain:
                continue
            setting.service.faults = StoreFaults()
            assert await other.get(f"/made/{taken}") is not None, number
        made = await other.children("/made")
        assert made is not None and len(made) == len({*made})

    live(story)
