"""A bookie comes back with an empty disk or an older one: refused, and by a rejoin in limbo."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import pytest

from support.bookies import KEY, Home, Peer, adds, read, talking
from tallystick.bookkeeper.bookie import bookie as bookie_module
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.cookies import MARK
from tallystick.bookkeeper.bookie.rejoin import NamedLedger, Rejoin
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import BookiePresence, BookieRegistration
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Update
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieInfo, DigestType, Fragment, LedgerMetadata
from tallystick.errors import DiskFull, InvalidCookie, MetadataConflict, MetadataUnavailable, StorageError, UsageError
from tallystick.runtime.disk import OsDisk

pytestmark = pytest.mark.real_time


def metadata(*bookies: str) -> LedgerMetadata:
    return LedgerMetadata(len(bookies), 1, 1, (Fragment(0, bookies),), DigestType.CRC32C, b"pw")


async def rejoin(home: Home, **changes: Any) -> Bookie:
    settings = replace(home.settings, session_timeout_s=0.2, **changes)
    return await start_bookie(settings, home.outside(), home.storage, rejoin=True)


@pytest.fixture
def cluster(home: Home) -> ClusterMetadata:
    return ClusterMetadata(MemoryStore(home.cluster))


async def fill(home: Home, cluster: ClusterMetadata) -> tuple[int, int, int, int]:
    """An open ledger, a closed one, one in which the bookie is no more, and one that never named it; two entries in
    each of the first three."""
    opened = (await cluster.create_ledger(metadata("b0"))).value
    closed = (await cluster.create_ledger(metadata("b1", "b0").closed(1, 6))).value
    moved = (await cluster.create_ledger(metadata("b0").with_fragment(2, ("b1",)))).value
    others = (await cluster.create_ledger(metadata("b1", "b2"))).value
    async with home.running() as bookie, talking(bookie) as peer:
        for ledger in (opened, closed, moved):
            for entry in (0, 1):
                assert await peer.code(adds(ledger, [entry])) == Code.OK
    return opened, closed, moved, others


@pytest.mark.rule("Q15")
async def test_q15_an_older_copy_of_the_disk_is_refused(home: Home, cluster: ClusterMetadata) -> None:
    opened, *_ = await fill(home, cluster)
    shutil.copytree(home.path, copy := home.path.parent / "copy")
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(opened, [2])) == Code.OK
        copy_of_this_start = home.copied_as_killed("copy of this start")
        assert await peer.code(adds(opened, [3])) == Code.OK
    for older in (copy_of_this_start, copy):
        shutil.rmtree(home.path)
        shutil.copytree(older, home.path)
        before = {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()}
        with pytest.raises(InvalidCookie, match="older than what the bookie acknowledged"):
            await home.start()
        if older is copy:
            assert {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()} == before
        bookie = await rejoin(home)
        async with talking(bookie) as peer:
            found = [await peer.code(read(opened, entry)) for entry in range(5)]
            assert found[0] == Code.OK and found[3:] == [Code.IO_ERROR] * 2
        await bookie.stop()
        async with home.running() as bookie, talking(bookie) as peer:
            assert await peer.code(read(opened, 3)) == Code.IO_ERROR, "a restart is no rejoin, and forgets nothing"


@pytest.mark.rule("Q15")
async def test_q15_whose_start_cannot_be_counted_does_not_rejoin(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, and an older one. The newest one is found later: it would pass for it, with the same number and
    a longer journal, and deny what was acknowledged since."""
    opened, *_ = await fill(home, cluster)
    async with home.running() as bookie, talking(bookie) as peer:
        full_disk = home.copied_as_killed("full")
        assert await peer.code(adds(opened, [2, 3])) == Code.OK
        lost_disk = home.copied_as_killed("lost")
    shutil.rmtree(home.path)
    shutil.copytree(full_disk, home.path)

    def full(*args: object) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("tallystick.bookkeeper.bookie.progress.write_atomic", full)
        with pytest.raises(DiskFull):
            await (await rejoin(home)).stop()  # one that starts against expectation keeps no port
    await (await rejoin(home)).stop()
    shutil.rmtree(home.path)
    shutil.copytree(lost_disk, home.path)
    with pytest.raises(InvalidCookie, match="older than what the bookie acknowledged"):
        await (await home.start()).stop()


