"""Bookies that lost their disks rejoin, deny nothing, and fetch what they lack: on real bookies of this process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tallystick
from support.bookies import KEY, SMALL, adds, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.ledger_folders import FolderFailure
from tallystick.bookkeeper.bookie.places import LedgerFolder
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.repair import fill as fill_module
from tallystick.bookkeeper.repair.fill import fill
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, Digest
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import DigestType, LedgerMetadata
from tallystick.codec.frames import RECOVERY_FLAGS, encode_adds
from tallystick.errors import RecoveryIncomplete, StorageError
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time
FAST = ClientSettings(read_timeout_s=1.0, add_timeout_s=1.0, connect_timeout_s=1.0)


@dataclass
class Machines:
    """Bookies ``b0`` … that can lose their disks."""

    uri: str
    folder: Path
    driver: ClusterMetadata
    running: dict[str, Bookie] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    async def start(
        self, name: str, *, rejoin: bool = False, fills: bool = True, ledger_dirs: Sequence[str] = ()
    ) -> Bookie:
        home = str(self.folder / name)
        ledgers = tuple(str(self.folder / name / each) for each in ledger_dirs) or (home,)
        settings = BookieSettings(self.uri, (home,), ledgers, port=0, bookie_id=name, session_timeout_s=0.5)
        outside = this_machine(Events(self.events.append))
        made = await start_bookie(settings, outside, SMALL, fill=fill if fills else None, rejoin=rejoin)
        self.running[name] = made
        return made

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.running.pop(name).stop()

    async def lose_disk(self, name: str) -> None:
        await self.stop(name)
        shutil.rmtree(self.folder / name)

    def kinds(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    async def property_of(self, name: str) -> str | None:
        info = (await self.driver.bookies()).find(name)
        return None if info is None else info.properties.get("limbo")


@pytest.fixture
async def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machines]:
    monkeypatch.setattr(fill_module, "LEAST_PAUSE_S", 0.1)
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    made = Machines(f"memory://{tmp_path.name}", tmp_path, driver)
    for number in range(3):
        await made.start(f"b{number}")
    yield made
    await made.stop(*made.running)
    await driver.close()


async def an_abandoned_ledger(machines: Machines) -> int:
    """Of five acknowledged entries b0 and b1 have a copy, and b2, which comes back, never had one."""
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        await machines.stop("b2")
        assert len(await writer.append_batch([b"a", b"bc", b"", b"def", b"ghij"])) == 5
    await machines.start("b2")
    return writer.id


async def recovered(bk: tallystick.BookKeeper, ledger: int) -> tallystick.LedgerReader:
    """Recover a ledger, as soon as the client has noticed who is there again."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(RecoveryIncomplete):
                return await bk.open_ledger(ledger, recover=True)
            await asyncio.sleep(0.05)


@pytest.mark.rule("Q15", "P1")
async def test_q15_recovery_beside_an_empty_disk_truncates_nothing_that_was_acknowledged(machines: Machines) -> None:
    """Of three copies one was never written, and one is lost: who says no for it would end the ledger before them."""
    ledger = await an_abandoned_ledger(machines)
    await machines.lose_disk("b0")
    bookie = await machines.start("b0", rejoin=True)
    await machines.stop("b1")
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        with pytest.raises(RecoveryIncomplete):
            await bk.open_ledger(ledger, recover=True)
        await machines.start("b1")
        reader = await recovered(bk, ledger)
        assert reader.last_entry == 4
        await until(lambda: not bookie.storage.limbo)
        await machines.stop("b1", "b2")
        assert [entry.data async for entry in reader.read(0, 4)] == [b"a", b"bc", b"", b"def", b"ghij"]
    await until(lambda: is_gone(machines, "b0"))


@pytest.mark.rule("Q11", "Q15")
async def test_q11_a_bookie_that_rejoined_takes_nothing_of_ledgers_that_were_open_but_all_of_new_ones(
    machines: Machines,
) -> None:
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        writer = await bk.create_ledger(2, write_quorum=2, ack_quorum=2)
        await writer.append(b"before")
        lost, _ = writer.metadata.ensemble
        await machines.lose_disk(lost)
        bookie = await machines.start(lost, rejoin=True)
        assert bookie.storage.is_fenced(writer.id)
        assert await writer.append(b"after") == 1
        assert lost not in writer.metadata.ensemble, "it was replaced by who can take entries"
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=3) as other:
            assert await other.append(b"new") == 0
        async with talking(bookie) as peer:
            assert await peer.code(read(other.id, 0)) == Code.OK
            assert await peer.code(read(other.id, 1)) == Code.NO_ENTRY
            assert await peer.code(adds(writer.id, [5])) == Code.IO_ERROR
            # The fragment that it was replaced in is at its end: that is fetched, and the rest is none of its.
            await until(lambda: bookie.counts.filled_entries == 1)
            assert await peer.code(read(writer.id, 0)) == Code.OK
            assert await peer.code(read(writer.id, 1)) == Code.IO_ERROR
            await writer.close()
            await until(lambda: not bookie.storage.limbo)
            assert await peer.code(read(writer.id, 1)) == Code.NO_ENTRY
    await until(lambda: is_gone(machines, lost))


