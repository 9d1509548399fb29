"""Payloads that any side can compute again, and what a read delivered in one number; the twin of java/Payloads.java."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable


def payload(seed: int, entry: int, size: int) -> bytes:
    """The SHA-256 of "seed:entry", repeated up to ``size`` bytes."""
    block = hashlib.sha256(f"{seed}:{entry}".encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def content(entries: Iterable[tuple[int, bytes]]) -> dict[str, str]:
    """Count, and the SHA-256 over each entry's id (8 bytes) and payload."""
    digest, count = hashlib.sha256(), 0
    for entry, data in entries:
        digest.update(struct.pack(">q", entry))
        digest.update(data)
        count += 1
    return {"count": str(count), "sha256": digest.hexdigest()}


def expected(seed: int, first: int, last: int, size: int) -> dict[str, str]:
    """What reading those entries must deliver."""
    return content((entry, payload(seed, entry, size)) for entry in range(first, last + 1))
