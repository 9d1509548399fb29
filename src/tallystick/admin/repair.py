"""Ledgers that lack copies, and whether auditor and replicators may make them: what an operator asks and orders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from tallystick.admin.bookies import BookiePresence, BookieStatus, list_bookies
from tallystick.admin.cluster import metadata
from tallystick.admin.ledgers import list_ledgers
from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.findings import FindingTree
from tallystick.bookkeeper.metadata.given_up import GivenUp, GivenUpTree
from tallystick.bookkeeper.metadata.lost_entries import LostEntries, LostTree
from tallystick.bookkeeper.metadata.restored import RestoredTree
from tallystick.bookkeeper.metadata.taken_out import TakenOut, TakenOutTree
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.copying import Copying, Unreadable
from tallystick.bookkeeper.repair.give_up import GivingUp, Loss
from tallystick.bookkeeper.repair.ledger_repair import Outcome
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.lost_runs import lost_of, runs_of_lost
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.underreplication import Mark
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId
from tallystick.errors import MetadataError, MetadataRefused, MetadataUnavailable, Unavailable
from tallystick.runtime.pace import Pace

WHOLE = "has all of it"
SHOWN_MARKS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class MarkedLedger:
    """A ledger that lacks copies: which bookies should have them, and since when that is known, as ISO 8601, if
    that is a date. A mark that nobody can read names no bookie."""

    ledger: LedgerId
    bookies: tuple[BookieId, ...]
    since: str | None


@dataclass(frozen=True)
class Finding:
    """What is wrong with the copies of a ledger, as the metadata alone tells it."""

    ledger: LedgerId
    problem: str
    bookies: tuple[BookieId, ...] = ()


@dataclass(frozen=True)
class ClusterAudit:
    """What a look through all ``ledgers`` found."""

    ledgers: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class ClusterStatus:
    """What an operator wants to know first. ``limbo``: by bookie how many ledgers it does not know what it has of;
    ``damaged``: how many entries it stores and cannot read. ``is_held``: the metadata was restored, nobody has
    confirmed what it lacks, and bookies delete nothing. ``taken_out``: who took which bookies out, ever."""

    bookies: tuple[BookieStatus, ...]
    limbo: Mapping[BookieId, int]
    damaged: Mapping[BookieId, int]
    repair: RepairStatus
    is_held: bool
    taken_out: tuple[TakenOut, ...]

    @property
    def is_well(self) -> bool:
        """Whether every bookie serves and may delete, every ledger has its copies, and repair may work."""
        are_up = all(bookie.registered is BookiePresence.WRITABLE for bookie in self.bookies)
        repair = self.repair
        knows_all = not (self.limbo or self.damaged or self.is_held)
        has_all = not (repair.marks or repair.lost or repair.findings)
        return are_up and knows_all and has_all and repair.is_enabled and not repair.unreadable


@dataclass(frozen=True)
class PlaceReport:
    """What one bookie has of what it should have of a fragment: ``first`` … ``last``, its stripe of them."""

    first: EntryId
    last: EntryId
    bookie: BookieId
    state: str

    @property
    def is_whole(self) -> bool:
        """Whether it has all of it, undamaged."""
        return self.state == WHOLE

    def __str__(self) -> str:
        return f"{self.first}-{self.last} on {self.bookie}: {self.state}"


@dataclass(frozen=True)
class RepairStatus:
    """``marks`` are the first thousand by id of all that are ``marked``; ``in_hand`` says who has which ledger in hand,
    ``lost`` which entries no bookie that answers has a good copy of, ``findings`` which ledgers have faulty copies,
    ``given_up`` what an operator gave up, ever, and ``unreadable`` which nodes nobody can read, and why."""

    is_enabled: bool
    auditor: str | None
    delay_s: int | None
    marks: tuple[MarkedLedger, ...]
    marked: int
    in_hand: Mapping[LedgerId, str]
    lost: Mapping[LedgerId, LostEntries]
    findings: tuple[LedgerId, ...]
    given_up: tuple[GivenUp, ...]
    unreadable: tuple[str, ...]

    @property
    def since(self) -> str | None:
        """Since when the oldest of these ledgers lacks copies; None if none does."""
        return min((mark.since for mark in self.marks if mark.since is not None), default=None)


class _Unreadable:
    """Nodes that cannot be read: they are told, and hide nothing else."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def tell(self, error: MetadataError) -> None:
        self.reasons.append(str(error))

    async def read(self, reading: Awaitable[T], otherwise: T) -> T:
        """Await what reads one node. Returns ``otherwise`` if it cannot be read. Raises MetadataError if the service
        does not answer, or not this identity."""
        try:
            return await reading
        except (MetadataUnavailable, MetadataRefused):
            raise
        except MetadataError as error:
            self.tell(error)
            return otherwise


