"""Bytes in parts, as a commit or a chunk of an entry log has them on its way to the disk."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.codec.checksum import crc32c
from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview


@with_twin
def crc32c_of_parts(parts: Sequence[Buffer], crc: int) -> int:
    """The CRC32C of all parts, one after another; continues from ``crc``."""
    for part in parts:
        crc = crc32c(part, crc)
    return crc


@with_twin
def copy_parts(parts: Sequence[Buffer], memory: memoryview) -> int:
    """Copy all parts, one after another, to the start of ``memory``. Returns how many bytes they are; raises ValueError
    if there is no room for them."""
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        memory[start:end] = part
    return end
