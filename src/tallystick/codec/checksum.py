"""CRC32C and CRC32 that continue: ``crc32c(b, crc32c(a)) == crc32c(a + b)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fastcrc import crc32 as _fastcrc

# The library's "iscsi" polynomial is Castagnoli's with the usual start value and final inversion.
crc32c = cast("Callable[..., int]", _fastcrc.iscsi)
# The same as ``zlib.crc32``, some times faster.
crc32 = cast("Callable[..., int]", _fastcrc.iso_hdlc)
