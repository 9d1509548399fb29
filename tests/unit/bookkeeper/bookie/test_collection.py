"""Deleted ledgers give their space back; nothing else is ever deleted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.bookies import Home, adds, read, talking
from support.collecting import asking, quick, write
from support.waiting import until
from tallystick.bookkeeper.bookie import waiting_deletions
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.collection import FIRST_RUN_S
from tallystick.bookkeeper.bookie.collection_orders import Order, OrderFile
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.codec.steps import finished
from tallystick.errors import MetadataError, StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import OsDisk

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))


@pytest.fixture
async def bookie(home: Home) -> AsyncIterator[Bookie]:
    """Its own runs are far away."""
    async with home.running() as made:
        quick(made)
        yield made


async def stored(bookie: Bookie, *ledgers: int) -> list[int]:
    async with talking(bookie) as peer:
        return [ledger for ledger in ledgers if await peer.code(read(ledger, 0)) == Code.OK]


async def test_a_ledger_without_metadata_is_deleted_and_others_stay(home: Home, bookie: Bookie) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    await driver.create_ledger(METADATA, 2)
    await write(bookie, 1, 2, 3)
    assert await bookie.collection.run() == 2
    assert await stored(bookie, 1, 2, 3) == [2]
    async with talking(bookie) as peer:
        assert await peer.code(adds(1, [1])) == Code.IO_ERROR, "nobody can look who has the id"
        bookie.looks.active = True
        assert await peer.code(adds(1, [1])) == Code.FENCED  # its old writer cannot bring it back
    assert (bookie.counts.collections, bookie.counts.ledgers_deleted) == (1, 2)


class Fickle(ClusterMetadata):
    """Does something in the middle of a listing or look."""

    async def during_listing(self) -> None: ...

    async def during_look(self) -> None: ...

    async def ledgers(self) -> AsyncIterator[int]:
        await self.during_listing()
        async for ledger in super().ledgers():
            yield ledger

    async def look_up(self, ledgers: Sequence[int]) -> Mapping[int, Record | None]:
        found = await super().look_up(ledgers)
        await self.during_look()
        return found


async def test_a_listing_that_fails_deletes_nothing(home: Home, bookie: Bookie) -> None:
    class Failing(Fickle):
        async def during_listing(self) -> None:
            raise MetadataError("the service went away")

    await write(bookie, 1, 2)
    asking(bookie, Failing(MemoryStore(home.cluster)))
    with pytest.raises(MetadataError):
        await bookie.collection.run()
    assert await stored(bookie, 1, 2) == [1, 2]


async def test_a_ledger_made_while_the_metadata_is_compared_is_not_ahead_of_it(home: Home, bookie: Bookie) -> None:
    """The metadata said what its newest creation is; the ledger was made, written and looked at before the next answer.
    As one that is ahead it would have stayed for ever."""

    class Creating(ClusterMetadata):
        async def bookie_creation(self, bookie_id: str) -> int | None:
            found = await super().bookie_creation(bookie_id)
            if 1 not in bookie.storage.ledger_ids():
                await self.create_ledger(METADATA, 1)
                await write(bookie, 1)
                record = (await self.look_up([1]))[1]
                assert record is not None
                bookie.storage.identities.looked(1, record.creation, written=True)
            return found

    driver = Creating(MemoryStore(home.cluster))
    asking(bookie, driver)
    assert await bookie.collection.run() == 0
    assert (bookie.counts.ledgers_ahead, home.heard("metadata is older than the ledgers")) == (0, [])
    await driver.delete_ledger(1)
    assert await bookie.collection.run() == 1
    assert await stored(bookie, 1) == []


async def test_a_ledger_that_is_newer_than_the_metadata_is_so_until_the_right_metadata_is_back(
    home: Home, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Back(ClusterMetadata):
        async def look_up(self, ledgers: Sequence[int]) -> Mapping[int, Record | None]:
            found = await super().look_up(ledgers)
            return {ledger: record and replace(record, creation=1_000_000) for ledger, record in found.items()}

    disk_is_full = [True]

    def once_full(disk: OsDisk, path: str, data: bytes) -> None:
        if disk_is_full and disk_is_full.pop():
            raise StorageError("the disk is full")
        write_atomic(disk, path, data)

    monkeypatch.setattr(waiting_deletions, "write_atomic", once_full)
    await write(bookie, 1)
    bookie.storage.identities.looked(1, 1_000_000, written=True)
    assert await bookie.collection.run() == 0
    assert bookie.storage.identities.identity(1) == LedgerIdentity(1_000_000, deleted=False, ahead=True)
    path = home.path / "ledgers" / "tally" / "waiting-deletions"
    assert home.heard("wait of a large deletion not saved")
    assert WaitingDeletions.decode(path.read_bytes()).ahead == {1: 1_000_000}, (
        "what a full disk did not take is saved later"
    )
    driver = Back(MemoryStore(home.cluster))
    await driver.create_ledger(METADATA, 1)
    asking(bookie, driver)
    assert await bookie.collection.run() == 0
    assert bookie.storage.identities.identity(1) == LedgerIdentity(1_000_000, deleted=False, ahead=False)


async def test_ids_that_could_not_be_skipped_are_skipped_by_the_next_run(home: Home, bookie: Bookie) -> None:
    class Away(ClusterMetadata):
        asked = 0

        async def skip_ids(self, ledgers: Collection[int]) -> None:
            assert set(ledgers) == {1}
            self.asked += 1
            if self.asked == 1:
                raise MetadataError("the service went away")

    await write(bookie, 1)
    bookie.storage.identities.looked(1, 1_000_000, written=True)
    driver = Away(MemoryStore(home.cluster))
    asking(bookie, driver)
    with pytest.raises(MetadataError):
        await bookie.collection.run()
    for _ in range(2):
        await bookie.collection.run()
        assert driver.asked == 2


@pytest.mark.parametrize("at_start", [False, True])
async def test_a_ledger_that_was_made_behind_the_sync_is_not_ahead_of_what_that_said(
    home: Home, bookie: Bookie, at_start: bool
) -> None:
    class Creating(ClusterMetadata):
        async def sync(self) -> Moment:
            found = await super().sync()
            if 1 not in bookie.storage.ledger_ids():
                await self.create_ledger(METADATA, 1)
                await write(bookie, 1)
                record = (await self.look_up([1]))[1]
                assert record is not None
                bookie.storage.identities.looked(1, record.creation, written=True)
            return found

    asking(bookie, Creating(MemoryStore(home.cluster)))
    await (bookie.collection.compare() if at_start else bookie.collection.run())
    assert bookie.storage.ledger_ids()
    assert (bookie.counts.ledgers_ahead, home.heard("metadata is older than the ledgers")) == (0, [])


async def test_a_ledger_that_is_created_during_the_listing_stays(home: Home, bookie: Bookie) -> None:
    class Creating(Fickle):
        async def during_listing(self) -> None:
            if 1 not in bookie.storage.ledger_ids():
                await self.create_ledger(METADATA, 1)
                await write(bookie, 1)

    await ClusterMetadata(MemoryStore(home.cluster)).create_ledger(METADATA, 2)
    await write(bookie, 2)
    asking(bookie, Creating(MemoryStore(home.cluster)))
    assert await bookie.collection.run() == 0
    assert await stored(bookie, 1, 2) == [1, 2]


@pytest.mark.parametrize("flags", [RequestFlag.NONE, RequestFlag.HIGH_PRIORITY])  # in a run of adds, and by itself
async def test_an_id_that_is_used_again_after_the_last_look_is_not_deleted(
    home: Home, bookie: Bookie, flags: RequestFlag
) -> None:
    class Creating(Fickle):
        looks = 0

        async def during_look(self) -> None:
            self.looks += 1
            if self.looks == 2:
                await self.create_ledger(METADATA, 1)
                await write(bookie, 1, flags=flags)

    await write(bookie, 1)
    asking(bookie, driver := Creating(MemoryStore(home.cluster)))
    assert await bookie.collection.run() == 0
    assert driver.looks == 3, "the last one finds its creation"
    assert await stored(bookie, 1) == [1]


@pytest.mark.parametrize("fails", [False, True])
async def test_no_add_is_watched_when_a_run_is_over(home: Home, bookie: Bookie, fails: bool) -> None:
    class Fails(Fickle):
        async def during_look(self) -> None:
            assert bookie.collection._recent.watched == {1}
            if fails:
                raise MetadataError("the service went away")

    await write(bookie, 1)
    asking(bookie, Fails(MemoryStore(home.cluster)))
    with contextlib.suppress(MetadataError):
        assert await bookie.collection.run() == 1
    assert bookie.collection._recent.watched == set()


async def test_a_ledger_that_came_while_nobody_could_look_gets_its_creation(home: Home, bookie: Bookie) -> None:
    """Else, never added to again, it would be mixed with the next one of its id, or deleted by metadata that was
    restored from an older copy."""
    driver = ClusterMetadata(MemoryStore(home.cluster))
    bookie.looks.active = False
    for ledger in (1, 2):
        await driver.create_ledger(METADATA, ledger)
    await write(bookie, 1, 2)
    assert finished(bookie.storage.identities.creations()) == [(1, UNKNOWN), (2, UNKNOWN)]
    await bookie.collection.run()
    records = await driver.look_up([1, 2])
    assert dict(finished(bookie.storage.identities.creations())) == {
        ledger: record and record.creation for ledger, record in records.items()
    }
    assert not bookie.storage.identities.needs_comparison(1)


async def test_an_id_that_is_used_again_behind_the_look_does_not_get_the_old_creation(
    home: Home, bookie: Bookie
) -> None:
    """The next look would take its entries for the old ledger's, and delete them."""

    class Remaking(Fickle):
        async def during_look(self) -> None:
            await self.delete_ledger(1)
            await self.create_ledger(METADATA, 1)
            await write(bookie, 1)

    await write(bookie, 1)
    asking(bookie, driver := Remaking(MemoryStore(home.cluster)))
    await driver.create_ledger(METADATA, 1)
    await bookie.collection.run()
    assert finished(bookie.storage.identities.creations()) == [(1, UNKNOWN)]