@pytest.mark.rule("Q15")
async def test_q15_with_an_empty_disk_all_ledgers_that_name_the_bookie_are_in_limbo(
    home: Home, cluster: ClusterMetadata
) -> None:
    opened, closed, moved, others = await fill(home, cluster)
    damaged = (await cluster.create_ledger(metadata("b1"))).value
    await cluster.store.change(Update(cluster._path(damaged), b"?", 0))
    shutil.rmtree(home.path)
    with pytest.raises(InvalidCookie, match=r"no cookie: they lost their data.*--rejoin"):
        await home.start()
    bookie = await rejoin(home)
    assert list(bookie.storage.limbo) == [opened, closed, moved, damaged]
    assert [bookie.storage.is_fenced(ledger) for ledger in (opened, closed, moved, others)] == [
        True,
        False,
        True,
        False,
    ]
    [event] = home.heard("bookie rejoins")
    assert (event.fields["ledgers"], event.fields["fenced"]) == (4, 2)
    registered = (await cluster.bookies()).writable["b0"]
    assert registered.properties["limbo"] == "4"
    async with talking(bookie) as peer:
        assert [await peer.code(read(ledger, 0)) for ledger in (opened, closed, moved, damaged)] == [Code.IO_ERROR] * 4
        assert await peer.code(read(others, 0)) == Code.NO_LEDGER, "it never had anything of that one"
        new = (await cluster.create_ledger(metadata("b0"))).value
        assert await peer.code(adds(new, [0])) == Code.OK
        assert await peer.code(read(new, 1)) == Code.NO_ENTRY
    await bookie.stop()
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(read(opened, 0, KEY)) == Code.IO_ERROR