async def status(uri: str) -> RepairStatus:
    """Raises MetadataError."""
    async with metadata(uri) as driver:
        return await _status(driver, _Unreadable())


async def _status(driver: MetadataDriver, unreadable: _Unreadable) -> RepairStatus:
    await driver.sync()
    tree = Underreplication(driver)
    delay = await unreadable.read(tree.recovery_delay(), None)
    marks, marked = await _marked_ledgers(tree, unreadable)
    return RepairStatus(
        await tree.is_enabled(),
        await unreadable.read(tree.auditor(), None),
        None if delay is None else delay.value,
        tuple(marks),
        marked,
        await tree.locks(unreadable.tell),
        await LostTree(driver).all(unreadable.tell),
        tuple(await FindingTree(driver).ledgers()),
        tuple(await GivenUpTree(driver).all(unreadable.tell)),
        tuple(unreadable.reasons),
    )


async def cluster_status(uri: str) -> ClusterStatus:
    """Raises MetadataError."""
    unreadable = _Unreadable()
    async with metadata(uri) as driver:
        bookies = await list_bookies(driver)
        is_held = await unreadable.read(_is_held(driver), True)  # who cannot read it deletes nothing
        taken_out = tuple(await TakenOutTree(driver).all(unreadable.tell))
        repair = await _status(driver, unreadable)
    limbo = {bookie.id: number for bookie in bookies if (number := bookie.number(LIMBO))}
    damaged = {bookie.id: number for bookie in bookies if (number := bookie.entries_damaged)}
    return ClusterStatus(tuple(bookies), limbo, damaged, repair, is_held, taken_out)


async def _is_held(driver: MetadataDriver) -> bool:
    return await RestoredTree(driver).held() is not None


async def cluster_audit(uri: str, progress: Callable[[int], None]) -> ClusterAudit:
    """Look through the metadata of all ledgers for bookies that are not registered; nothing is marked.

    ``progress`` is called with how many more were looked at. Raises MetadataError rather than leaving any out.
    """
    async with metadata(uri) as driver:
        began = await driver.sync()
        registered, findings, count = await driver.bookies(), list[Finding](), 0
        async for ledger in list_ledgers(driver):
            count += 1
            progress(1)
            named = {bookie: None for fragment in ledger.metadata.fragments for bookie in fragment.bookies}
            if gone := tuple(bookie for bookie in named if registered.find(bookie) is None):
                findings.append(Finding(ledger.id, "names bookies that are not registered", gone))
            if lost := lost_of(ledger.metadata.custom):
                text = shortfall.text_of(runs_of_lost(lost))
                findings.append(Finding(ledger.id, f"an operator gave up entries {text}"))
            if any(len(set(fragment.bookies)) < len(fragment.bookies) for fragment in ledger.metadata.fragments):
                findings.append(Finding(ledger.id, "has two copies on one bookie"))
        if await driver.sync() != began:
            raise MetadataUnavailable("the connection to the metadata broke while ledgers were looked at; try again")
        return ClusterAudit(count, tuple(findings))


