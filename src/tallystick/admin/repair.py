"""Ledgers that lack copies, and whether auditor and replicators may make them: what an operator asks and orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tallystick.admin.cluster import metadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import BookieId, LedgerId

SHOWN_MARKS = 1000


@dataclass(frozen=True)
class MarkedLedger:
    """A ledger that lacks copies: which bookies should have them, and since when that is known, as ISO 8601."""

    ledger: LedgerId
    bookies: tuple[BookieId, ...]
    since: str | None


@dataclass(frozen=True)
class RepairStatus:
    """``marks`` are the first thousand by id; ``in_hand`` says who has which ledger in hand."""

    is_enabled: bool
    auditor: str | None
    delay_s: int | None
    marks: tuple[MarkedLedger, ...]
    in_hand: Mapping[LedgerId, str]

    @property
    def since(self) -> str | None:
        """Since when the oldest of these ledgers lacks copies; None if none does."""
        return min((mark.since for mark in self.marks if mark.since is not None), default=None)


async def status(uri: str) -> RepairStatus:
    """Raises MetadataError."""
    async with metadata(uri) as driver:
        await driver.sync()
        tree = Underreplication(driver)
        delay = await tree.recovery_delay()
        return RepairStatus(
            await tree.is_enabled(),
            await tree.auditor(),
            None if delay is None else delay.value,
            tuple(await marked_ledgers(driver)),
            await tree.locks(),
        )


async def marked_ledgers(driver: MetadataDriver) -> list[MarkedLedger]:
    """The marked ledgers, by id, a thousand at most. Raises MetadataError."""
    tree, found = Underreplication(driver), list[MarkedLedger]()
    async for ledger in tree.marks():
        marked = await tree.read_mark(ledger)
        if marked is not None:
            ctime_ms = marked.value.ctime_ms
            since = None if ctime_ms is None else datetime.fromtimestamp(ctime_ms / 1000, UTC).isoformat("T", "seconds")
            found.append(MarkedLedger(ledger, marked.value.bookies, since))
        if len(found) == SHOWN_MARKS:
            break
    return sorted(found, key=lambda mark: mark.ledger)


async def switch(uri: str, *, enabled: bool) -> bool:
    """Let auditors and replicators work, or not. Returns False if it was so already. Raises MetadataError."""
    async with metadata(uri) as driver:
        tree = Underreplication(driver)
        await tree.prepare()
        return await (tree.enable() if enabled else tree.disable())


async def order_audit(uri: str) -> None:
    """Have the auditor take every bookie that is gone for lost, and look through all ledgers. Raises MetadataError."""
    async with metadata(uri) as driver:
        tree = Underreplication(driver)
        await tree.prepare()
        delay = await tree.recovery_delay()
        await tree.set_recovery_delay(round(RepairSettings().grace_s) if delay is None else delay.value)
