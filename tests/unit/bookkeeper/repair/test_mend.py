"""Damage of a bookie's disk: a scrub notices it, clients read elsewhere, and the entries are made good in place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tallystick
from support.bookies import SMALL, read, talking
from support.old_ledgers import rewrite_as_format_1
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.repair import mend as mend_module
from tallystick.bookkeeper.repair.mend import mend
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time


@dataclass
class Pair:
    """Two bookies that both have all entries."""

    uri: str
    folder: Path
    running: dict[str, Bookie] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    async def start(self, name: str, *, mends: bool = True) -> Bookie:
        home = str(self.folder / name)
        settings = BookieSettings(self.uri, (home,), (home,), port=0, bookie_id=name, session_timeout_s=0.5)
        outside = this_machine(Events(self.events.append))
        self.running[name] = made = await start_bookie(
            settings, outside, replace(SMALL, chunk_bytes=200), mend=mend if mends else None
        )
        return made

    async def restart(self, name: str, *, mends: bool = True) -> Bookie:
        await self.running.pop(name).stop()
        return await self.start(name, mends=mends)

    def logs(self, name: str) -> list[Path]:
        return sorted((self.folder / name).rglob("*.log"))

    def heard(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(mend_module, "LEAST_PAUSE_S", 0.05)
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    made = Pair(f"memory://{tmp_path.name}", tmp_path)
    for name in ("b0", "b1"):
        await made.start(name, mends=False)
    yield made
    for bookie in made.running.values():
        await bookie.stop()
    await driver.close()


async def written(pair: Pair, *, digest: str = "crc32c", close: bool = True) -> int:
    """Twenty entries, in an entry log of both bookies."""
    async with tallystick.connect(pair.uri) as bk:
        writer = await bk.create_ledger(2, write_quorum=2, ack_quorum=2, digest=digest, password=b"pw")
        await writer.append_batch([bytes([number]) * 50 for number in range(20)])
        if close:
            await writer.close()
        for bookie in pair.running.values():
            await bookie.upkeep.checkpoint()
        return writer.id


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


async def codes(bookie: Bookie, ledger: int) -> list[Code]:
    async with talking(bookie) as peer:
        return [await peer.code(read(ledger, entry)) for entry in range(20)]


async def all_read_from(pair: Pair, ledger: int, name: str) -> bool:
    """Whether one bookie alone has all entries, as they were written."""
    (other,) = pair.running.keys() - {name}
    await pair.running.pop(other).stop()
    async with tallystick.connect(pair.uri) as bk:
        reader = await bk.open_ledger(ledger, password=b"pw")
        data = [entry.data async for entry in reader.read(0, 19)]
    await pair.start(other)
    return data == [bytes([number]) * 50 for number in range(20)]


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("close", [True, False])
async def test_q15_a_flipped_byte_is_noticed_told_served_elsewhere_and_made_good(pair: Pair, close: bool) -> None:
    ledger = await written(pair, close=close)
    (log,) = pair.logs("b0")
    flip(log, log.stat().st_size // 2)
    bookie = pair.running["b0"]
    assert bookie.scrubber is not None
    await bookie.scrubber.round()
    damaged = bookie.storage.damages.of(ledger)
    assert 0 < len(damaged) < 20 and bookie.storage.stats().entries_damaged == len(damaged)
    said = await codes(bookie, ledger)
    assert [entry for entry in range(20) if said[entry] == Code.IO_ERROR] == damaged
    assert set(said) == {Code.OK, Code.IO_ERROR}, "never: no such entry"
    async with tallystick.connect(pair.uri) as bk:
        reader = await bk.open_ledger(ledger, password=b"pw") if close else None
        if reader is not None:
            assert len([entry async for entry in reader.read(0, 19)]) == 20
    assert pair.heard("entries damaged")[0].fields["count"] == len(damaged)
    bookie = await pair.restart("b0")
    await until(lambda: not bookie.storage.damages and bookie.counts.scrub_mended == len(damaged))
    assert set(await codes(bookie, ledger)) == {Code.OK}
    for again in (False, True):
        if again:
            bookie = await pair.restart("b0")
        if close:
            assert await all_read_from(pair, ledger, "b0")
    assert not bookie.storage.damages


@pytest.mark.parametrize("digest", ["crc32c", "crc32", "mac"])
async def test_an_entry_that_was_stored_with_a_bad_digest_is_noticed_and_made_good(pair: Pair, digest: str) -> None:
    ledger = await written(pair, digest=digest)
    bookie = pair.running["b0"]
    _, body = bookie.storage.read(ledger, 7)
    bad = body[:-1] + bytes([body[-1] ^ 1])
    key = bookie.storage._ledgers.alive[ledger].key
    assert bookie.storage.add(ledger, 7, key, bad, recovery=True) == Code.OK
    await bookie.upkeep.checkpoint()
    assert bookie.scrubber is not None
    await bookie.scrubber.round()
    assert bookie.storage.damages.of(ledger) == [7]
    bookie = await pair.restart("b0")
    await until(lambda: bookie.counts.scrub_mended == 1 and not bookie.storage.damages)
    assert bookie.storage.read(ledger, 7) == (Code.OK, body)


async def test_entries_of_a_ledger_whose_digest_type_nobody_stored_are_not_taken_for_damaged(pair: Pair) -> None:
    ledger = await written(pair, digest="mac")
    driver = ClusterMetadata(MemoryStore(pair.folder.name))
    await rewrite_as_format_1(driver, ledger)
    await driver.close()
    bookie = pair.running["b0"]
    assert bookie.scrubber is not None
    await bookie.scrubber.round()
    assert not bookie.storage.damages and set(await codes(bookie, ledger)) == {Code.OK}


async def test_a_log_that_is_gone_is_fetched_whole(pair: Pair) -> None:
    ledger = await written(pair)
    bookie = pair.running["b0"]
    (log,) = pair.logs("b0")
    log.unlink()
    assert bookie.scrubber is not None
    await bookie.scrubber.round()
    assert bookie.storage.damages.of(ledger) == list(range(20))
    mending = asyncio.create_task(mend(bookie._copies(OwnCopies)))
    await until(lambda: not bookie.storage.damages)
    mending.cancel()
    assert set(await codes(bookie, ledger)) == {Code.OK}


async def test_what_was_an_error_of_one_moment_is_not_written_again(pair: Pair) -> None:
    ledger = await written(pair)
    bookie = pair.running["b0"]
    bookie.storage.damages.add(ledger, 3)
    mending = asyncio.create_task(mend(bookie._copies(OwnCopies)))
    await until(lambda: not bookie.storage.damages)
    mending.cancel()
    assert bookie.counts.scrub_mended == 0 and bookie.storage.stats().memtable_bytes == 0


async def test_what_was_read_before_the_damage_is_no_proof_of_a_sound_disk(pair: Pair) -> None:
    ledger = await written(pair)
    bookie = pair.running["b0"]
    assert set(await codes(bookie, ledger)) == {Code.OK}
    (log,) = pair.logs("b0")
    flip(log, log.stat().st_size // 2)
    assert bookie.scrubber is not None
    await bookie.scrubber.round()
    damaged = len(bookie.storage.damages)
    mending = asyncio.create_task(mend(bookie._copies(OwnCopies)))
    await until(lambda: not bookie.storage.damages)
    mending.cancel()
    assert bookie.counts.scrub_mended == damaged > 0


async def test_what_a_client_could_not_read_is_made_good_without_a_scrub(pair: Pair) -> None:
    ledger = await written(pair)
    (log,) = pair.logs("b0")
    bookie = await pair.restart("b0")
    flip(log, log.stat().st_size // 2)
    assert Code.IO_ERROR in await codes(bookie, ledger)
    await until(lambda: bookie.counts.scrub_mended > 0 and not bookie.storage.damages)
    assert set(await codes(bookie, ledger)) == {Code.OK}


async def test_a_damaged_copy_is_repaired_from_no_other_damaged_one(pair: Pair) -> None:
    ledger = await written(pair)
    bookies = pair.running
    key = bookies["b0"].storage._ledgers.alive[ledger].key
    for bookie in bookies.values():
        bad = ENTRY_HEADER.pack(ledger, 7, 6, 400) + b"none!"
        assert bookie.storage.add(ledger, 7, key, bad, recovery=True) == Code.OK
        await bookie.upkeep.checkpoint()
    assert bookies["b0"].scrubber is not None
    await bookies["b0"].scrubber.round()
    bookie = await pair.restart("b0")
    await until(lambda: pair.heard("entries not mended"))
    assert "no other replica" in pair.heard("entries not mended")[0].fields["reason"]
    await asyncio.sleep(0.2)
    assert bookie.storage.damages.of(ledger) == [7] and len(pair.heard("entries not mended")) == 1
