"""A bookie fetches what it lacks of its ledgers in limbo from the other replicas (the original's data integrity check).

Each entry is read from one replica after another until one gives it with a good digest, and is stored as it came. What
is stored stays so: after a restart only the rest is fetched. Bytes are bounded by the second, entries on their way by
number. Nothing that fails ends the work; it is tried again, later and later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from tallystick.bookkeeper.bookie.limbo_bookie import LimboBookie
from tallystick.bookkeeper.metadata.store import Creation, Version, Znode
from tallystick.bookkeeper.repair.fill_core import GoneLedgers, is_named, missing, placed
from tallystick.bookkeeper.repair.replicas import Replicas
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.values import EntryId, LedgerId, LedgerMetadata
from tallystick.errors import MetadataError, TallyError, Unavailable

PAGE = 64  # ledgers whose metadata is read at once
MOST_MISSING = 65_536  # entries of a ledger that are found missing at once
MOST_READS = 64  # entries on their way
READS = RepairSettings(batch_entries=MOST_READS, batch_bytes=1024 * 1024)
LEAST_PAUSE_S, MOST_PAUSE_S = 5.0, 60.0  # between two rounds
_SHOWN = 10


async def fill(bookie: LimboBookie) -> None:
    """Fill the bookie until no ledger is in limbo."""
    filling = _Filling(bookie)
    try:
        await filling.run()
    finally:
        await filling.close()


class _Filling:
    """The work on one bookie."""

    def __init__(self, bookie: LimboBookie) -> None:
        self._bookie, self._clock, self._events = bookie, bookie.outside.clock, bookie.outside.events
        self._replicas = Replicas(bookie)
        self._gone = GoneLedgers()
        self._reasons: dict[LedgerId, str] = {}  # why they are not filled, as it was told
        # By this metadata all of it was here, in this stay in limbo.
        self._filled: dict[LedgerId, tuple[Creation, Version, int | None]] = {}

    async def close(self) -> None:
        await self._replicas.close()

    async def run(self) -> None:
        pause_s = LEAST_PAUSE_S
        while before := self._bookie.ledgers():
            ledgers = iter(before)
            while page := list(islice(ledgers, PAGE)):
                try:
                    await self._page(page)
                except TallyError as error:
                    self._tell_failure(page[0], error)
            if after := self._bookie.ledgers():
                pause_s = LEAST_PAUSE_S if len(after) < len(before) else min(2 * pause_s, MOST_PAUSE_S)
                await asyncio.sleep(pause_s)
        self._events.emit("limbo ended", bookie=self._bookie.bookie, reason="all that is placed here is here again")

    async def _page(self, page: Sequence[LedgerId]) -> None:
        stays = dict[LedgerId, int | None]()
        for ledger, node in (await self._bookie.metadata(page)).items():
            try:
                stay = self._bookie.stay(ledger)
                if await self._may_leave(ledger, node, stay):
                    stays[ledger] = stay
            except TallyError as error:
                self._tell_failure(ledger, error)
        if stays and (leaving := self._bookie.leave(stays)):
            for ledger in leaving:
                self._gone.present(ledger)
                self._reasons.pop(ledger, None)
                self._filled.pop(ledger, None)
            left, shown = len(self._bookie.ledgers()), leaving[:_SHOWN]
            self._events.emit("ledgers left limbo", count=len(leaving), ledgers=shown, in_limbo=left)

    async def _may_leave(self, ledger: LedgerId, node: Znode | None, stay: int | None) -> bool:
        if node is None:
            return self._gone.absent(ledger, self._clock.now())
        self._gone.present(ledger)
        metadata = wire.decode(node.data, where=str(ledger), ctime_ms=node.ctime_ms)
        if not is_named(metadata, self._bookie.bookie):
            return True
        if not metadata.has_password:
            raise MetadataError("the metadata has no password: nobody knows the key that entries are stored with")
        self._bookie.identify(ledger, node.creation)
        if self._filled.get(ledger) != (node.creation, node.version, stay):
            await self._fill(ledger, metadata)
            self._bookie.identify(ledger, node.creation)
            self._filled[ledger] = node.creation, node.version, stay
        return metadata.is_closed

    async def _fill(self, ledger: LedgerId, metadata: LedgerMetadata) -> None:
        """Fetch all that lacks. Raises Unavailable if an entry could not be had."""
        copying, key = self._replicas.copying(ledger, metadata, READS), master_key(metadata.password)
        first, failed = 0, list[EntryId]()
        storing: asyncio.Future[None] | None = None  # the batch before, which is synced while the next one is fetched
        try:
            while entries := await self._missing(ledger, metadata, first):
                first = entries[-1] + 1
                async for batch in copying.batches([entries]):
                    frames = await self._replicas.fetch(copying, ledger, metadata, batch)
                    failed += [entry for entry in batch if entry not in frames]
                    if storing is not None:
                        await storing
                    storing = asyncio.ensure_future(self._bookie.store(ledger, key, sorted(frames.items())))
                    if len(failed) >= MOST_READS:
                        break
                if len(failed) >= MOST_READS:
                    break
            if storing is not None:
                await storing
        finally:
            if storing is not None:
                await asyncio.gather(storing, return_exceptions=True)
        if failed:
            raise _not_had(ledger, failed)

    async def _missing(self, ledger: LedgerId, metadata: LedgerMetadata, first: EntryId) -> list[EntryId]:
        bookie = self._bookie
        return await bookie.compare(
            ledger, lambda stored: missing(placed(metadata, bookie.bookie, first), stored, MOST_MISSING)
        )

    def _tell_failure(self, ledger: LedgerId, error: TallyError) -> None:
        """Say why a ledger stays in limbo, once for a reason."""
        reason = str(error)
        if self._reasons.get(ledger) != reason:
            self._reasons[ledger] = reason
            self._events.emit("ledger not filled", ledger=ledger, reason=reason)


def _not_had(ledger: LedgerId, failed: Sequence[EntryId]) -> Unavailable:
    return Unavailable("no other replica gave these entries", ledger=ledger, count=len(failed), first=failed[0])
