"""Placement and quarantine, and the directory that both rest on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.clocks import ManualClock
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.placement import Placement, choose
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.ledger.striping import striping_of
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.registration import AUTH
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import BookieUnavailable, MetadataUnavailable, NotEnoughBookies

SIZES = striping_of(3, 2, 2)


@pytest.mark.rule("Q2")
@given(st.integers(1, 6), st.sets(st.integers(0, 7)), st.integers(0, 1000))
def test_q2_different_bookies_and_doubtful_ones_only_where_needed(count: int, doubtful: set[int], seed: int) -> None:
    writable = [f"b{number}" for number in range(8)]
    avoid = {f"b{number}" for number in doubtful}
    chosen = choose(random.Random(seed), writable, count, avoid)
    assert len(set(chosen)) == count and set(chosen) <= set(writable)
    assert len(set(chosen) & avoid) == max(0, count - (8 - len(avoid)))


@pytest.mark.rule("Q2")
async def test_q2_too_few_bookies_are_counted_with_those_that_take_no_entries() -> None:
    driver = ClusterMetadata(MemoryStore("too few"))
    await driver.init_cluster()
    for name in "abc":
        await driver.register(name, BookieInfo.at("127.0.0.1", 1), read_only=name == "c")
    directory = BookieDirectory(driver)
    try:
        placement = Placement(directory, random.Random(1), Quarantine(ManualClock(), 60))
        with pytest.raises(NotEnoughBookies, match="needed=3 available=2 read_only=1"):
            await placement.new_ensemble(striping_of(3, 2, 2))
    finally:
        directory.close()
        await driver.close()


@pytest.mark.rule("Q2")
def test_q2_placement_uses_all_bookies_alike() -> None:
    chance = random.Random(7)
    counts = dict.fromkeys("abcd", 0)
    for _ in range(4000):
        for bookie in choose(chance, "abcd", 3, ()):
            counts[bookie] += 1
    assert all(2850 < count < 3150 for count in counts.values())


@pytest.mark.rule("Q4")
def test_q4_a_failed_bookie_is_left_out_for_a_while() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock, 60)
    assert "a" not in quarantine
    assert quarantine.add("a") and not quarantine.add("a"), "who fails again is no news"
    clock.time = 59.9
    assert "a" in quarantine and "b" not in quarantine
    clock.time = 60
    assert "a" not in quarantine


@pytest.mark.rule("Q7", "Q8")
async def test_q8_only_the_failed_places_change() -> None:
    cluster = await SmallCluster().start(5)
    directory = BookieDirectory(cluster.driver)
    clock = ManualClock()
    placement = Placement(directory, random.Random(1), Quarantine(clock, 60))
    try:
        assert set(await placement.without(["b1"], ("b0", "b1", "b2"), SIZES)) in (
            {"b0", "b3", "b2"},
            {"b0", "b4", "b2"},
        )
        placement.quarantine.add("b3")
        assert await placement.without(["b1"], ("b0", "b1", "b2"), SIZES) == ("b0", "b4", "b2")
        changed = await placement.without(["b0", "b1"], ("b0", "b1", "b2"), SIZES)  # b3 is better than none
        assert set(changed[:2]) == {"b3", "b4"} and changed[2] == "b2"
        partly = await placement.without(["b0", "b1", "b2"], ("b0", "b1", "b2"), SIZES)  # two for three
        assert set(partly) == {"b3", "b4", "b2"}
        with pytest.raises(NotEnoughBookies, match="no other bookie can be had"):
            await placement.without(["b0"], ("b0", "b1", "b2", "b3", "b4"), SIZES)
    finally:
        directory.close()
        await cluster.close()


async def test_the_directory_follows_the_registrations() -> None:
    cluster = await SmallCluster().start(2)
    driver = ClusterMetadata(MemoryStore(cluster.name))
    directory = BookieDirectory(driver)
    try:
        assert await directory.resolve("b0") == cluster.bookies["b0"].address
        assert await directory.current() is await directory.current()
        await cluster.down("b0")
        await until(lambda: directory._bookies is None)
        with pytest.raises(BookieUnavailable, match="not registered"):
            await directory.resolve("b0")
        await cluster.up("b0")
        assert await directory.resolve("b0") == cluster.bookies["b0"].address
        await cluster.add()
        await until(lambda: directory._bookies is None or "b2" in directory._bookies.writable)
        assert sorted((await directory.current()).writable) == ["b0", "b1", "b2"]
    finally:
        directory.close()
        await driver.close()
        await cluster.close()


class Counted(ClusterMetadata):
    """Counts what is asked, and answers when it may."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked, self.may_answer = list[str](), asyncio.Event()

    async def bookies(self) -> RegisteredBookies:
        self.asked.append("bookies")
        await self.may_answer.wait()
        return await super().bookies()

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        self.asked.append(bookie)
        await self.may_answer.wait()
        return await super().bookie_creation(bookie)


