"""How Pulsar compresses messages and what it stores of streams (``CompressionCodecProvider``).

Of every kind the bytes are those of the library itself: LZ4 is a raw block and Snappy the raw format, both without a
frame; ZLIB and ZSTD have theirs. The size of the outcome is announced beside the bytes, and nothing longer is made.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable
from typing import Any

from tallystick.errors import UsageError

INSTALL = "pip install 'cramjam>=2.11'"  # the extra of tallystick that brings it is on no package index

_ZSTD_LEVEL = 3  # that of Pulsar, as are the library's own levels of the others


class Compression(enum.Enum):
    """The numbers are those of Pulsar's ``CompressionType``."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4

    @classmethod
    def parse(cls, name: str | Compression) -> Compression:
        """Returns a kind by its name in any case. Raises UsageError."""
        if isinstance(name, Compression):
            return name
        if not isinstance(name, str) or name.upper() not in cls.__members__:
            raise UsageError(f"a compression is one of {', '.join(m.lower() for m in cls.__members__)}", given=name)
        return cls[name.upper()]


def compress(data: bytes, compression: Compression) -> bytes:
    """Raises UsageError where the library for it is not installed."""
    if compression is Compression.NONE:
        return data
    if compression is Compression.ZLIB:
        return zlib.compress(data)
    cramjam = _library(compression)
    if compression is Compression.LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if compression is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(data: bytes | memoryview, compression: Compression, *, size: int) -> bytes:
    """Returns the ``size`` bytes that were compressed; the caller has judged that many, which are claimed at once.

    Raises ValueError for damaged bytes and for those that are more or fewer than that; UsageError where the library for
    it is not installed.
    """
    if compression is Compression.NONE:
        made = bytes(data)
    elif compression is Compression.ZLIB:
        made = _inflate(data, size)
    else:
        made = _fill(data, compression, size)
    if len(made) != size:
        raise ValueError(f"it should have {size} bytes and has {len(made)}")
    return made


def _inflate(data: bytes | memoryview, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        made = stream.decompress(data, size + 1)  # one more shows what is too long; 0 would be no bound
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof and len(made) <= size:
        raise ValueError("it is cut off")
    return made


def _fill(data: bytes | memoryview, compression: Compression, size: int) -> bytes:
    cramjam = _library(compression)
    into: dict[Compression, Callable[..., int]] = {
        Compression.LZ4: cramjam.lz4.decompress_block_into,
        Compression.ZSTD: cramjam.zstd.decompress_into,
        Compression.SNAPPY: cramjam.snappy.decompress_raw_into,
    }
    # LZ4 takes the length of the block from its first bytes unless it is told one.
    bound = {"output_len": size} if compression is Compression.LZ4 else {}
    buffer = bytearray(size)
    try:
        count = into[compression](data, buffer, **bound)
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from None
    return bytes(buffer[:count])


def _library(compression: Compression) -> Any:
    try:
        import cramjam
    except ImportError:
        raise UsageError(f"{compression.name} needs cramjam: {INSTALL}") from None
    return cramjam