async def test_what_was_read_over_a_connection_that_broke_gives_no_ledger_its_creation(
    home: Home, bookie: Bookie
) -> None:
    """Another server, which lagged behind, may have told of the ledger that had the id before."""

    class Breaking(Fickle):
        breaks = 0

        async def during_look(self) -> None:
            self.breaks += 1

        async def sync(self) -> Moment:
            return replace(await super().sync(), generation=self.breaks)

    driver = Breaking(MemoryStore(home.cluster))
    bookie.looks.active = False
    await driver.create_ledger(METADATA, 1)
    await write(bookie, 1)
    asking(bookie, driver)
    await bookie.collection.run()
    assert finished(bookie.storage.identities.creations()) == [(1, UNKNOWN)]


async def test_a_writer_that_goes_on_does_not_keep_its_deleted_ledger(home: Home, bookie: Bookie) -> None:
    class Appending(Fickle):
        async def during_look(self) -> None:
            bookie.storage.last_entry(1)
            bookie.collection._recent.adding(1, 1, 0)

    await write(bookie, 1)
    asking(bookie, Appending(MemoryStore(home.cluster)))
    assert await bookie.collection.run() == 1


async def test_metadata_of_another_cluster_deletes_nothing(tmp_path: Path, home: Home, bookie: Bookie) -> None:
    other = Home(tmp_path)
    await write(bookie, 1)
    asking(bookie, await other.found())
    with pytest.raises(MetadataError, match="another cluster"):
        await bookie.collection.run()
    assert await stored(bookie, 1) == [1]