async def explain(client: LedgerClient, ledger: LedgerId) -> list[PlaceReport]:
    """Read all that each bookie of a ledger should have; nothing is written. Raises NoSuchLedger, MetadataError.

    What is in the newest fragment of an open ledger is left out: it has no end.
    """
    driver = client.context.driver
    value, bookies = (await driver.read_ledger(ledger)).value, await driver.bookies()
    settings = RepairSettings(bytes_per_s=0.0)
    pace = Pace(client.context.clock, 0.0)
    copying = Copying(client.context.bookies, ledger, value, settings, pace)
    reports = list[PlaceReport]()
    for place in shortfall.places(value):
        state = WHOLE
        if bookies.find(place.bookie) is None:
            state = "not registered"
        else:
            result = Unreadable()
            async for entries in copying.batches(shortfall.stripe(value, place)):
                result.add(await copying.read(entries, lambda entry, bookie=place.bookie: [bookie]))  # type: ignore[misc]
            if result.missing:
                state = f"lacks, or has damaged, {shortfall.text_of(result.missing.all())}"
            elif result.unknown:
                state = f"does not say whether it has {shortfall.text_of(result.unknown.all())}"
        reports.append(PlaceReport(place.first, place.last, place.bookie, state))
    return reports


async def repair_ledger(client: LedgerClient, ledger: LedgerId, *, open_grace_s: float) -> Outcome:
    """Repair a ledger now, marked or not, under the lock that replicators take. What came of it is a value.

    Raises UsageError while another has it in hand, NoSuchLedger, Unavailable, MetadataError.
    """
    return await Replicator(client, "tally ledger repair", RepairSettings(open_grace_s=open_grace_s)).repair_now(ledger)


async def loss_of(client: LedgerClient, ledger: LedgerId) -> Loss:
    """Read a whole ledger, and tell what would be given up of it; nothing is changed.

    Raises NoSuchLedger, MetadataError; Unavailable if a registered bookie does not say what it has.
    """
    return await GivingUp(client, ledger, RepairSettings()).look()


async def give_up(client: LedgerClient, shown: Loss, who: str) -> Loss:
    """Give up what ``loss_of`` showed: readers get EntryLost of it. ``who``: for the audit line.

    Raises UsageError if there is more to give up now, or a bookie is back; RecoveryIncomplete, and as ``loss_of``.
    """
    return await GivingUp(client, shown.ledger, RepairSettings()).give_up(shown, who)


async def _marked_ledgers(tree: Underreplication, unreadable: _Unreadable) -> tuple[list[MarkedLedger], int]:
    """Return the marked ledgers, by id, a thousand at most, and how many there are. Raises MetadataError."""
    ledgers, marked, no_mark = list[MarkedLedger](), 0, Versioned(Mark(()), 0)
    async for ledger in tree.marks():
        mark = await unreadable.read(tree.read_mark(ledger), no_mark) if len(ledgers) < SHOWN_MARKS else no_mark
        marked += mark is not None
        if mark is not None and len(ledgers) < SHOWN_MARKS:
            ledgers.append(MarkedLedger(ledger, mark.value.bookies, _date(mark.value.ctime_ms)))
    return sorted(ledgers, key=lambda mark: mark.ledger), marked


def _date(milliseconds: int | None) -> str | None:
    """Return a time as ISO 8601, None if it is no date: others write these, too."""
    with suppress(ValueError, OverflowError, OSError):
        if milliseconds is not None:
            return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat("T", "seconds")
    return None


async def switch(uri: str, *, enabled: bool) -> bool:
    """Let auditors and replicators work, or not. Returns False if it was so already. Raises MetadataError."""
    async with metadata(uri) as driver:
        tree = Underreplication(driver)
        await tree.prepare()
        return await (tree.enable() if enabled else tree.disable())


async def order_audit(uri: str) -> bool:
    """Have the auditor take every bookie that is gone for lost, and look through all ledgers. Returns whether repair is
    enabled: else that happens when it is. Raises Unavailable where nobody is the auditor, as who is elected later takes
    no notice of older orders; MetadataError."""
    async with metadata(uri) as driver:
        await driver.sync()
        tree = Underreplication(driver)
        await tree.prepare()
        if await tree.auditor() is None:
            raise Unavailable("no auditor runs, and one that starts later would not know of the order")
        delay = await tree.recovery_delay()
        await tree.set_recovery_delay(round(RepairSettings().grace_s) if delay is None else delay.value)
        return await tree.is_enabled()
