"""How far an open ledger may be read: the LAC as its bookies know it (Q6), asked without fencing.

Every bookie of the newest ensemble is asked for its highest entry; that entry's header has the writer's LAC. By
version 3 it also tells the explicit LAC, which a writer sends when nothing follows an entry. The response is trusted
when no write set has Qa bookies left that did not answer: any confirmed entry is then known to one that did. "No such
entry" and "no such ledger" are responses that count; one with a bad digest leaves it open (``ReadLastConfirmedOp``
of the original counts it as a response). A bookie that does not speak version 3 is asked by version 2.
"""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.owners import BookieResponse, Waiter
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata, Slot
from tallystick.errors import BookieUnavailable, TallyError, Unauthorized, Unavailable


async def read_lac(client: BookieClient, ledger: LedgerId, metadata: LedgerMetadata) -> EntryId:
    """Return the highest LAC that enough bookies of the newest ensemble know; -1 when they have no entries.

    Raises Unavailable or one of its kinds (a later call may succeed), Unauthorized.
    """
    striping, digest = Striping.of(metadata), Digest.of(metadata.digest_type, metadata.password)
    ensemble = metadata.ensemble
    slots_of_v3 = {slot for slot, bookie in enumerate(ensemble) if _speaks_v3(client, bookie, ledger)}
    waiters = {_ask(client, bookie, ledger): slot for slot, bookie in enumerate(ensemble)}
    responding_slots: set[Slot] = set()
    lac = NO_ENTRY
    failure: TallyError | None = None
    pending = set(waiters)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for waiter in done:
                slot = waiters[waiter]
                try:
                    lac = max(lac, _lac_of(waiter.result(), digest, ledger))
                    responding_slots.add(slot)
                except Unauthorized:
                    raise
                except TallyError as error:
                    failure = error
                    is_told = isinstance(error, BookieUnavailable) and client.lacks_v3(ensemble[slot], ledger)
                    if is_told and slot in slots_of_v3:
                        slots_of_v3.discard(slot)  # by version 2 once: that may fail at once, too
                        again = client.ask_read(ensemble[slot], ledger, NO_ENTRY)
                        waiters[again] = slot
                        pending.add(again)
            if striping.covered(responding_slots):
                return lac
    finally:
        for waiter in pending:
            waiter.cancel()
    if isinstance(failure, Unavailable):
        raise failure
    raise Unavailable("too few bookies know how far this ledger can be read", ledger=ledger) from failure


def _ask(client: BookieClient, bookie: BookieId, ledger: LedgerId) -> Waiter:
    if _speaks_v3(client, bookie, ledger):
        return client.read_lac(bookie, ledger)
    return client.ask_read(bookie, ledger, NO_ENTRY)


def _speaks_v3(client: BookieClient, bookie: BookieId, ledger: LedgerId) -> bool:
    return client.settings.wire != "v2" and not client.lacks_v3(bookie, ledger)


def _lac_of(response: BookieResponse, digest: Digest, ledger: LedgerId) -> EntryId:
    """Return the LAC in a response, -1 for a certain "nothing here"; raises where the response leaves it open."""
    if response.code in NO_CODES:
        return NO_ENTRY
    if response.code == Code.UNAUTHORIZED:
        raise Unauthorized("a bookie refuses to be read", ledger=ledger)
    if response.code != Code.OK:
        raise Unavailable("a bookie cannot read its last entry now", ledger=ledger, answer=response.code.name)
    explicit_lac, last_entry = response.entries if len(response.entries) > 1 else (b"", response.entry)
    lacs = [NO_ENTRY]
    if explicit_lac:
        lacs.append(digest.decode_lac(ledger, explicit_lac))
    if last_entry:
        lacs.append(digest.decode(ledger, None, last_entry)[0].lac)
    return max(lacs)
