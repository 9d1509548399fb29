"""The digest CRC32C of entries, each over a header of 32 bytes and a payload.

The other digests are in ``bookkeeper.wire.digest``. The compiled codec knows these two functions: given one of them it
computes the digests itself.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tallystick.codec.checksum import crc32c
from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview

_DIGEST = struct.Struct(">I")


@with_twin
def crc32c_digest(header: Buffer, payload: Buffer) -> bytes:
    """The digest of one entry."""
    return _DIGEST.pack(crc32c(payload, crc32c(header)))


@with_twin
def crc32c_digests(headers: Sequence[Buffer], payloads: Sequence[Buffer]) -> bytes:
    """The digests of entries, joined. Raises ValueError if there are not as many headers as payloads."""
    if len(headers) != len(payloads):
        raise ValueError("there are not as many headers as payloads")
    return struct.pack(f">{len(headers)}I", *map(crc32c, payloads, map(crc32c, headers)))
