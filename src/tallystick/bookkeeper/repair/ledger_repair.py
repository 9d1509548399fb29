"""Repair one ledger that this process has the lock of: the shell around ``steps.py``.

Each step begins with a synced read of the metadata, and nothing is remembered of the ledger but what was checked. The
compare-and-set that puts a copy into the metadata comes after the copy was stored, synced and read back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.ledger.changes import VersionedMetadata
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.identity import Belief
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.recover import recover
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.lost_entries import MOST_RUNS
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.copying import Copying, Unreadable
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import Place
from tallystick.bookkeeper.repair.steps import Check, Copy, Done, Wait, next_step
from tallystick.bookkeeper.wire.lost_runs import joined
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, EntryId, LedgerId, LedgerMetadata, LedgerState
from tallystick.errors import BookieUnavailable, MetadataUnavailable, NoSuchLedger, NotEnoughBookies
from tallystick.runtime.pace import Pace


@dataclass(frozen=True)
class Repaired:
    """Nothing is missing any more; ``is_deleted``: nor is the ledger there."""

    is_deleted: bool = False


@dataclass(frozen=True)
class Deferred:
    """It could not be repaired now. ``wait_s``: None if nobody knows when it can be."""

    reason: str
    wait_s: float | None = None


@dataclass(frozen=True)
class Lost:
    """No bookie that can be asked has a good copy of these entries; every one of them said so. All else that can be
    made good now was."""

    entries: tuple[tuple[EntryId, EntryId], ...]  # runs, first and last: the first ones
    bookie: BookieId  # which alone may still have them, or the first of these


Outcome = Repaired | Deferred | Lost


@dataclass
class Tally:
    """What was copied so far."""

    entries: int = 0
    bytes: int = 0
    mended: int = 0  # entries that were made good where they should be
    recovered: int = 0  # ledgers that were fenced and closed


def limbo_of(bookies: RegisteredBookies) -> list[BookieId]:
    """Return the writable bookies that do not know what they have: none of them is a place for a copy."""
    return [bookie for bookie, info in bookies.writable.items() if may_lack(info)]


def may_lack(info: BookieInfo) -> bool:
    """Return whether a registration says that the bookie has ledgers in limbo."""
    return bool(info.properties.get(LIMBO, "").strip("0"))


@dataclass
class LedgerRepair:
    """One ledger, from the lock to its outcome. ``still_s`` says for how long its metadata had a version."""

    context: LedgerContext
    placement: Placement
    settings: RepairSettings
    pace: Pace
    ledger: LedgerId
    marked: tuple[BookieId, ...]
    tally: Tally
    holds: Callable[[], Awaitable[bool]]  # whether the lock is still ours
    leaving: tuple[BookieId, ...] = ()  # registered ones that are to have nothing any more
    # Of these bookies only these entries are looked at, first and last of each run; all of others.
    runs: Mapping[BookieId, Sequence[tuple[EntryId, EntryId]]] = field(default_factory=dict)
    misplaced: tuple[BookieId, ...] = ()  # whose copies are moved where others lie better
    checked: dict[Place, None] = field(default_factory=dict)
    lost: dict[Place, BookieId] = field(default_factory=dict)  # of these places entries are lost, and of no other
    deferred: dict[Place, Deferred] = field(default_factory=dict)  # nothing can be done for these places now
    lost_runs: list[tuple[EntryId, EntryId]] = field(default_factory=list)  # these, and no more than can be told of

    async def run(self, still_s: Mapping[int, float]) -> Outcome:
        """Take steps until nothing is left to do. ``still_s``: seconds by version of the metadata.

        Raises MetadataError, BookieUnavailable, RequestTimeout, RecoveryIncomplete, Unauthorized.
        """
        while True:
            try:
                versioned, bookies = await self._read()
            except NoSuchLedger:
                return Repaired(is_deleted=True)
            registered = self._staying(bookies)
            step = next_step(
                versioned.value,
                self.marked,
                registered,
                self.checked,
                stuck=self.lost.keys() | self.deferred.keys(),
                still_s=still_s.get(versioned.version, 0.0),
                open_grace_s=self.settings.open_grace_s,
            )
            if (self.lost or self.deferred) and not isinstance(step, Copy | Check):
                return self._left()
            if isinstance(step, Done):
                better = await better_places(
                    self.placement, versioned.value, bookies, self.misplaced, never=self.leaving
                )
                if not better:
                    return Repaired()
                if (outcome := await self._move(versioned, *better[0], bookies)) is not None:
                    return outcome
                continue
            if isinstance(step, Wait):
                return Deferred(step.reason, min(step.seconds, self.settings.retry_s))  # it may be closed any moment
            if isinstance(step, Copy):
                outcome = await self._copy(versioned, step.place, bookies)
            elif isinstance(step, Check):
                outcome = await self._check(versioned, step.place)
            else:
                outcome = await self._recover(versioned, bookies)
            if isinstance(outcome, Lost) and isinstance(step, Copy | Check):
                self.lost[step.place] = outcome.bookie
                self.lost_runs += outcome.entries[: MOST_RUNS - len(self.lost_runs)]
            elif isinstance(outcome, Deferred) and isinstance(step, Copy | Check):
                self.deferred[step.place] = outcome
            elif outcome is not None:
                return outcome

    def _left(self) -> Lost | Deferred:
        """Return what is lost in all places; if nothing is, why the first of those that wait does."""
        if self.lost:
            return Lost(joined(self.lost_runs), next(iter(self.lost.values())))
        return next(iter(self.deferred.values()))

    async def _read(self) -> tuple[VersionedMetadata, RegisteredBookies]:
        """Return the metadata and the bookies as of now. Raises NoSuchLedger, MetadataError."""
        driver = self.context.driver
        began = await driver.sync()
        versioned, bookies = await driver.read_ledger(self.ledger), await driver.bookies()
        if await driver.sync() != began:
            raise MetadataUnavailable("the connection broke while a ledger was read: it may be old")
        return versioned, bookies

    def _staying(self, bookies: RegisteredBookies) -> list[BookieId]:
        return [bookie for bookie in (*bookies.writable, *bookies.read_only) if bookie not in self.leaving]

    def _copying(self, versioned: VersionedMetadata) -> Copying:
        return Copying(self.context.bookies, self.ledger, versioned.value, self.settings, self.pace)

    async def _target(
        self, versioned: VersionedMetadata, gone: Sequence[BookieId], ensemble: Sequence[BookieId], limbo: Sequence[str]
    ) -> Mapping[BookieId, BookieId]:
        """Return who would take the places of the bookies that are gone. Raises NotEnoughBookies."""
        never = [*limbo, *versioned.value.avoided, *gone, *self.leaving]
        new = await self.placement.without(gone, tuple(ensemble), Striping.of(versioned.value), never=never)
        return {old: bookie for old, bookie in zip(ensemble, new, strict=True) if old != bookie}

    async def _copy(self, versioned: VersionedMetadata, place: Place, bookies: RegisteredBookies) -> Outcome | None:
        """Make another bookie have the entries of a place. Returns None to go on."""
        try:
            target = (await self._target(versioned, [place.bookie], place.ensemble, limbo_of(bookies)))[place.bookie]
        except NotEnoughBookies as error:
            return Deferred(str(error))
        return await self._move(versioned, place, target, bookies)

    async def _move(
        self, versioned: VersionedMetadata, place: Place, target: BookieId, bookies: RegisteredBookies
    ) -> Outcome | None:
        """Make this bookie have the entries of a place. Returns None to go on."""
        identity = (await self.placement.identities((target,)))[target]
        copying, belief = self._copying(versioned), Belief((identity,))
        # A bookie that stays or leaves is read last; one that is gone cannot be: what it alone has is not unknown.
        own = [] if bookies.find(place.bookie) is None else [place.bookie]
        try:
            outcome = await self._transfer(copying, versioned, place, target, belief, own)
        except BookieUnavailable:
            self.placement.quarantine.add(target)  # others take the next ones, where there are enough
            raise
        if outcome is not None:
            return outcome
        stored = await changes.replace_bookie(
            self.context.driver,
            self.ledger,
            versioned,
            lambda newest: shortfall.replaced(newest, place, target),
            changes.Requirement(self._require_lock),
        )
        if target in stored.value.ensemble_of(place.first):  # else another was faster
            first, last = place.first, place.last
            self.context.events.emit(
                "replica moved", ledger=self.ledger, first=first, last=last, lost=place.bookie, bookie=target
            )
        return None

    async def _require_lock(self) -> None:
        """Raises MetadataUnavailable once the session ended while this process hung: another may have the lock, and the
        target may have dropped its copies since."""
        if not await self.holds():
            raise MetadataUnavailable("the lock of the ledger was lost while it was repaired", ledger=self.ledger)

    async def _transfer(
        self,
        copying: Copying,
        versioned: VersionedMetadata,
        place: Place,
        target: BookieId,
        belief: Belief,
        own: Sequence[BookieId],
    ) -> Outcome | None:
        striping, unreadable = Striping.of(versioned.value), Unreadable()
        stripe = partial(shortfall.stripe, versioned.value, place)
        async for entries in copying.batches(stripe()):
            read = await copying.read(entries, lambda entry: [*shortfall.others(place, entry, striping), *own])
            unreadable.add(read)
            if unreadable.unknown:
                break  # another time
            if not unreadable.missing:  # else the place keeps the bookie that may have them
                await copying.write(target, belief, read.frames)
                self.tally.entries += len(read.frames)
                self.tally.bytes += read.bytes
        if place.first <= place.last and not unreadable.missing and not unreadable.unknown:
            # No metadata names the target yet: of what it lost meanwhile it is in no limbo, and would deny it.
            await copying.require(target, stripe)
        return _unreadable(unreadable, place.bookie)

    async def _check(self, versioned: VersionedMetadata, place: Place) -> Outcome | None:
        """Make good what a bookie that is there lacks of its place, or has damaged. Returns None to go on."""
        striping, unreadable = Striping.of(versioned.value), Unreadable()
        copying, belief = self._copying(versioned), Belief()
        runs, stripe = self.runs.get(place.bookie), shortfall.stripe(versioned.value, place)
        async for entries in copying.batches(shortfall.within(part, runs) for part in stripe):
            there = await copying.read(entries, lambda entry: [place.bookie])
            if there.unknown:
                raise BookieUnavailable("it did not say whether it has its entries", bookie=place.bookie)
            if there.missing:
                good = await copying.read(there.missing, lambda entry: shortfall.others(place, entry, striping))
                unreadable.add(good)
                if good.frames:
                    await copying.write(place.bookie, belief, good.frames)
                    self.tally.mended += len(good.frames)
                    mended = shortfall.runs_of(sorted(good.frames))
                    self.context.events.emit("replica mended", ledger=self.ledger, bookie=place.bookie, entries=mended)
        if outcome := _unreadable(unreadable, place.bookie):
            return outcome
        self.checked[place] = None
        return None

    async def _recover(self, versioned: VersionedMetadata, bookies: RegisteredBookies) -> Outcome | None:
        metadata, registered = versioned.value, self._staying(bookies)
        gone = [bookie for bookie in metadata.ensemble if bookie not in registered]
        try:  # whoever is fenced cannot go on: only for a copy that there is a place for
            await self._target(versioned, gone, metadata.ensemble, limbo_of(bookies))
        except NotEnoughBookies as error:
            return Deferred(str(error))
        there = [slot for slot, bookie in enumerate(metadata.ensemble) if bookies.find(bookie) is not None]
        if metadata.state is LedgerState.OPEN and not Striping.of(metadata).covered(there):
            return Deferred("a recovery cannot fence it without the bookies that are gone, and its writer may go on")
        self.context.events.emit("open ledger recovered for repair", ledger=self.ledger, missing=gone)
        await recover(self.context, self.placement, self.ledger, versioned, metadata.password)
        self.tally.recovered += 1
        return None


async def better_places(
    placement: Placement,
    metadata: LedgerMetadata,
    bookies: RegisteredBookies,
    only: Collection[BookieId] | None,
    *,
    never: Collection[BookieId] = (),
) -> list[tuple[Place, BookieId]]:
    """Return places of these bookies (None: of all) that are too near to others of their entries, each with a bookie
    that would be better there. Raises MetadataError."""
    moves, striping = list[tuple[Place, BookieId]](), Striping.of(metadata)
    unwanted = [*limbo_of(bookies), *metadata.avoided, *never]
    for place in shortfall.places(metadata, only):
        if bookies.find(place.bookie) is not None and place.first <= place.last:
            better = await placement.better(place.slot, place.ensemble, striping, never=unwanted)
            if better is not None:
                moves.append((place, better))
    return moves


def _unreadable(read: Unreadable, bookie: BookieId) -> Outcome | None:
    """Return what follows from entries without a good copy. What is unknown may be there: it is never lost."""
    if read.unknown:
        runs = shortfall.text_of(read.unknown.all())
        return Deferred(f"bookies that have entries {runs} did not say so in time")
    if read.missing:
        return Lost(read.missing.all(), bookie)
    return None