@pytest.fixture
async def counted(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Counted, BookieDirectory]]:
    driver = Counted(MemoryStore(request.node.name))
    await driver.init_cluster()
    for name in "ab":
        await driver.register(name, BookieInfo.at("127.0.0.1", 1))
    directory = BookieDirectory(driver)
    yield driver, directory
    directory.close()
    await driver.close()


async def test_what_many_want_to_know_at_once_is_read_once(counted: tuple[Counted, BookieDirectory]) -> None:
    """As many do that have lost a bookie; the first of them may be cancelled."""
    driver, directory = counted
    listed = [asyncio.create_task(directory.current()) for _ in range(100)]
    known = [asyncio.create_task(directory.identities(("a", "b"))) for _ in range(100)]
    await until(lambda: len(driver.asked) == 3)
    listed[0].cancel()
    known[0].cancel()
    driver.may_answer.set()
    assert {tuple(found.sorted_writable) for found in await asyncio.gather(*listed[1:])} == {("a", "b")}
    assert await asyncio.gather(*known[1:]) == [{"a": None, "b": None}] * 99
    assert sorted(driver.asked) == ["a", "b", "bookies"]
    assert (listed[0].cancelled(), known[0].cancelled()) == (True, True)


async def test_who_looks_for_a_bookie_that_is_gone_makes_nobody_wait(counted: tuple[Counted, BookieDirectory]) -> None:
    """Each attempt to reach it asks anew, again and again, for as long as it is gone."""
    driver, directory = counted
    driver.may_answer.set()
    found = await directory.current()
    driver.may_answer.clear()
    looking = asyncio.create_task(directory.resolve("c"))
    await until(lambda: driver.asked == ["bookies", "bookies"])
    assert await directory.current() is found
    driver.may_answer.set()
    with pytest.raises(BookieUnavailable, match="not registered"):
        await looking


@pytest.mark.rule("N5")
async def test_n5_what_a_bookie_takes_that_has_just_come_back_is_read_anew(
    counted: tuple[Counted, BookieDirectory],
) -> None:
    """News of it that are under way make it no bookie that says nothing: it would be shown the weakest."""
    driver, directory = counted
    driver.may_answer.set()
    await directory.current()
    directory._watch.cancel()
    await driver.register("c", replace(BookieInfo.at("127.0.0.1", 1), properties={AUTH: "scram-sha-256,sasl"}))
    assert await directory.resolve("c") == ("127.0.0.1", 1)
    assert await directory.offers("c") == ("scram-sha-256", "sasl")
    assert await directory.offers("a") == (), "it is registered, and says nothing"
    with pytest.raises(BookieUnavailable, match="not registered"):
        await directory.offers("d")


