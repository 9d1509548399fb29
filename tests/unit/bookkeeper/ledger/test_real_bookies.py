"""Writer, recovery and reader on real bookies of this process: their own disks, sockets and registrations."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import tallystick
from support.bookies import KEY, SMALL, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.errors import (
    LedgerError,
    LedgerExists,
    LedgerFenced,
    NotEnoughBookies,
    RecoveryIncomplete,
    Unauthorized,
)
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time


@dataclass
class RealCluster:
    """Bookies ``b0`` … over one folder and one metadata cluster in memory."""

    uri: str
    folder: Path
    running: dict[str, Bookie]

    async def start(self, name: str, **changes: int) -> None:
        home = str(self.folder / name)
        settings = BookieSettings(self.uri, (home,), (home,), port=0, bookie_id=name, **changes)  # type: ignore[arg-type]
        self.running[name] = await start_bookie(settings, this_machine(), SMALL)

    async def collect(self) -> None:
        for bookie in self.running.values():
            bookie.collection._core._rules = replace(bookie.collection._core._rules, gap_s=0.0)
            await bookie.collection.run()

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    made = RealCluster(f"memory://{tmp_path.name}", tmp_path, {})
    for number in range(4):
        await made.start(f"b{number}")
    yield made
    for name in tuple(made.running):
        await made.stop(name)
    await driver.close()


@pytest.mark.rule("Q5", "Q7", "Q8", "Q16")
async def test_a_bookie_goes_and_comes_back_under_a_writer(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk:
        async with bk.create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
            await writer.append_batch([b"%d" % number for number in range(500)])
            lost = writer.metadata.ensemble[0]
            await cluster.stop(lost)
            await writer.append_batch([b"%d" % number for number in range(500, 1000)])
            await cluster.start(lost)
            await writer.append_batch([b"%d" % number for number in range(1000, 1100)])
            assert len(writer.metadata.fragments) == 2 and lost not in writer.metadata.ensemble
        reader = await bk.open_ledger(writer.id)
        assert [entry.data async for entry in reader.read(0, 1099)] == [b"%d" % number for number in range(1100)]


@pytest.mark.rule("Q10", "Q11", "Q14", "P1", "P2")
async def test_a_running_writer_is_taken_over_and_nothing_acknowledged_is_lost(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        acked: list[int] = []

        async def write() -> None:
            with suppress(LedgerFenced):
                while True:
                    acked.extend(await writer.append_batch([b"x" * 100] * 20))

        writing = asyncio.ensure_future(write())
        await until(lambda: len(acked) >= 400)
        reader = await rival.open_ledger(writer.id, recover=True)
        await writing
        assert reader.is_closed and reader.last_entry >= acked[-1] and acked == list(range(len(acked)))
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert [entry.id async for entry in reader.read(0, reader.last_entry)] == list(range(reader.last_entry + 1))


async def fill_with_fences(cluster: RealCluster) -> None:
    """Of ledgers that do not exist, up to their bound."""
    for name in tuple(cluster.running):
        await cluster.stop(name)
        await cluster.start(name, max_fences_without_entries=1)
        async with talking(cluster.running[name]) as stranger:
            assert await stranger.code(read(12345, 0, KEY)) == Code.NO_ENTRY
            assert await stranger.code(read(54321, 0, KEY)) == Code.TOO_MANY_REQUESTS


@pytest.mark.rule("Q12", "Q15")
@pytest.mark.parametrize("written", [0, 1, 20])
async def test_recovery_gets_through_bookies_that_strangers_have_filled_with_fences(
    cluster: RealCluster, written: int
) -> None:
    await fill_with_fences(cluster)
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger(3, write_quorum=2, ack_quorum=2)
        acked = await writer.append_batch([b"x"] * written) if written else []
        reader = await rival.open_ledger(writer.id, recover=True)
        assert reader.is_closed and reader.last_entry == len(acked) - 1
        with pytest.raises(LedgerFenced):
            await writer.append(b"y")


@pytest.mark.rule("Q11")
@pytest.mark.parametrize(
    ("key", "error", "why"),
    [(master_key(b""), LedgerFenced, "recovers this ledger"), (KEY, Unauthorized, "with another password")],
)
async def test_a_stranger_that_fences_ids_not_made_yet_stops_their_writers_aloud_up_to_the_bound(
    cluster: RealCluster, key: bytes, error: type[LedgerError], why: str
) -> None:
    """Whoever reaches the port can: a bookie does not know that it is no recovery, which may come before any entry."""
    async with tallystick.connect(cluster.uri) as bk:
        last = (await bk.create_ledger(3)).id
        coming = range(last + 1, last + 4)
        for name in tuple(cluster.running):
            await cluster.stop(name)
            await cluster.start(name, max_fences_without_entries=2)
            async with talking(cluster.running[name]) as stranger:
                codes = [await stranger.code(read(ledger, 0, key)) for ledger in coming]
            assert codes == [Code.NO_ENTRY, Code.NO_ENTRY, Code.TOO_MANY_REQUESTS]
        writers = [await bk.create_ledger(3) for _ in coming]
        assert [writer.id for writer in writers] == list(coming)
        for writer in writers[:2]:
            with pytest.raises(error, match=why) as refused:
                await writer.append(b"x")
            assert refused.value.ledger == writer.id and not refused.value.retriable
        assert await writers[2].append(b"x") == 0, "the bound keeps the others from that"
        if error is LedgerFenced:
            reader = await bk.open_ledger(coming[0], recover=True)
            assert reader.is_closed and reader.last_entry == -1, "nothing was acknowledged, and recovery finds that"


@pytest.mark.rule("Q12", "Q15")
async def test_a_bookie_that_refuses_a_fence_is_no_answer_to_recovery_which_others_finish(
    cluster: RealCluster,
) -> None:
    """It is full of fences, has no entry of the ledger, and cannot read the metadata."""
    await fill_with_fences(cluster)
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        ensemble = [cluster.running[name] for name in writer.metadata.ensemble]
        for bookie in ensemble[1:]:
            bookie.looks.active = False
        with pytest.raises(RecoveryIncomplete):
            await rival.open_ledger(writer.id, recover=True)
        ensemble[1].looks.active = True
        reader = await rival.open_ledger(writer.id, recover=True)
        assert reader.is_closed and reader.last_entry == -1
        assert ensemble[2].counts.fences_refused > 1 and writer.id not in ensemble[2].storage.ledger_ids()


@pytest.mark.rule("Q11")
async def test_a_fence_survives_a_restart_of_every_bookie(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger()
        await writer.append(b"x")
        await rival.open_ledger(writer.id, recover=True)
        for name in tuple(cluster.running):
            await cluster.stop(name)
            await cluster.start(name)
        with pytest.raises(LedgerFenced, match="recovers"):  # a bookie said so, not the metadata
            await writer.append(b"y")


@pytest.mark.rule("Q7", "Q13", "Q15")
@pytest.mark.parametrize("written", [2, 0])
async def test_a_bookie_that_slept_while_an_id_changed_hands_gives_nothing_of_the_old_ledger(
    cluster: RealCluster, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a place of the new one, and is given ``written`` entries of it before its writer dies."""
    async with tallystick.connect(cluster.uri) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=777) as old:
            await old.append_batch([b"old"] * 10)
        sleeper = old.metadata.ensemble[2]
        await until(lambda: cluster.running[sleeper].storage.identities.identity(777) != LedgerIdentity(UNKNOWN, False))
        await cluster.stop(sleeper)
        await bk.delete_ledger(777)
        await cluster.collect()
        with pytest.raises(LedgerExists, match=sleeper):
            await bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=777)

        async def nobody(*_: object) -> tuple[str, ...]:
            return ()

        monkeypatch.setattr(bk, "_require_unused", nobody)  # as the original's client, which asks no bookie
        new = await bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=777)
        await new.append_batch([b"new"] * 3)
        await cluster.start(sleeper)
        if written:
            [lost] = set(new.metadata.ensemble) - set(old.metadata.ensemble)
            await cluster.stop(lost)
            async with asyncio.timeout(20):
                while sleeper not in new.metadata.ensemble:  # past its quorum a failure waits for the next append (Q7)
                    await new.append(b"new")
            await new.append_batch([b"new"] * written)
        else:  # the metadata names it, and nothing came
            stored = await bk.context.driver.read_ledger(777)
            ensemble = (sleeper, *[name for name in new.metadata.ensemble if name != sleeper][1:])
            await bk.context.driver.write_ledger(777, stored.value.with_fragment(3, ensemble), stored.version)
            [lost] = set(new.metadata.ensemble) - set(ensemble)
            await cluster.stop(lost)
        count = new.lac + 1
        new.abort()
    async with tallystick.connect(cluster.uri) as bk:
        reader = await bk.open_ledger(777, recover=True)
        found = [entry.data async for entry in reader.read(0, reader.last_entry)]
        assert found == [b"new"] * count


