"""What every store under a cluster's metadata promises (``bookkeeper/metadata/store.py``)."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.store import Absent, Change, Check, Create, Delete, MetadataStore, Update, Znode
from tallystick.errors import (
    MetadataConflict,
    MetadataError,
    NoSuchZnode,
    UsageError,
    ZnodeChanged,
    ZnodeExists,
    ZnodeNotEmpty,
)

if TYPE_CHECKING:
    from conformance.conftest import Place


class Connect(Protocol):
    async def __call__(self, *, session_timeout_s: float = 10.0) -> MetadataStore: ...


@pytest.fixture
def connect(place: Place) -> Connect:
    """Stores of one service."""

    async def connected(*, session_timeout_s: float = 10.0) -> MetadataStore:
        driver = await place.connect(session_timeout_s=session_timeout_s)
        assert isinstance(driver, ClusterMetadata)
        await driver.store.make()
        return driver.store

    return connected


@pytest.fixture
async def store(connect: Connect) -> MetadataStore:
    return await connect()


@pytest.fixture
async def other(connect: Connect) -> MetadataStore:
    return await connect()


@pytest.fixture
def root() -> str:
    return f"/t-{uuid.uuid4().hex}"  # ZooKeeper's server is there for all tests


async def get(store: MetadataStore, path: str) -> Znode:
    """One that must be there."""
    node = await store.get(path)
    assert node is not None
    return node


async def test_a_node_is_read_as_it_was_made(store: MetadataStore, other: MetadataStore, root: str) -> None:
    assert await other.get(f"{root}/a") is None
    await store.change(Create(f"{root}/a", b"\x00\xff"))
    await other.sync()
    node = await get(other, f"{root}/a")
    assert (node.data, node.version, node.owner) == (b"\x00\xff", 0, None)
    assert node.ctime_ms > 1_600_000_000_000
    with pytest.raises(ZnodeExists) as caught:
        await other.change(Create(f"{root}/a"))
    assert caught.value.path == f"{root}/a" and caught.value.retriable


async def test_the_nodes_above_are_made(store: MetadataStore, root: str) -> None:
    await store.change(Create(f"{root}/a/b/c", b"data"))
    assert await store.children(root) == ["a"]
    node = await get(store, f"{root}/a/b")
    assert (node.data, node.version, node.owner) == (b"", 0, None)
    assert await store.children(f"{root}/a/b/c") == []
    assert await store.children(f"{root}/a/d") is None


async def test_a_put_names_the_version_that_it_replaces(store: MetadataStore, other: MetadataStore, root: str) -> None:
    await store.change(Create(root, b"0"))
    await other.change(Update(root, b"1", 0))
    for version in (0, 2):
        with pytest.raises(ZnodeChanged) as caught:
            await store.change(Update(root, b"other", version))
        assert caught.value.expected == version and caught.value.stored in (None, 1)
    node = await get(store, root)
    assert (node.data, node.version) == (b"1", 1)
    with pytest.raises(NoSuchZnode):
        await store.change(Update(f"{root}/none", b"", 0))


async def test_a_deletion_may_name_a_version(store: MetadataStore, root: str) -> None:
    await store.change(Create(f"{root}/a"), Create(f"{root}/b"))
    await store.change(Update(f"{root}/a", b"1", 0))
    with pytest.raises(ZnodeChanged):
        await store.change(Delete(f"{root}/a", 0))
    with pytest.raises(ZnodeNotEmpty):
        await store.change(Delete(root))
    await store.change(Delete(f"{root}/a", 1))
    await store.change(Delete(f"{root}/b"))
    with pytest.raises(NoSuchZnode):
        await store.change(Delete(f"{root}/b"))
    await store.change(Delete(root))
    assert await store.children(root) is None


@pytest.mark.parametrize("path", ["", "/", "a", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a\0b"])
def test_paths_that_are_none_are_refused(path: str) -> None:
    with pytest.raises(UsageError):
        Create(path)


async def test_names_with_dots_are_names(store: MetadataStore, root: str) -> None:
    await store.change(Create(f"{root}/...", b"x"), Create(f"{root}/.a"), Create(f"{root}/b."))
    assert await store.children(root) == ["...", ".a", "b."]


async def test_children_are_sorted_and_whole(store: MetadataStore, other: MetadataStore, root: str) -> None:
    names = [f"{number:04d}" for number in range(300)]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    shuffled = random.Random(seed).sample(names, len(names))
    await store.change(Create(root))
    await asyncio.gather(*(store.change(Create(f"{root}/{name}")) for name in shuffled))
    await other.sync()
    assert await other.children(root) == names


async def test_reading_many_is_reading_each(store: MetadataStore, other: MetadataStore, root: str) -> None:
    paths = [f"{root}/{folder}/{number}" for folder in "abc" for number in range(50)]
    await asyncio.gather(*(store.change(Create(path, path.encode())) for path in paths))
    await store.change(Update(paths[3], b"changed", 0))
    await store.change(Delete(paths[4]))
    await other.sync()
    found = await other.get_many([*paths, f"{root}/none", f"{root}/none/x"])
    assert sorted(found) == sorted(path for path in paths if path != paths[4])
    for path in (paths[0], paths[3], paths[149]):
        assert found[path] == await other.get(path)
    assert await store.get_many([]) == {}


# -- several changes at once ------------------------------------------------------------------------------------------


async def test_changes_are_made_in_their_order(store: MetadataStore, root: str) -> None:
    await store.change(
        Create(root),
        Create(f"{root}/a", b"0"),
        Update(f"{root}/a", b"1", 0),
        Check(f"{root}/a", 1),
        Absent(f"{root}/b"),
        Create(f"{root}/b"),
        Delete(f"{root}/b"),
        Create(f"{root}/b", b"again"),
    )
    found = await store.get_many([f"{root}/a", f"{root}/b"])
    assert [(node.data, node.version) for node in found.values()] == [(b"1", 1), (b"again", 0)]


FAILING: list[tuple[Callable[[str], Change], type[MetadataConflict]]] = [
    (lambda root: Create(f"{root}/there"), ZnodeExists),
    (lambda root: Update(f"{root}/there", b"", 7), ZnodeChanged),
    (lambda root: Update(f"{root}/none", b"", 0), NoSuchZnode),
    (lambda root: Delete(f"{root}/there", 7), ZnodeChanged),
    (lambda root: Delete(f"{root}/none"), NoSuchZnode),
    (lambda root: Delete(root), ZnodeNotEmpty),
    (lambda root: Check(f"{root}/there", 7), ZnodeChanged),
    (lambda root: Check(f"{root}/none", 0), NoSuchZnode),
    (lambda root: Absent(f"{root}/there"), ZnodeExists),
]


@pytest.mark.parametrize(("failing", "kind"), FAILING, ids=lambda each: getattr(each, "__name__", "change"))
async def test_all_changes_are_made_or_none(
    store: MetadataStore, root: str, failing: Callable[[str], Change], kind: type[MetadataConflict]
) -> None:
    await store.change(Create(f"{root}/there", b"before"), Create(f"{root}/gone", b"before"))
    change = failing(root)
    with pytest.raises(kind) as caught:
        await store.change(
            Create(f"{root}/new"),
            Update(f"{root}/there", b"after", 0),
            Update(f"{root}/there", b"before", 1),
            Delete(f"{root}/gone"),
            change,
            Create(f"{root}/newer"),
        )
    assert type(caught.value) is kind and caught.value.path == change.path
    assert await store.children(root) == ["gone", "there"]
    assert [node.version for node in (await store.get_many([f"{root}/gone", f"{root}/there"])).values()] == [0, 0]


async def test_of_many_who_change_one_thing_each_wins_once(connect: Connect, root: str) -> None:
    stores = [await connect() for _ in range(4)]
    await stores[0].change(Create(f"{root}/sum", b"0"))

    async def add(store: MetadataStore, number: int) -> None:
        while True:
            await store.sync()
            node = await get(store, f"{root}/sum")
            more = Update(f"{root}/sum", b"%d" % (int(node.data) + 1), node.version)
            try:
                await store.change(more, Create(f"{root}/added-{number}"))
                return
            except ZnodeChanged:
                pass

    await asyncio.gather(*(add(stores[number % 4], number) for number in range(40)))
    await stores[1].sync()
    assert (await get(stores[1], f"{root}/sum")).data == b"40"
    assert len(await stores[1].children(root) or ()) == 41


# -- numbers, creations, moments --------------------------------------------------------------------------------------


async def test_a_number_is_given_once_with_what_is_made_of_it(connect: Connect, root: str) -> None:
    stores = [await connect() for _ in range(3)]
    await stores[0].change(Create(f"{root}/made-7"))

    async def take(store: MetadataStore) -> int | None:
        try:
            return await store.create_next(f"{root}/counter", lambda number: [Create(f"{root}/made-{number}", b"x")])
        except ZnodeExists:
            return None

    taken = await asyncio.gather(*(take(store) for store in stores * 5))
    assert sorted(each for each in taken if each is not None) == [number for number in range(15) if number != 7]
    assert await stores[0].create_next(f"{root}/counter", lambda number: []) == 15
    assert await stores[1].create_next(f"{root}/other", lambda number: []) == 0
    await stores[2].sync()
    assert await stores[2].create_next(f"{root}/counter", lambda number: [Create(root)], unless=f"{root}/other") is None
    assert await stores[2].create_next(f"{root}/counter", lambda number: [], unless=f"{root}/none") == 16
    await stores[2].sync()
    assert len(await stores[2].children(root) or ()) == 15 + 2, "and the two counters"


async def test_all_is_made_of_a_number_or_nothing(store: MetadataStore, root: str) -> None:
    assert await store.create_next(f"{root}/c", lambda number: [Create(f"{root}/a-{number}"), Create(f"{root}/b")]) == 0
    assert await store.get(f"{root}/a-0") is not None
    with pytest.raises(ZnodeExists):
        await store.create_next(f"{root}/c", lambda number: [Create(f"{root}/a-{number}"), Create(f"{root}/b")])
    assert await store.get(f"{root}/a-1") is None
    assert await store.create_next(f"{root}/c", lambda number: []) == 2


async def test_another_session_of_the_service_ends_by_itself(store: MetadataStore, root: str) -> None:
    another = await store.another(session_timeout_s=5.0)
    await another.change(Create(f"{root}/leased", ephemeral=True))
    await store.sync()
    node = await store.get(f"{root}/leased")
    assert node is not None
    assert node.owner in another.owners
    assert node.owner not in store.owners
    await another.close()
    await store.sync()
    assert await store.get(f"{root}/leased") is None
    assert await store.children(root) is not None, "the first session goes on"


async def test_what_is_made_again_has_another_creation(store: MetadataStore, other: MetadataStore, root: str) -> None:
    creations: list[int] = []
    before = (await other.sync()).newest
    for _ in range(3):
        await store.change(Create(root))
        point = await other.sync()
        creations.append((await get(other, root)).creation)
        assert before < creations[-1] <= point.newest
        await store.change(Update(root, b"x", 0))
        await other.sync()
        assert (await get(other, root)).creation == creations[-1], "a change is no creation"
        await store.change(Delete(root))
        before = (await other.sync()).newest
        assert before >= creations[-1], "what was created and deleted counts"
    assert len(set(creations)) == 3
    beyond = 1 << 62  # no service ever comes so far
    assert await other.never_made([*creations, beyond]) == {beyond}
    assert await other.never_made([]) == set()


async def test_between_equal_points_the_connection_was_the_same(store: MetadataStore, root: str) -> None:
    before = await store.sync()
    await store.change(Create(root))
    assert await store.sync() == before and before.generation == store.generation
    assert store.is_connected


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_an_ephemeral_node_ends_with_its_store(connect: Connect, other: MetadataStore, root: str) -> None:
    one = await connect()
    await one.change(Create(root), Create(f"{root}/mine", b"x", ephemeral=True))
    await other.sync()
    node = await get(other, f"{root}/mine")
    assert node.owner == one.owners[-1] and node.owner not in other.owners
    await other.change(Create(f"{root}/theirs", ephemeral=True))
    await one.close()

    async def gone() -> bool:
        return await other.children(root) == ["theirs"]

    await until(gone)
    assert await other.get(f"{root}/mine") is None
    await other.change(Create(f"{root}/mine"))


async def test_others_may_delete_and_replace_an_ephemeral_node(
    connect: Connect, other: MetadataStore, root: str
) -> None:
    one = await connect()
    await one.change(Create(root), Create(f"{root}/place", b"old", ephemeral=True))
    with pytest.raises(ZnodeExists):
        await other.change(Absent(f"{root}/place"), Create(f"{root}/more"))
    await other.change(Delete(f"{root}/place"), Create(f"{root}/place", b"new", ephemeral=True))
    await one.close()
    await other.sync()
    node = await get(other, f"{root}/place")
    assert (node.data, node.owner) == (b"new", other.owners[-1])


async def test_an_ephemeral_node_has_no_children(store: MetadataStore, root: str) -> None:
    await store.change(Create(root), Create(f"{root}/mine", ephemeral=True))
    with pytest.raises(MetadataError) as caught:
        await store.change(Create(f"{root}/mine/child"))
    assert not isinstance(caught.value, MetadataConflict)
    assert await store.children(f"{root}/mine") == []


# -- watches ----------------------------------------------------------------------------------------------------------


class Heard:
    """How often a watcher was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1

    async def after(self, change: Awaitable[None]) -> None:
        before = self.calls
        await change
        await until(lambda: self.calls > before)


