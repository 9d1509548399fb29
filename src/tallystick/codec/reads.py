"""Runs of READs, and entries as readers get them: many checked in one call, their fields by columns.

An entry is a 32-byte header (ledger, entry, LAC, length), its digest, its payload (see ``bookkeeper.wire.digest``, the
reference for one entry; ``bookkeeper.wire.v2`` is that for frames). Payloads are views of the answer's buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from itertools import pairwise

Buffer = bytes | bytearray | memoryview

PLAIN_READ = 0x02020000  # version 2, READ, no flags
READ_PREFIX = 28  # length, header, code, ledger, entry: what stands before the entry's bytes in an answer

_HEADER = struct.Struct(">qqqq")
_READ = struct.Struct(">IIqq")
_ANSWER = struct.Struct(">IIiqq")


def encode_reads(ledger: int, entries: Sequence[int]) -> bytes:
    """One READ frame for each entry."""
    pack = _READ.pack
    return b"".join([pack(20, PLAIN_READ, ledger, entry) for entry in entries])


def scan_reads(buffer: Buffer, start: int, end: int, ledger: int) -> tuple[list[int], list[memoryview], int]:
    """The good READ answers of one ledger from ``start``: entry ids, the entries' bytes, and where it stopped.

    Stops at the first frame that is anything else or not whole. The bytes are copied once, all together.
    """
    entries: list[int] = []
    bounds: list[int] = [start]
    unpack, position, last = _ANSWER.unpack_from, start, end - READ_PREFIX
    while position <= last:
        size, word, code, found, entry = unpack(buffer, position)
        stop = position + 4 + size
        if word != PLAIN_READ or code or found != ledger or size < READ_PREFIX - 4 or stop > end:
            break
        entries.append(entry)
        bounds.append(stop)
        position = stop
    copied = memoryview(bytes(memoryview(buffer)[start:position]))
    parts = [copied[first + READ_PREFIX - start : stop - start] for first, stop in pairwise(bounds)]
    return entries, parts, position


@dataclass(slots=True)
class EntryRun:
    """Checked entries of one ledger with the ids ``first``, ``first`` + 1, …"""

    ledger: int
    first: int
    lacs: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    payloads: list[memoryview] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1


def open_entries(
    entries: Sequence[Buffer], ledger: int, first: int, digest: Callable[[Buffer, Buffer], bytes], digest_bytes: int
) -> EntryRun:
    """The good entries from the front, up to the first that is too short, has another digest, or is not the next one.

    ``digest`` maps (header, payload) to ``digest_bytes`` bytes.
    """
    run = EntryRun(ledger, first)
    lacs, lengths, payloads, unpack = run.lacs.append, run.lengths.append, run.payloads.append, _HEADER.unpack_from
    start = 32 + digest_bytes
    for expected, entry in enumerate(entries, first):
        view = memoryview(entry)
        if len(view) < start:
            break
        found_ledger, found_entry, lac, length = unpack(view)
        payload = view[start:]
        if found_ledger != ledger or found_entry != expected:
            break
        if not compare_digest(view[32:start], digest(view[:32], payload)):
            break
        lacs(lac)
        lengths(length)
        payloads(payload)
    return run
