"""Damage in the folders of a bookie that is down, and that looking for it changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.bookies import Home, adds, talking
from tallystick import cli
from tallystick.admin.bookies import check_folders
from tallystick.bookkeeper.bookie.check import CheckReport, Damage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import NotFound, UsageError

pytestmark = pytest.mark.real_time
PAYLOAD = bytes(range(256)) * 4


@pytest.fixture
async def stopped(home: Home) -> Home:
    """Ledgers 5 and 6 of 100 entries each, in an entry log, and of ledger 7 one that only the journal has."""
    async with home.running() as bookie, talking(bookie) as peer:
        for ledger in (5, 6):
            for entry in range(100):
                assert await peer.code(adds(ledger, [entry], PAYLOAD)) == Code.OK
        await bookie.upkeep.checkpoint()
        assert await peer.code(adds(7, [0])) == Code.OK
        copy = home.copied_as_killed("killed")
    shutil.rmtree(home.path)
    copy.rename(home.path)
    return home


def check(home: Home) -> CheckReport:
    """Check the folders; they stay as they are."""
    before = content(home.path)
    report = check_folders(home.settings.ledger_dirs, home.settings.journal_dirs)
    assert content(home.path) == before
    return report


def content(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def change(home: Home, pattern: str, how: Callable[[bytes], bytes]) -> Path:
    [path] = home.path.rglob(pattern)
    path.write_bytes(how(path.read_bytes()))
    return path


async def test_sound_folders_of_a_bookie_that_was_killed(stopped: Home) -> None:
    report = check(stopped)
    assert report == CheckReport(True, 3, 0, 1, report.log_bytes, 200, 1)
    assert report.log_bytes > 200 * len(PAYLOAD)
    async with stopped.running():
        with pytest.raises(UsageError, match="another process uses this folder"):
            check(stopped)
    assert check(stopped).journal_commits == 0, "an orderly stop leaves nothing to replay"


async def test_damage_of_an_entry_log_is_told_by_the_entries_in_it(stopped: Home) -> None:
    flipped = change(stopped, "*.log", lambda data: data[:40_000] + b"x" + data[40_001:])
    [damage] = check(stopped).damages
    assert damage.ledger == 5 and damage.first is not None and damage.last is not None
    assert 0 < damage.first <= 40_000 // (len(PAYLOAD) + 70) <= damage.last < 100
    assert (damage.what, damage.path) == ("a part of an entry log is damaged", str(flipped))
    cut = change(stopped, "*.log", lambda data: data[: 101 * (len(PAYLOAD) + 70)])
    refused, *found = check(stopped).damages
    assert "a start would be refused" in refused.what
    assert [(each.ledger, each.path) for each in found] == [(ledger, str(cut)) for ledger in (5, 5, 6)]
    assert found[0] == replace(damage, path=str(cut)) and [each.last for each in found[1:]] == [99, 99]
    cut.unlink()
    assert [(each.ledger, each.first, each.last) for each in check(stopped).damages if each.ledger] == [
        (5, 0, 99), (6, 0, 99)
    ]  # fmt: skip


async def test_what_a_newer_log_has_is_not_lost_with_an_older_one(stopped: Home) -> None:
    async with stopped.running() as bookie, talking(bookie) as peer:
        for entry in range(100):
            assert await peer.code(adds(5, [entry], PAYLOAD)) == Code.OK
        await bookie.upkeep.checkpoint()
    first, _ = sorted(stopped.path.rglob("*.log"))
    first.write_bytes(b"?" * first.stat().st_size)
    assert {each.ledger for each in check(stopped).damages} == {6}


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("state", "a start would be refused: the state file is damaged"),
        ("00000001.segment", "a start would be refused: both headers of a journal segment are damaged"),
        ("VERSION", "there is no cookie"),
        ("start", "the number of the last start is damaged"),
    ],
)
async def test_other_damage_is_told_by_its_file(stopped: Home, pattern: str, what: str) -> None:
    for path in stopped.path.rglob(pattern):
        if pattern == "VERSION":
            path.unlink()
        else:
            path.write_bytes(b"?" * path.stat().st_size)
    report = check(stopped)
    assert not report.can_start and what in report.damages[0].what
    assert report.entry_logs == 1, "the logs are looked at all the same"


async def test_folders_that_do_not_belong_together(stopped: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no bookie was ever started"):
        check_folders([str(tmp_path / "nowhere")], [str(tmp_path / "nowhere")])
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "data").symlink_to(stopped.path / "journal")
    with pytest.raises(NotFound, match=f"started on {tmp_path}/node; one was on {tmp_path}/node/data"):
        check_folders([str(tmp_path / "node")], [str(tmp_path / "node")])
    stopped.path.joinpath("journal", "tally", "VERSION.rejoining").write_bytes(b"")
    assert (
        Damage("a rejoin was cut short: rejoin again", str(stopped.path / "journal" / "tally"))
        in check(stopped).damages
    )


async def test_the_command_says_it_by_its_exit_code(stopped: Home, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bookie", "check", stopped.settings.ledger_dirs[0], "--journal", stopped.settings.journal_dirs[0]]
    assert cli.main(command) == 0
    assert "nothing is damaged" in "".join(capsys.readouterr())
    change(stopped, "*.log", lambda data: data[:40_000] + b"x" + data[40_001:])
    assert cli.main([*command, "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["entries"] == 200 and [damage["ledger"] for damage in said["damages"]] == [5]
    assert cli.main(command) == 3
    assert "a part of an entry log is damaged" in capsys.readouterr().out


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("*.index", "an index file is damaged"),
        ("state", "the state file is damaged"),
        ("start", "the number of the last start is damaged"),
    ],
)
async def test_one_flipped_byte_of_a_file_is_told_by_its_path(stopped: Home, pattern: str, what: str) -> None:
    for path in stopped.path.rglob(pattern):
        data = path.read_bytes()
        for at in sorted({0, len(data) // 2, len(data) - 1}):
            path.write_bytes(flipped(data, at))
            report = check(stopped)
            assert report.can_start == (pattern == "*.index"), (path, at)  # which a start makes anew
            assert any(what in each.what and str(path).startswith(each.path) for each in report.damages), report.damages
            path.write_bytes(data)
    assert not check(stopped).damages


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("*.index", "an index file is missing"),
        ("*.log", "an entry log is missing"),
        ("*.segment", "the journal is missing, or older than the state of the ledgers"),
        ("state", "the state file is missing beside entry logs"),
        ("VERSION", "there is no cookie"),
    ],
)
async def test_a_file_that_is_missing_is_named(stopped: Home, pattern: str, what: str) -> None:
    for path in stopped.path.rglob(pattern):
        path.unlink()
    report = check(stopped)
    assert report.can_start == (pattern == "*.index")
    assert any(what in each.what for each in report.damages), report.damages


async def test_a_flipped_byte_of_the_journal_is_told_by_its_segment(home: Home) -> None:
    """Not of the last commit: that is what a power loss leaves, and only the metadata knows that it was synced."""
    async with home.running() as bookie, talking(bookie) as peer:
        for entry in range(3):
            assert await peer.code(adds(7, [entry], b"entry number %d" % entry * 9)) == Code.OK
        copy = home.copied_as_killed("killed")
    shutil.rmtree(home.path)
    copy.rename(home.path)
    assert check(home).journal_commits >= 3
    [segment] = [path for path in home.path.rglob("*.segment") if b"entry number 1" in path.read_bytes()]
    data = segment.read_bytes()
    for entry, names in ((0, True), (1, True), (2, False)):
        segment.write_bytes(flipped(data, data.index(b"entry number %d" % entry)))
        damages = check(home).damages
        assert [(each.path, "a start would be refused" in each.what) for each in damages] == [
            (str(segment), True)
        ] * names, damages
