"""What a cluster's metadata makes of a store whose connection breaks, and of bookies that move; the rest is in
tests/conformance."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from tallystick.bookkeeper.metadata.changes import apply
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import BookiePresence
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create, Delete, Point, Znode
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataError


class Breaking(MemoryStore):
    """Its connection breaks behind the next syncs."""

    def __init__(self) -> None:
        super().__init__(uuid.uuid4().hex)
        self.generation = 0
        self.breaks = 0
        self.got: list[tuple[str, int]] = []  # with the connection that was asked

    async def sync(self) -> Point:
        point = await super().sync()
        if self.breaks:
            self.breaks -= 1
            self.generation += 1
        return point

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        self.got += [("/".join(path.split("/")[2:]), self.generation) for path in paths]
        return await super().get_many(paths)


@pytest.mark.parametrize("read", [ClusterMetadata.bookie_creation, ClusterMetadata.read_cookie])
async def test_a_cookie_is_not_read_from_a_server_that_may_lag(
    read: Callable[[ClusterMetadata, BookieId], Awaitable[object]],
) -> None:
    """A connection that is new since the sync may be to another one."""
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await driver.write_cookie("b:1", b"cookie", None)
    store.breaks, store.got = 2, []
    assert await read(driver, "b:1") is not None
    assert store.got == [("cookies/b:1", 1), ("cookies/b:1", 2), ("cookies/b:1", 2)]


async def test_where_no_cluster_is_no_id_is_drawn() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    with pytest.raises(MetadataError, match="there is no cluster here"):
        await ClusterMetadata(store).skip_ids([7])
    assert await store.children("") in (None, [])


async def test_nor_is_where_a_bookie_is_registered() -> None:
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    data = registration.encode(BookieInfo.at("127.0.0.1", 3181))
    await store.change(Create(f"{DEFAULT_ROOT}/available/b:1", data, ephemeral=True))
    await driver.instance_id()
    store.breaks, store.got = 1, []
    assert await driver.bookie_presence("b:1") == BookiePresence(None, ("127.0.0.1", 3181))
    paths = ["cookies/b:1", "available/b:1", "available/readonly/b:1"]
    assert store.got == [(path, generation) for generation in (1, 1) for path in paths]


async def test_an_original_that_registers_nothing_but_its_id_is_where_that_says() -> None:
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await store.change(Create(f"{DEFAULT_ROOT}/available/host:3181", ephemeral=True))
    assert await driver.bookie_presence("host:3181") == BookiePresence(None, ("host", 3181))


async def test_a_bookie_that_moves_between_the_lists_is_registered() -> None:
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    place = await driver.register("b:1", BookieInfo.at("127.0.0.1", 3181), read_only=True)
    for _ in range(10):
        await asyncio.sleep(0)  # or the registration's own look were the read in which it moves
    get_many = store.get_many

    async def moving(paths: Sequence[str]) -> Mapping[str, Znode]:
        """Read the writable ones before the bookie enters there, and the others when it has left them."""
        store.get_many = get_many  # type: ignore[method-assign]  # once
        early = await get_many(paths[:-1])
        await place.set_read_only(False)
        return {**early, **await get_many(paths[-1:])}

    store.get_many = moving  # type: ignore[method-assign]
    assert (await driver.bookie_presence("b:1")).address == ("127.0.0.1", 3181)
    assert store.get_many is get_many, "it moved"


async def test_a_look_tells_of_a_connection_that_broke_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    seen = await driver.look([7])
    assert seen.start == seen.end
    get_many = store.get_many

    async def breaks(paths: Sequence[str]) -> Mapping[str, Znode]:
        store.generation += any("/L" in path for path in paths)
        return await get_many(paths)

    monkeypatch.setattr(store, "get_many", breaks)
    seen = await driver.look([7])
    assert seen.start.instance == seen.end.instance and seen.start != seen.end


class Moving(MemoryStore):
    """When one of the lists was read its bookie goes over to the other."""

    source = target = ""

    async def children(self, path: str) -> list[str] | None:
        found = await super().children(path)
        if path == self.target.rpartition("/")[0]:
            moves = Create(self.target), Delete(self.source)
            self.target = ""
            self._tree.transact(lambda: apply(self._tree, moves, self.owners[0]))
        return found


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_bookie_that_moves_while_the_lists_are_read_is_in_one_of_them(read_only: bool) -> None:
    store = Moving(uuid.uuid4().hex)
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    places = [f"{driver._available}/b:1", f"{driver._read_only}/b:1"]
    source, target = places if read_only else places[::-1]
    await store.change(Create(source))
    store.source, store.target = source, target
    found = await driver.bookies()
    assert [*found.writable, *found.read_only] == ["b:1"]
    assert ("b:1" in found.read_only) is read_only
