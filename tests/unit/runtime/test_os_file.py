"""Reads and writes of the system that are shorter than asked, as on a nearly full disk or after a signal."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick.runtime.disk import BLOCK_BYTES, OsDisk
from tallystick.runtime.os_file import _STAGING_BYTES, IOV_MAX

DATA = random.Random(1).randbytes(3 * _STAGING_BYTES // 2 // BLOCK_BYTES * BLOCK_BYTES)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each call of the system takes no more than a part; the sizes that were taken."""
    pread, pwrite, sizes = os.pread, os.pwrite, list[int]()

    def write(fd: int, data: Any, offset: int) -> int:
        sizes.append(pwrite(fd, memoryview(data)[: 40 * BLOCK_BYTES], offset))
        return sizes[-1]

    def writev(fd: int, buffers: Sequence[Any], offset: int) -> int:
        return write(fd, b"".join(buffers), offset)

    def read(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, min(size, 100_000), offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "pwritev", writev)
    monkeypatch.setattr(os, "pread", read)
    return sizes


@pytest.mark.parametrize("direct", [False, True])
def test_a_write_that_is_cut_short_is_finished(tmp_path: Path, direct: bool, short: list[int]) -> None:
    path = tmp_path / "file"
    file = OsDisk().open(str(path), create=True, direct=direct)
    parts = [DATA[:BLOCK_BYTES], DATA[BLOCK_BYTES:]]
    assert file.write(parts, BLOCK_BYTES) == len(DATA)
    assert sum(short) == len(DATA) and len(short) > 4
    file.close()
    assert path.read_bytes() == bytes(BLOCK_BYTES) + DATA


def test_a_read_that_is_cut_short_goes_on_to_the_end_of_the_file(tmp_path: Path, short: list[int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    file = OsDisk().open(str(path))
    assert file.read(len(DATA) - 7, 7) == DATA[7:]
    assert len(short) > 4
    assert file.read(2 * len(DATA), 7) == DATA[7:], "there is no more"
    assert file.read(10, len(DATA)) == b""
    file.close()


def test_more_buffers_than_a_call_of_the_system_takes_are_written_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = OsDisk().open(str(path), create=True)
    parts = [b"%05d" % number for number in range(2 * IOV_MAX + 1)]
    assert file.write(parts, 3) == 5 * len(parts)
    file.close()
    assert path.read_bytes() == bytes(3) + b"".join(parts)
