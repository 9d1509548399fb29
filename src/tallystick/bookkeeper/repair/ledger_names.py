"""Which bookies the ledgers of a cluster name: a synced listing of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from tallystick.bookkeeper.metadata.cluster import DECODED_A_TURN
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataError, MetadataUnavailable

AT_ONCE = 500  # ledgers that are read together


class LedgerNames:
    """Reads which ledgers name which bookies. ``bookies`` are all that were named in the last listing."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._driver = driver
        self.bookies: tuple[BookieId, ...] = ()
        self.unreadable = 0  # ledgers of the last listing have metadata that nobody can read

    async def read(self, bookies: Collection[BookieId] = ()) -> list[LedgerId]:
        """List all ledgers. Returns those that name one of the bookies.

        Raises MetadataError rather than leaving any out, MetadataUnavailable if the connection broke meanwhile.
        """
        began = await self._driver.sync()
        matches, named, ids = list[LedgerId](), dict[BookieId, None](), list[LedgerId]()
        unreadable = list[LedgerId]()
        async for ledger in self._driver.ledgers():
            ids.append(ledger)
            if len(ids) == AT_ONCE:
                await self._read(ids, bookies, matches, named, unreadable)
                ids.clear()
        await self._read(ids, bookies, matches, named, unreadable)
        if await self._driver.sync() != began:
            raise MetadataUnavailable("the connection broke while ledgers were listed: the list may be old")
        self.bookies, self.unreadable = tuple(named), len(unreadable)
        return matches

    async def _read(
        self,
        ids: Sequence[LedgerId],
        bookies: Collection[BookieId],
        matches: list[LedgerId],
        named: dict[BookieId, None],
        unreadable: list[LedgerId],
    ) -> None:
        nodes = await self._driver.read_ledgers(ids) if ids else {}
        for number, (ledger, node) in enumerate(nodes.items(), start=1):
            if number % DECODED_A_TURN == 0:
                await asyncio.sleep(0)
            try:
                metadata = wire.decode(node.data, where=f"ledger {ledger}", ctime_ms=node.ctime_ms)
            except MetadataError:
                unreadable.append(ledger)
                continue
            named.update(dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.bookies))
            if shortfall.names(metadata, bookies):
                matches.append(ledger)

    async def missing(
        self, ledgers: Sequence[LedgerId], bookies: Collection[BookieId]
    ) -> dict[LedgerId, list[BookieId]]:
        """Return which of the bookies each of these ledgers names now, where it names any, and can be read."""
        missing = dict[LedgerId, list[BookieId]]()
        nodes = await self._driver.read_ledgers(ledgers)
        for number, (ledger, node) in enumerate(nodes.items(), start=1):
            if number % DECODED_A_TURN == 0:
                await asyncio.sleep(0)
            try:
                metadata = wire.decode(node.data, where=f"ledger {ledger}", ctime_ms=node.ctime_ms)
            except MetadataError:
                continue
            if named := shortfall.names(metadata, bookies):
                missing[ledger] = named
        return missing
