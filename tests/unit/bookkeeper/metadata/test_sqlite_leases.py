"""Leases in files of their own: renewed without a lock, gone with their owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata import sqlite_leases
from tallystick.bookkeeper.metadata.sqlite_leases import (
    BOOT_ID,
    LEFT_BEHIND_S,
    Lease,
    LeaseFiles,
    LeaseKeeper,
    boot_now,
)
from tallystick.errors import MetadataError

BOOT = BOOT_ID.read_text().strip()
OWNER, OTHER = f"{BOOT}:owner-1", f"{BOOT}:owner-2"
LEASE = Lease(OWNER, 10.0)


@pytest.fixture
def files(tmp_path: Path) -> LeaseFiles:
    return LeaseFiles(str(tmp_path / "metadata.db"))


def test_a_lease_of_another_boot_has_ended(files: LeaseFiles) -> None:
    owner = files.new_owner()
    files.renew(Lease(owner, 10.0))
    assert files.end_of(owner) > 0.0
    assert files.end_of(owner.replace(BOOT, "another-boot")) == 0.0
    files.remove(owner)


def test_a_lease_lasts_its_time_from_its_renewal(files: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.end_of(OWNER) == 0.0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: 100.0)
    files.renew(LEASE)
    assert files.end_of(OWNER) == 110.0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: 105.0)
    files.renew(LEASE)
    assert files.end_of(OWNER) == 115.0
    files.remove(OWNER)
    assert files.end_of(OWNER) == 0.0 and os.listdir(files.folder) == []


def test_nobody_else_reads_or_ends_a_lease(files: LeaseFiles) -> None:
    files.renew(LEASE)
    assert os.stat(files.folder).st_mode & 0o777 == 0o700
    assert os.stat(f"{files.folder}/owner-1").st_mode & 0o777 == 0o600
    files.remove(OWNER)


def test_a_file_that_was_cleaned_away_is_made_again(files: LeaseFiles) -> None:
    files.renew(LEASE)
    os.unlink(f"{files.folder}/owner-1")
    files.renew(LEASE)
    assert files.end_of(OWNER) > 0
    files.remove(OWNER)


def test_a_file_without_a_whole_end_is_no_lease(files: LeaseFiles) -> None:
    os.makedirs(files.folder)
    Path(files.folder, "owner-1").write_bytes(b"1234567")
    assert files.end_of(OWNER) == 0.0


def test_files_of_killed_owners_go_after_a_day(files: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    now = boot_now()
    files.renew(LEASE)
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: now + LEFT_BEHIND_S)
    files.remove_left_behind()
    assert files.end_of(OWNER) > 0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: now + LEFT_BEHIND_S + 11)
    files.remove_left_behind()
    assert files.end_of(OWNER) == 0.0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MetadataError, match="lease of a session"):
        LeaseFiles(str(tmp_path / "file" / "metadata.db")).renew(LEASE)


async def test_the_keeper_renews_until_the_last_lease_is_dropped(files: LeaseFiles) -> None:
    keeper = LeaseKeeper(files)
    first, second = (Lease(owner, 0.05) for owner in (OWNER, OTHER))
    keeper.hold(first)
    keeper.hold(second)
    ends = files.end_of(OWNER), files.end_of(OTHER)
    await until(lambda: files.end_of(OWNER) > ends[0] and files.end_of(OTHER) > ends[1])
    keeper.drop(OWNER)
    assert files.end_of(OWNER) == 0.0
    end = files.end_of(OTHER)
    await until(lambda: files.end_of(OTHER) > end)
    keeper.drop(OTHER)
    await until(lambda: keeper._thread is None)
    keeper.hold(first)
    end = files.end_of(OWNER)
    await until(lambda: files.end_of(OWNER) > end)
    keeper.drop(OWNER)


async def test_a_short_lease_is_renewed_in_time_though_the_keeper_waits_for_a_long_one(files: LeaseFiles) -> None:
    keeper = LeaseKeeper(files)
    keeper.hold(Lease(OTHER, 600.0))
    await until(lambda: keeper._condition._waiters)  # type: ignore[attr-defined]  # its thread has begun to
    keeper.hold(Lease(OWNER, 0.6))
    first_end = files.end_of(OWNER)
    await until(lambda: files.end_of(OWNER) > first_end, seconds=10.0)
    keeper.drop_all()


def test_nothing_of_a_lease_stays_open(files: LeaseFiles) -> None:
    """A process may have very many clients, one after another."""
    files.renew(LEASE)
    files.remove(OWNER)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        files.renew(LEASE)
        files.remove(OWNER)
    assert len(os.listdir("/proc/self/fd")) < before + 20


async def test_who_renews_too_late_is_told(files: LeaseFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was paused: others saw its nodes vanish."""
    keeper, lapsed, asleep_s = LeaseKeeper(files), [], 0.0
    monkeypatch.setattr(sqlite_leases, "boot_now", lambda: boot_now() + asleep_s)
    keeper.hold(Lease(OWNER, 3.0), lambda: lapsed.append(files.end_of(OWNER) - boot_now()))
    asleep_s = 100.0
    keeper.hold(Lease(OTHER, 0.05))  # wakes the keeper
    await until(lambda: bool(lapsed))
    assert lapsed[0] > 100.0, "the lease is renewed by then"
    end = files.end_of(OWNER)
    await until(lambda: files.end_of(OWNER) > end)
    assert len(lapsed) == 1
    for owner in (OWNER, OTHER):
        keeper.drop(owner)