async def test_a_watcher_hears_of_a_node(store: MetadataStore, other: MetadataStore, root: str) -> None:
    heard = Heard()
    await store.change(Create(root))
    for each in (store, other):
        each.watch(f"{root}/a", heard)
        await each.get(f"{root}/a")
        await heard.after(store.change(Create(f"{root}/a")))
        await heard.after(store.change(Update(f"{root}/a", b"1", 0)))
        await heard.after(store.change(Delete(f"{root}/a")))
        await heard.after(store.change(Create(f"{root}/a", ephemeral=True)))
        await heard.after(store.change(Delete(f"{root}/a")))
    assert heard.calls >= 10


async def test_a_node_that_is_made_again_at_once_was_changed(
    store: MetadataStore, other: MetadataStore, root: str
) -> None:
    heard = Heard()
    await store.change(Create(f"{root}/a"))
    await other.sync()
    other.watch(f"{root}/a", heard)
    await other.get(f"{root}/a")
    await heard.after(store.change(Delete(f"{root}/a"), Create(f"{root}/a")))
    assert heard.calls >= 1


async def test_a_watcher_hears_of_children(store: MetadataStore, other: MetadataStore, root: str) -> None:
    heard = Heard()
    await store.change(Create(root))
    await other.sync()
    other.watch_children(root, heard)
    assert await other.children(root) == []
    await heard.after(store.change(Create(f"{root}/a")))
    assert await other.children(root) == ["a"], "who is called sees the change"
    await heard.after(store.change(Create(f"{root}/b", ephemeral=True)))
    await heard.after(store.change(Delete(f"{root}/a")))
    await heard.after(store.close())
    assert await other.children(root) == []


async def test_watchers_of_other_things_and_cancelled_ones_hear_nothing(
    store: MetadataStore, other: MetadataStore, root: str
) -> None:
    unrelated, cancelled, heard = Heard(), Heard(), Heard()
    await store.change(Create(f"{root}/a"), Create(f"{root}/b"))
    await other.sync()
    other.watch(f"{root}/b", unrelated)
    other.watch_children(f"{root}/b", unrelated)
    other.watch(f"{root}/a", cancelled).cancel()
    other.watch(f"{root}/a", heard)
    await other.get(f"{root}/a")
    await heard.after(store.change(Update(f"{root}/a", b"x", 0)))
    await heard.after(store.change(Delete(f"{root}/a")))
    assert (unrelated.calls, cancelled.calls) == (0, 0)


async def test_after_close_nothing_works(connect: Connect, root: str) -> None:
    store = await connect()
    await store.close()
    calls: list[Awaitable[object]] = [
        store.get(root),
        store.children(root),
        store.change(Create(root)),
        store.sync(),
    ]
    for call in calls:
        with pytest.raises(MetadataError, match="closed"):
            await call
    await store.close()
