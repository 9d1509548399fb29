"""Placement and quarantine, and the directory that both rest on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.clocks import ManualClock
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.placement import Placement, choose
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import BookieUnavailable, NotEnoughBookies


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
            await placement.new_ensemble(3)
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
        assert set(await placement.without(["b1"], ("b0", "b1", "b2"))) in ({"b0", "b3", "b2"}, {"b0", "b4", "b2"})
        placement.quarantine.add("b3")
        assert await placement.without(["b1"], ("b0", "b1", "b2")) == ("b0", "b4", "b2")
        changed = await placement.without(["b0", "b1"], ("b0", "b1", "b2"))  # b3 is better than none
        assert set(changed[:2]) == {"b3", "b4"} and changed[2] == "b2"
        partly = await placement.without(["b0", "b1", "b2"], ("b0", "b1", "b2"))  # two for three
        assert set(partly) == {"b3", "b4", "b2"}
        with pytest.raises(NotEnoughBookies, match="no other bookie can be had"):
            await placement.without(["b0"], ("b0", "b1", "b2", "b3", "b4"))
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
        await until(lambda: directory._known is None)
        with pytest.raises(BookieUnavailable, match="not registered"):
            await directory.resolve("b0")
        await cluster.up("b0")
        assert await directory.resolve("b0") == cluster.bookies["b0"].address
        await cluster.add()
        await until(lambda: directory._known is None or "b2" in directory._known.writable)
        assert sorted((await directory.current()).writable) == ["b0", "b1", "b2"]
    finally:
        directory.close()
        await driver.close()
        await cluster.close()