async def test_a_deleted_id_that_exists_again_can_be_added_to(home: Home, bookie: Bookie) -> None:
    await write(bookie, 1)
    assert await bookie.collection.run() == 1
    await ClusterMetadata(MemoryStore(home.cluster)).create_ledger(METADATA, 1)
    await bookie.collection.run()
    await write(bookie, 1)


async def test_an_id_that_existed_again_and_is_deleted_again_is_refused(home: Home, bookie: Bookie) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    await write(bookie, 1)
    assert await bookie.collection.run() == 1
    await driver.create_ledger(METADATA, 1)
    await bookie.collection.run()
    await write(bookie, 1)
    await driver.delete_ledger(1)
    assert await bookie.collection.run() == 1
    bookie.looks.active = True
    async with talking(bookie) as peer:
        assert await peer.code(adds(1, [1])) == Code.FENCED


async def test_ledgers_that_nobody_made_hold_up_no_deletion(home: Home, bookie: Bookie) -> None:
    """However many a stranger invents: they are deleted with the rest."""
    invented = range(100, 401)
    await write(bookie, 1, *invented)
    for ledger in invented:
        bookie.storage.identities.looked(ledger, UNKNOWN, written=False)
    assert await bookie.collection.run() == 302
    assert not home.heard("deletions wait")


