"""What a cluster's metadata makes of a store whose connection breaks, and of bookies that move; the rest is in
tests/conformance."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pytest

from tallystick.bookkeeper.metadata.changes import apply
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create, Delete, Point, Znode


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

    async def get(self, path: str) -> Znode | None:
        self.got.append((path.rpartition("/")[2], self.generation))
        return await super().get(path)


async def test_the_creation_of_a_cookie_is_not_read_from_a_server_that_may_lag() -> None:
    """A connection that is new since the sync may be to another one."""
    store = Breaking()
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await driver.write_cookie("b:1", b"cookie", None)
    store.breaks, store.got = 2, []
    assert await driver.bookie_creation("b:1") is not None
    assert store.got == [("b:1", 1), ("b:1", 2), ("b:1", 2)]


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
