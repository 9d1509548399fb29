"""Records of one topic that differ in nothing that queues and index are made of, but in their clients' ids.

Most records are such: messages of producers that give them neither tags nor keys. ``store.reput`` dispatches these
without an object for each property or number of a record, and all others by ``records.scan_records``.
"""

from __future__ import annotations

import struct
from itertools import takewhile

from tallystick.codec.implementation import with_twin
from tallystick.codec.records import RecordRun, hash_texts, scan_records

TRANSACTION = 12  # of the system flag: records without any of it have units
_UNIT = struct.Struct(">qiq")

Stretch = tuple[int, int, int]  # queue, the first queue offset, how many records
# Stretches; units, packed; and of each record the hash of its id, its physical offset, and its store time; and the end
# of the last one in the buffer.
AlikeRecords = tuple[list[Stretch], bytes, list[int], list[int], list[int], int]


@with_twin
def scan_alike(
    buffer: bytes, base: int, topic: bytes, before: bytes, after: bytes, seed: int, tags_code: int, most: int
) -> AlikeRecords | None:
    """The first records of a buffer, ``most`` of them at most, while they have this ``topic``, properties that are an
    id between ``before`` and ``after``, and no part in a transaction. None if the first one has not.

    ``base`` is the physical offset of the buffer, ``seed`` what the hash of an id begins with; ids are ASCII. A stretch
    has records of one queue without a gap. Raises struct.error for a tags code that is too large.
    """
    run = scan_records(buffer, base)
    ids = [properties[len(before) : len(properties) - len(after)] for properties in run.properties]
    numbers = range(min(len(run), most))
    count = len(list(takewhile(lambda at: _is_alike(run, at, ids[at], topic, before, after), numbers)))
    if not count:
        return None
    physicals = [base + position for position in run.positions[:count]]
    units = b"".join(_UNIT.pack(physicals[at], run.sizes[at], tags_code) for at in range(count))
    stretches: list[Stretch] = []
    for queue_id, queue_offset in zip(run.queue_ids[:count], run.queue_offsets, strict=False):
        last_id, first, size = stretches[-1] if stretches else (queue_id, queue_offset, 0)
        if stretches and (queue_id, queue_offset) == (last_id, first + size):
            stretches[-1] = queue_id, first, size + 1
        else:
            stretches.append((queue_id, queue_offset, 1))
    hashes = hash_texts(ids[:count], [seed] * count)
    end = run.positions[count - 1] + run.sizes[count - 1]
    return stretches, units, hashes, physicals, run.store_timestamps[:count], end


def _is_alike(run: RecordRun, at: int, message_id: bytes, topic: bytes, before: bytes, after: bytes) -> bool:
    is_usual = message_id.isascii() and b"\x02" not in message_id and not run.sys_flags[at] & TRANSACTION
    has_id = bool(message_id) and run.properties[at] == before + message_id + after
    return run.topics[at] == topic and is_usual and has_id
