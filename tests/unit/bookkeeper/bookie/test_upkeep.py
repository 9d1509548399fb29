"""Checkpoints happen when they are due; space is given back on a bad or full disk, too; ids change hands."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace

import pytest

from support.bookies import SMALL, Home, SpyDisk, adds, read, talking
from support.stores import Store
from support.waiting import until
from tallystick.bookkeeper.bookie import checkpoints
from tallystick.bookkeeper.bookie import upkeep as upkeep_module
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import Usage
from tallystick.sim.disk import Crashed, SimDisk


async def stored(bookie: Bookie, *ledgers: int) -> list[int]:
    async with talking(bookie) as peer:
        return [ledger for ledger in ledgers if await peer.code(read(ledger, 0)) == Code.OK]


async def write(bookie: Bookie, *ledgers: int) -> None:
    async with talking(bookie) as peer:
        for ledger in ledgers:
            assert await peer.code(adds(ledger, [0])) == Code.OK


async def test_a_checkpoint_happens_when_it_is_due(home: Home) -> None:
    async with home.running() as bookie:
        await write(bookie, 1)
        await bookie.upkeep.checkpoint()
        assert bookie.counts.checkpoints == 1
        assert bookie.storage.stats().memtable_bytes == 0
        assert await stored(bookie, 1) == [1]


async def test_connections_are_read_while_no_checkpoint_can_be_written(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adds are refused then, and reads go on: who waited for room would do so for as long as the disk is full."""

    async def full() -> None:
        raise DiskFull("no space")

    async with home.running() as bookie:
        with monkeypatch.context() as filled:
            filled.setattr(bookie.upkeep, "checkpoint", full)
            bookie.committer.press(True)
            bookie.upkeep._due.set()
            await until(lambda: home.heard("checkpoint postponed"))
            assert not bookie.committer.congested


