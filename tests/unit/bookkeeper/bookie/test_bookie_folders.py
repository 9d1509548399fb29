"""A bookie with several folders: cookies, expansion, a folder that fails under it, a journal that is lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from support.bookies import Home, SpyDisk, adds, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.compaction import Compaction
from tallystick.bookkeeper.bookie.ledger_folders import FolderFailure
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.wire import cookie as cookie_format
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.codec.steps import Steps
from tallystick.errors import InvalidCookie, StorageError
from tallystick.runtime.disk import Usage

pytestmark = pytest.mark.real_time

COUNT = 12


@pytest.fixture
def cluster(home: Home) -> ClusterMetadata:
    return ClusterMetadata(MemoryStore(home.cluster))


def folders(home: Home, *names: str) -> tuple[str, ...]:
    return tuple(str(home.path / name) for name in names)


def two(home: Home) -> dict[str, Any]:
    return {"journal_dirs": folders(home, "j0", "j1"), "ledger_dirs": folders(home, "l0", "l1")}


async def rejoin(home: Home, **changes: Any) -> Bookie:
    settings = replace(home.settings, session_timeout_s=0.2, **changes)
    return await start_bookie(settings, home.outside(), home.storage, rejoin=True)


async def filled(cluster: ClusterMetadata, bookie: Bookie, *, last: int = 2) -> list[int]:
    """Ledgers with three entries each, in entry logs of all folders."""
    metadata = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),), DigestType.CRC32C, b"pw").closed(last, 9)
    ledgers = [(await cluster.create_ledger(metadata)).value for _ in range(COUNT)]
    async with talking(bookie) as peer:
        for ledger in ledgers:
            assert [await peer.code(adds(ledger, [entry])) for entry in range(3)] == [Code.OK] * 3
    await bookie.upkeep.checkpoint()
    return ledgers


def in_folder(bookie: Bookie, folder: int) -> list[int]:
    return list(bookie.storage._ledgers.places.in_folder(folder))


def in_journal(bookie: Bookie, journal: int) -> list[int]:
    return list(bookie.storage._ledgers.places.in_journal(journal))


async def codes_of(bookie: Bookie, ledgers: list[int], entry: int = 1) -> set[Code]:
    async with talking(bookie) as peer:
        return {await peer.code(read(ledger, entry)) for ledger in ledgers}


async def marked(marks: Underreplication, ledgers: list[int]) -> bool:
    return all([await marks.read_mark(ledger) is not None for ledger in ledgers])


class Broken:
    """A disk of which one folder fails, or is too full."""

    def __init__(self) -> None:
        self.folder = self.full = "none"
        self.disk = SpyDisk(self._before)

    def _before(self, action: str, path: str) -> None:
        if self.folder in path and action != "close":
            raise StorageError("Input/output error", path=path)


class _Disk(SpyDisk):
    def __init__(self, broken: Broken) -> None:
        super().__init__(broken._before)
        self._broken = broken

    def usage(self, path: str) -> Usage:
        self._broken._before("usage", path)
        return Usage(100, 1) if self._broken.full in path else Usage(100, 50)

    def open(self, path: str, **flags: Any) -> Any:
        self._broken._before("open", path)
        return super().open(path, **flags)

    def makedirs(self, path: str) -> None:
        self._broken._before("makedirs", path)
        self.real.makedirs(path)

    def exists(self, path: str) -> bool:
        self._broken._before("exists", path)
        return self.real.exists(path)

    def lock(self, path: str) -> Any:
        self._broken._before("lock", path)
        return self.real.lock(path)


async def test_the_cookie_names_all_folders_and_lies_in_each(home: Home, cluster: ClusterMetadata) -> None:
    async with home.running(**two(home)) as bookie:
        ledgers = await filled(cluster, bookie)
    stored = await cluster.read_cookie("b0")
    assert stored is not None
    names = cookie_format.decode(stored.value)
    assert [len(names.journal_dirs), len(names.ledger_dirs)] == [2, 2]
    for name in ("j0", "j1", "l0", "l1"):
        assert (home.path / name / "tally" / "VERSION").read_bytes() == stored.value
    async with home.running(**two(home)) as bookie:
        assert await codes_of(bookie, ledgers) == {Code.OK}
        assert sorted([*in_folder(bookie, 0), *in_folder(bookie, 1)]) == ledgers
    with pytest.raises(InvalidCookie, match="ledger folders"):
        await home.start(**{**two(home), "ledger_dirs": folders(home, "l0")})


async def test_a_ledger_folder_comes_in_when_storage_may_expand(home: Home, cluster: ClusterMetadata) -> None:
    """As the original's ``allowStorageExpansion``."""
    async with home.running() as bookie:
        ledgers = await filled(cluster, bookie)
    more = folders(home, "ledgers", "more")
    with pytest.raises(InvalidCookie, match="of another bookie, cluster or set of folders"):
        await home.start(ledger_dirs=more)
    rest = home.path / "more" / "tally" / "rest"
    rest.write_bytes(b"of what?")
    with pytest.raises(InvalidCookie, match="directories being added newly are not empty"):
        await home.start(ledger_dirs=more, allow_expansion=True)
    rest.unlink()
    with pytest.raises(InvalidCookie, match="is not matching"):
        await home.start(ledger_dirs=more, journal_dirs=folders(home, "journal", "j1"), allow_expansion=True)
    async with home.running(ledger_dirs=more, allow_expansion=True) as bookie:
        assert [event.fields["folders"] for event in home.heard("storage expanded")] == [[f"{more[1]}/tally"]]
        assert await codes_of(bookie, ledgers) == {Code.OK}
        ledgers += await filled(cluster, bookie)
        assert in_folder(bookie, 1)
    async with home.running(ledger_dirs=more) as bookie:
        assert await codes_of(bookie, ledgers) == {Code.OK}
    with pytest.raises(InvalidCookie, match="is not matching"):
        await home.start(ledger_dirs=more[:1], allow_expansion=True)
    shutil.rmtree(more[1])
    with pytest.raises(InvalidCookie, match="not all local directories have cookies"):
        await home.start(ledger_dirs=more, allow_expansion=True)


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("failed", [0, 1])
async def test_q15_a_ledger_folder_that_fails_puts_its_ledgers_in_limbo(
    home: Home, cluster: ClusterMetadata, failed: int
) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    async with home.running(**two(home)) as bookie:
        await filled(cluster, bookie)
        theirs, others = in_folder(bookie, failed), in_folder(bookie, 1 - failed)
        broken.folder = f"/l{failed}/"
        more = await filled(cluster, bookie)
        [event] = home.heard("ledger folder failed")
        assert event.fields["ledgers"] == len(theirs) and f"/l{failed}/" in str(event.fields["folder"])
        assert await codes_of(bookie, theirs) == {Code.IO_ERROR}, "unknown, by version 2"
        assert await codes_of(bookie, theirs, entry=7) == {Code.IO_ERROR}, "nor is anything denied"
        assert await codes_of(bookie, [*others, *more]) == {Code.OK}
        marks = Underreplication(cluster)
        await until(lambda: marked(marks, theirs))
        assert not [ledger for ledger in others if await marks.read_mark(ledger) is not None]
        assert not bookie.failure.done()
    async with home.running(**two(home)) as bookie:
        assert sorted(bookie.storage.limbo) == theirs
        assert await codes_of(bookie, theirs) == {Code.IO_ERROR}
        assert await codes_of(bookie, [*others, *more]) == {Code.OK}
    broken.folder = "none"
    async with home.running(**two(home)) as bookie:
        assert sorted(bookie.storage.limbo) == theirs, "it comes back, and is used no more"


