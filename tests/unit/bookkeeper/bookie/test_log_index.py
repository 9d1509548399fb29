"""Index files: every flipped bit is seen, and a newer version is told from damage."""

from __future__ import annotations

import random
from array import array

import pytest

from support.stores import SMALL, entry_bytes
from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.bookkeeper.bookie.log_index import index_path, load_index
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, StorageError
from tallystick.runtime.disk import read_file
from tallystick.sim.disk import SimDisk

PATH = index_path("/", 1)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    writer = LogWriter(disk, "/", 1, SMALL.chunk_bytes)
    for ledger in (2, 7):
        frames = [
            v2.encode_response(v2.ReadFrame(ledger, entry), Code.OK, entry_bytes(ledger, entry, b""))
            for entry in range(40)
        ]
        starts = array("Q", range(0, len(frames[0]) * 40, len(frames[0])))
        writer.add(ledger, array("q", range(40)), starts, b"".join(frames))
    writer.finish()
    return disk


def test_each_flipped_bit_of_an_index_is_refused(disk: SimDisk) -> None:
    for offset in range(0, disk.open(PATH).size(), 7):
        disk.flip(PATH, offset)
        with pytest.raises(CorruptRecord):
            load_index(disk, "/", 1)
        disk.flip(PATH, offset)
    load_index(disk, "/", 1)


def magic_changed(disk: SimDisk, magic: bytes) -> None:
    body = magic + read_file(disk, PATH)[8:-4]
    disk.open(PATH).write([body + crc32c(body).to_bytes(4, "little")], 0)


def test_an_entry_log_of_a_newer_version_is_named(disk: SimDisk) -> None:
    magic_changed(disk, b"TALLYIX2")
    with pytest.raises(StorageError, match="an entry log is of a newer version") as refused:
        load_index(disk, "/", 1)
    assert not isinstance(refused.value, CorruptRecord)
    assert refused.value.fields == {"path": PATH, "offset": 0, "version": 2}


def test_the_index_of_another_log_is_refused(disk: SimDisk) -> None:
    disk.rename(PATH, index_path("/", 2))
    with pytest.raises(CorruptRecord, match="not the index of this entry log"):
        load_index(disk, "/", 2)
    disk.rename(index_path("/", 2), PATH)
    magic_changed(disk, b"SOMETHIN")
    with pytest.raises(CorruptRecord, match="not the index of this entry log"):
        load_index(disk, "/", 1)