async def test_a_checkpoint_that_waits_for_room_is_one_line_and_not_one_for_each_attempt(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = list[float]()

    async def full() -> None:
        attempts.append(0.0)
        raise DiskFull("no space")

    monkeypatch.setattr(upkeep_module, "_RETRY_S", 0.001)
    async with home.running() as bookie:
        for lines in (1, 2):
            attempts.clear()
            with monkeypatch.context() as filled:
                filled.setattr(bookie.upkeep, "checkpoint", full)
                bookie.upkeep._due.set()
                await until(lambda: len(attempts) > 5)
                assert len(home.heard("checkpoint postponed")) == lines
            done = bookie.counts.checkpoints
            await until(lambda done=done: bookie.counts.checkpoints > done)  # type: ignore[misc]  # of this round


async def test_very_many_ledgers_are_deleted_over_many_turns_of_the_loop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 invented ones and as many fences took up to 0.4 s in one turn. Who uses an id meanwhile keeps it."""
    monkeypatch.setattr(checkpoints, "STEP_LEDGERS", 2)
    async with home.running() as bookie:
        await write(bookie, *range(10))
        left, used = list[int](), set[int]()

        async def look_each_turn() -> None:
            while True:
                left.append(len(bookie.storage.ledger_ids()))
                if left[-1] <= 6:
                    used.add(9)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look_each_turn())
        deleted = await bookie.upkeep.collect(lambda: (each for each in range(10) if each not in used), ())
        looking.cancel()
        assert deleted == 9 and await stored(bookie, *range(10)) == [9]
        assert max(before - after for before, after in itertools.pairwise(left)) == 2


async def test_an_id_that_changes_hands_costs_no_look_at_all_that_were_deleted(home: Home) -> None:
    """Which of them are remembered no more, collections decide."""
    home.storage = replace(SMALL, deleted_memory_ledgers=1)
    async with home.running() as bookie:
        await write(bookie, 1, 2, 3)
        await bookie.upkeep.collect(lambda: [1, 2, 3], ())
        identity = bookie.storage.identities.identity(1)
        assert identity == LedgerIdentity(UNKNOWN, True)
        await bookie.upkeep.renew({1: identity})
        assert [*bookie.storage._ledgers.deleted] == [2, 3]
        await bookie.upkeep.collect(list, ())
        assert [*bookie.storage._ledgers.deleted] == [3]


async def test_checkpoints_deletions_and_compactions_never_overlap(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    async with home.running() as bookie:
        written = bookie.upkeep._write

        async def write(plan: CheckpointPlan) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await written(plan)
            running -= 1

        monkeypatch.setattr(bookie.upkeep, "_write", write)
        await asyncio.gather(bookie.upkeep.collect(list, ()), *(bookie.upkeep.checkpoint() for _ in range(3)))
        assert (most, running) == (1, 0)


async def test_nor_do_saves_and_ids_that_change_hands(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with home.running() as bookie:
        upkeep, storage = bookie.upkeep, bookie.storage
        await write(bookie, 1)
        identity = storage.identities.identity(1)
        assert identity is not None
        await upkeep.checkpoint()
        written = upkeep._write

        async def write_alone(plan: CheckpointPlan) -> None:
            assert upkeep._turn.locked()
            await written(plan)

        monkeypatch.setattr(upkeep, "_write", write_alone)
        await upkeep.save()
        await upkeep.renew({1: identity})
        assert storage.identities.identity(1) is None


async def test_a_log_that_cannot_be_read_is_kept_and_the_bookie_goes_on_also_after_a_restart(home: Home) -> None:
    def before(action: str, path: str) -> None:
        if action == "read" and path.endswith("2.log"):
            raise StorageError("cannot read: Input/output error", path=path)

    home.disk, home.storage = SpyDisk(before), replace(SMALL, merge_logs=3)
    for round in range(1, 3):
        async with home.running() as bookie:
            if round == 1:
                for entry in range(3):
                    async with talking(bookie) as peer:
                        assert await peer.code(adds(1, [entry])) == Code.OK
                    await bookie.upkeep.checkpoint()
            for _ in range(3):
                assert await bookie.upkeep.collect(list, ()) == 0
                await bookie.upkeep.compact()
            (told,) = home.heard("entry log not rewritten")[round - 1 :]
            assert told.fields["log"] == 2 and "Input/output error" in told.fields["reason"]
            assert bookie.storage.stats().damaged_logs == 1
            async with talking(bookie) as peer:
                found = [await peer.code(read(1, entry)) for entry in range(3)]
                assert found == [Code.OK, Code.IO_ERROR, Code.OK]
                assert await peer.code(adds(1, [3])) == Code.OK
            assert not bookie.failure.done()
            if round == 1:  # another small log: after the start there are enough of them again
                await bookie.upkeep.checkpoint()


async def test_deleted_ledgers_free_a_full_disk_though_no_entry_can_be_written(home: Home) -> None:
    full = False

    def before(action: str, path: str) -> None:
        if full and action == "write" and not path.endswith("state.spare"):
            raise DiskFull("cannot write: No space left on device", path=path)

    home.disk = SpyDisk(before)
    async with home.running() as bookie:
        await write(bookie, 1)
        await bookie.upkeep.checkpoint()
        await write(bookie, 2)
        full = True
        assert await bookie.upkeep.collect(lambda: [1], ()) == 1
        assert bookie.storage.stats().entry_logs == 0
        assert len(home.heard("entry logs not rewritten")) == 1
        assert await stored(bookie, 1, 2) == [2]
        full = False


# -- ids that are used again -----------------------------------------------------------------------------------------


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("creation", [7, UNKNOWN])
async def test_q11_a_fence_that_comes_while_a_renewal_waits_for_its_turn_stays(home: Home, creation: int) -> None:
    """A collection that had the turn forgot the old ledger's deletion. What was judged is gone, also where the creation
    of both is unknown."""
    async with home.running() as bookie:
        storage, upkeep = bookie.storage, bookie.upkeep
        await write(bookie, 5)
        if creation != UNKNOWN:
            storage.identities.note(5, creation)
        await write(bookie, 6)  # the commit that has the note
        await upkeep.collect(lambda: [5], ())
        await upkeep.checkpoint()
        judged = storage.identities.identity(5)
        assert judged == LedgerIdentity(creation, True)
        async with upkeep._turn:
            renewing = asyncio.create_task(upkeep.renew({5: judged}))
            await asyncio.sleep(0)
            await upkeep._write(storage.checkpoints.begin_collect((), [5]))
            assert storage.fence(5, b"k" * 20) == Code.OK
        await renewing
        assert storage.is_fenced(5)


def test_a_creation_is_kept_over_crashes_checkpoints_and_restarts() -> None:
    store = Store()
    store.fill(5, [0])
    store.add(6, [0])
    for ledger in (5, 6):
        store.storage.identities.looked(ledger, 100 + ledger, written=True)
    assert not any(store.storage.identities.needs_comparison(ledger) for ledger in (5, 6))
    store.commit()
    for reopen in (store.power_loss, store.restart, store.power_loss):
        reopen()
        assert [store.storage.identities.identity(ledger) for ledger in (5, 6)] == [
            LedgerIdentity(105, False),
            LedgerIdentity(106, False),
        ]
        assert store.storage.identities.needs_comparison(5)
    store.storage.collect([5], ())
    store.restart()
    assert store.storage.identities.identity(5) == LedgerIdentity(105, True)


def renew(store: Store, ledger: int) -> None:
    """As ``BookieUpkeep.renew``."""
    storage = store.storage
    storage.checkpoints.run(storage.checkpoints.begin_collect([ledger], ()))
    while ledger in storage.deleted_ids():
        storage.checkpoint()
        storage.checkpoints.run(storage.checkpoints.begin_collect((), [ledger]))


@pytest.mark.parametrize("place", ["journal", "log", "both"])
def test_a_crash_while_an_id_changes_hands_leaves_the_old_ledger_or_none_of_it(place: str) -> None:
    """At each operation of the disk in turn, by a power loss or the end of the process."""
    for step in range(1, 200):
        store = Store(SimDisk(random.Random(step)))
        store.fill(6, range(5))
        store.fill(5, range(5), b"old")
        store.storage.identities.looked(5, 7, written=True)
        store.commit()
        if place != "journal":
            store.storage.checkpoint()
        if place != "log":
            store.fill(5, range(5, 10), b"old")
        end = 5 if place == "log" else 10
        store.disk.crash_at = store.disk.operations + step
        try:
            renew(store, 5)
            crashed = False
        except Crashed:
            crashed = True
        store.disk.crash_at = None
        if crashed:
            (store.power_loss if step % 2 else store.kill)()
        identity = store.storage.identities.identity(5)
        assert identity in (None, LedgerIdentity(7, False), LedgerIdentity(7, True))
        old = [entry for entry in range(10) if store.has(5, entry, b"old")]
        assert old == (list(range(end)) if identity == LedgerIdentity(7, False) else []), step
        if identity is not None:
            renew(store, 5)
        store.fill(5, [3], b"new")
        store.storage.identities.looked(5, 9, written=True)
        store.commit()
        for reopen in (store.power_loss, store.restart):
            reopen()
            found = [store.storage.read(5, entry)[0] for entry in range(10)]
            assert found == [Code.OK if entry == 3 else Code.NO_ENTRY for entry in range(10)]
            assert store.has(5, 3, b"new") and store.storage.identities.identity(5) == LedgerIdentity(9, False)
            assert all(store.has(6, entry) for entry in range(5))
        if not crashed:
            assert step > 10
            return
    raise AssertionError("it never ended")


async def test_a_disk_that_fills_up_is_told_once_until_it_has_room_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "CHECK_EVERY_S", 0.01)
    usages = {str(home.path / name): Usage(1000, 500) for name in ("journal", "ledgers")}
    monkeypatch.setattr(home.disk, "usage", lambda folder: usages[folder])
    async with home.running() as bookie:
        for _ in range(2):
            usages[home.settings.ledger_dirs[0]] = Usage(1000, 60)
            await until(lambda: home.heard("disk fills up"))
            await until(lambda: bookie.guard.room.free == 60)
            assert not bookie.guard.read_only
            await asyncio.sleep(0.1)
            [event] = home.heard("disk fills up")
            assert (event.fields["folder"], event.fields["used_percent"]) == (home.settings.ledger_dirs[0], 94.0)
            usages[home.settings.ledger_dirs[0]] = Usage(1000, 500)
            await until(lambda: home.heard("disk has room again"))
            home.events.clear()
