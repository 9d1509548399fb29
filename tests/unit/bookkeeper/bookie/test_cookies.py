"""Which folders a bookie may start on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.bookies import Home, adds, read, talking
from support.lagging import Lagging
from tallystick.bookkeeper.bookie.cookies import Folder, check_cookies, must_stamp
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.cookie import Cookie, decode, encode
from tallystick.errors import InvalidCookie, UsageError
from tallystick.runtime.disk import OsDisk

MINE = Cookie("b0", ("/d/j/tally",), ("/d/l/tally",), "cluster-1")


def folders(*cookies: Cookie | None, has_data: bool = False) -> list[Folder]:
    return [Folder(f"/d/{at}", cookie, has_data) for at, cookie in enumerate(cookies)]


def test_a_new_bookie_in_empty_folders_is_stamped() -> None:
    assert must_stamp(MINE, None, folders(None, None))


def test_a_bookie_that_agrees_everywhere_starts() -> None:
    assert not must_stamp(MINE, MINE, folders(MINE, MINE, has_data=True))


@pytest.mark.parametrize("stamped", [(MINE, None), (MINE, MINE)])
def test_a_stamping_that_was_cut_short_is_done_again(stamped: tuple[Cookie | None, ...]) -> None:
    assert must_stamp(MINE, None, folders(*stamped))


@pytest.mark.rule("Q15")
@pytest.mark.parametrize(
    ("stored", "found", "why"),
    [
        (MINE, folders(None, None), "lost their data"),
        (MINE, folders(MINE, None), "lost their data"),
        (None, folders(MINE, MINE, has_data=True), "removed from the cluster"),
        (None, folders(None, None, has_data=True), "removed from the cluster"),
        (replace(MINE, journal_dirs=("/d/j",)), folders(MINE, MINE), "journal folders"),
        (MINE, folders(replace(MINE, ledger_dirs=("/x",)), MINE), "ledger folders"),
        (MINE, folders(MINE, replace(MINE, host="b1")), "bookie: b1"),
        (replace(MINE, instance_id="cluster-2"), folders(MINE, MINE), "cluster: cluster-2"),
        (None, folders(replace(MINE, host="b1"), None), "bookie: b1"),
    ],
)
def test_q15_whatever_else_differs_is_refused_with_its_reason(
    stored: Cookie | None, found: list[Folder], why: str
) -> None:
    """A bookie that lost its data would say "no such entry" and be believed."""
    with pytest.raises(InvalidCookie, match=why):
        must_stamp(MINE, stored, found)


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.found()
    async with made.running():
        pass
    return made


async def test_the_cookie_names_our_own_folders(home: Home) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    stored = await driver.read_cookie("b0")
    assert stored is not None
    assert decode(stored.value) == Cookie(
        "b0", (f"{home.path}/journal/tally",), (f"{home.path}/ledgers/tally",), await driver.instance_id()
    )
    for folder in ("journal", "ledgers"):
        assert (home.path / folder / "tally" / "VERSION").read_bytes() == stored.value
    assert [event.kind for event in home.events] == ["cookie written", "bookie stopped"]


async def test_a_stopped_bookie_starts_again(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(1, [0])) == 0


async def test_the_refusals_of_a_bookie(home: Home) -> None:
    """Facts: the original refuses the same starts."""
    driver = ClusterMetadata(MemoryStore(home.cluster))
    stored = await driver.read_cookie("b0")
    assert stored is not None
    with pytest.raises(InvalidCookie, match="bookie: b0, not b9"):
        await home.start(bookie_id="b9")
    with pytest.raises(InvalidCookie, match="journal folders"):
        await home.start(journal_dirs=(str(home.path / "elsewhere"),))
    await driver.delete_cookie("b0", stored.version)
    with pytest.raises(InvalidCookie, match="removed from the cluster"):
        await home.start()
    await driver.write_cookie("b0", stored.value, None)
    (home.path / "ledgers" / "tally" / "VERSION").unlink()
    with pytest.raises(InvalidCookie, match="lost their data"):
        await home.start()
    (home.path / "ledgers" / "tally" / "VERSION").write_bytes(b"5\nnonsense")
    with pytest.raises(InvalidCookie, match="damaged"):
        await home.start()
    (home.path / "ledgers" / "tally" / "VERSION").write_bytes(stored.value)
    async with home.running():
        pass


async def test_p9_a_bookie_beside_a_server_that_lags_has_its_cookie(home: Home) -> None:
    """It was restarted soon after its first start, and ended itself."""
    driver = ClusterMetadata(Lagging(home.cluster))
    folders = StorageFolders((str(home.path / "journal"),), (str(home.path / "ledgers"),))
    assert not (await check_cookies(driver, OsDisk(), "b0", folders)).is_new


async def test_the_disks_of_an_original_bookie_are_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    driver = await home.found()
    (tmp_path / "ledgers" / "current").mkdir(parents=True)
    with pytest.raises(InvalidCookie, match="hold data"):
        await home.start()
    theirs = Cookie("b0", (f"{tmp_path}/journal",), (f"{tmp_path}/ledgers",), await driver.instance_id())
    await driver.write_cookie("b0", encode(theirs), None)
    with pytest.raises(InvalidCookie, match="journal folders"):
        await home.start()
    assert not (await driver.bookies()).writable


async def test_two_processes_cannot_share_folders(home: Home) -> None:
    async with home.running() as bookie:
        with pytest.raises(UsageError, match="another process"):
            await home.start()
        async with talking(bookie) as peer:
            assert await peer.code(read(1, 0)) == 1