def chosen(log: int) -> Steps[list[tuple[int, ...]]]:
    yield
    return [(log,)]


async def test_a_folder_that_fails_when_its_room_is_asked_for_before_a_rewrite_is_used_no_more(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    async with home.running(**two(home)) as bookie:
        await filled(cluster, bookie)
        log = next(log for log in bookie.storage.log_ids() if bookie.storage.folders.folder_of(log) == 1)
        monkeypatch.setattr(bookie.storage.checkpoints, "groups_to_rewrite", lambda: chosen(log))
        broken.folder = "/l1/"
        await bookie.upkeep.compact()
        assert len(home.heard("ledger folder failed")) == 1 and bookie.storage.folders.in_use == [0]
        assert not bookie.failure.done()


async def test_a_folder_that_fails_under_a_rewrite_and_a_checkpoint_is_lost_once(
    home: Home, cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rewrite hears of it when the checkpoint has given the folder up: that stopped the bookie."""
    async with home.running(**two(home)) as bookie:
        await filled(cluster, bookie)
        upkeep, storage = bookie.upkeep, bookie.storage
        log = next(log for log in storage.log_ids() if storage.folders.folder_of(log) == 1)
        failure = FolderFailure(storage.folders._folders[1], StorageError("an error of the disk"))

        async def copy(compaction: Compaction) -> None:
            async with upkeep._turn:
                await upkeep._lose(failure)
            raise failure

        monkeypatch.setattr(storage.checkpoints, "groups_to_rewrite", lambda: chosen(log))
        monkeypatch.setattr(upkeep, "_copy", copy)
        await upkeep.compact()
        assert len(home.heard("ledger folder failed")) == 1 and storage.folders.in_use == [0]
        assert not bookie.failure.done()


@pytest.mark.rule("Q15")
async def test_q15_a_folder_that_fails_at_the_start_is_refused_but_by_a_rejoin(
    home: Home, cluster: ClusterMetadata
) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    async with home.running(**two(home)) as bookie:
        ledgers = await filled(cluster, bookie)
        theirs = in_folder(bookie, 1)
    broken.folder = "/l1/"
    with pytest.raises(StorageError, match="Input/output error"):
        await home.start(**two(home))
    bookie = await rejoin(home, **two(home))
    assert sorted(bookie.storage.limbo) == theirs
    assert await codes_of(bookie, [each for each in ledgers if each not in theirs]) == {Code.OK}
    await bookie.stop()
    async with home.running(**two(home)) as bookie:
        assert sorted(bookie.storage.limbo) == theirs
    broken.folder = "none"
    shutil.rmtree(home.path / "l1")
    bookie = await rejoin(home, **two(home))
    assert not bookie.storage.folders.failed and sorted(bookie.storage.limbo) == theirs
    await bookie.stop()


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("lost", [0, 1])
async def test_q15_without_a_journal_its_ledgers_are_in_limbo(home: Home, cluster: ClusterMetadata, lost: int) -> None:
    async with home.running(**two(home)) as bookie:
        ledgers = await filled(cluster, bookie)
        theirs, others = in_journal(bookie, lost), in_journal(bookie, 1 - lost)
        assert sorted([*theirs, *others]) == ledgers
    shutil.rmtree(home.path / f"j{lost}")
    with pytest.raises(InvalidCookie, match="lost their data"):
        await home.start(**two(home))
    bookie = await rejoin(home, **two(home))
    assert sorted(bookie.storage.limbo) == theirs
    assert await codes_of(bookie, ledgers) == {Code.OK}, "they are in entry logs"
    assert await codes_of(bookie, theirs, entry=7) == {Code.IO_ERROR}
    assert await codes_of(bookie, others, entry=7) == {Code.NO_ENTRY}
    await bookie.stop()
    async with home.running(**two(home)) as bookie:
        assert sorted(bookie.storage.limbo) == theirs


@pytest.mark.rule("Q15")
async def test_q15_with_an_empty_journal_and_older_folders_everything_is_in_limbo(
    home: Home, cluster: ClusterMetadata
) -> None:
    async with home.running(**two(home)) as bookie:
        ledgers = await filled(cluster, bookie)
    shutil.copytree(home.path, copy := home.path.parent / f"{home.cluster} copy")
    async with home.running(**two(home)):
        pass
    shutil.rmtree(home.path)
    shutil.copytree(copy, home.path)
    shutil.rmtree(home.path / "j1")
    bookie = await rejoin(home, **two(home))
    assert sorted(bookie.storage.limbo) == ledgers
    await bookie.stop()


@pytest.mark.rule("P9")
async def test_a_journal_that_fails_stops_the_bookie(home: Home, cluster: ClusterMetadata) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    bookie = await home.start(**two(home))
    ledgers = await filled(cluster, bookie)
    broken.folder = "/j1/"
    async with talking(bookie) as peer:
        assert await peer.ask(adds(in_journal(bookie, 1)[0], [3])) is None
    assert isinstance(await bookie.failure, StorageError)
    await bookie.stop()
    broken.folder = "none"
    async with home.running(**two(home)) as bookie:
        assert await codes_of(bookie, ledgers) == {Code.OK}


async def test_one_full_ledger_folder_does_not_make_the_bookie_read_only(home: Home, cluster: ClusterMetadata) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    broken.full = "/l1"
    async with home.running(**two(home)) as bookie:
        assert not bookie.guard.read_only
        await filled(cluster, bookie)
        assert not in_folder(bookie, 1)
        broken.full = "/l"
        bookie.upkeep.measure(home.disk)
        assert bookie.guard.read_only
        broken.full = "/j0"
        bookie.upkeep.measure(home.disk)
        assert bookie.guard.read_only
        broken.full = "none"
        bookie.upkeep.measure(home.disk)
        assert not bookie.guard.read_only
    broken.full = "/l1"
    async with home.running(**two(home), read_only_when_any_full=True) as bookie:
        assert bookie.guard.read_only


async def test_a_folder_that_fails_when_the_bookie_stops_is_told_then(home: Home, cluster: ClusterMetadata) -> None:
    broken = Broken()
    home.disk = _Disk(broken)
    async with home.running(**two(home)) as bookie:
        ledgers = await filled(cluster, bookie)
        theirs = in_folder(bookie, 1)
        async with talking(bookie) as peer:
            assert await peer.code(adds(ledgers[0], [3])) == Code.OK
        broken.folder = "/l1/"
    [event] = home.heard("ledger folder failed")
    assert event.fields["ledgers"] == len(theirs)
    async with home.running(**two(home)) as bookie:
        assert sorted(bookie.storage.limbo) == theirs
