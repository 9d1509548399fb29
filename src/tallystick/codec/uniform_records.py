"""Records and members of batches that differ in nothing but numbers and contents, as a producer makes them (H11).

``records.scan_records`` and ``wire.record.decode_batch`` read any and are the references; most are alike, and these
read them in half the time.
"""

from __future__ import annotations

import struct
from itertools import repeat

from tallystick.codec.implementation import with_twin
from tallystick.codec.records import BORN_V6, SMALLEST, STORE_V6, V1, Content, RecordRun

_V6 = BORN_V6 | STORE_V6
_HEAD = struct.Struct(">II")  # size, magic
_MEMBER = struct.Struct(">I8xiI")  # size, flag, body size
_BODY_SIZE_AT = 84
_BODY_AT = _BODY_SIZE_AT + 4
_INT = struct.Struct(">i")
_UNSIGNED_SHORT = struct.Struct(">H")
_MAX_SHORT = 0x7FFF
_FEW = 16  # for fewer it is not worth while


@with_twin
def scan_uniform_records(buffer: bytes, base: int) -> RecordRun | None:
    """As ``scan_records`` where all whole records but the last have one topic and the same sizes of all parts.

    ``end`` is after the last of them; what follows is shorter than one. None: look with ``scan_records``.
    """
    if len(buffer) < _FEW * SMALLEST:
        return None
    size, magic = _HEAD.unpack_from(buffer)
    count = len(buffer) // size if size >= SMALLEST else 0
    head = buffer[: _HEAD.size]
    if magic != V1 or count < _FEW or not _may_be_uniform(buffer, head, size, count):
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
    middle_size = properties_at - topic_at + 1  # the topic, its size and that of the properties
    rows = struct.iter_unpack(
        f">8s4xi4xqqi8x8xq8x4x8x4s{body_size}x{middle_size}s{properties_size}s", memoryview(buffer)[: count * size]
    )
    heads, queue_ids, queue_offsets, physicals, sys_flags, store_timestamps, body_sizes, middles, properties = zip(
        *rows, strict=True
    )
    alike = heads.count(head) == body_sizes.count(body_sizes[0]) == middles.count(middles[0]) == count
    end = count * size
    if not alike or list(physicals) != list(range(base, base + end, size)) or any(f & _V6 for f in set(sys_flags)):
        return None
    return RecordRun(
        list(range(0, end, size)),
        [size] * count,
        list(queue_ids),
        list(queue_offsets),
        list(sys_flags),
        list(store_timestamps),
        [buffer[topic_at : topic_at + topic_size]] * count,
        list(properties),
        end,
    )


@with_twin
def split_uniform_batch(data: bytes) -> list[Content] | None:
    """The members of a batch, where all have one flag and the same sizes of body and properties; None: look again."""
    if len(data) < _FEW * _MEMBER.size:
        return None
    size, flag, body_size = _MEMBER.unpack_from(data)
    properties_size = size - _MEMBER.size - body_size - 2
    if not 0 <= properties_size <= _MAX_SHORT or len(data) < _FEW * size or len(data) % size:
        return None
    head, count = data[: _MEMBER.size], len(data) // size
    if not _may_be_uniform(data, head, size, count):
        return None
    members = struct.iter_unpack(f">{_MEMBER.size}s{body_size}s2s{properties_size}s", data)
    heads, bodies, sizes, properties = zip(*members, strict=True)
    if heads.count(head) != count or sizes.count(_UNSIGNED_SHORT.pack(properties_size)) != count:
        return None
    return list(zip(repeat(flag, count), bodies, properties, strict=True))


def _may_be_uniform(buffer: bytes, head: bytes, size: int, count: int) -> bool:
    """A few looks, further and further apart: most runs of unlike records cost no more."""
    number = 1
    while number < count:
        if not buffer.startswith(head, number * size):
            return False
        number *= 2
    return True
