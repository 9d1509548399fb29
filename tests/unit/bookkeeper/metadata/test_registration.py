"""What a registration does when nobody can keep it up; the rest is in tests/conformance."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.registration import StoreRegistration
from tallystick.bookkeeper.metadata.store import Create, Creation, Delete, Znode
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import MetadataConflict, MetadataUncertain

INFO = BookieInfo.at("127.0.0.1", 3181)


class Failing(MemoryStore):
    """Its next reads fail as it is told to."""

    fails: Exception | None = None
    failed = 0

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        if self.fails is not None:
            self.failed += 1
            raise self.fails
        return await super().get_many(paths)


def registration(store: MemoryStore) -> StoreRegistration:
    return StoreRegistration(store, "/available", "b:1", INFO, False)


async def kept(store: MemoryStore) -> StoreRegistration:
    made = registration(store)
    await made.enter(replace=False)
    await until(lambda: made._look_task is None)
    return made


def made_again(store: MemoryStore, place: str, before: Creation) -> bool:
    node = store._tree.nodes.get(place)
    return node is not None and node.creation > before


@pytest.fixture
def store() -> Failing:
    return Failing(uuid.uuid4().hex)


async def test_a_registration_is_reached_while_its_session_has_a_server(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reached in (True, False, True):
        monkeypatch.setattr(MemoryStore, "is_connected", reached)
        assert registration(store).is_reached is reached


async def test_metadata_that_do_not_answer_are_asked_again(store: Failing) -> None:
    made = await kept(store)
    store.fails = MetadataUncertain("away")
    await store.change(Delete("/available/b:1"))
    await until(lambda: store.failed >= 2)
    assert not made.loss.is_set()
    store.fails = None
    await until(lambda: "/available/b:1" in store._tree.nodes)
    assert not made.loss.is_set()


async def test_a_look_that_dies_ends_the_bookie_with_its_reason(store: Failing) -> None:
    made = await kept(store)
    store.fails = ZeroDivisionError("a bug")
    await store.change(Delete("/available/b:1"))
    await made.loss.wait()
    assert made.failure is store.fails
    store.fails = None
    await store.change(Create("/available/b:1"))  # nobody looks any more
    await made.close()


class Late(MemoryStore):
    """Something happens while the answer to a read is on its way."""

    happens: Callable[[], Awaitable[None]] | None = None

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        found = await super().get_many(paths)
        if self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()
        return found


async def test_a_registration_that_goes_while_it_is_looked_at_is_made_again() -> None:
    store = Late(uuid.uuid4().hex)
    made = await kept(store)

    async def gone() -> None:
        await store.change(Delete("/available/b:1"))
        for _ in range(3):
            await asyncio.sleep(0)  # it is heard of before the answer comes

    store.happens = gone
    made._changed()
    await until(lambda: made._look_task is None)
    assert "/available/b:1" in store._tree.nodes


async def test_a_registration_that_moved_is_kept_up_where_it_is(store: Failing) -> None:
    made = await kept(store)
    for read_only, place in ((True, "/available/readonly/b:1"), (False, "/available/b:1")):
        await made.set_read_only(read_only)
        for _ in range(10):
            await asyncio.sleep(0)  # what is told of the place that it left is heard
        await until(lambda: made._look_task is None)
        creation = store._tree.nodes[place].creation
        await store.change(Delete(place))
        await until(partial(made_again, store, place, creation))
        assert [path for path in store._tree.nodes if path.endswith("/b:1")] == [place], "in one of the lists alone"
    await made.close()


async def test_a_registration_that_could_not_move_is_kept_up_where_it_was(store: Failing) -> None:
    """What a bookie was not told of has not happened: it takes itself for writable."""
    made = await kept(store)
    store.fails = MetadataUncertain("away")
    with pytest.raises(MetadataUncertain):
        await made.set_read_only(True)
    store.fails, creation = None, store._tree.nodes["/available/b:1"].creation
    await store.change(Delete("/available/b:1"))
    await until(partial(made_again, store, "/available/b:1", creation))
    assert [path for path in store._tree.nodes if path.endswith("/b:1")] == ["/available/b:1"]
    await made.close()


async def test_a_registration_that_moved_in_part_leaves_both_lists(store: Failing) -> None:
    made = await kept(store)
    await store.change(Create("/available/readonly/b:1", ephemeral=True))
    await made.close()
    assert not [path for path in store._tree.nodes if path.endswith("/b:1")]


async def test_two_processes_with_one_id_are_not_each_in_one_of_the_lists() -> None:
    """The other one goes into the list of the read-only ones when this one has just seen that nobody is there."""
    store = Late(uuid.uuid4().hex)
    other = StoreRegistration(MemoryStore(store.where.removeprefix("memory://")), "/available", "b:1", INFO, True)

    async def enters() -> None:
        await other.enter(replace=False)

    store.happens = enters
    assert not await registration(store).take(replace=False)
    assert await store.get("/available/b:1") is None
    assert await store.get("/available/readonly/b:1") is not None
    await other.close()


@pytest.mark.parametrize("meanwhile", ["taken out", "taken out, and its session goes on", "another joined"])
async def test_a_bookie_that_was_taken_out_while_it_hung_is_not_registered_again(
    store: Failing, meanwhile: str
) -> None:
    """Its folders start no bookie any more: what it would take could not be had again after its end."""
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await driver.write_cookie("b:1", b"cookie", None)
    made = await driver.register("b:1", INFO, joined=await driver.bookie_creation("b:1"))
    assert isinstance(made, StoreRegistration)
    await store.change(Delete("/ledgers/available/b:1"))
    await until(lambda: "/ledgers/available/b:1" in store._tree.nodes)
    assert not made.loss.is_set()
    await store.change(Delete("/ledgers/cookies/b:1"))
    if meanwhile == "another joined":
        await store.change(Create("/ledgers/cookies/b:1", b"another"))
    if "goes on" in meanwhile:
        made._changed()
    else:
        await store.change(Delete("/ledgers/available/b:1"))
    await made.loss.wait()
    assert "taken out" in str(made.failure)
    await store.close()
    assert "/ledgers/available/b:1" not in store._tree.nodes


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("another_joined", [False, True])
async def test_nor_is_one_that_was_taken_out_while_it_started(
    store: Failing, replace: bool, another_joined: bool
) -> None:
    """A start that replays its journal takes its time, and nobody is registered meanwhile."""
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await driver.write_cookie("b:1", b"cookie", None)
    checked = await driver.read_cookie("b:1")
    assert checked is not None and checked.creation is not None
    await driver.delete_cookie("b:1", checked.version, is_down=True)
    if another_joined:
        await driver.write_cookie("b:1", b"cookie", None)
    with pytest.raises(MetadataConflict, match="taken out"):
        await driver.register("b:1", INFO, replace=replace, joined=checked.creation)
    assert "/ledgers/available/b:1" not in store._tree.nodes


async def test_a_bookie_that_rejoined_is_registered_again_as_any_other(store: Failing) -> None:
    """Its cookie is of another version than when it rejoined: by its own registration."""
    driver = ClusterMetadata(store)
    await driver.init_cluster()
    await driver.write_cookie("b:1", b"", None)
    cookie = await driver.read_cookie("b:1")
    assert cookie is not None
    made = await driver.register("b:1", INFO, joined=cookie.creation, since=cookie.version)
    place = "/ledgers/available/b:1"
    before = store._tree.nodes[place].creation
    await store.change(Delete(place))
    await until(lambda: made_again(store, place, before))
    await made.set_read_only(True)
    assert list((await driver.bookies()).read_only) == ["b:1"] and not made.loss.is_set()
    await driver.close()


async def test_a_registration_that_moves_to_and_fro_watches_one_place(store: Failing) -> None:
    made = await kept(store)
    watches = len(store._tree.watchers)
    for read_only in (True, False, True):
        await made.set_read_only(read_only)
        assert len(store._tree.watchers) == watches
    await made.close()
    assert len(store._tree.watchers) == 0


class Waiting(MemoryStore):
    """A change takes effect, and its answer comes when it is let through."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.made, self.answered = asyncio.Event(), asyncio.Event()

    async def change(self, *changes: Any) -> None:
        await super().change(*changes)
        self.made.set()
        await self.answered.wait()