# -- metadata that was restored from an older copy --------------------------------------------------------------------


@dataclass
class Restored:
    """A cluster over a file of metadata, which was put back, with all stopped, to before ledger 1 (ten entries)."""

    cluster: RealCluster
    driver: ClusterMetadata

    async def stop(self) -> None:
        for name in tuple(self.cluster.running):
            await self.cluster.stop(name)
        await self.driver.close()


async def write_closed(uri: str, count: int) -> int:
    async with tallystick.connect(uri) as bk, bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        await writer.append_batch([b"old"] * count)
        return writer.id


@pytest.fixture
async def restored(tmp_path: Path) -> AsyncIterator[Restored]:
    meta, copy = tmp_path / "meta", tmp_path / "copy"
    uri = f"sqlite://{meta}/meta.db"
    driver = ClusterMetadata(SqliteStore(f"{meta}/meta.db"))
    await driver.init_cluster()
    made = Restored(RealCluster(uri, tmp_path, {}), driver)
    for number in range(3):
        await made.cluster.start(f"b{number}")
    assert await write_closed(uri, 1) == 0
    await made.stop()
    shutil.copytree(meta, copy)
    made.driver = ClusterMetadata(SqliteStore(f"{meta}/meta.db"))
    for number in range(3):
        await made.cluster.start(f"b{number}")
    assert await write_closed(uri, 10) == 1
    for bookie in made.cluster.running.values():
        await until(lambda: bookie.storage.identities.identity(1) != LedgerIdentity(UNKNOWN, False))  # noqa: B023  # awaited at once
    await made.stop()
    shutil.move(meta, tmp_path / "right")
    shutil.move(copy, meta)
    made.driver = ClusterMetadata(SqliteStore(f"{meta}/meta.db"))
    for number in range(3):
        await made.cluster.start(f"b{number}")
    yield made
    await made.stop()