async def test_many_at_once_wait_and_are_told_of(home: Home, bookie: Bookie) -> None:
    driver, many = ClusterMetadata(MemoryStore(home.cluster)), range(101)
    await write(bookie, *many)
    assert await bookie.collection.run() == 0
    assert await stored(bookie, *many) == list(many)
    assert bookie.counts.deletions_waiting == 101
    [event] = home.heard("deletions wait")
    assert (event.fields["count"], event.fields["hours"]) == (101, 24.0)

    async def listed() -> bool:
        found = (await driver.bookies()).find("b0")
        return found is not None and found.properties.get("deletionsWaiting") == "101"

    await until(listed)
    assert await bookie.collection.run(override=True) == 101
    assert bookie.counts.deletions_waiting == 0

    async def gone() -> bool:
        found = (await driver.bookies()).find("b0")
        return found is not None and "deletionsWaiting" not in found.properties

    await until(gone)


async def test_a_restarted_bookie_knows_how_long_they_have_waited(home: Home) -> None:
    many = range(101)
    async with home.running(gc_large_wait_s=1000.0) as bookie:
        quick(bookie)
        await write(bookie, *many)
        await bookie.collection.run()
        core: Any = bookie.collection._core
        core._proven_at -= 600.0  # ten minutes later
        await bookie.collection.run()
    async with home.running(gc_large_wait_s=1000.0) as bookie:
        quick(bookie)
        assert await bookie.collection.run() == 0
        assert 1000.0 - home.heard("deletions wait")[-1].fields["hours"] * 3600 == pytest.approx(600.0, abs=200.0)
        core = bookie.collection._core
        assert core.waiting.longest_s == pytest.approx(600.0, abs=60.0)
        core._proven_at -= 600.0
        assert await bookie.collection.run() == 101


async def test_a_damaged_file_of_waiting_ledgers_makes_them_wait_anew(home: Home) -> None:
    path = home.path / "ledgers" / "tally" / "waiting-deletions"
    async with home.running():
        path.write_bytes(b"junk")
    async with home.running() as bookie:
        quick(bookie)
        assert home.heard("wait of large deletions begins anew")
        await write(bookie, *range(101))
        assert await bookie.collection.run() == 0


async def test_the_bookies_own_runs_delete(home: Home) -> None:
    async with home.running(gc_wait_s=0.01) as bookie:
        await write(bookie, 1)
        await until(lambda: home.heard("ledgers deleted"))
        assert await stored(bookie, 1) == []


async def test_the_first_run_does_not_wait_for_the_others_interval(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FIRST_RUN_S == 60.0
    monkeypatch.setattr("tallystick.bookkeeper.bookie.collection.FIRST_RUN_S", 0.01)
    async with home.running(gc_wait_s=3600.0) as bookie:
        await until(lambda: bookie.counts.collections == 1)


@pytest.mark.parametrize("what", Order)
async def test_an_order_makes_a_run_at_once(home: Home, what: Order) -> None:
    async with home.running() as bookie:
        quick(bookie)
        await write(bookie, *range(101))
        OrderFile(OsDisk(), home.settings.ledger_dirs[0]).place(what, bookie_now_s(bookie))
        await until(lambda: home.heard("deletions wait" if what is Order.SOON else "ledgers deleted"))
        assert [event.fields["order"] for event in home.heard("collection ordered")] == [what.value]
        assert len(await stored(bookie, *range(101))) == (101 if what is Order.SOON else 0)


def bookie_now_s(bookie: Bookie) -> int:
    return bookie._outside.clock.wall_ms() // 1000