async def is_gone(machines: Machines, name: str) -> bool:
    return await machines.property_of(name) is None


@pytest.mark.parametrize("digest", ["crc32", "mac", "dummy"])
async def test_what_was_fetched_stays_and_the_rest_follows_after_a_restart(machines: Machines, digest: str) -> None:
    """Striped: of six entries the bookie has four."""
    payloads = [b"%d" % number * 300 for number in range(600)]
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        async with bk.create_ledger(3, write_quorum=2, ack_quorum=2, digest=digest, password=b"pw") as writer:
            await writer.append_batch(payloads)
        ensemble = writer.metadata.ensemble
        await machines.lose_disk("b1")
        bookie = await machines.start("b1", rejoin=True, fills=False)
        assert await machines.property_of("b1") == "1" and not bookie.storage.ledger_ids()
        await machines.stop("b1")
        bookie = await machines.start("b1", fills=False)
        assert await machines.property_of("b1") == "1", "a restart knows it"
        await machines.stop("b1")
        await machines.stop("b0", "b2")
        bookie = await machines.start("b1")
        await until(lambda: machines.kinds("ledger not filled"))
        await machines.start("b0")
        await machines.start("b2")
        await until(lambda: not bookie.storage.limbo)
        slot = ensemble.index("b1")
        expected = [entry for entry in range(600) if slot in (entry % 3, (entry + 1) % 3)]
        assert bookie.counts.filled_entries == len(expected) == 400
        stored = bookie.storage.stored_ids(writer.id)
        assert stored is not None and [entry for run in stored.runs() for entry in run] == expected
        assert len(machines.kinds("limbo ended")) == 1
        await machines.stop("b1")
        await machines.start("b1")
        assert await machines.property_of("b1") is None
        await machines.stop("b0" if slot else "b2")
        reader = await bk.open_ledger(writer.id, password=b"pw")
        assert [entry.data async for entry in reader.read(0, 599)] == payloads


async def spoil(bookie: Bookie, ledger: int, entries: Iterable[int]) -> None:
    """Give a bookie copies that do not match their digest."""
    async with talking(bookie) as peer:
        for entry in entries:
            bad = ENTRY_HEADER.pack(ledger, entry, entry - 1, 1) + b"crc!" + b"bad"
            frame = v2.AddFrame(ledger, entry, KEY, bad, RequestFlag.RECOVERY_ADD).encode()
            assert await peer.code(frame) == Code.OK


@pytest.mark.rule("Q15")
async def test_q15_while_one_entry_has_no_good_copy_the_ledger_stays_in_limbo(machines: Machines) -> None:
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=3, password=b"pw") as writer:
            await writer.append_batch([b"0", b"1", b"2"])
        for name in ("b0", "b1"):
            await spoil(machines.running[name], writer.id, [1])
        await machines.lose_disk("b2")
        bookie = await machines.start("b2", rejoin=True)
        await until(lambda: machines.kinds("ledger not filled"))
        [event] = machines.kinds("ledger not filled")
        assert "count=1 first=1" in event.fields["reason"]
        async with talking(bookie) as peer:
            assert [await peer.code(read(writer.id, entry)) for entry in range(3)] == [Code.OK, Code.IO_ERROR, Code.OK]
            digest = Digest.of(DigestType.CRC32C)
            good = encode_adds(KEY, writer.id, 1, 0, 1, [b"1"], digest.compute, digest.size, RECOVERY_FLAGS)[0]
            async with talking(machines.running["b0"]) as other:
                assert await other.code(good.joined(0, 1)) == Code.OK
            await until(lambda: not bookie.storage.limbo)
            assert await peer.code(read(writer.id, 1)) == Code.OK


