"""Entries as readers get them: many checked in one call, their fields by columns.

An entry is a 32-byte header (ledger, entry, LAC, length), its digest, its payload (see ``bookkeeper.wire.digest``, the
reference for one entry). Nothing is copied: payloads are views of the answer's buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qqqq")


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
