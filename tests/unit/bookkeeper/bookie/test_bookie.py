"""A whole bookie: started, killed, started again, out of space, out of its registration."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.bookies import KEY, Home, SpyDisk, adds, codes, read, talking
from support.waiting import until
from tallystick.admin.bookies import forget_bookie
from tallystick.bookkeeper.bookie import committer, upkeep
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.folder_room import FOLDERS
from tallystick.bookkeeper.bookie.own_disk import OwnDisk
from tallystick.bookkeeper.bookie.scrubber import Scrubber
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.registration import StoreRegistration
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import DiskFull, MetadataConflict, MetadataError, MetadataUncertain, StorageError, UsageError


def registration_of(bookie: Bookie) -> StoreRegistration:
    assert isinstance(bookie.driver, ClusterMetadata)
    return bookie.driver._registrations[0]


async def kill(bookie: Bookie) -> None:
    """Stop without a checkpoint or a word to anyone."""
    bookie.failure.set_result(RuntimeError("killed"))
    await bookie.stop()


async def listed(home: Home) -> tuple[list[str], list[str]]:
    bookies = await ClusterMetadata(MemoryStore(home.cluster)).bookies()
    return list(bookies.writable), list(bookies.read_only)


async def test_a_bookie_is_listed_with_its_real_port_while_it_runs(home: Home) -> None:
    async with home.running() as bookie:
        found = (await ClusterMetadata(MemoryStore(home.cluster)).bookies()).find("b0")
        assert found is not None
        assert found.address == bookie.address
        assert bookie.address[1] != 0
    assert await listed(home) == ([], [])


@pytest.mark.parametrize("own", ["journal_dirs", "ledger_dirs"])
async def test_a_folder_belongs_to_one_bookie_while_it_runs(home: Home, tmp_path: Path, own: str) -> None:
    async with home.running():
        with pytest.raises(UsageError, match="another process uses this folder"):
            await home.start(**{own: (str(tmp_path / "own"),)})
        assert await listed(home) == (["b0"], []), "the one that runs is not disturbed"
    async with home.running():
        pass


async def test_the_page_for_monitoring_is_listed_as_a_door(home: Home) -> None:
    async with home.running(http_enabled=True, http_port=0) as bookie:
        found = (await ClusterMetadata(MemoryStore(home.cluster)).bookies()).find("b0")
        assert found is not None
        assert [(door.protocol, door.port) for door in found.endpoints] == [
            ("bookie-rpc", bookie.address[1]),
            ("http", bookie.http_address[1] if bookie.http_address else 0),
        ]


async def test_a_restarted_bookie_replaces_its_own_stale_registration_at_once(home: Home) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    async with home.running():
        pass
    await driver.register("b0", BookieInfo.at("127.0.0.1", 1))
    async with home.running() as bookie:
        found = (await driver.bookies()).find("b0")
        assert found is not None
        assert found.address == bookie.address


async def test_a_stop_is_in_order_though_the_metadata_does_not_answer(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as a failure: service managers started again what they were asked to stop."""
    bookie = await home.start()
    async with talking(bookie) as peer:
        assert await peer.code(adds(1, range(1))) == Code.OK
    registration = registration_of(bookie)

    async def unanswered() -> None:
        monkeypatch.undo()  # later calls do nothing, as of any registration that was closed
        raise MetadataUncertain("nobody knows", servers="h:2181")

    monkeypatch.setattr(registration, "close", unanswered)
    await bookie.stop()
    told = [event.kind for event in home.events][-2:]
    assert told == ["registration not removed", "bookie stopped"]
    async with home.running() as bookie:
        assert not bookie.storage.replay_stats.commits