async def test_ledgers_that_restored_metadata_lacks_are_not_collected_but_by_an_operator(
    restored: Restored, tmp_path: Path
) -> None:
    cluster = restored.cluster
    await cluster.collect()
    for bookie in cluster.running.values():
        assert set(bookie.storage.ledger_ids()) == {0, 1} and bookie.counts.ledgers_ahead == 1

    async def listed() -> bool:
        found = await restored.driver.bookies()
        return [info.properties.get("ledgersAhead") for info in found.writable.values()] == ["1"] * 3

    await until(listed)
    await restored.stop()
    shutil.move(tmp_path / "meta", tmp_path / "wrong")
    shutil.move(tmp_path / "right", tmp_path / "meta")  # the operator noticed
    restored.driver = ClusterMetadata(SqliteStore(str(tmp_path / "meta" / "meta.db")))
    for number in range(3):
        await cluster.start(f"b{number}")
    await cluster.collect()
    assert {bookie.counts.ledgers_ahead for bookie in cluster.running.values()} == {0}
    async with tallystick.connect(cluster.uri) as bk:
        reader = await bk.open_ledger(1)
        assert [entry.data async for entry in reader.read(0, 9)] == [b"old"] * 10
    async with tallystick.connect(cluster.uri) as bk:
        await bk.delete_ledger(1)
    await cluster.collect()
    assert {tuple(bookie.storage.ledger_ids()) for bookie in cluster.running.values()} == {(0,)}


async def test_restored_metadata_gives_no_id_out_again(restored: Restored) -> None:
    """A cursor's ledger of before said of the old ledger what was taken for the new one: messages were passed over."""
    async with tallystick.connect(restored.cluster.uri) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
            assert writer.id > 1 and await writer.append(b"new") == 0
        for _ in range(2):
            await restored.cluster.collect()
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as another:
            assert another.id == writer.id + 1, "each bookie skips once"


@pytest.fixture
def nobody_skips_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bookies of others do."""

    async def skip_ids(driver: ClusterMetadata, ledgers: Collection[int]) -> None:
        pass

    monkeypatch.setattr(ClusterMetadata, "skip_ids", skip_ids)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.usefixtures("nobody_skips_ids")
async def test_an_id_that_restored_metadata_gives_out_again_is_not_mixed(restored: Restored, later: bool) -> None:
    """``later``: when so much was created that its number is above the old one's."""
    cluster = restored.cluster
    if later:
        for number in range(30):
            await restored.driver.write_cookie(f"another-{number}", b"", None)
    settings = ClientSettings(no_quorum_s=0.2)
    async with tallystick.connect(cluster.uri, settings=settings) as bk:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        assert writer.id == 1
        with pytest.raises(NotEnoughBookies):
            await writer.append(b"new")
        writer.abort()
        for bookie in cluster.running.values():
            assert bookie.storage.last_entry(1) == 9
            bookie.collection._core._rules = replace(bookie.collection._core._rules, gap_s=0.0)
            assert await bookie.collection.run(override=True) == 1
        again = await bk.open_ledger(1, recover=True)
        assert again.last_entry == -1
