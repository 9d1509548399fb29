"""Pulled records that differ in nothing but numbers and contents, as most of a pull do: read by columns.

``pulled.scan_pulled`` reads any and is the reference; these take a third of its time.
"""

from __future__ import annotations

import struct
from typing import Any

from tallystick.codec.checksum import crc32
from tallystick.codec.pulled import PulledRun
from tallystick.codec.records import BORN_V6, CRC_MASK, SMALLEST, STORE_V6, V1

_V6 = BORN_V6 | STORE_V6
_START = struct.Struct(">II")  # size, magic
_BODY_SIZE_AT = 84
_BODY_AT = _BODY_SIZE_AT + 4
_INT = struct.Struct(">i")
_UNSIGNED_SHORT = struct.Struct(">H")
_FEW = 4  # for fewer it is not worth while


def scan_uniform_pulled(buffer: bytes, *, verify: bool = True) -> PulledRun | None:
    """As ``scan_pulled`` where good records fill the buffer, all of one topic and with the same sizes of all parts.
    None: look with that. Bodies are copies."""
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
    topic_size = buffer[topic_at - 1]
    properties_at = topic_at + topic_size + 2
    properties_size = size - properties_at
    if properties_size < 0 or _UNSIGNED_SHORT.unpack_from(buffer, properties_at - 2)[0] != properties_size:
        return None
    rows = struct.iter_unpack(f">8sIiiqqiq8sq8siq4s{body_size}s{topic_size + 3}s{properties_size}s", buffer)
    starts, *columns, body_sizes, bodies, middles, properties = map(list, zip(*rows, strict=True))
    sys_flags = columns[5]
    alike = starts.count(starts[0]) == body_sizes.count(body_sizes[0]) == middles.count(middles[0]) == count
    if not alike or any(flag & _V6 for flag in set(sys_flags)):
        return None
    crcs = columns[0]
    if verify and any(crc32(body) & CRC_MASK != crc for body, crc in zip(bodies, crcs, strict=True)):
        return None
    topics = [buffer[topic_at : topic_at + topic_size]] * count
    all_columns: tuple[Any, ...] = ([size] * count, *columns, bodies, topics, properties, len(buffer))
    return PulledRun(*all_columns)
