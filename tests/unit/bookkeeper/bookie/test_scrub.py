"""A scrub reads all that a bookie stores, goes on after a restart where it was, and says how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from support.bookies import SMALL, Home, adds, talking
from support.waiting import until
from tallystick.bookkeeper.bookie import scrubber as scrubber_module
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.damages import MOST, Damages
from tallystick.bookkeeper.bookie.scrub import COVERED_S, EVERY_S, ScrubProgress
from tallystick.bookkeeper.bookie.scrubber import Scrubber
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.pace import Pace

DAY_S = 86_400.0


def test_its_file_comes_back_as_it_was_and_damage_begins_a_new_round() -> None:
    progress = ScrubProgress(1, 200, 30, 4, 5, 6, ((7, 8), (7, 1 << 62)))
    data = progress.encode()
    assert ScrubProgress.decode(data) == progress and ScrubProgress.decode(ScrubProgress().encode()) == ScrubProgress()
    for at in range(len(data)):
        assert ScrubProgress.decode(data[:at]) is None
        assert ScrubProgress.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


def test_a_disk_of_eighteen_terabytes_is_covered_in_two_weeks_at_the_default_budget() -> None:
    per_s = BookieSettings("memory://x", ("/j",), ("/l",)).scrub_bytes_per_s
    progress = ScrubProgress().begin(1000, 18 * 10**12)
    assert (progress.ends_ms(1000, per_s) - 1000) / 1000 <= COVERED_S == 14 * DAY_S
    assert EVERY_S <= COVERED_S and progress.due_in_s(1000) == 0
    ended = progress.end(5000)
    assert ended.due_in_s(5000) == EVERY_S - 4 and ended.due_in_s(1000 + int(EVERY_S * 1000)) == 0
    assert (ended.percent, ended.ends_ms(9, per_s)) == (100, 0)
    assert replace(progress, read_bytes=9 * 10**12).shown(77) == "50 0 77"


def test_damages_are_bounded() -> None:
    damages = Damages()
    assert all(damages.add(1, entry) for entry in range(MOST))
    assert not damages.add(1, 0) and not damages.add(2, 0) and len(damages) == MOST
    damages.settle(1, range(MOST - 1))
    assert damages.of(1) == [MOST - 1] and damages.add(2, 0) and damages.ledgers() == [1, 2]
    damages.forget([1, 2, 3])
    assert len(damages) == 0 and damages.ledgers() == []


async def test_the_metadata_of_thousands_of_ledgers_is_decoded_over_several_turns(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(ledgers: Collection[int]) -> dict[int, Znode]:
        return {}

    async with home.running() as bookie:
        scrubber = scrubber_of(bookie)
        monkeypatch.setattr(scrubber._driver, "read_ledgers", nothing)
        learning = asyncio.ensure_future(scrubber._learn_digests(set(range(1000))))
        turns = 0
        while not learning.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 7


async def with_logs(home: Home, count: int = 4) -> None:
    home.storage = replace(SMALL, chunk_bytes=100)
    async with home.running() as bookie, talking(bookie) as peer:
        for log in range(count):
            assert await peer.code(adds(1, range(10 * log, 10 * log + 10))) == Code.OK
            await bookie.upkeep.checkpoint()


def scrubber_of(bookie: Bookie) -> Scrubber:
    assert bookie.scrubber is not None
    return bookie.scrubber


@pytest.fixture
def no_own_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie begins none by itself. Its next one would join that of a test, and end it early."""

    async def waits(self: Scrubber) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Scrubber, "run", waits)


async def test_it_goes_on_after_a_restart_where_it_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_logs(home)
    monkeypatch.setattr(scrubber_module, "SLICE_BYTES", 1)
    monkeypatch.setattr(scrubber_module, "SAVE_EVERY_S", 0.0)
    (home.path / "ledgers" / "tally" / "scrub").unlink()
    slices = 0

    async def stops(self: object, size: int) -> None:
        nonlocal slices
        slices += 1
        if slices == 9:
            await asyncio.Event().wait()

    with monkeypatch.context() as paced:
        paced.setattr(Pace, "spend", stops)
        async with home.running() as bookie:
            await until(lambda: slices == 9)
            before = scrubber_of(bookie).progress
            assert before.is_running and 0 < before.percent < 100
    async with home.running() as bookie:
        scrubber = scrubber_of(bookie)
        await until(lambda: scrubber.progress.ended_ms > 0)
        heads = 4 * 32  # of the logs
        assert bookie.counts.scrub_bytes == before.total_bytes - before.read_bytes - heads, "none of it again"
        assert scrubber.progress.read_bytes == before.total_bytes - heads
        assert scrubber.progress.began_ms == before.began_ms
        assert home.heard("scrub ended")[0].fields["damaged"] == 0


async def test_a_damaged_file_of_it_is_passed_over(home: Home) -> None:
    await with_logs(home)
    (home.path / "ledgers" / "tally" / "scrub").write_bytes(b"TALLYSC9\nwhat\n")
    async with home.running() as bookie:
        await until(lambda: scrubber_of(bookie).progress.ended_ms > 0)
        assert len(home.heard("scrub begins anew")) == 1 and bookie.counts.scrubs == 1


async def test_it_is_listed_and_told_by_bookie_info(home: Home) -> None:
    await with_logs(home)
    async with home.running() as bookie:
        await until(lambda: scrubber_of(bookie).progress.ended_ms > 0)  # its own round: two at once are for nobody
        bookie.storage.damages.add(1, 3)
        bookie._show_scrub()

        async def is_listed() -> bool:
            return "damaged" in (await bookie.driver.bookies()).writable[bookie.id].properties

        await until(is_listed)
        properties = (await bookie.driver.bookies()).writable[bookie.id].properties
        assert properties["damaged"] == "1"
        percent, *times = properties["scrub"].split()
        assert percent == "100" and len(times) == 2


@pytest.mark.usefixtures("no_own_rounds")
async def test_a_round_that_would_take_longer_than_two_weeks_is_told(home: Home) -> None:
    await with_logs(home)
    async with home.running() as bookie:
        scrubber = scrubber_of(bookie)
        scrubber._bytes_per_s = 1e-6
        await scrubber.round()
        assert len(home.heard("scrub too slow")) == 1


@pytest.mark.usefixtures("no_own_rounds")
async def test_logs_that_are_deleted_meanwhile_are_no_damage(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_logs(home)
    monkeypatch.setattr(scrubber_module, "SLICE_BYTES", 1)
    async with home.running() as bookie:
        scrubber = scrubber_of(bookie)
        slices = 0

        async def spend(size: int) -> None:
            nonlocal slices
            slices += 1
            if slices == 2:
                await bookie.upkeep.collect(lambda: [1], ())

        monkeypatch.setattr(scrubber._pace, "spend", spend)
        await scrubber.round()
        assert not bookie.storage.damages and bookie.storage.stats().entry_logs == 0 and slices >= 2
        assert not home.heard("entries damaged") and not home.heard("index of an entry log damaged")