class Held(ClusterMetadata):
    """Each reading ends with what it is told to end with."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.listings = list[asyncio.Future[RegisteredBookies]]()
        self.readings = list[tuple[BookieId, asyncio.Future[Creation | None]]]()

    async def bookies(self) -> RegisteredBookies:
        self.listings.append(asyncio.get_running_loop().create_future())
        return await self.listings[-1]

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        self.readings.append((bookie, asyncio.get_running_loop().create_future()))
        return await self.readings[-1][1]


@pytest.fixture
async def held(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Held, BookieDirectory]]:
    driver = Held(MemoryStore(request.node.name))
    await driver.init_cluster()
    directory = BookieDirectory(driver)
    yield driver, directory
    directory.close()
    await driver.close()


async def changed(driver: Held, directory: BookieDirectory) -> None:
    """A bookie registers, and the directory has heard of it."""
    heard: list[None] = []
    directory.on_change(lambda: heard.append(None))
    await driver.register("new", BookieInfo.at("127.0.0.1", 1))
    await until(lambda: bool(heard))


async def read_around_a_change(
    driver: Held, directory: BookieDirectory
) -> list[asyncio.Task[Mapping[str, int | None]]]:
    """One bookie is looked up before a change and behind it; neither has a response yet."""
    before = asyncio.create_task(directory.identities(("a",)))
    await until(lambda: len(driver.readings) == 1)
    await changed(driver, directory)
    behind = asyncio.create_task(directory.identities(("a",)))
    await until(lambda: len(driver.readings) == 2)
    return [before, behind]


async def test_who_asks_behind_a_change_hears_what_was_read_behind_it(held: tuple[Held, BookieDirectory]) -> None:
    """A bookie that comes back at the same address may be another one: entries sent to it would count as stored."""
    driver, directory = held
    before, behind = await read_around_a_change(driver, directory)
    driver.readings[0][1].set_result(1)
    await before
    also_behind = asyncio.create_task(directory.identities(("a",)))
    await asyncio.sleep(0.01)
    assert len(driver.readings) == 2, "that of before has ended, and this one goes on"
    assert not behind.done() and not also_behind.done(), "what was read before is nobody's answer now"
    driver.readings[1][1].set_result(2)
    assert [await behind, await also_behind] == [{"a": 2}, {"a": 2}]
    assert await directory.identities(("a",)) == {"a": 2}


async def test_a_late_answer_of_before_a_change_replaces_none_of_behind_it(held: tuple[Held, BookieDirectory]) -> None:
    driver, directory = held
    before, behind = await read_around_a_change(driver, directory)
    driver.readings[1][1].set_result(2)
    assert await behind == {"a": 2}
    driver.readings[0][1].set_result(1)
    await before
    assert await directory.identities(("a",)) == {"a": 2}


async def test_what_was_known_before_a_change_is_read_again_with_what_was_not(
    held: tuple[Held, BookieDirectory],
) -> None:
    driver, directory = held
    known = asyncio.create_task(directory.identities(("a",)))
    await until(lambda: len(driver.readings) == 1)
    driver.readings[0][1].set_result(1)
    assert await known == {"a": 1}
    both = asyncio.create_task(directory.identities(("a", "b")))
    await until(lambda: len(driver.readings) == 2)
    await changed(driver, directory)
    driver.readings[1][1].set_result(3)
    await until(lambda: both.done() or len(driver.readings) == 4)
    for (_, reading), creation in zip(driver.readings[2:], (2, 4), strict=True):
        reading.set_result(creation)
    assert await both == {"a": 2, "b": 4}


async def test_a_list_that_changed_while_it_was_read_is_shown_to_nobody(held: tuple[Held, BookieDirectory]) -> None:
    driver, directory = held
    first = asyncio.create_task(directory.current())
    await until(lambda: len(driver.listings) == 1)
    await changed(driver, directory)
    old, new = RegisteredBookies({}, {}), RegisteredBookies({"new": BookieInfo.at("127.0.0.1", 1)}, {})
    driver.listings[0].set_result(old)
    await until(lambda: len(driver.listings) == 2)
    second = asyncio.create_task(directory.current())
    await asyncio.sleep(0.01)
    assert not second.done()
    driver.listings[1].set_result(new)
    assert [await first, await second] == [new, new]


async def test_what_could_not_be_read_is_read_again(counted: tuple[Counted, BookieDirectory]) -> None:
    driver, directory = counted
    driver.may_answer.set()
    down = MetadataUnavailable("no answer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterMetadata, "bookies", failing(down))
        patch.setattr(ClusterMetadata, "bookie_creation", failing(down))
        for asked in (directory.current(), directory.identities(("a",))):
            with pytest.raises(MetadataUnavailable, match="no answer"):
                await asked
    assert (await directory.current()).sorted_writable == ("a", "b")
    assert await directory.identities(("a",)) == {"a": None}


def failing(error: Exception) -> Callable[..., Awaitable[None]]:
    async def fail(*_: object) -> None:
        raise error

    return fail
