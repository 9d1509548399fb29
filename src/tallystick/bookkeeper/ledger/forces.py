"""The shell of ``ForceCore``: it asks all bookies of an ensemble to make a ledger's entries durable.

All must do it (facts of the original's ``ForceLedgerOp``). The first that does not fails the force, and nothing else: a
later one may succeed.

That a bookie has an entry does not prove that it kept it: a recovery may have written it there that closes the ledger
before it, because another one was faster. So the metadata must be OPEN after the last list of entries came. They are
read at every force, beside it: whoever forces a ledger that another client ended is told so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from tallystick.bookkeeper.ledger.changes import require_open
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.force_core import ForceCore
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import MAX_ID, NO_ENTRY, BookieId, Ensemble, EntryId, LedgerId, Slot
from tallystick.errors import BookieUnavailable, LedgerError, NoSuchLedger

_STEPS_A_TURN = 8192  # of a comparison, before the loop goes on


async def force_all(bookies: BookieClient, ledger: LedgerId, ensemble: Ensemble) -> None:
    """Force a ledger whose entries were durable when they were acknowledged: whoever ended it since, they stay so.

    Raises Unavailable or one of its kinds.
    """
    await _all(_force(bookies, bookie, ledger) for bookie in ensemble)


class Forces:
    """The forces of a ledger with deferred sync, one after another. ``length``: of the ledger up to ``lac``."""

    def __init__(
        self,
        context: LedgerContext,
        ledger: LedgerId,
        striping: Striping,
        ensemble: Ensemble,
        lac: EntryId,
        length: int,
    ) -> None:
        self._driver, self._bookies = context.driver, context.bookies
        self._ledger, self._ensemble = ledger, ensemble
        self._striping, self._core = striping, ForceCore(striping)
        self._acked, self._acked_length = lac, length
        self._one_at_a_time = asyncio.Lock()

    def acked(self, slot: Slot, connection: int, first: EntryId, last: EntryId) -> None:
        """A bookie acknowledged these."""
        self._core.acked(slot, connection, first, last)

    def has_quorum(self, last: EntryId, length: int) -> None:
        """All entries up to this one are acknowledged by their quorum; the ledger has ``length`` up to it."""
        self._acked, self._acked_length = last, length

    async def force(self) -> tuple[EntryId, int]:
        """Make durable what has its quorum now. Returns the last entry of that, and the ledger's length up to it.

        Raises Unavailable or one of its kinds, and MetadataError: a later call may succeed. Raises LedgerError when a
        bookie has lost what it had acknowledged, LedgerFenced when another client ended the ledger: none will.
        """
        last, length = self._acked, self._acked_length
        if last > NO_ENTRY:
            async with self._one_at_a_time:
                slots = range(len(self._ensemble))
                await _all(self._prove(slot) for slot in slots)
                await _all((require_open(self._driver, self._ledger), *(self._force_slot(slot) for slot in slots)))
        return last, length

    async def end(self) -> None:
        """Wait for the force that is under way."""
        async with self._one_at_a_time:
            pass

    async def _prove(self, slot: Slot) -> None:
        """Let the slot's bookie show that it has what it acknowledged over older connections."""
        bookie = self._ensemble[slot]
        connection = self._bookies.v3_connection(bookie, self._ledger)
        if runs := self._core.unproven(slot, connection):
            entries = (entry for run in runs for entry in range(run.first, run.last + 1))
            await self._compare(bookie, (entry for entry in entries if self._striping.stores(slot, entry)))
            self._require(bookie, connection == self._bookies.v3_connection(bookie, self._ledger))
            self._core.proven(slot, connection)

    def _require(self, bookie: BookieId, is_connected: bool) -> None:
        if not is_connected:
            raise BookieUnavailable("its connection ended in a force", bookie=bookie, ledger=self._ledger)

    async def _force_slot(self, slot: Slot) -> None:
        bookie, core = self._ensemble[slot], self._core
        self._require(bookie, not core.unproven(slot, self._bookies.v3_connection(bookie, self._ledger)))
        runs = core.begin(slot)  # and the request leaves over this connection: nothing is awaited in between
        try:
            await _force(self._bookies, bookie, self._ledger)
        except BaseException:
            core.failed(slot, runs)
            raise

    async def _compare(self, bookie: BookieId, acked: Iterable[EntryId]) -> None:
        """Compare what a bookie acknowledged over older connections with what it has."""
        stored: Iterator[tuple[EntryId, EntryId]] = iter(())
        with contextlib.suppress(NoSuchLedger):
            stored = (await self._bookies.entry_list(bookie, self._ledger)).runs()
        if (lost := await _first_missing(acked, stored)) is not None:
            text = "a bookie lost entries that it had acknowledged before they were forced: its connection ended then"
            raise LedgerError(text, ledger=self._ledger, entry=lost, bookie=bookie)


async def _force(bookies: BookieClient, bookie: BookieId, ledger: LedgerId) -> None:
    response = await bookies.force(bookie, ledger)
    if response.code != Code.OK:
        fields = {"bookie": bookie, "ledger": ledger, "answer": response.code.name}
        raise BookieUnavailable("a bookie does not make entries durable now", **fields)


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all of them. Raises the first error."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for error in results:
        if error is not None:
            raise error


async def _first_missing(entries: Iterable[EntryId], runs: Iterator[tuple[EntryId, EntryId]]) -> EntryId | None:
    """Return the first of the ascending ``entries`` that is in none of the ascending runs, None if all are in one."""
    first = last = NO_ENTRY - 1
    steps = 0
    for entry in entries:
        while last < entry:
            steps += 1
            if steps % _STEPS_A_TURN == 0:
                await asyncio.sleep(0)
            first, last = next(runs, (MAX_ID + 1, MAX_ID + 1))
        if entry < first:
            return entry
        steps += 1
        if steps % _STEPS_A_TURN == 0:
            await asyncio.sleep(0)
    return None
