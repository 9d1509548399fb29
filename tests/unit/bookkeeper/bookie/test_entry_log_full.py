"""A disk that gets full while an entry log is written: nothing of it stays, and no descriptor is closed twice."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import pytest

from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.errors import DiskFull
from tallystick.runtime.disk import File, OsDisk


class NoRoomForIndexes(OsDisk):
    """``taken`` is the file of somebody who opens one just when an index was closed."""

    def __init__(self, theirs: Path) -> None:
        self._theirs = theirs
        self.taken: list[int] = []

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> File:
        file = super().open(path, create=create, direct=direct, durable=durable)
        if path.endswith(".index"):
            close = file.close

            def closed() -> None:
                close()
                # The numbers that are free now: of the index, and of the log that was closed before it.
                self.taken += [os.open(self._theirs, os.O_RDWR | os.O_CREAT) for _ in range(4)]

            def full(buffers: object, offset: int) -> int:
                raise DiskFull("cannot write: no space left", path=path)

            file.write, file.close = full, closed  # type: ignore[method-assign]  # of this one file
        return file


def test_an_index_that_finds_the_disk_full_leaves_nothing_and_closes_nobodys_file(tmp_path: Path) -> None:
    disk = NoRoomForIndexes(tmp_path / "journal")
    writer = LogWriter(disk, str(tmp_path), 1, 32768)
    writer.add(7, array("q", [0]), array("Q", [0]), b"\0" * 100)
    with pytest.raises(DiskFull):
        writer.finish()
    writer.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
    for descriptor in disk.taken:
        assert os.write(descriptor, b"a commit") == 8
        os.close(descriptor)