async def test_a_registration_that_is_cancelled_leaves_the_place_that_it_took() -> None:
    store = Waiting(uuid.uuid4().hex)
    entering = asyncio.ensure_future(registration(store).enter(replace=False))
    await store.made.wait()
    entering.cancel()
    store.answered.set()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert await store.children("/available") == []


async def test_a_registration_that_is_cancelled_while_it_waits_takes_nothing_from_the_holder(store: Failing) -> None:
    holder, other = await kept(store), MemoryStore(store.where.removeprefix("memory://"))
    entering = asyncio.ensure_future(registration(other).enter(replace=False))
    await until(lambda: len(store._tree.watchers) == 2)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    node = await store.get("/available/b:1")
    assert node is not None and node.owner == store.owners[-1] and not holder.loss.is_set()


async def test_a_bookie_that_is_taken_out_as_it_registers_again_is_not_registered() -> None:
    """Its cookie goes while the answer is on its way that says that it is there."""
    store = Late(uuid.uuid4().hex)
    await store.change(Create("/cookie", b"of b:1"))
    cookie = await store.get("/cookie")
    assert cookie is not None
    made = StoreRegistration(store, "/available", "b:1", INFO, False, cookie="/cookie", joined=cookie.creation)
    await made.enter(replace=False)
    await until(lambda: made._look_task is None)

    async def taken_out() -> None:
        await store.change(Delete("/cookie"))

    store.happens = taken_out
    await store.change(Delete("/available/b:1"))
    await made.loss.wait()
    assert "taken out" in str(made.failure) and "/available/b:1" not in store._tree.nodes
