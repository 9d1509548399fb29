"""What the one who opens a ledger must know of it: its password, and the digest type that old metadata leave out."""

from __future__ import annotations

from dataclasses import replace

from tallystick.bookkeeper.wire.values import DigestType, LedgerId, LedgerMetadata
from tallystick.errors import Unauthorized


def with_password(
    ledger: LedgerId, metadata: LedgerMetadata, password: bytes, digest: DigestType = DigestType.CRC32
) -> LedgerMetadata:
    """Return the metadata with the password and digest type that its entries need.

    Format 1 stores neither: then the caller's are the ones. Raises Unauthorized for another password than the stored
    one.
    """
    if not metadata.has_password:
        return replace(metadata, password=password, digest_type=digest)
    if metadata.password != password:
        if not metadata.password:
            raise Unauthorized("this ledger has no password, and one is given", ledger=ledger)
        mistake = "the password given is not its own" if password else "none is given"
        raise Unauthorized(f"this ledger needs its password, and {mistake}", ledger=ledger)
    return metadata