async def test_a_bookie_says_that_it_has_no_connection_to_the_metadata_and_that_it_has_one_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silent for ever: its operator learnt of it from clients."""
    monkeypatch.setattr(upkeep, "CHECK_EVERY_S", 0.01)
    reached = True
    monkeypatch.setattr(StoreRegistration, "is_reached", property(lambda _: reached))

    def told(kind: str) -> bool:
        return any(event.kind == kind for event in home.events)

    async with home.running() as bookie:
        for now, kind in ((False, "metadata not reached"), (True, "metadata reached again")):
            reached = now
            await until(partial(told, kind))
            assert bookie._state()["metadata_reached"] is now
    assert sum(event.kind.startswith("metadata") for event in home.events) == 2


async def test_a_bookie_whose_id_another_registered_stops(home: Home) -> None:
    async with home.running() as bookie:
        await ClusterMetadata(MemoryStore(home.cluster)).register("b0", BookieInfo.at("127.0.0.1", 1), replace=True)
        assert isinstance(await asyncio.wait_for(asyncio.shield(bookie.failure), 10), MetadataError)


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_bookie_that_was_taken_out_while_it_started_does_not_start(
    home: Home, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """It registered without a cookie, and took entries into folders that start no bookie any more."""
    if not is_new:
        async with home.running():
            pass
    begin = OwnDisk.begin

    async def late(own_disk: OwnDisk, *args: Any) -> None:
        await forget_bookie(ClusterMetadata(MemoryStore(home.cluster)), "b0", "op@host")
        await begin(own_disk, *args)

    monkeypatch.setattr(OwnDisk, "begin", late)
    with pytest.raises(MetadataConflict, match="taken out"):
        await home.start()
    assert await listed(home) == ([], [])


async def test_a_bookie_that_nobody_keeps_in_the_list_stops_and_says_why(home: Home) -> None:
    async with home.running() as bookie:
        registration = registration_of(bookie)
        registration.failure = ZeroDivisionError("a bug")
        registration.loss.set()
        assert await asyncio.wait_for(asyncio.shield(bookie.failure), 10) is registration.failure


async def test_a_registration_outlives_its_bookie_for_as_long_as_the_settings_say(home: Home) -> None:
    asked: list[tuple[str, float]] = []

    async def connect(uri: str, *, session_timeout_s: float) -> ClusterMetadata:
        asked.append((uri, session_timeout_s))
        return ClusterMetadata(MemoryStore(home.cluster, session_timeout_s=session_timeout_s))

    settings = replace(home.settings, session_timeout_s=3.5)
    bookie = await start_bookie(settings, home.outside(), home.storage, connect)
    await bookie.stop()
    assert asked == [(settings.metadata_uri, 3.5)]


async def test_chance_comes_from_outside(tmp_path: Path) -> None:
    """A schedule of the simulator that is run again writes the same bytes."""
    journals = []
    for name in ("one", "two", "other"):
        home = Home(tmp_path / name)
        await home.found()
        outside = replace(home.outside(), random=random.Random(name == "other"))
        bookie = await start_bookie(home.settings, outside, home.storage)
        await kill(bookie)
        journals.append([path.read_bytes() for path in sorted((tmp_path / name).rglob("*.segment"))])
    assert journals[0] == journals[1] != journals[2]


@pytest.mark.rule("P1")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
async def test_p1_what_was_acknowledged_is_there_after_a_restart(home: Home, killed: bool) -> None:
    bookie = await home.start()
    async with talking(bookie) as peer:
        peer.writer.write(adds(1, range(100)))
        await peer.reader.readexactly(100 * 28)
    await (kill(bookie) if killed else bookie.stop())
    async with home.running() as again, talking(again) as peer:
        peer.writer.write(b"".join(read(1, entry) for entry in range(100)))
        frames = [await peer.frame() for _ in range(100)]
        assert [frame[28:] for frame in frames if frame] == [adds(1, [entry])[28:] for entry in range(100)]


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("ledger", [1, 50], ids=["known ledger", "never seen"])
async def test_q11_a_fence_that_was_answered_survives_a_kill(home: Home, ledger: int) -> None:
    bookie = await home.start()
    async with talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
        assert await peer.code(read(ledger, 7, KEY)) == Code.NO_ENTRY
    await kill(bookie)
    async with home.running() as again, talking(again) as peer:
        assert await peer.code(adds(ledger, [7])) == Code.FENCED


@pytest.mark.rule("Q11")
async def test_q11_no_answer_to_a_fencing_read_leaves_before_its_sync(home: Home) -> None:
    hold, syncing = threading.Event(), threading.Event()
    armed = False

    def before(action: str, path: str) -> None:
        if armed and action == "sync" and ".segment" in path:
            syncing.set()
            hold.wait(10)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as peer, talking(bookie) as reader:
        assert await peer.code(adds(1, [0])) == Code.OK
        armed = True
        peer.writer.write(read(1, -1, KEY) + read(9, 0, KEY))
        await until(syncing.is_set)
        assert await reader.code(read(1, 0)) == Code.OK  # others are served meanwhile
        assert not peer.reader._buffer  # type: ignore[attr-defined]  # nothing has come
        hold.set()
        assert await peer.frame() is not None
        assert await peer.frame() is not None


@pytest.mark.rule("P1")
async def test_p1_a_failed_sync_stops_the_bookie_without_an_answer(home: Home) -> None:
    armed = False

    def before(action: str, path: str) -> None:
        if armed and action == "sync":
            raise StorageError("cannot sync: Input/output error", path=path)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
        armed = True
        assert await peer.ask(adds(1, [1])) is None
        assert isinstance(await bookie.failure, StorageError)
    assert "Input/output error" in home.heard("bookie cannot go on")[0].fields["reason"]
    home.disk = SpyDisk(lambda action, path: None)
    async with home.running() as again, talking(again) as peer:
        assert await peer.code(read(1, 0)) == Code.OK


async def test_stopping_waits_for_the_commit_under_way_before_it_closes_the_journal(home: Home) -> None:
    syncing, go_on, closed_early = threading.Event(), threading.Event(), list[str]()
    armed = False

    def before(action: str, path: str) -> None:
        if armed and ".segment" in path:
            if action == "sync":
                syncing.set()
                assert go_on.wait(20)
            elif action == "close" and not go_on.is_set():
                closed_early.append(path)

    home.disk = SpyDisk(before)
    bookie = await home.start()
    async with talking(bookie) as peer:
        armed = True
        peer.writer.write(adds(1, [0]))
        assert await asyncio.to_thread(syncing.wait, 20)
        stopping = asyncio.create_task(bookie.stop())
        await until(lambda: bool(home.heard("stopped with unanswered requests")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await stopping
    assert closed_early == []


async def test_a_full_disk_makes_it_read_only_until_there_is_space(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "RETRY_S", 0.01)
    full = False

    def before(action: str, path: str) -> None:
        if full and action == "write":
            raise DiskFull("cannot write: No space left on device", path=path)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as writer, talking(bookie) as other:
        assert await writer.code(adds(1, [0])) == Code.OK
        full = True
        writer.writer.write(adds(1, [1]))
        await until(lambda: bookie.guard.read_only)
        assert await other.code(adds(1, [2])) == Code.READ_ONLY
        assert await other.code(read(1, 0)) == Code.OK
        await until(lambda: is_listed(home, ([], ["b0"])))
        full = False
        answer = await writer.frame()  # late, and true
        assert answer is not None
        assert codes(answer)[0][1] == Code.OK
        await until(lambda: is_listed(home, (["b0"], [])))
        assert await other.code(adds(1, [2])) == Code.OK


async def is_listed(home: Home, where: tuple[list[str], list[str]]) -> bool:
    return await listed(home) == where


async def test_a_checkpoint_without_space_is_postponed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_RETRY_S", 0.01)
    full = True

    def before(action: str, path: str) -> None:
        if full and action == "write" and path.endswith(".log"):
            raise DiskFull("cannot write: No space left on device", path=path)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == Code.OK
        bookie.upkeep._due.set()
        await until(lambda: bool(home.heard("checkpoint postponed")))
        assert await peer.code(adds(1, [1])) == Code.READ_ONLY
        full = False
        await until(lambda: bookie.counts.checkpoints == 1 and not bookie.guard.read_only)
        assert await peer.code(adds(1, [1])) == Code.OK
        assert await peer.code(read(1, 0)) == Code.OK


async def test_a_disk_over_its_threshold_starts_read_only(home: Home) -> None:
    async with home.running(disk_usage_threshold=1e-9) as bookie, talking(bookie) as peer:
        assert await listed(home) == ([], ["b0"])
        assert await peer.code(adds(1, [0])) == Code.READ_ONLY


async def test_a_port_in_use_leaves_nothing_behind(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other", cluster=home.cluster, bookie="b1")
    async with home.running() as bookie:
        for taken in ({"port": bookie.address[1]}, {"http_enabled": True, "http_port": bookie.address[1]}):
            with pytest.raises(UsageError, match="cannot listen"):
                await other.start(**taken)
            assert await listed(home) == (["b0"], [])
            assert await ClusterMetadata(MemoryStore(home.cluster)).cookies() == ["b0"], "no bookie that never was"
            assert not list(other.path.rglob("VERSION"))
    async with other.running():
        assert await listed(home) == (["b1"], [])


async def test_connections_are_refused_until_the_journal_is_replayed(home: Home) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        tried: list[type[OSError]] = []

        def before(action: str, path: str) -> None:
            if path.endswith(("segment", "segment.new", "state.spare")) and len(tried) < 3:
                with socket.socket() as peer:
                    try:
                        peer.connect(("127.0.0.1", port))
                    except OSError as error:
                        tried.append(type(error))

        home.disk = SpyDisk(before)
        free.close()
        async with home.running(port=port) as bookie, talking(bookie) as peer:
            assert tried == [ConnectionRefusedError] * 3
            assert await peer.code(adds(1, [0])) == Code.OK


async def test_an_orderly_stop_says_so_and_leaves_nothing_to_replay(home: Home) -> None:
    for _ in range(2):
        async with home.running() as bookie, talking(bookie) as peer:
            assert await peer.code(adds(1, [0])) == Code.OK
    assert len(home.heard("bookie stopped")) == 2
    assert home.heard("journal replayed") == []


async def test_a_start_after_a_kill_tells_what_it_replayed(home: Home) -> None:
    bookie = await home.start()
    async with talking(bookie) as peer:
        for entry in range(3):
            assert await peer.code(adds(1, [entry])) == Code.OK
    await kill(bookie)
    async with home.running():
        (told,) = home.heard("journal replayed")
        assert (told.fields["commits"], told.fields["entries"]) == (3, 3) and told.fields["bytes"] > 100
    assert len(home.heard("bookie stopped")) == 1


async def test_it_registers_where_it_is(home: Home) -> None:
    async with home.running(rack="/east/r1", machine="m1", scrub_bytes_per_s=0) as bookie:

        async def shown() -> dict[str, str]:
            info = (await bookie.driver.bookies()).writable[bookie.id]
            return {name: value for name, value in info.properties.items() if name != FOLDERS}

        assert await shown() == {"rack": "/east/r1", "machine": "m1"}
        bookie._report_deletions(2, 0)

        async def has_deletions() -> bool:
            return await shown() == {"rack": "/east/r1", "machine": "m1", "deletionsWaiting": "2"}

        await until(has_deletions)


async def test_one_that_stops_while_its_scrub_reads_stops_in_order(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else how far the disk is would not be told, and an older copy of it would be let in."""

    async def reads(scrubber: Scrubber) -> None:
        while True:
            await scrubber._worker.run(lambda: None)

    monkeypatch.setattr(Scrubber, "run", reads)
    bookie = await home.start()
    await bookie.upkeep._turn.acquire()  # a checkpoint is under way
    asyncio.get_running_loop().call_later(0.1, bookie.upkeep._turn.release)
    await bookie.stop()
    assert home.heard("bookie stopped") and not home.heard("bookie cannot go on")
