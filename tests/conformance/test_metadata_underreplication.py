"""The shared tree of ledgers that lack copies, in every coordination service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.errors import MetadataError

if TYPE_CHECKING:
    from conformance.conftest import Place


async def tree(place: Place) -> Underreplication:
    made = Underreplication(await place.connect())
    await made.prepare()
    return made


async def test_nodes_have_the_names_and_bytes_of_the_original(cluster: Place) -> None:
    driver, marked = await cluster.connect(), await tree(cluster)
    base = f"{driver.root}/underreplication"
    await marked.mark(0x1_0002_0003, ["b:1", "b:2"], 1234)
    await marked.lock(0x1_0002_0003, "host")
    await marked.begin_recovery_delay(600)
    await marked.disable()
    await driver.sync()
    expected = {
        f"{base}/LAYOUT": b'type: "BASIC"\nversion: 1\n',
        f"{base}/ledgers/0000/0001/0002/0003/urL4295098371": b'replica: "b:1"\nreplica: "b:2"\nctime: 1234\n',
        f"{base}/locks/urL4295098371": b'bookieId: "host"\n',
        f"{base}/lostBookieRecoveryDelay": b"600",
        f"{base}/disable": b"",
    }
    nodes = await driver.store.get_many(list(expected))
    assert {path: node.data for path, node in nodes.items()} == expected
    assert nodes[f"{base}/locks/urL4295098371"].owner is not None


async def test_marks_merge_and_similar_names_are_two_bookies(cluster: Place) -> None:
    marked = await tree(cluster)
    assert await marked.mark(7, ["bookie:318"], 1)
    assert not await marked.mark(7, ["bookie:318"], 2)
    assert await marked.mark(7, ["bookie:3181", "bookie:318"], 3)
    found = await marked.read_mark(7)
    assert found is not None and found.value.bookies == ("bookie:318", "bookie:3181")
    assert found.value.ctime_ms == 3
    assert [ledger async for ledger in marked.marks()] == [7]
    assert await marked.read_mark(8) is None


async def test_a_mark_goes_only_as_it_was_seen(cluster: Place) -> None:
    marked = await tree(cluster)
    await marked.mark(7, ["b1"], 1)
    seen = await marked.read_mark(7)
    assert seen is not None
    await marked.mark(7, ["b2"], 2)
    assert not await marked.unmark(7, seen.version)
    newer = await marked.read_mark(7)
    assert newer is not None and await marked.unmark(7, newer.version)
    assert not await marked.unmark(7, newer.version)


async def test_the_folders_of_other_marks_stay(cluster: Place) -> None:
    driver, marked = await cluster.connect(), await tree(cluster)
    for ledger in (1, 2, 1 << 40):
        await marked.mark(ledger, ["b1"], 1)
    first = await marked.read_mark(1)
    assert first is not None and await marked.unmark(1, first.version)
    assert [ledger async for ledger in marked.marks()] == [2, 1 << 40]
    for after, behind in ((1, [2, 1 << 40]), (2, [1 << 40]), (1 << 39, [1 << 40]), (1 << 40, [])):
        assert [ledger async for ledger in marked.marks(after)] == behind
    for ledger in (2, 1 << 40):
        found = await marked.read_mark(ledger)
        assert found is not None and await marked.unmark(ledger, found.version)
    await driver.sync()
    assert await driver.store.children(f"{driver.root}/underreplication/ledgers") == []


async def test_one_worker_has_a_ledger_until_its_session_ends(cluster: Place) -> None:
    driver = await cluster.connect()
    one, other = Underreplication(driver), await tree(cluster)
    assert await one.lock(7, "one")
    assert not await other.lock(7, "other")
    assert await one.holds(7) and not await other.holds(7)
    await other.unlock(7)
    assert await other.locks() == {7: "one"}
    await one.unlock(7)
    assert await other.lock(7, "other")
    await other.unlock(7)
    assert await one.lock(7, "one")
    await driver.close()
    await until(lambda: other.lock(7, "other"))


async def test_switches_are_told_and_say_whether_they_changed(cluster: Place) -> None:
    one, other = await tree(cluster), await tree(cluster)
    changes: list[None] = []
    watch = other.watch_switches(lambda: changes.append(None))
    assert await one.is_enabled() and await other.recovery_delay() is None
    assert await one.disable() and not await one.disable()
    await until(lambda: changes)
    assert not await one.is_enabled()
    assert await one.enable() and not await one.enable()
    await one.begin_recovery_delay(600)
    await one.begin_recovery_delay(5)
    first = await one.recovery_delay()
    changes.clear()
    await one.set_recovery_delay(600)
    await until(lambda: changes)
    second = await one.recovery_delay()
    assert first is not None and second is not None
    assert (first.value, second.value) == (600, 600) and first.version != second.version
    watch.cancel()


async def test_one_is_elected_and_the_next_one_follows(cluster: Place) -> None:
    drivers = [await cluster.connect() for _ in range(3)]
    trees = [Underreplication(driver) for driver in drivers]
    await trees[0].prepare()
    votes = [await each.vote(f"c{number}") for number, each in enumerate(trees)]
    assert await trees[2].votes() == votes
    assert await trees[2].auditor() == "c0"
    assert await trees[0].is_own(votes[0]) and not await trees[1].is_own(votes[0])
    await trees[0].withdraw(votes[0])
    await drivers[1].close()

    async def is_second() -> bool:
        return await trees[2].auditor() == "c2"

    await until(is_second)
    back = await trees[0].vote("c0")
    assert await trees[2].votes() == [votes[2], back]
    await trees[2].proclaim("c2")
    await drivers[0].sync()
    node = await drivers[0].store.get(f"{drivers[0].root}/underreplication/auditorelection")
    assert node is not None and node.data == b'bookieId: "c2"\n'


async def test_who_voted_at_the_same_time_is_never_passed(cluster: Place) -> None:
    trees = [await tree(cluster) for _ in range(4)]
    votes = await asyncio.gather(*(each.vote(f"c{number}") for number, each in enumerate(trees)))
    assert sorted(await trees[0].votes()) == sorted(votes) and len(set(votes)) == 4


async def test_another_layout_and_damaged_nodes_are_refused(cluster: Place) -> None:
    driver, marked = await cluster.connect(), await tree(cluster)
    base = f"{driver.root}/underreplication"
    await driver.store.change(Create(f"{base}/ledgers/0000/0000/0000/0009/urL0000000009", b"replica: "))
    with pytest.raises(MetadataError, match="cannot be read"):
        await marked.read_mark(9)
    await driver.store.change(Create(f"{base}/lostBookieRecoveryDelay", b"soon"))
    with pytest.raises(MetadataError, match="seconds"):
        await marked.recovery_delay()
    await driver.store.change(Update(f"{base}/LAYOUT", b'type: "BASIC"\nversion: 2\n', 0))
    with pytest.raises(MetadataError, match="layout"):
        await marked.prepare()
