"""The room of each folder, from the disks to whoever asks for a bookie."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from support.bookies import Home
from tallystick import cli
from tallystick.admin import bookies, cluster
from tallystick.admin.bookies import BookieDetails, BookiePresence, BookieStatus, list_bookies
from tallystick.bookkeeper.bookie.folder_room import MOST_FOLDERS, FolderRoom, FolderState, decode, encode
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.runtime.disk import Usage


def test_what_is_written_is_what_is_read() -> None:
    odd = "/srv/a;b,c d/é"
    text = encode({"/a": Usage(200, 101), odd: Usage(1000, 0), "/z": Usage(0, 0)}, {odd}, ["/gone"])
    assert decode(text) == (
        FolderRoom("/a", 50, 200, FolderState.GOOD),
        FolderRoom(odd, 100, 1000, FolderState.FULL),
        FolderRoom("/z", 0, 0, FolderState.GOOD),
        FolderRoom("/gone", 0, 0, FolderState.FAILED),
    )
    assert [str(one) for one in decode(text)][:2] == ["/a: 50 % in use", f"{odd}: 100 % in use, full"]


@pytest.mark.parametrize("text", ["", ";", "1,2", "x,1,,/a", "1,1,odd,/a", "1,1,,", "9999,1,,/a"])
def test_a_text_that_nobody_can_read_has_no_folder(text: str) -> None:
    assert decode(text) == ()


def test_a_registration_has_a_bound() -> None:
    assert len(decode(encode({f"/{number}": Usage(2, 1) for number in range(1000)}, (), ()))) == MOST_FOLDERS


async def test_a_bookie_shows_its_folders(home: Home) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    folders = [str(home.path / name) for name in ("journal", "ledgers", "more")]

    async def shown() -> list[str]:
        (bookie,) = await list_bookies(driver)
        return [one.path for one in bookie.folders]

    async with home.running(ledger_dirs=tuple(folders[1:])):
        assert await shown() == folders
        (bookie,) = await list_bookies(driver)
        node = await driver.store.get(f"{driver.root}/available/{bookie.id}")
        assert node is not None
        later = b"scrub" in node.data  # a look at copies that has come meanwhile says how far it is
        assert node.version == later, "the registration had them from the first on"
        assert all(one.total_bytes > 0 and one.used_percent <= 100 for one in bookie.folders)


def test_the_command_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = BookieInfo((), {"folders": encode({"/a": Usage(200, 100)}, (), ["/b"])})
    details = BookieDetails(BookieStatus("b", BookiePresence.WRITABLE, info), None, 1.0, None)

    async def found(*_: object) -> BookieDetails:
        return details

    monkeypatch.setattr(bookies, "bookie_details", found)
    asyncio.run(cluster.init(f"sqlite://{tmp_path}/m.db"))
    assert cli.main(["bookie", "info", "b", "--uri", f"sqlite://{tmp_path}/m.db"]) == 0
    text = capsys.readouterr().out
    assert "/a: 50 % in use" in text and "/b: failed" in text and "0,0,failed" not in text
    assert cli.main(["bookie", "info", "b", "--uri", f"sqlite://{tmp_path}/m.db", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["folders"][0] == {
        "path": "/a", "used_percent": 50, "total_bytes": 200, "state": "good"
    }  # fmt: skip
