"""The deletion of a ledger at its bookies: its writer is refused, and its id is not used again too early.

Before the metadata goes the bookies are fenced: who still writes is refused at once, not when they collect. Until they
have collected, a new ledger of the same id could be recovered with entries of the old one: our bookies, once they know
a ledger's creation, tell the two apart (``bookie/look.py``); the original's do not. Bookies that cannot be reached do
not hinder a deletion. Whether a new ledger may get an id that they may hold is for its creator to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, LedgerId, LedgerMetadata
from tallystick.errors import TallyError

RESPONSE_TIMEOUT_S = 2.0  # no bookie is waited for longer

_REFUSES = (*NO_CODES, Code.OK)  # it is fenced, or was deleted there and refuses adds too


async def fence_all(context: LedgerContext, ledger: LedgerId, metadata: LedgerMetadata) -> list[BookieId]:
    """Fence every bookie that may hold entries, the newest ensemble first. Returns those that did not confirm it."""
    newest_first = [bookie for fragment in reversed(metadata.fragments) for bookie in fragment.bookies]
    codes = await _read_last_entries(context, ledger, newest_first, master_key(metadata.password))
    return [bookie for bookie, code in codes.items() if code not in _REFUSES]


@dataclass(frozen=True)
class Holders:
    """The bookies that know a ledger of an id, with entries or a fence; and those that gave no response."""

    bookies: tuple[BookieId, ...]
    silent_bookies: tuple[BookieId, ...]


async def holders(context: LedgerContext, ledger: LedgerId, bookies: Iterable[BookieId]) -> Holders:
    """Ask these bookies whether they know a ledger of this id."""
    codes = await _read_last_entries(context, ledger, bookies, None)
    return Holders(
        tuple(bookie for bookie, code in codes.items() if code not in (None, Code.NO_LEDGER)),
        tuple(bookie for bookie, code in codes.items() if code is None),
    )


async def _read_last_entries(
    context: LedgerContext, ledger: LedgerId, bookies: Iterable[BookieId], key: bytes | None
) -> dict[BookieId, Code | None]:
    """Read the last entry from each bookie, fencing it with a key. Returns codes, None without a response in time."""

    async def code(bookie: BookieId) -> Code | None:
        with suppress(TallyError):
            return (await context.bookies.read(bookie, ledger, NO_ENTRY, master_key=key, proven=True)).code
        return None

    reads = {bookie: asyncio.ensure_future(code(bookie)) for bookie in dict.fromkeys(bookies)}
    if reads:
        _, late = await asyncio.wait(reads.values(), timeout=RESPONSE_TIMEOUT_S)
        for each in late:
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    return {bookie: None if each.cancelled() else each.result() for bookie, each in reads.items()}
