"""Pulled records that differ in nothing but numbers and contents, as most of a pull do: read by columns, with no step
for each.

``codec.pulled.scan_pulled`` reads any and is the reference. Bodies and properties stay where they came.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tallystick.codec.records import BORN_V6, CRC_MASK, SMALLEST, STORE_V6, V1
from tallystick.codec.spans import crc32_of_spans
from tallystick.pipeline.gather import Bytes

_V6 = BORN_V6 | STORE_V6
_START = struct.Struct(">II")  # size, magic
_BODY_SIZE_AT = 84
_BODY_AT = _BODY_SIZE_AT + 4
_INT = struct.Struct(">i")
_UNSIGNED_SHORT = struct.Struct(">H")
_FEW = 4  # for fewer it is not worth while
_FIELDS = {  # of a record: where it is, and what
    "body_crcs": (8, ">u4"),
    "queue_ids": (12, ">i4"),
    "flags": (16, ">i4"),
    "queue_offsets": (20, ">i8"),
    "physical_offsets": (28, ">i8"),
    "sys_flags": (36, ">i4"),
    "born_timestamps": (40, ">i8"),
    "born_hosts": (48, "V8"),
    "store_timestamps": (56, ">i8"),
    "store_hosts": (64, "V8"),
    "reconsume_times": (72, ">i4"),
}


@dataclass(frozen=True)
class UniformRun:
    """Records of one queue. ``rows`` has a row for each, and a column for each byte."""

    rows: Bytes
    body_size: int
    properties_size: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def end(self) -> int:
        """Where the records end: they fill what was pulled."""
        return self.rows.size

    def column(self, name: str) -> npt.NDArray[Any]:
        """Returns a field of all records."""
        return self.rows.reshape(-1).view(_fields(self.rows.shape[1]))[name]

    @property
    def bodies(self) -> Bytes:
        """The bodies, a row for each."""
        return self.rows[:, _BODY_AT : _BODY_AT + self.body_size]

    @property
    def properties(self) -> Bytes:
        """The properties as they are stored, a row for each."""
        return self.rows[:, self.rows.shape[1] - self.properties_size :]


@lru_cache(maxsize=64)
def _fields(size: int) -> np.dtype[Any]:
    offsets, formats = zip(*_FIELDS.values(), strict=True)
    return np.dtype({"names": list(_FIELDS), "formats": formats, "offsets": offsets, "itemsize": size})


def scan_uniform(buffer: bytes) -> UniformRun | None:
    """As ``scan_pulled`` where good records fill the buffer, all of one topic and with the same sizes of all parts.
    None: look with that."""
    if len(buffer) < _FEW * SMALLEST:
        return None
    size, magic = _START.unpack_from(buffer)
    count = len(buffer) // size if size >= SMALLEST else 0
    if magic != V1 or count < _FEW or count * size != len(buffer):
        return None
    body_size = _INT.unpack_from(buffer, _BODY_SIZE_AT)[0]
    topic_at = _BODY_AT + body_size + 1
    if body_size < 0 or topic_at + 2 > size:
        return None
    properties_at = topic_at + buffer[topic_at - 1] + 2
    properties_size = size - properties_at
    if properties_size < 0 or _UNSIGNED_SHORT.unpack_from(buffer, properties_at - 2)[0] != properties_size:
        return None
    run = UniformRun(np.frombuffer(buffer, np.uint8).reshape(count, size), body_size, properties_size)
    alike = (slice(_START.size), slice(_BODY_SIZE_AT, _BODY_AT), slice(topic_at - 1, properties_at))
    if not all((run.rows[:, part] == run.rows[0, part]).all() for part in alike):
        return None
    return run if not (run.column("sys_flags") & _V6).any() and _are_whole(run, buffer) else None


def _are_whole(run: UniformRun, buffer: bytes) -> bool:
    """Returns whether all bodies match their CRCs."""
    offsets = np.arange(_BODY_AT, len(buffer), run.rows.shape[1])
    computed = np.frombuffer(crc32_of_spans(buffer, offsets, np.full(len(run), run.body_size)), np.int64)
    return bool((computed & CRC_MASK == run.column("body_crcs")).all())
