"""Leases in files of their own: renewed without a lock, gone with their owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata import sqlite_leases
from tallystick.bookkeeper.metadata.sqlite_leases import LEFT_BEHIND_S, Lease, LeaseFiles, LeaseKeeper, boot_now
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import MetadataError

LEASE = Lease("bookie-1", BookieInfo.at("127.0.0.1", 3181), "owner-1", 10.0)


@pytest.fixture
def files(tmp_path: Path) -> LeaseFiles:
    return LeaseFiles(str(tmp_path / "metadata.db"))


def test_a_lease_lasts_its_time_from_its_renewal(files: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.end_of("owner-1") == 0.0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: 100.0)
    files.renew(LEASE)
    assert files.end_of("owner-1") == 110.0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: 105.0)
    files.renew(LEASE)
    assert files.end_of("owner-1") == 115.0
    files.remove("owner-1")
    assert files.end_of("owner-1") == 0.0 and os.listdir(files.folder) == []


def test_nobody_else_reads_or_ends_a_lease(files: LeaseFiles) -> None:
    files.renew(LEASE)
    assert os.stat(files.folder).st_mode & 0o777 == 0o700
    assert os.stat(f"{files.folder}/owner-1").st_mode & 0o777 == 0o600
    files.remove("owner-1")


def test_a_file_that_was_cleaned_away_is_made_again(files: LeaseFiles) -> None:
    files.renew(LEASE)
    os.unlink(f"{files.folder}/owner-1")
    files.renew(LEASE)
    assert files.end_of("owner-1") > 0
    files.remove("owner-1")


def test_a_file_without_a_whole_end_is_no_lease(files: LeaseFiles) -> None:
    os.makedirs(files.folder)
    Path(files.folder, "owner-1").write_bytes(b"1234567")
    assert files.end_of("owner-1") == 0.0


def test_files_of_killed_owners_go_after_a_day(files: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    now = boot_now()
    files.renew(LEASE)
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: now + LEFT_BEHIND_S)
    files.remove_left_behind()
    assert files.end_of("owner-1") > 0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: now + LEFT_BEHIND_S + 11)
    files.remove_left_behind()
    assert files.end_of("owner-1") == 0.0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MetadataError, match="lease of a registration"):
        LeaseFiles(str(tmp_path / "file" / "metadata.db")).renew(LEASE)


async def test_the_keeper_renews_until_the_last_lease_is_dropped(files: LeaseFiles) -> None:
    keeper = LeaseKeeper(files)
    first, second = (Lease("b", LEASE.info, owner, 0.05) for owner in ("owner-1", "owner-2"))
    keeper.hold(first)
    keeper.hold(second)
    ends = files.end_of("owner-1"), files.end_of("owner-2")
    await until(lambda: files.end_of("owner-1") > ends[0] and files.end_of("owner-2") > ends[1])
    keeper.drop("owner-1")
    assert files.end_of("owner-1") == 0.0
    end = files.end_of("owner-2")
    await until(lambda: files.end_of("owner-2") > end)
    keeper.drop("owner-2")
    await until(lambda: keeper._thread is None)
    keeper.hold(first)
    end = files.end_of("owner-1")
    await until(lambda: files.end_of("owner-1") > end)
    keeper.drop("owner-1")
