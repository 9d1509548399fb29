"""Entry layout and digests (facts of the original's ``DigestManager`` classes).

::

    entry = ledger 8 | entry 8 | LAC 8 | length 8 | digest d | payload        all integers big-endian
    digest over the first 32 bytes, then the payload; d = CRC32 8 (upper half zero), CRC32C 4, HMAC-SHA1 20, DUMMY 0

    explicit LAC = ledger 8 | LAC 8 | digest d        the body of WRITE_LAC: the digest is over the first 16 bytes

``length`` is the sum of all payload bytes of the ledger including this entry's. ``LAC`` is the writer's last add
confirmed when it sent the entry (Q6).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

from tallystick.bookkeeper.wire.values import DigestType, EntryId, LedgerId
from tallystick.codec.checksum import crc32
from tallystick.codec.digests import crc32c_digest, crc32c_digests
from tallystick.errors import DigestMismatch

Buffer = bytes | bytearray | memoryview

ENTRY_HEADER = struct.Struct(">qqqq")
_LAC = struct.Struct(">qq")
MASTER_KEY_BYTES = 20

_CRC32 = struct.Struct(">Q")


def master_key(password: bytes) -> bytes:
    """Return the 20 bytes that a bookie compares before it lets a client write or fence."""
    return hashlib.sha1(b"ledger" + password).digest()


@dataclass(frozen=True)
class EntryHeader:
    """What stands in front of an entry's payload, but for the digest."""

    ledger: LedgerId
    entry: EntryId
    lac: EntryId
    length: int


@dataclass(frozen=True)
class Digest:
    """One ledger's digest: its size in bytes, and the function (header, payload) to digest bytes.

    ``compute_all`` maps headers and payloads to all their digests, joined.
    """

    type: DigestType
    size: int
    compute: Callable[[Buffer, Buffer], bytes]
    compute_all: Callable[[Sequence[Buffer], Sequence[Buffer]], bytes]

    @classmethod
    def of(cls, kind: DigestType, password: bytes = b"") -> Digest:
        """Return a digest: one object for all ledgers, unless it needs the password."""
        if kind is not DigestType.HMAC:
            return _WITHOUT_PASSWORD[kind]
        keyed = hmac.new(hashlib.sha1(b"mac" + password).digest(), digestmod="sha1")
        return cls(
            kind,
            20,
            lambda header, payload: _mac(keyed, header, payload),
            lambda headers, payloads: b"".join(map(_mac, repeat(keyed), headers, payloads)),
        )

    def encode(self, header: EntryHeader, payload: Buffer) -> bytes:
        """Return the entry as it is sent, stored and read."""
        packed = ENTRY_HEADER.pack(header.ledger, header.entry, header.lac, header.length)
        return b"".join((packed, self.compute(packed, payload), payload))

    def decode(self, ledger: LedgerId, entry: EntryId | None, data: Buffer) -> tuple[EntryHeader, memoryview]:
        """Check and open an entry; ``entry`` None accepts any id (the response to "your last one").

        Raises DigestMismatch: too short, wrong digest, or another entry than the one asked for.
        """
        view = memoryview(data)
        start = 32 + self.size
        if len(view) < start:
            raise DigestMismatch("an entry is shorter than its header", ledger=ledger, entry=entry, bytes=len(view))
        payload = view[start:]
        if not hmac.compare_digest(bytes(view[32:start]), self.compute(view[:32], payload)):
            raise DigestMismatch("an entry does not match its digest", ledger=ledger, entry=entry)
        header = EntryHeader(*ENTRY_HEADER.unpack(view[:32]))
        if header.ledger != ledger or (entry is not None and header.entry != entry):
            raise DigestMismatch(
                "a bookie answered with another entry",
                ledger=ledger,
                entry=entry,
                got=f"{header.ledger}:{header.entry}",
            )
        return header, payload

    def encode_lac(self, ledger: LedgerId, lac: EntryId) -> bytes:
        """Return an explicit LAC as its writer sends it."""
        packed = _LAC.pack(ledger, lac)
        return packed + self.compute(packed, b"")

    def decode_lac(self, ledger: LedgerId, data: Buffer) -> EntryId:
        """Check and open an explicit LAC. Raises DigestMismatch: too short, wrong digest, or of another ledger."""
        view = memoryview(data)
        packed, end = view[: _LAC.size], _LAC.size + self.size
        if len(view) < end or not hmac.compare_digest(bytes(view[_LAC.size : end]), self.compute(packed, b"")):
            raise DigestMismatch("an explicit LAC does not match its digest", ledger=ledger, bytes=len(view))
        of, lac = _LAC.unpack(packed)
        if of != ledger:
            raise DigestMismatch("a bookie answered with another ledger's LAC", ledger=ledger, got=of)
        return int(lac)


def _mac(keyed: hmac.HMAC, header: Buffer, payload: Buffer) -> bytes:
    mac = keyed.copy()
    mac.update(header)
    mac.update(payload)
    return mac.digest()


_WITHOUT_PASSWORD = {
    DigestType.CRC32C: Digest(DigestType.CRC32C, 4, crc32c_digest, crc32c_digests),
    DigestType.CRC32: Digest(
        DigestType.CRC32,
        8,
        lambda header, payload: _CRC32.pack(crc32(payload, crc32(header))),
        lambda headers, payloads: struct.pack(f">{len(headers)}Q", *map(crc32, payloads, map(crc32, headers))),
    ),
    DigestType.DUMMY: Digest(DigestType.DUMMY, 0, lambda header, payload: b"", lambda headers, payloads: b""),
}
