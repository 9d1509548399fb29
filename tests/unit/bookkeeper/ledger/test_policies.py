"""The placement policies over registered bookies: their promises, on a directory of a metadata in memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest

from support.clocks import ManualClock
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.placement import Placement, choose
from tallystick.bookkeeper.ledger.policies import Policy
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.striping import striping_of
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.registration import MACHINE, RACK
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import NotEnoughBookies, UsageError

RACKS = Policy("rack-aware")
NUMBERS = count()


@asynccontextmanager
async def placing(
    bookies: Mapping[BookieId, tuple[str, str]], policy: Policy, seed: int = 1
) -> AsyncIterator[Placement]:
    """Place on these bookies, each with its machine and its rack."""
    driver = ClusterMetadata(MemoryStore(f"policies {next(NUMBERS)}"))
    await driver.init_cluster()
    for name, (machine, rack) in bookies.items():
        info = BookieInfo(BookieInfo.at(name, 1).endpoints, {MACHINE: machine, RACK: rack})
        await driver.register(name, info)
    directory = BookieDirectory(driver)
    try:
        yield Placement(directory, random.Random(seed), Quarantine(ManualClock(), 60), policy)
    finally:
        directory.close()
        await driver.close()


def in_racks(racks: Sequence[str]) -> dict[BookieId, tuple[str, str]]:
    return {f"b{number}": (f"m{number}", f"/{rack}" if rack != "-" else "") for number, rack in enumerate(racks)}


@pytest.mark.rule("Q2")
@pytest.mark.parametrize("machines", ["abcdef", "aaaaaa"], ids=["one each", "one for all"])
async def test_q2_random_draws_as_ever_where_machines_decide_nothing(machines: str) -> None:
    bookies = {f"b{number}": (machine, "/r") for number, machine in enumerate(machines)}
    async with placing(bookies, Policy(), seed=5) as placement:
        ensembles = [await placement.new_ensemble(striping_of(3, 2, 2)) for _ in range(20)]
    plain = random.Random(5)
    assert ensembles == [tuple(choose(plain, sorted(bookies), 3, ())) for _ in range(20)]


@pytest.mark.rule("Q2")
@pytest.mark.parametrize("name", ["random", "rack-aware"])
async def test_q2_no_two_copies_on_one_machine_where_there_is_another(name: str) -> None:
    bookies = {f"b{number}": (f"m{number // 2}", "/r") for number in range(8)}
    async with placing(bookies, Policy(name)) as placement:
        counts = Counter[BookieId]()
        for _ in range(200):
            ensemble = await placement.new_ensemble(striping_of(4, 2, 2))
            machines = [bookies[bookie][0] for bookie in ensemble]
            assert all(machines[place] != machines[(place + 1) % 4] for place in range(4))
            counts.update(ensemble)
            failed = ensemble[1]
            other = await placement.without([failed], ensemble, striping_of(4, 2, 2))
            machines = [bookies[bookie][0] for bookie in other]
            assert machines[1] not in (machines[0], machines[2]) and other[1] != failed
    assert min(counts.values()) > 60, "all are used alike"


async def test_two_copies_on_one_machine_rather_than_one_on_a_bookie_that_failed() -> None:
    bookies = {"a1": ("a", "/r"), "a2": ("a", "/r"), "b": ("b", "/r")}
    async with placing(bookies, Policy()) as placement:
        assert "b" in await placement.new_ensemble(striping_of(2, 2, 2))
        placement.quarantine.add("b")
        assert set(await placement.new_ensemble(striping_of(2, 2, 2))) == {"a1", "a2"}


async def test_each_copy_of_an_entry_has_another_rack() -> None:
    bookies = in_racks("xxxxyyzz")
    async with placing(bookies, RACKS) as placement:
        for _ in range(100):
            racks = [bookies[bookie][1] for bookie in await placement.new_ensemble(striping_of(4, 3, 2))]
            assert all(len({racks[(place + step) % 4] for step in range(3)}) >= 2 for place in range(4))
            racks = [bookies[bookie][1] for bookie in await placement.new_ensemble(striping_of(3, 3, 2))]
            assert sorted(racks) == ["/x", "/y", "/z"]


async def test_racks_are_a_wish_unless_they_are_enforced() -> None:
    async with placing(in_racks("xxx-"), RACKS) as placement:
        assert len(set(await placement.new_ensemble(striping_of(4, 2, 2)))) == 4
    async with placing(in_racks("xxxxx"), RACKS) as placement:
        assert len(set(await placement.new_ensemble(striping_of(3, 2, 2)))) == 3
    enforced = Policy("rack-aware", enforce_min_racks=True)
    async with placing(in_racks("xxx-"), enforced) as placement:  # whose rack is unknown may be in rack x
        with pytest.raises(NotEnoughBookies, match="policy=rack-aware available=4 racks=2 regions=2"):
            await placement.new_ensemble(striping_of(2, 2, 2))
    async with placing(in_racks("xxxy"), enforced) as placement:
        placement.quarantine.add("b3")
        ensemble = await placement.new_ensemble(striping_of(2, 2, 2))
        assert "b3" in ensemble, "rather one that failed than none"
        with pytest.raises(NotEnoughBookies):
            await placement.without(["b3"], ensemble, striping_of(2, 2, 2))


async def test_a_bookie_is_replaced_by_one_of_its_rack_else_of_another() -> None:
    async with placing(in_racks("xxyyz"), RACKS) as placement:
        sizes = striping_of(2, 2, 2)
        assert await placement.without(["b0"], ("b0", "b2"), sizes) == ("b1", "b2")
        assert await placement.without(["b0"], ("b0", "b2"), sizes, never=["b1"]) == ("b4", "b2")
        assert await placement.without(["b0"], ("b0", "b2"), sizes, never=["b1", "b4"]) == ("b3", "b2")
        assert await placement.without(["gone:3181"], ("gone:3181", "b4"), sizes) != ("gone:3181", "b4")


async def test_regions_share_a_ledger_evenly_and_each_acknowledgement_has_two() -> None:
    bookies = in_racks(["east/1", "east/2", "east/2", "west/1", "west/2", "west/2"])
    policy = Policy("region-aware")
    async with placing(bookies, policy) as placement:
        for _ in range(50):
            ensemble = await placement.new_ensemble(striping_of(4, 4, 3))
            assert Counter(bookies[bookie][1] for bookie in ensemble) == {
                "/east/1": 1, "/east/2": 1, "/west/1": 1, "/west/2": 1,
            }  # fmt: skip
        with pytest.raises(NotEnoughBookies):  # two acknowledgements may be of one region
            await placement.new_ensemble(striping_of(4, 4, 2))
        sizes = striping_of(2, 2, 2)
        assert await placement.without(["b1"], ("b1", "b3"), sizes) == ("b2", "b3")
        assert (await placement.without(["b1"], ("b1", "b3"), sizes, never=["b2"]))[0] == "b0"
        # The original does not enforce it in a replacement either, by default.
        assert (await placement.without(["b1"], ("b1", "b3"), sizes, never=["b2", "b0"]))[0] in ("b4", "b5")
    async with placing(in_racks("xxx"), policy) as placement:
        with pytest.raises(NotEnoughBookies):
            await placement.new_ensemble(striping_of(2, 2, 2))
    async with placing(in_racks("xxy"), Policy("region-aware", min_regions=1)) as placement:
        assert len(await placement.new_ensemble(striping_of(2, 2, 2))) == 2


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="placement is one of random, rack-aware, region-aware"):
        ClientSettings(placement="racks")
