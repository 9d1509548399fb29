"""Placement by free disk: the draw, who is asked for it, and that disks fill evenly (Q20)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from support.clocks import ManualClock
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.disk_weights import FreeDisks, weighted
from tallystick.bookkeeper.ledger.placement import choose
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import BookieUnavailable


def filled(sizes: dict[BookieId, int], most: float, seed: int, share: float) -> tuple[dict[BookieId, int], float]:
    """Fill bookies with ledgers up to a share of all disks, three bookies each; at half time one more bookie comes.

    Returns the used bytes, and how many times its share of the entries the new bookie took.
    """
    chance = random.Random(seed)
    disks, used, late = dict(sizes), dict.fromkeys(sizes, 0), 0
    until_bytes = share * sum(sizes.values())
    new = "new"
    while (total := sum(used.values())) < until_bytes:
        if new not in disks and total > until_bytes / 2:
            disks[new], used[new] = 2_000_000, 0
        free = {bookie: disks[bookie] - used[bookie] for bookie in disks}
        ensemble = choose(weighted(chance, free, most), sorted(disks), 3, ())
        length = int(min(chance.paretovariate(1.2) * 100, 20_000))  # most are short, most bytes are in few
        for bookie in ensemble:
            used[bookie] += length * 2 // 3  # two copies of each entry on three bookies
            late += (new in disks) * (length * 2 // 3)
    return used, used[new] / (late / len(disks))


@pytest.mark.rule("Q20")
@pytest.mark.parametrize("seed", range(3))
def test_q20_disks_of_one_two_and_four_sizes_fill_evenly(seed: int) -> None:
    for kinds in ((2,), (2, 4), (1, 2, 4, 8)):
        sizes = {f"b{number}": 1_000_000 * kinds[number % len(kinds)] for number in range(12)}
        used, times = filled(sizes, 3.0, seed, 0.7)
        disks = {**sizes, "new": 2_000_000}
        ratios = [used[bookie] / disks[bookie] for bookie in disks]
        mean = sum(used.values()) / sum(disks.values())
        assert max(ratios) / mean <= 1.3, (kinds, ratios)
        assert times <= 3, kinds


@pytest.mark.rule("Q20")
def test_q20_a_draw_follows_the_free_bytes_up_to_three_times_the_median() -> None:
    free = {"a": 100, "b": 100, "c": 200, "d": 100_000, "full": 0}
    draw = weighted(random.Random(1), free, 3.0)
    counts = Counter(draw.sample([*free, "unknown"], 1)[0] for _ in range(9000))
    for bookie, share in (("a", 1), ("b", 1), ("c", 2), ("d", 3), ("unknown", 1)):
        assert abs(counts[bookie] - 9000 * share / 8) < 200, bookie
    assert counts["full"] < 40
    assert sorted(draw.sample(list(free), 5)) == sorted(free)


def test_without_free_bytes_the_draw_is_the_plain_one() -> None:
    chance = random.Random(1)
    assert weighted(chance, {}, 3.0) is chance
    assert weighted(chance, {"a": 0, "b": 0}, 3.0) is chance


async def test_bookies_are_asked_beside_and_again_when_it_is_time_or_they_are_others() -> None:
    clock, asked = ManualClock(), list[BookieId]()

    async def ask(bookie: BookieId) -> int:
        asked.append(bookie)
        await asyncio.sleep(0)
        if bookie == "down":
            raise BookieUnavailable(bookie=bookie)
        return 10 if bookie == "a" else 1000

    chance = random.Random(1)
    disks = FreeDisks(ask, clock, chance, every_s=60, most=3.0)
    bookies = ("a", "b", "down")
    assert disks.draw(bookies) is chance, "nobody waits for it"
    await until(lambda: disks._task is None)
    draw = disks.draw(bookies)
    assert sorted(asked) == ["a", "b", "down"]
    counts = Counter(draw.sample(bookies, 1)[0] for _ in range(1000))
    assert counts["a"] < 30 < 300 < counts["down"]
    clock.time = 60
    disks.draw(bookies)
    await until(lambda: disks._task is None)
    assert len(asked) == 6
    disks.draw(("a", "b"))
    await disks.close()
    never = FreeDisks(ask, clock, chance, every_s=0, most=3.0)
    assert never.draw(bookies) is chance and never._task is None
    await never.close()


async def test_a_client_asks_its_bookies_how_much_is_free() -> None:
    cluster = await SmallCluster().start(4)
    client = cluster.client(disk_weights_s=60.0)
    try:
        async with client.create_ledger() as writer:
            await writer.append(b"one")
        await until(lambda: client._disks._task is None)
        assert sorted(client._disks._free) == ["b0", "b1", "b2", "b3"]
        async with client.create_ledger() as writer:
            await writer.append(b"two")
    finally:
        await client.close()
        await cluster.close()
