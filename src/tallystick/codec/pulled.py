"""Records as readers get them, one after another from wherever they lie in the log (H13): their fields by columns.

The record is described in ``records``; ``rocketmq.wire.record`` decodes a single one and is the reference.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tallystick.codec.checksum import crc32
from tallystick.codec.implementation import with_twin
from tallystick.codec.records import BORN_V6, CRC_MASK, HEADS, SMALLEST, STORE_V6, V1, V2

_UNSIGNED_SHORT = struct.Struct(">H")
_USUAL = HEADS[8, 8]
_V6 = BORN_V6 | STORE_V6
_SYS_FLAG_AT = 7  # among a head's fields


@dataclass(slots=True)
class PulledRun:
    """Records of one queue, by columns. Bodies are views of the buffer, or copies; topics, hosts and properties
    the stored bytes.

    ``end`` is where the good records end: short of the buffer's end there is something else.
    """

    sizes: list[int] = field(default_factory=list)
    body_crcs: list[int] = field(default_factory=list)
    queue_ids: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    physical_offsets: list[int] = field(default_factory=list)
    sys_flags: list[int] = field(default_factory=list)
    born_timestamps: list[int] = field(default_factory=list)
    born_hosts: list[bytes] = field(default_factory=list)
    store_timestamps: list[int] = field(default_factory=list)
    store_hosts: list[bytes] = field(default_factory=list)
    reconsume_times: list[int] = field(default_factory=list)
    prepared_offsets: list[int] = field(default_factory=list)
    bodies: list[bytes | memoryview] = field(default_factory=list)
    topics: list[bytes] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    end: int = 0

    def __len__(self) -> int:
        return len(self.bodies)


@with_twin
def scan_pulled(buffer: bytes, *, verify: bool = True) -> PulledRun:
    """The records from the buffer's start up to the first that is none; ``verify`` checks the CRCs of their bodies."""
    run = PulledRun()
    limit, position, view = len(buffer), 0, memoryview(buffer)
    rows, bodies, topics, properties = [], run.bodies, run.topics, run.properties
    unpack, short, usual, v1, v6 = _USUAL.unpack_from, _UNSIGNED_SHORT.unpack_from, _USUAL.size, V1, _V6
    while position + SMALLEST <= limit:
        row, body_at = unpack(buffer, position), position + usual
        if row[_SYS_FLAG_AT] & v6:
            head = _head_of(row[_SYS_FLAG_AT])
            body_at = position + head.size
            if body_at > limit:
                break
            row = head.unpack_from(buffer, position)
        size, magic, crc, body_size = row[0], row[1], row[2], row[14]
        end, topic_size_at = position + size, body_at + body_size
        topic_at = topic_size_at + (1 if magic == v1 else 2)
        if (magic != v1 and magic != V2) or body_size < 0 or end > limit or topic_at + 2 > end:
            break
        topic_end = topic_at + (buffer[topic_size_at] if magic == v1 else short(buffer, topic_size_at)[0])
        properties_at = topic_end + 2
        if properties_at > end or properties_at + short(buffer, topic_end)[0] != end:
            break
        body = view[body_at:topic_size_at]
        if verify and crc32(body) & CRC_MASK != crc:
            break
        rows.append(row)
        bodies.append(body)
        topics.append(buffer[topic_at:topic_end])
        properties.append(buffer[properties_at:end])
        position = end
    run.end = position
    if rows:
        (
            run.sizes,
            _,
            run.body_crcs,
            run.queue_ids,
            run.flags,
            run.queue_offsets,
            run.physical_offsets,
            run.sys_flags,
            run.born_timestamps,
            run.born_hosts,
            run.store_timestamps,
            run.store_hosts,
            run.reconsume_times,
            run.prepared_offsets,
            _,
        ) = map(list, zip(*rows, strict=True))
    return run


def _head_of(sys_flag: int) -> struct.Struct:
    return HEADS[20 if sys_flag & BORN_V6 else 8, 20 if sys_flag & STORE_V6 else 8]
