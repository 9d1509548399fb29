"""Who holds the lock of a metadata file, and how long its write-ahead log gets."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from tallystick.bookkeeper.metadata import sqlite_file
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.bookkeeper.metadata.store import Create, Update


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


def test_what_a_process_that_was_stopped_in_a_read_made_the_log_grow_by_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "WAL_KEPT_BYTES", 1 << 20)
    path = tmp_path / "metadata.db"
    tree = SqliteTree(str(path))
    tree.make()
    tree.change([Create("/a", b"")], "owner")

    def change(count: int) -> int:
        for _ in range(count):
            tree.change([Update("/a", os.urandom(100_000), tree.get_many(["/a"])["/a"].version)], "owner")
        return Path(f"{path}-wal").stat().st_size

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM nodes").fetchone()
        grown_bytes = change(100)
        assert grown_bytes > 8 << 20
    assert change(2) <= 1 << 20
    tree.close()
