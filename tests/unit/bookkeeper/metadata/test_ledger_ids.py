"""Ledger ids where ZooKeeper's 31 bits end: a store that counts as ZooKeeper does, from wherever a test says."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import pytest

from tallystick.bookkeeper.metadata.ledger_ids import MOST_SKIPPED, LedgerIds
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create

TOP = (1 << 31) - 1


class Counting(MemoryStore):
    """Its counters have 31 bits, and start where they are told to."""

    async def starting(self, **folders: int) -> Counting:
        for name, number in folders.items():
            path = f"/r/{name.replace('__', '/').replace('_', '-')}"
            await self.change(Create(path))
            self._tree.counters[path] = number
        return self

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        number = await super().create_next(counter, create, unless=unless)
        if number == TOP:  # a Java int
            self._tree.counters[counter] = -(1 << 31)
        return number


async def counting(**folders: int) -> Counting:
    return await Counting(uuid.uuid4().hex).starting(**folders)


async def take(ids: LedgerIds, count: int = 1) -> list[int]:
    return [await ids.create_next(lambda ledger: [Create(f"/r/made/{ledger}")]) for _ in range(count)]


async def test_short_ids_count_from_zero() -> None:
    store = await counting()
    assert await take(LedgerIds(store, "/r"), 3) == [0, 1, 2]
    assert await store.children("/r/made") == ["0", "1", "2"]


async def test_the_last_short_id_is_followed_by_long_ones() -> None:
    store = await counting(idgen=TOP - 1)
    ids = LedgerIds(store, "/r")
    assert await take(ids, 3) == [TOP - 1, 1 << 32, (1 << 32) + 1]
    other = LedgerIds(store, "/r")
    assert await take(other) == [(1 << 32) + 2], "every client sees that ids are long now"
    assert await store.get(f"/r/made/{TOP}") is None


async def test_ids_that_bookies_have_are_skipped_but_for_those_that_somebody_chose() -> None:
    store = await counting(idgen=5)
    ids = LedgerIds(store, "/r")
    await ids.skip([7, 9, 3, 5 + MOST_SKIPPED + 1, 1 << 40])
    assert await take(ids) == [10] and await store.children("/r/made") == ["10"]
    await ids.skip([2])
    assert await take(ids) == [12]


async def test_how_far_ids_are_skipped_counts_from_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.bookkeeper.metadata.ledger_ids.MOST_SKIPPED", 10)
    ids = LedgerIds(await counting(idgen=1_000_000), "/r")
    await ids.skip([1_000_011])
    assert await take(ids) == [1_000_001], "too far: somebody chose it"
    await ids.skip([1_000_012])
    assert await take(ids) == [1_000_013]


async def test_a_counter_that_ran_over_gives_no_negative_id() -> None:
    assert await take(LedgerIds(await counting(idgen=-(1 << 31)), "/r")) == [1 << 32]


async def test_a_full_folder_is_followed_by_the_next_and_old_ones_go() -> None:
    highs = {f"idgen_long__HOB_{high:010d}": TOP for high in (1, 2, 3)}
    store = await counting(**highs, idgen_long__other=0)
    assert await take(LedgerIds(store, "/r"), 2) == [4 << 32, (4 << 32) + 1]
    assert await store.children("/r/idgen-long") == ["HOB-0000000002", "HOB-0000000003", "HOB-0000000004", "other"]
