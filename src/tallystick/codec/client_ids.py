"""The hashes of messages' client ids (UNIQ_KEY), from the properties of messages that differ in nothing else.

Most runs are such: one producer's messages without keys of its users. Properties are as records have them,
``name \\x01 value \\x02`` one after another.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tallystick.codec.implementation import with_twin
from tallystick.codec.records import hash_alike

UNIQUE = b"\x02UNIQ_KEY\x01"  # what an id stands behind, if each name is behind an end


@with_twin
def hash_client_ids(properties: Sequence[bytes], seed: int) -> tuple[bytes, bytes, list[int]] | None:
    """What all properties have before the id, behind one more ``\\x02``, and after it; and ``hash_utf8`` of each id.

    Returns None if there is no id, or if the properties differ in anything else. One message is there at least.
    """
    count, first = len(properties), properties[0]
    head, mark, rest = (b"\x02" + first).rpartition(UNIQUE)
    key, _, tail = rest.partition(b"\x02")
    if not key or set(map(len, properties)) != {len(first)}:
        return None
    # From the first one's id on: each id, and what stands between it and the next.
    texts, key_at = b"".join([*properties, first]), len(head) + len(mark) - 1
    between = texts[key_at + len(key) : key_at + len(first)]
    end = key_at + count * len(first)
    rows = struct.iter_unpack(f"{len(key)}s{len(between)}s", memoryview(texts)[key_at:end])
    ids, others = zip(*rows, strict=True)
    if others.count(between) != count or b"\x02" in b"".join(ids):
        return None
    return head, tail, hash_alike(ids, seed)
