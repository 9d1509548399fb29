"""The explicit LACs of stored ledgers: how far a writer has confirmed its ledger, where no entry says so.

A body is what the writer sent, with its digest (``wire/digest.py``); readers get it as it came::

    ledger 8 | LAC 8 | digest d        big-endian

The body with the highest LAC is kept: what was confirmed stays confirmed. (The original keeps the one that came last.)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId

_IDS = struct.Struct(">qq")
_MOST_DIGEST_BYTES = 20


def fits(body: bytes, ledger: LedgerId, lac: EntryId) -> bool:
    """Return whether a body is of this ledger and LAC, and as long as one may be."""
    return body[: _IDS.size] == _IDS.pack(ledger, lac) and is_body(body)


def is_body(body: bytes) -> bool:
    """Return whether a body is as long as one may be."""
    return _IDS.size <= len(body) <= _IDS.size + _MOST_DIGEST_BYTES


def ledger_of(body: bytes) -> LedgerId:
    """Return the ledger of a body."""
    ledger: LedgerId = _IDS.unpack_from(body)[0]
    return ledger


class ExplicitLacs:
    """The bodies by ledger; the ledgers are stored here."""

    def __init__(self, bodies: Mapping[LedgerId, bytes]) -> None:
        self._bodies = dict(bodies)

    def note(self, ledger: LedgerId, body: bytes) -> bool:
        """Keep a body if its LAC is higher than that of the ledger's. Returns whether it is."""
        if ledger in self._bodies and _lac_of(body) <= self.lac(ledger):
            return False
        self._bodies[ledger] = body
        return True

    def body(self, ledger: LedgerId) -> bytes | None:
        """Return a ledger's body, None if its writer sent none."""
        return self._bodies.get(ledger)

    def lac(self, ledger: LedgerId) -> EntryId:
        """Return a ledger's explicit LAC, NO_ENTRY if it has none."""
        body = self._bodies.get(ledger)
        return NO_ENTRY if body is None else _lac_of(body)

    def forget(self, ledger: LedgerId) -> None:
        """The ledger is deleted."""
        self._bodies.pop(ledger, None)

    def copy(self) -> dict[LedgerId, bytes]:
        """Copy the bodies for the state file."""
        return self._bodies.copy()


def _lac_of(body: bytes) -> EntryId:
    lac: EntryId = _IDS.unpack_from(body)[1]
    return lac
