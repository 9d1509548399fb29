"""A bookie gives up its copies of ledgers that others have: only when it was seen that they have them.

Each ledger is locked, as a replicator locks it, before its metadata is read again. Every entry must be on all bookies
that are named: by their lists, or by reads where they give none, with the digests of a few. Each of them is registered,
with no ledger in limbo, and nothing is marked or found of the ledger. What nobody says is unknown: the copies stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from tallystick.bookkeeper.bookie.surplus import SurplusCopies
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.findings import FindingTree
from tallystick.bookkeeper.metadata.restored import RestoredTree
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.copy_check import CopyCheck
from tallystick.bookkeeper.repair.ledger_repair import may_lack
from tallystick.bookkeeper.repair.replicas import Replicas
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerMetadata
from tallystick.errors import MetadataError, TallyError

READS = RepairSettings(batch_entries=64, batch_bytes=1024 * 1024)
CHECKED_AT_ONCE = 4  # ledgers


async def shed(own: SurplusCopies, ledgers: Sequence[LedgerId]) -> Sequence[LedgerId]:
    """Drop the entries of those of these ledgers that others have whole. Returns which. Raises MetadataError,
    DiskFull."""
    tree, restored, locked = Underreplication(own.driver), RestoredTree(own.driver), list[LedgerId]()
    await tree.prepare()
    if not await tree.is_enabled() or await restored.held() is not None:  # an operator wants no copy moved or deleted
        return ()
    replicas = Replicas(own)
    try:
        for ledger in ledgers:
            if await tree.lock(ledger, own.bookie):
                locked.append(ledger)
        whole = await _Look(own, replicas, tree).whole(locked)
        await own.fence(whole)
        checkpoints = own.counts.checkpoints
        creations = {ledger: creation for ledger, creation in whole.items() if await tree.holds(ledger)}
        if await restored.held() is not None:
            return ()
        return await own.drop(creations, checkpoints)
    finally:
        for ledger in locked:
            with suppress(MetadataError):
                await tree.unlock(ledger)
        await replicas.close()


class _Look:
    """Looks at locked ledgers."""

    def __init__(self, own: SurplusCopies, replicas: Replicas, tree: Underreplication) -> None:
        outside = own.outside
        self._own, self._tree = own, tree
        context = LedgerContext(
            own.driver, replicas.client, outside.clock, outside.random, ClientSettings(), outside.events
        )
        self._check = CopyCheck(context, READS, within=own.pace)
        self._findings = FindingTree(own.driver)

    async def whole(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Creation]:
        """Return those that name this bookie nowhere, and of which all that are named have every entry."""
        whole = dict[LedgerId, Creation]()
        nodes, bookies = await self._own.metadata(ledgers), await self._own.driver.bookies()
        waiting = iter(nodes.items())

        async def work() -> None:
            for ledger, node in waiting:
                metadata = self._own.needless(ledger, node)
                if node is not None and metadata is not None and await self._is_whole(ledger, metadata, bookies):
                    whole[ledger] = node.creation

        await asyncio.gather(*(work() for _ in range(CHECKED_AT_ONCE)))
        return whole

    async def _is_whole(self, ledger: LedgerId, metadata: LedgerMetadata, bookies: RegisteredBookies) -> bool:
        if any(self._may_lack(bookie, bookies) for fragment in metadata.fragments for bookie in fragment.bookies):
            return False
        if await self._tree.read_mark(ledger) is not None or await self._findings.read(ledger) is not None:
            return False
        unknown = self._check.unknown
        try:
            faults = await self._check.faults(ledger, metadata, bookies, samples=READS.sample_entries)
        except TallyError:
            return False
        return not faults and self._check.unknown == unknown

    def _may_lack(self, bookie: BookieId, bookies: RegisteredBookies) -> bool:
        """Return whether a bookie is away, or in limbo with any ledger."""
        info = bookies.find(bookie)
        return info is None or may_lack(info)