@pytest.mark.rule("Q15")
async def test_q15_a_rejoin_that_is_cut_short_leaves_nothing_that_starts(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, *_ = await fill(home, cluster)
    shutil.rmtree(home.path)

    async def broken(self: Rejoin, *args: object, **options: object) -> None:
        raise MetadataUnavailable("the connection broke")

    def fails(self: Rejoin) -> None:
        raise MetadataUnavailable("whatever it is")

    for step in ("list_ledgers", "enter_limbo"):
        with monkeypatch.context() as patch:
            patch.setattr(Rejoin, step, broken)
            with pytest.raises(MetadataUnavailable):
                await rejoin(home)
        with pytest.raises(InvalidCookie, match="no cookie"):
            await home.start()
    for place in ("progress.ProgressRecord.begin", "rejoin.Rejoin.finish"):
        with monkeypatch.context() as patch:
            patch.setattr(f"tallystick.bookkeeper.bookie.{place}", fails if "finish" in place else broken)
            with pytest.raises(MetadataUnavailable):
                await rejoin(home)
        with pytest.raises(InvalidCookie, match="no cookie"):
            await home.start()
    bookie = await rejoin(home)
    async with talking(bookie) as peer:
        assert await peer.code(read(opened, 0)) == Code.IO_ERROR
    await bookie.stop()


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("when", ["ledgers are listed", "all is ready"])
async def test_q15_whose_other_process_went_on_meanwhile_rejoins_again(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It hung on the lost machine, and took entries of a ledger that no listing has: these were denied."""
    await fill(home, cluster)
    shutil.rmtree(home.path)
    joined, meanwhile = await cluster.bookie_creation("b0"), list[int]()

    async def goes_on() -> None:
        other = await cluster.register("b0", BookieInfo.at("127.0.0.1", 1), joined=joined)
        meanwhile.append((await cluster.create_ledger(metadata("b0"))).value)
        await other.close()

    step, wait = (Rejoin, "list_ledgers") if "listed" in when else (bookie_module, "wait_for_address")
    before = getattr(step, wait)

    async def late(*args: Any) -> Any:
        outcome = await before(*args)
        await goes_on()
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(step, wait, late)
        with pytest.raises(MetadataConflict, match="rejoin again"):
            await (await rejoin(home)).stop()  # one that starts against expectation keeps no port
    with pytest.raises(InvalidCookie, match="no cookie"):
        await (await home.start()).stop()
    bookie = await rejoin(home)
    async with talking(bookie) as peer:
        assert await peer.code(read(meanwhile[0], 0)) == Code.IO_ERROR
    await bookie.stop()


@pytest.mark.rule("Q15")
async def test_q15_so_does_one_whose_other_process_went_on_right_behind_the_look(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was registered when that was read; what came then got a ledger behind the listing, and went."""
    await fill(home, cluster)
    shutil.rmtree(home.path)
    joined, others = await cluster.bookie_creation("b0"), list[BookieRegistration]()
    presence, list_ledgers = ClusterMetadata.bookie_presence, Rejoin.list_ledgers

    async def goes_on(driver: ClusterMetadata, bookie: str) -> BookiePresence:
        read = await presence(driver, bookie)
        if not others:
            others.append(await cluster.register("b0", BookieInfo.at("127.0.0.1", 1), joined=joined))
        return read

    async def takes_more(one: Rejoin) -> list[NamedLedger]:
        listed = await list_ledgers(one)
        await cluster.create_ledger(metadata("b0"))
        await others[0].close()
        return listed

    monkeypatch.setattr(ClusterMetadata, "bookie_presence", goes_on)
    monkeypatch.setattr(Rejoin, "list_ledgers", takes_more)
    with pytest.raises(MetadataConflict, match="rejoin again"):
        await (await rejoin(home)).stop()


@pytest.mark.rule("Q15")
async def test_q15_a_rejoin_that_is_cut_short_between_its_cookies_keeps_what_it_took(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No start took its folders then, and no other rejoin: the state was missing beside a journal that had a cookie."""
    opened, *_ = await fill(home, cluster)
    shutil.rmtree(home.path)
    register, rename, renamed, taken = ClusterMetadata.register, OsDisk.rename, list[str](), list[int]()

    async def then_taken(driver: ClusterMetadata, *args: Any, **more: Any) -> Any:
        registration = await register(driver, *args, **more)
        address = (await cluster.bookies()).writable["b0"].address
        assert address is not None
        peer = Peer(*await asyncio.open_connection(*address))
        taken.append((await cluster.create_ledger(metadata("b0"))).value)
        assert await peer.code(adds(taken[0], [0])) == Code.OK
        await peer.close()
        return registration

    def killed(disk: OsDisk, source: str, target: str) -> None:
        if source.endswith(MARK):
            if renamed:
                raise StorageError("killed")
            renamed.append(source)
        rename(disk, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(ClusterMetadata, "register", then_taken)
        patch.setattr(OsDisk, "rename", killed)
        with pytest.raises(StorageError, match="killed"):
            await rejoin(home)
    with pytest.raises(InvalidCookie, match="no cookie"):
        await home.start()
    bookie = await rejoin(home)
    async with talking(bookie) as peer:
        assert await peer.code(read(taken[0], 0)) == Code.OK, "it was acknowledged"
        assert await peer.code(read(taken[0], 1)) == Code.IO_ERROR, "another process may have been registered since"
        assert await peer.code(read(opened, 0)) == Code.IO_ERROR
    await bookie.stop()
    home.looks = True  # whose entries these are
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(read(taken[0], 0)) == Code.OK


@pytest.mark.rule("Q15")
async def test_q15_one_that_is_cut_short_before_its_limbo_is_durable_made_no_whole_disk(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that was lost has files by then, and nothing of what it had."""
    folders = {"ledger_dirs": tuple(str(home.path / f"ledgers-{number}") for number in (0, 1))}
    ledgers = [(await cluster.create_ledger(metadata("b0"))).value for _ in range(8)]
    async with home.running(**folders) as bookie, talking(bookie) as peer:
        for ledger in ledgers:
            assert await peer.code(adds(ledger, [0])) == Code.OK
    shutil.rmtree(folders["ledger_dirs"][1])

    async def broken(self: Rejoin) -> None:
        raise MetadataUnavailable("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(Rejoin, "list_ledgers", broken)
        with pytest.raises(MetadataUnavailable):
            await rejoin(home, **folders)
    bookie = await rejoin(home, **folders)
    assert bookie.storage.limbo
    async with talking(bookie) as peer:
        codes = [await peer.code(read(ledger, 0)) for ledger in ledgers]
        lost = [ledger for ledger, code in zip(ledgers, codes, strict=True) if code == Code.IO_ERROR]
        assert set(codes) <= {Code.OK, Code.IO_ERROR} and set(lost) <= set(bookie.storage.limbo)
    await bookie.stop()


async def test_who_may_not_rejoin(home: Home, cluster: ClusterMetadata) -> None:
    with pytest.raises(UsageError, match="no bookie of this id ever joined"):
        await rejoin(home)
    await fill(home, cluster)
    stranger = replace(home.settings, bookie_id="b7")
    with pytest.raises(UsageError, match="no bookie of this id ever joined"):
        await start_bookie(stranger, home.outside(), home.storage, rejoin=True)
    quiet = replace(home.settings, scrub_bytes_per_s=0)  # it writes where the folder was
    bookie = await start_bookie(quiet, home.outside(), home.storage)
    elsewhere = Home(home.path.parent / "elsewhere", home.cluster)
    with pytest.raises(InvalidCookie, match="another bookie, cluster or set of folders"):
        await rejoin(elsewhere)
    home.path.rename(moved := home.path.parent / "moved")
    with pytest.raises(UsageError, match="is registered"):
        await rejoin(home)
    shutil.rmtree(home.path)
    moved.rename(home.path)
    await bookie.stop()
    for cookie in home.path.rglob("VERSION"):
        cookie.unlink()
    with pytest.raises(InvalidCookie, match="data without a cookie"):
        await rejoin(home)


async def test_a_new_bookie_with_the_id_of_an_older_one_is_younger_than_it(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(home, cluster)
    home.path.rename(older := home.path.parent / "older")
    cookie = await cluster.read_cookie("b0")
    assert cookie is not None
    await cluster.delete_cookie("b0", cookie.version)

    async def broken(self: object, *args: object, **options: object) -> None:
        raise MetadataUnavailable("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr("tallystick.bookkeeper.bookie.progress.ProgressRecord.begin", broken)
        with pytest.raises(MetadataUnavailable):
            await home.start()
    async with home.running():
        pass
    shutil.rmtree(home.path)
    older.rename(home.path)
    with pytest.raises(InvalidCookie, match="older than what the bookie acknowledged"):
        await home.start()
