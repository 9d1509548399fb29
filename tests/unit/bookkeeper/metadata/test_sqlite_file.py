"""Who holds the lock of a metadata file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tallystick.bookkeeper.metadata import sqlite_file


def test_of_those_with_locks_the_one_that_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, locks = tmp_path / "metadata.db", tmp_path / "locks"
    shared = tmp_path / "metadata.db-shm"
    shared.touch()
    found, byte = shared.stat(), sqlite_file.WRITE_LOCK_BYTE
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    lines = [
        f"1: POSIX  ADVISORY  READ 1 {place} {byte} {byte}",
        f"2: FLOCK  ADVISORY  WRITE 2 {place} {byte} {byte}",
        f"3: -> POSIX  ADVISORY  WRITE 3 {place} {byte} {byte}",
        f"4: POSIX  ADVISORY  WRITE 4 {place} {byte + 1} {byte + 1}",
        f"5: POSIX  ADVISORY  WRITE {os.getpid()} {place} {byte} {byte}",
    ]
    monkeypatch.setattr(sqlite_file, "LOCKS", locks)
    for count, holder in ((4, {}), (5, {"pid": os.getpid()})):
        locks.write_text("\n".join(lines[:count]) + "\n")
        assert sqlite_file.lock_holder(str(path)) == holder
