"""The check whether a caller's password is that of a ledger."""

from __future__ import annotations

from dataclasses import replace

from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.errors import Unauthorized


def with_password(ledger: LedgerId, metadata: LedgerMetadata, password: bytes) -> LedgerMetadata:
    """Return the metadata with the password that its digests need.

    Format 1 stores no password: then the caller's is the one. Raises Unauthorized for another than the stored one.
    """
    if metadata.has_password and metadata.password != password:
        if not metadata.password:
            raise Unauthorized("this ledger has no password, and one is given", ledger=ledger)
        mistake = "the password given is not its own" if password else "none is given"
        raise Unauthorized(f"this ledger needs its password, and {mistake}", ledger=ledger)
    return metadata if metadata.password == password else replace(metadata, password=password)
