"""A segment of the journal: a file that is zero-filled once and then used again and again.

An overwrite syncs faster than a growing file. Integers are big-endian; whole blocks of 4096 bytes are written, so that
no two commits share a sector of the disk::

    segment     header copy at 0 and at 4096 | commits from 8192
    header      magic "TALLYJN1" 8 | generation 8 | salt 8 | CRC32C 4
    commit      number 8 | payload size 4 | CRC32C of the payload 4 | CRC32C of the 16 bytes before 4 | payload | zeros
    payload     records, each with a type and a version, see records.py

"1" in the magic is the version of this frame of commits. Of every version the magic and the CRC of the 24 bytes before
it are in these places, so that a newer one is told from a damaged one.

The CRCs start from the segment's salt and the commit's offset: what an earlier use of the segment left behind is never
valid, and nobody can send bytes that look like a commit without knowing the salt. The two header copies are written and
synced one after the other, a whole one last, so one of them is whole at any time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.formats import of_a_newer_version, version_of
from tallystick.codec.checksum import crc32c
from tallystick.codec.parts import crc32c_of_parts
from tallystick.errors import CorruptRecord
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, File

_NAME, _VERSION = b"TALLYJN", 1
_MAGIC = _NAME + b"%d" % _VERSION
_HEADER = struct.Struct(">8sQQ")
_HEADER_COPIES = (0, BLOCK_BYTES)
_CRC = struct.Struct(">I")
_COMMIT = struct.Struct(">QII")
_SEED = struct.Struct(">QQ")
_BLOCK = bytes(BLOCK_BYTES)
COMMIT_BYTES = _COMMIT.size + _CRC.size
FIRST_COMMIT = 2 * BLOCK_BYTES


@dataclass
class Segment:
    """One segment, with its file open. What it stores is used from ``stamp`` to ``stamp``."""

    path: str
    file: File
    size: int
    generation: int = 0
    salt: int = 0
    header: int = 0  # the offset of a header copy that is whole
    last: int = 0  # the highest commit number in it

    @classmethod
    def read(cls, path: str, file: File) -> Segment:
        """Read the headers. Raises CorruptRecord, and StorageError for a segment of a newer version."""
        headers: list[tuple[int, int, int]] = []
        for offset in _HEADER_COPIES:
            data = file.read(_HEADER.size + _CRC.size, offset)
            if data[_HEADER.size :] != _CRC.pack(crc32c(data[: _HEADER.size])):
                continue
            magic, generation, salt = _HEADER.unpack(data[: _HEADER.size])
            if (version := version_of(magic, _NAME)) == _VERSION:
                headers.append((generation, salt, offset))
            elif version is not None:
                raise of_a_newer_version("a journal segment", path, offset, version=version)
        if not headers:
            raise CorruptRecord("both headers of a journal segment are damaged", path=path)
        return cls(path, file, file.size(), *max(headers))

    def stamp(self, generation: int, salt: int, sync: Callable[[File], None]) -> None:
        """Begin to use the segment anew: nothing that is in it is valid any more."""
        self.generation, self.salt, self.last = generation, salt, 0
        header = _HEADER.pack(_MAGIC, generation, salt)
        header += _CRC.pack(crc32c(header))
        # The copy that is whole comes last: a crash may have damaged the other one before.
        for offset in sorted(_HEADER_COPIES, key=lambda copy: copy == self.header):
            self.file.write([header, padding(len(header))], offset)
            sync(self.file)

    def commit_head(self, position: int, number: int, buffers: Sequence[Buffer], size: int) -> bytes:
        """Return what a commit at this position has in front of its payload."""
        seed = self._seed(position)
        head = _COMMIT.pack(number, size, crc32c_of_parts(buffers, seed))
        return head + _CRC.pack(crc32c(head, seed))

    def commits(self) -> Iterator[tuple[int, int, memoryview]]:
        """Find the whole commits: number, offset and bytes of each.

        What is not one is skipped: the numbers show whether anything was lost there.
        """
        data = memoryview(self.file.read(self.size, 0))
        position = FIRST_COMMIT
        while position + COMMIT_BYTES <= len(data):
            head = data[position : position + _COMMIT.size]
            number, size, payload_crc = _COMMIT.unpack(head)
            start = position + COMMIT_BYTES
            stop = start + size
            seed = self._seed(position)
            if (
                stop <= len(data)
                and data[position + _COMMIT.size : start] == _CRC.pack(crc32c(head, seed))
                and crc32c(data[start:stop], seed) == payload_crc
            ):
                yield number, position, data[position:stop]
                position = stop + -stop % BLOCK_BYTES
            else:
                position += BLOCK_BYTES

    def _seed(self, offset: int) -> int:
        """Return what the checksums of a commit at this offset start from."""
        return crc32c(_SEED.pack(self.salt, offset))


def padding(size: int) -> memoryview:
    """Return zeros that make whole blocks of so many bytes."""
    return memoryview(_BLOCK)[: -size % BLOCK_BYTES]
