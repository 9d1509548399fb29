"""Ledgers of a folder that failed are marked for repair in the tree that is shared with the original's AutoRecovery.

The bookie fetches what it lacks by itself (``Fill``). Where it cannot, because it has no room, or stops, a replicator
that finds the mark makes copies elsewhere. It is done over restarts until each is marked, or has left limbo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataError, MetadataRefused, MetadataUnavailable
from tallystick.runtime.clock import Clock

RETRY_S = 5.0


class LimboMarks:
    """Mark ledgers, one after another. ``limbo`` are those in limbo, at any time."""

    def __init__(self, driver: MetadataDriver, bookie: BookieId, limbo: Container[LedgerId], clock: Clock) -> None:
        self._tree, self._bookie, self._limbo, self._clock = Underreplication(driver), bookie, limbo, clock

    async def mark(self, ledgers: Sequence[LedgerId]) -> None:
        """Mark these ledgers. While repair is switched off, or the metadata is out of reach, it waits."""
        for ledger in ledgers:
            while ledger in self._limbo:
                try:
                    if await self._tree.is_enabled():
                        await self._tree.prepare()
                        await self._tree.mark(ledger, (self._bookie,), self._clock.wall_ms())
                        break
                except (MetadataUnavailable, MetadataRefused):
                    pass  # it is tried again, and the listing says that the metadata is not reached
                except MetadataError:  # the mark that it has cannot be read: it is marked
                    break
                await asyncio.sleep(RETRY_S)