async def test_a_copy_with_a_bad_digest_is_not_taken(machines: Machines) -> None:
    payloads = [b"%d" % number for number in range(6)]
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=3, password=b"pw") as writer:
            await writer.append_batch(payloads)
        await spoil(machines.running["b0"], writer.id, range(6))
        await machines.lose_disk("b2")
        bookie = await machines.start("b2", rejoin=True)
        await until(lambda: not bookie.storage.limbo)
        assert {event.fields["bookie"] for event in machines.kinds("bad replica")} == {"b0"}
        await machines.stop("b0", "b1")
        reader = await bk.open_ledger(writer.id, password=b"pw")
        assert [entry.data async for entry in reader.read(0, 5)] == payloads


async def test_a_ledger_leaves_limbo_when_no_fragment_names_the_bookie_or_it_is_gone_for_long(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=3) as moved, bk.create_ledger(3) as deleted:
            await moved.append(b"x")
            await deleted.append(b"x")
        await machines.lose_disk("b0")
        bookie = await machines.start("b0", rejoin=True, fills=False)
        versioned = await machines.driver.read_ledger(moved.id)
        (fragment,) = versioned.value.fragments
        others = tuple("elsewhere" if name == "b0" else name for name in fragment.bookies)
        elsewhere = replace(versioned.value, fragments=(replace(fragment, bookies=others),))
        await machines.driver.write_ledger(moved.id, elsewhere, versioned.version)
        await machines.driver.delete_ledger(deleted.id)
        assert sorted(bookie.storage.limbo) == [moved.id, deleted.id]
        await machines.stop("b0")
        bookie = await machines.start("b0")
        await until(lambda: list(bookie.storage.limbo) == [deleted.id])
        monkeypatch.setattr("tallystick.bookkeeper.repair.fill_core.GONE_S", 0.2)
        await until(lambda: not bookie.storage.limbo)
        assert bookie.counts.filled_entries == 0


@pytest.mark.rule("Q7", "Q11")
async def test_q7_a_writer_that_has_no_other_bookie_goes_on_without_the_one_in_limbo(machines: Machines) -> None:
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        await writer.append(b"0")
        await machines.lose_disk("b0")
        await writer.append(b"1")
        bookie = await machines.start("b0", rejoin=True)
        for number in range(2, 40):
            assert await writer.append(b"%d" % number) == number
            await asyncio.sleep(0.05)
        assert bookie.counts.adds_failed < 20, "it is tried again, and not all the time"
        await writer.close()
        await until(lambda: not bookie.storage.limbo)
        assert bookie.counts.filled_entries == 40


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("of_itself", [False, True], ids=["while another is filled", "while it is filled"])
async def test_q15_what_a_folder_lost_after_it_was_filled_is_fetched_again_before_the_ledger_leaves_limbo(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, of_itself: bool
) -> None:
    """Ledgers leave limbo some together: it left although its entries had gone while another one was filled."""
    folders = ("l0", "l1")
    await machines.start("b3", ledger_dirs=folders)
    async with tallystick.connect(machines.uri, settings=FAST) as bk:
        first, second = [await bk.create_ledger(4, write_quorum=4, ack_quorum=4) for _ in range(2)]
        for writer in (first, second):
            await writer.append_batch([b"a", b"b"])
            await writer.close()
    await machines.lose_disk("b3")
    failing, fill_one = [first.id if of_itself else second.id], fill_module._Filling._fill

    async def fails_beside(filling: fill_module._Filling, ledger: int, metadata: LedgerMetadata) -> None:
        if of_itself:
            await fill_one(filling, ledger, metadata)
        if ledger in failing:
            failing.remove(ledger)
            storage = bookie.storage
            await bookie.upkeep.checkpoint()
            number = storage._ledgers.places.of(first.id).folder
            failure = FolderFailure(LedgerFolder(number, storage.folders.path(number)), StorageError("input/output"))
            async with bookie.upkeep._turn:
                await bookie.upkeep._lose(failure)
        if not of_itself:
            await fill_one(filling, ledger, metadata)

    monkeypatch.setattr(fill_module._Filling, "_fill", fails_beside)
    bookie = await machines.start("b3", rejoin=True, ledger_dirs=folders)
    await until(lambda: not bookie.storage.limbo)
    assert failing == [] and machines.kinds("ledger folder failed")
    async with talking(bookie) as peer:
        codes = [await peer.code(read(ledger, entry)) for ledger in (first.id, second.id) for entry in (0, 1)]
    assert codes == [Code.OK] * 4
