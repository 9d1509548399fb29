"""Logs are rewritten beside checkpoints: a crash anywhere loses nothing, and what changes meanwhile stays changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.bookies import SMALL as SMALL_BOOKIE
from support.bookies import Home, adds, read, talking
from support.stores import SMALL, Store
from support.waiting import until
from tallystick.bookkeeper.bookie import compaction as compaction_module
from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.compaction import Compaction
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.steps import finished
from tallystick.errors import DiskFull
from tallystick.runtime.disk import Usage
from tallystick.sim.disk import Crashed, SimDisk

LARGE = replace(SMALL, memtable_bytes=1 << 20)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_module, "_SLICE_FRAMES", 7)
    monkeypatch.setattr(compaction_module, "_STEP_PIECES", 1)


def four_logs(store: Store) -> None:
    """Two ledgers, each in four small logs; of ledger 7 the later ones have newer versions of some entries."""
    for start in range(0, 40, 10):
        store.fill(5, range(start, start + 10))
        store.fill(7, [*range(start, start + 10)], b"old")
        if start:
            store.fill(7, [start - 10, start - 9], b"new")
        store.storage.checkpoint()


def assert_whole(store: Store) -> None:
    assert all(store.has(5, entry) for entry in range(40))
    for entry in range(40):
        assert store.has(7, entry, b"new" if entry % 10 < 2 and entry < 30 else b"old"), entry


def steps_of(store: Store) -> Iterator[Compaction]:
    """Do one compaction; stop after each step but the last."""
    checkpoints = store.storage.checkpoints
    compaction = checkpoints.begin_compaction(finished(checkpoints.groups_to_rewrite())[0])
    yield compaction
    compaction.load()
    yield compaction
    finished(checkpoints.choosing(compaction))
    yield compaction
    while compaction.copy() is not None:
        yield compaction
    yield compaction
    checkpoints.run(checkpoints.replacing(compaction))


def test_rewritten_logs_have_the_newest_versions_and_nothing_else() -> None:
    store = Store(settings=LARGE)
    four_logs(store)
    assert store.storage.stats().entries == 86
    assert len(list(steps_of(store))) > 10
    assert (store.storage.stats().entry_logs, store.storage.stats().entries) == (1, 80)
    assert store.storage.stats().compactions == 1
    for reopen in (lambda: None, store.restart, store.power_loss):
        reopen()
        assert_whole(store)
    assert not finished(store.storage.checkpoints.groups_to_rewrite())


@pytest.mark.rule("P1", "P6", "Q15")
@pytest.mark.parametrize("crash", ["power_loss", "kill"])
def test_a_crash_at_each_step_of_the_disk_loses_nothing(crash: str) -> None:
    for step in range(1, 200):
        store = Store(SimDisk(random.Random(step)), settings=LARGE)
        four_logs(store)
        store.disk.crash_at = store.disk.operations + step
        try:
            for _ in steps_of(store):
                pass
            crashed = False
        except Crashed:
            crashed = True
        store.disk.crash_at = None
        getattr(store, crash)()
        assert_whole(store)
        names = [name for name in store.disk.listdir(store.ledger_dir) if name.endswith((".log", ".index"))]
        assert len(names) == 2 * store.storage.stats().entry_logs, "nothing is left over"
        store.storage.checkpoints.compact()
        store.restart()
        assert_whole(store)
        if not crashed:
            assert step > 8
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("place", range(14))
def test_a_newer_version_that_a_checkpoint_wrote_meanwhile_wins(place: int) -> None:
    store = Store(settings=LARGE)
    four_logs(store)
    for number, _ in enumerate(steps_of(store)):
        if number == place:
            store.fill(7, [5], b"newest")
            store.storage.checkpoint()
    for reopen in (lambda: None, store.restart, store.storage.checkpoints.compact, store.restart):
        reopen()
        assert number >= place and store.has(7, 5, b"newest")
        assert all(store.has(5, entry) for entry in range(40))


@pytest.mark.parametrize("place", range(0, 14, 2))
def test_a_ledger_that_is_deleted_meanwhile_stays_so_also_when_its_id_is_used_again(place: int) -> None:
    store = Store(settings=LARGE)
    four_logs(store)
    for number, _ in enumerate(steps_of(store)):
        if number == place:
            checkpoints = store.storage.checkpoints
            checkpoints.run(checkpoints.begin_collect([7], ()))
            store.storage.checkpoint()
            checkpoints.run(checkpoints.begin_collect((), [7]))
            store.fill(7, [3], b"another's")
            store.storage.checkpoint()
    assert number >= place
    for reopen in (lambda: None, store.restart, store.storage.checkpoints.compact, store.restart):
        reopen()
        codes = [store.storage.read(7, entry)[0] for entry in range(40)]
        assert codes == [Code.OK if entry == 3 else Code.NO_ENTRY for entry in range(40)]
        assert store.has(7, 3, b"another's") and all(store.has(5, entry) for entry in range(40))


def test_logs_that_a_collection_deletes_meanwhile_are_nothing_to_replace() -> None:
    store = Store(settings=LARGE)
    four_logs(store)
    for number, _ in enumerate(steps_of(store)):
        if number == 5:
            checkpoints = store.storage.checkpoints
            checkpoints.run(checkpoints.begin_collect([5, 7], ()))
    for reopen in (lambda: None, store.restart):
        reopen()
        assert store.storage.ledger_ids() == [] and store.storage.read(5, 0)[0] == Code.NO_LEDGER
    store.storage.collect([], ())
    assert store.storage.stats().entry_logs == 0


def test_without_room_for_the_new_log_and_the_next_checkpoint_nothing_is_rewritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(settings=LARGE)
    four_logs(store)
    live = sum(log.size for log in store.storage._logs.logs.values())
    (group,) = finished(store.storage.checkpoints.groups_to_rewrite())
    monkeypatch.setattr(store.disk, "usage", lambda folder: Usage(1 << 30, LARGE.memtable_bytes + live // 2))
    assert "must be free" in finished(store.storage.checkpoints.lacks_room(group))
    store.storage.checkpoints.compact()
    assert store.storage.stats().entry_logs == 4
    monkeypatch.setattr(store.disk, "usage", lambda folder: Usage(1 << 30, LARGE.memtable_bytes + 4 * live))
    store.storage.checkpoints.compact()
    assert store.storage.stats().entry_logs == 1


def test_a_group_is_about_as_long_as_one_log_of_a_checkpoint_and_the_emptiest_comes_first() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=4000, merge_logs=2, compact_below=0.9))
    for entry in range(6):
        store.fill(1, [entry], bytes(300))
        store.fill(2, [entry], bytes(1200))
        store.fill(10 + entry, [0], bytes(1200))
        store.storage.checkpoint()
    store.storage.checkpoints.run(store.storage.checkpoints.begin_collect(range(10, 16), ()))
    groups = finished(store.storage.checkpoints.groups_to_rewrite())
    assert sorted(log for group in groups for log in group) == sorted(store.storage._logs.logs)
    assert [len(group) for group in groups] == [2, 2, 2]


# -- the bookie that does it -------------------------------------------------------------------------------------------


async def with_four_logs(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        for start in range(0, 40, 10):
            assert await peer.code(adds(1, range(start, start + 10))) == Code.OK
            await bookie.upkeep.checkpoint()


async def test_a_checkpoint_waits_for_no_more_than_one_slice(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.storage = replace(SMALL_BOOKIE, merge_logs=4)
    await with_four_logs(home)
    async with home.running() as bookie, talking(bookie) as peer:
        copied, may_go_on = 0, asyncio.Event()

        async def spend(size: int) -> None:
            nonlocal copied
            copied += 1
            await may_go_on.wait()

        monkeypatch.setattr(bookie.upkeep._bytes_pace, "spend", spend)
        compacting = asyncio.create_task(bookie.upkeep.compact())
        await until(lambda: copied == 1)
        assert await peer.code(adds(1, [40])) == Code.OK
        await bookie.upkeep.checkpoint()
        assert bookie.storage.stats().memtable_bytes == 0 and bookie.storage.stats().entry_logs == 5
        may_go_on.set()
        await compacting
        assert copied > 1 and bookie.storage.stats().entry_logs == 2
        assert [await peer.code(read(1, entry)) for entry in range(41)] == [Code.OK] * 41


async def test_bytes_and_entries_are_paced(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.storage = replace(SMALL_BOOKIE, merge_logs=4)
    await with_four_logs(home)
    async with home.running() as bookie:
        spent = dict[str, list[int]](bytes=[], entries=[])

        async def spend_bytes(size: int) -> None:
            spent["bytes"].append(size)

        async def spend_entries(size: int) -> None:
            spent["entries"].append(size)

        monkeypatch.setattr(bookie.upkeep._bytes_pace, "spend", spend_bytes)
        monkeypatch.setattr(bookie.upkeep._entries_pace, "spend", spend_entries)
        await bookie.upkeep.compact()
        assert sum(spent["entries"]) == 40 and max(spent["entries"]) == 7
        (log,) = bookie.storage._logs.logs.values()
        assert sum(spent["bytes"]) == sum(log.by_ledger.values())
        assert home.settings.compaction_bytes_per_s == bookie.upkeep._bytes_pace._per_s
        assert home.settings.compaction_entries_per_s == bookie.upkeep._entries_pace._per_s


async def test_a_bookie_that_stops_meanwhile_leaves_the_old_logs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.storage = replace(SMALL_BOOKIE, merge_logs=4)
    await with_four_logs(home)
    async with home.running() as bookie:
        copied = 0

        async def spend(size: int) -> None:
            nonlocal copied
            copied += 1
            await asyncio.Event().wait()

        monkeypatch.setattr(bookie.upkeep._bytes_pace, "spend", spend)
        bookie.upkeep._compaction_due.set()
        await until(lambda: copied == 1)
    async with home.running() as bookie, talking(bookie) as peer:
        assert bookie.storage.stats().entry_logs == 4
        assert [await peer.code(read(1, entry)) for entry in range(40)] == [Code.OK] * 40


async def test_a_rewriting_that_fails_gives_the_room_of_its_new_log_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed as the disk is full, perhaps: nothing else would delete that log before the next start."""
    home.storage = replace(SMALL_BOOKIE, merge_logs=4)
    await with_four_logs(home)

    def logs() -> set[str]:
        return {file.name for file in home.path.rglob("*.log")}

    async with home.running() as bookie:
        before, during = logs(), list[set[str]]()

        async def spend(size: int) -> None:
            during.append(logs())
            raise DiskFull("no space")

        monkeypatch.setattr(bookie.upkeep._bytes_pace, "spend", spend)
        await bookie.upkeep.compact()
        assert during[0] > before and home.heard("entry logs not rewritten")
        await until(lambda: logs() == before)


async def test_a_collection_orders_it_and_only_its_begin_and_end_take_a_checkpoints_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.storage = replace(SMALL_BOOKIE, merge_logs=4)
    await with_four_logs(home)
    async with home.running() as bookie:
        written = bookie.upkeep._write

        async def write(plan: CheckpointPlan) -> None:
            assert bookie.upkeep._turn.locked()
            await written(plan)

        async def spend(size: int) -> None:
            assert not bookie.upkeep._turn.locked()

        monkeypatch.setattr(bookie.upkeep, "_write", write)
        monkeypatch.setattr(bookie.upkeep._bytes_pace, "spend", spend)
        await bookie.upkeep.collect(list, ())
        await until(lambda: bookie.storage.stats().entry_logs == 1)
        assert not bookie.failure.done()
