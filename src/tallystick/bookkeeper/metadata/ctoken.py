"""Creation tokens: a create whose response was lost can tell its own ledger from another's.

A new ledger is stored with a random number. A client that tries again and finds the ledger there looks at the number:
its own means that the first try succeeded. Every rewrite stores 0, as the original does.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import MAX_ID, LedgerId, LedgerMetadata
from tallystick.errors import MetadataError
from tallystick.runtime.arguments import whole


def stamped(metadata: LedgerMetadata) -> LedgerMetadata:
    """Returns the metadata to create, with a token, unless the caller chose one (to try again with)."""
    return metadata if metadata.ctoken else replace(metadata, ctoken=secrets.randbelow(MAX_ID) + 1)


def rewritten(metadata: LedgerMetadata) -> bytes:
    """Returns the bytes that replace a ledger's metadata."""
    return wire.encode(metadata, ctoken=0)


def is_own(data: bytes, mine: LedgerMetadata) -> bool:
    """Returns whether the ledger that exists is the one that we created."""
    try:
        return wire.decode(data).ctoken == mine.ctoken
    except MetadataError:
        return False


def check_ledger_id(ledger: LedgerId) -> LedgerId:
    """Returns the id. Raises UsageError if it cannot be a ledger's."""
    return whole(ledger, "a ledger id", most=MAX_ID)
