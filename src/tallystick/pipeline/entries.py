"""Entries of one size, as most runs have them, checked by columns: nothing is done in Python for each but the CRC of
its payload, which stays where it is. ``codec.reads.open_entries`` opens any, and is the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tallystick.bookkeeper.ledger.arrow import rows_of
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import DigestType, EntryId, LedgerId
from tallystick.codec.checksum import crc32, crc32c
from tallystick.codec.reads import Buffer, EntryRun, EvenEntries, SpreadEntries, open_entries
from tallystick.pipeline.gather import Bytes, first_false, packed, view_of

_HEADER_BYTES = 32
FEWEST = 256  # for fewer it is not worth while
_LONG_BYTES = 8 * 1024  # of longer ones a copy is not
_CRCS: dict[DigestType, Callable[..., int]] = {DigestType.CRC32C: crc32c, DigestType.CRC32: crc32}


def open_run(entries: Sequence[Buffer], ledger: LedgerId, first: EntryId, digest: Digest) -> EntryRun:
    """Open entries as ``open_entries`` does; payloads are views of what holds them all."""
    even = _even(entries, digest)
    if even is None:
        return open_entries(entries, ledger, first, digest.compute_all, digest.size)
    count, step, payload_at = len(even), even.gap + even.size, even.gap + _HEADER_BYTES + digest.size
    rows: Bytes = np.frombuffer(even.data, np.uint8).reshape(count, step)
    headers = np.ascontiguousarray(rows[:, even.gap : even.gap + _HEADER_BYTES])
    stored = np.ascontiguousarray(rows[:, even.gap + _HEADER_BYTES : payload_at]).view(f">u{digest.size}")[:, 0]
    numbers = headers.view(">i8")
    crc, data, starts = _CRCS[digest.type], even.data, range(payload_at, len(even.data), step)
    size = step - payload_at
    header_crcs = _header_crcs(digest.type, headers).tolist()
    if size:
        crcs = [crc(data[at : at + size], so_far) for at, so_far in zip(starts, header_crcs, strict=True)]
    else:
        crcs = header_crcs
    good = (numbers[:, 0] == ledger) & (numbers[:, 1] == np.arange(first, first + count))
    count = first_false(good & (stored == np.array(crcs, np.uint64)))
    payloads = EvenEntries(data[: count * step], size, payload_at)
    return EntryRun(ledger, first, packed(numbers[:count, 2]), packed(numbers[:count, 3]), payloads)


def _even(entries: Sequence[Buffer], digest: Digest) -> EvenEntries | None:
    """Returns entries that all have one size, in one buffer; None if they have not, or it is not worth while."""
    if digest.type not in _CRCS or len(entries) < FEWEST:
        return None
    if isinstance(entries, EvenEntries):
        even = entries
    elif isinstance(entries, SpreadEntries):
        even = _together(entries)
    else:
        size = len(entries[0])
        if size > _LONG_BYTES or any(len(entry) != size for entry in entries):
            return None
        even = EvenEntries(memoryview(b"".join(entries)), size, 0)
    return even if even.size >= _HEADER_BYTES + digest.size else None


def _together(entries: SpreadEntries) -> EvenEntries:
    """Returns the entries one after another, in the order of their ids."""
    together: Bytes = np.empty((len(entries), entries.size), np.uint8)
    for ids, part in entries.parts:
        together[np.array(ids) - entries.first] = rows_of(part)
    return EvenEntries(view_of(together.reshape(-1)), entries.size, 0)


def _header_crcs(kind: DigestType, headers: Bytes) -> npt.NDArray[np.uint32]:
    """Returns the CRCs of headers: the sum, as CRCs are added, of those of their bytes, each at its place."""
    tables, zeros = _tables(kind)
    constant = (headers == headers[0]).all(axis=0)
    same = np.bitwise_xor.reduce(tables[constant, headers[0, constant]], initial=zeros)
    crcs = np.full(len(headers), same, np.uint32)
    for column in np.flatnonzero(~constant):
        crcs ^= tables[column][headers[:, column]]
    return crcs


@lru_cache(maxsize=2)
def _tables(kind: DigestType) -> tuple[npt.NDArray[np.uint32], np.uint32]:
    """Returns by place what each byte adds to the CRC of a header, and the CRC of zeros."""
    crc = _CRCS[kind]
    zeros = crc(bytes(_HEADER_BYTES))
    tables = [
        [crc(bytes(place) + bytes((byte,)) + bytes(_HEADER_BYTES - 1 - place)) ^ zeros for byte in range(256)]
        for place in range(_HEADER_BYTES)
    ]
    return np.array(tables, np.uint32), np.uint32(zeros)
