"""Give up entries of which no good copy is left, so that a ledger has an end, and readers hear of what it lacks.

::

    look      every entry is read from each registered bookie that should have it     ─▶ Loss: what would be given up
    give_up   locked, and looked at again ─▶ an open ledger is closed before the first entry that nobody can read and
              that no other entry says to be confirmed ─▶ an audit line ─▶ what else is lost stands in the metadata

An operator says it, of what a look has shown; nothing is ever given up by itself. Bookies that are not registered are
taken to have nothing. One that is registered and does not say what it has ends it: silence is never a no. Entries that
were not shown are not given up, nor is anything once a bookie that was gone is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.ledger.changes import Requirement, VersionedMetadata
from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.recover import Forfeit, recover
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.given_up import GivenUp, GivenUpTree
from tallystick.bookkeeper.metadata.lost_entries import LostTree
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.copying import Copying, ReadResult
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.lost_runs import Run, lost_of, with_lost, without_lost
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import MetadataUnavailable, NoSuchLedger, Unavailable, UsageError
from tallystick.runtime.pace import Pace

HOLDER = "tally ledger repair --give-up"


@dataclass(frozen=True)
class Loss:
    """What would be given up of a ledger, or was. ``last_entry``: the end that it has, or would have; ``closes``: it
    has none yet, and what is stored up to ``top`` is dropped. ``absent``: bookies that are not registered, which alone
    may have what is lost."""

    ledger: LedgerId
    closes: bool
    last_entry: EntryId
    top: EntryId
    lost: tuple[Run, ...]
    absent: tuple[BookieId, ...]

    @property
    def is_any(self) -> bool:
        """Whether there is anything to give up."""
        return bool(self.lost) or (self.closes and (bool(self.absent) or self.top > self.last_entry))


class GivingUp:
    """One ledger, for one operator: ``look``, then ``give_up`` what it showed."""

    def __init__(self, client: LedgerClient, ledger: LedgerId, settings: RepairSettings) -> None:
        self._context, self._placement, self._ledger, self._settings = (
            client.context,
            client.placement,
            ledger,
            settings,
        )
        self._driver, self._pace = client.context.driver, Pace(client.context.clock, settings.bytes_per_s)
        self._lac = NO_ENTRY  # that an entry of the newest fragment carries

    async def look(self) -> Loss:
        """Read the whole ledger; nothing is changed. Raises NoSuchLedger, MetadataError; Unavailable if a registered
        bookie does not say what it has."""
        versioned, bookies = await self._read()
        return await self._loss(versioned.value, bookies)

    async def give_up(self, shown: Loss, who: str) -> Loss:
        """Give up what was shown. Returns what of it was still lost.

        Raises UsageError, and marks nothing as lost, if there is more to give up than was shown, a bookie is back, or
        another worker has the ledger in hand; RecoveryIncomplete, and as ``look``.
        """
        tree = Underreplication(self._driver)
        await tree.prepare()
        if not await tree.lock(self._ledger, HOLDER):
            raise UsageError("another worker has this ledger in hand; see: tally autorecovery status")

        async def check() -> None:
            if not await tree.holds(self._ledger):
                raise MetadataUnavailable("the lock of the ledger was lost: look again", ledger=self._ledger)
            _, bookies = await self._read()
            if back := [bookie for bookie in shown.absent if bookies.find(bookie) is not None]:
                raise UsageError("a bookie is back that may have some of them: look again", bookies=back)

        requirement = Requirement(check, shown.absent)
        try:
            versioned, loss = await self._look_again(shown)
            await check()  # to read a whole ledger takes its time
            if not versioned.value.is_closed:
                forfeit = Forfeit(self._lac, requirement)
                password = versioned.value.password
                await recover(self._context, self._placement, self._ledger, versioned, password, forfeit)
                versioned, loss = await self._look_again(shown)
                await check()
            await self._store(versioned, loss, who, requirement)
            return loss
        finally:
            await tree.unlock(self._ledger)

    async def _look_again(self, shown: Loss) -> tuple[VersionedMetadata, Loss]:
        """Raises UsageError if there is more to give up than was shown."""
        versioned, bookies = await self._read()
        loss = await self._loss(versioned.value, bookies)
        more = [run for run in loss.lost if not any(first <= run[0] and run[1] <= last for first, last in shown.lost)]
        if more or (loss.closes and loss.last_entry < shown.last_entry):
            raise UsageError("more would be given up than was shown: look again", entries=shortfall.text_of(more))
        return versioned, loss

    async def _store(self, versioned: VersionedMetadata, loss: Loss, who: str, requirement: Requirement) -> None:
        now_ms = self._context.clock.wall_ms()
        line = GivenUp(self._ledger, who, now_ms, loss.last_entry, shortfall.text_of(loss.lost), loss.absent)
        await GivenUpTree(self._driver).note(line)

        def marked(newest: LedgerMetadata) -> LedgerMetadata | None:
            if newest != versioned.value:
                raise UsageError("another process changed the ledger meanwhile: look again", ledger=self._ledger)
            return with_lost(newest, loss.lost) if loss.lost else None

        await changes.replace_bookie(self._driver, self._ledger, versioned, marked, requirement)
        await LostTree(self._driver).forget(self._ledger)
        self._context.events.emit(
            "entries given up",
            ledger=self._ledger,
            lost=list(loss.lost),
            last_entry=loss.last_entry,
            bookies=loss.absent,
            who=who,
        )

    async def _read(self) -> tuple[VersionedMetadata, RegisteredBookies]:
        began = await self._driver.sync()
        versioned, bookies = await self._driver.read_ledger(self._ledger), await self._driver.bookies()
        if await self._driver.sync() != began:
            raise MetadataUnavailable("the connection broke while a ledger was read: it may be old")
        return versioned, bookies

    async def _loss(self, metadata: LedgerMetadata, bookies: RegisteredBookies) -> Loss:
        if not metadata.has_password:
            raise UsageError(
                "the metadata of this ledger store no digest type: a good copy cannot be told from a damaged one",
                ledger=self._ledger,
            )
        named = dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.bookies)
        absent = tuple(bookie for bookie in named if bookies.find(bookie) is None)
        copying = Copying(self._context.bookies, self._ledger, metadata, self._settings, self._pace)
        striping = Striping.of(metadata)

        def sources(entry: EntryId) -> list[BookieId]:
            ensemble = metadata.ensemble_of(entry)
            return [name for slot in striping.slots(entry) if (name := ensemble[slot]) not in absent]

        async def missing(first: EntryId, last: EntryId, *, most: int | None = None) -> list[EntryId]:
            lacking = list[EntryId]()
            lost = lost_of(metadata.custom)
            parts = (without_lost(part, lost) for part in shortfall.parts(first, last))
            async for batch in copying.batches(parts):
                lacking += _certain(await copying.read(batch, sources), self._ledger)
                if most is not None and len(lacking) >= most:
                    break
            return sorted(lacking)

        if metadata.is_closed:
            end = top = metadata.last_entry
        else:
            end, top = await self._confirmed(metadata, copying, sources, absent)
            unread = await missing(end + 1, top, most=1)
            end = unread[0] - 1 if unread else max(top, end)
        runs = tuple(shortfall.runs_of(await missing(0, end)))
        return Loss(self._ledger, not metadata.is_closed, end, max(top, end), runs, absent)

    async def _confirmed(
        self,
        metadata: LedgerMetadata,
        copying: Copying,
        sources: shortfall.Sources,
        absent: Sequence[BookieId],
    ) -> tuple[EntryId, EntryId]:
        """Return the last entry of an open ledger that is known to be confirmed, by its highest good entry, and the
        highest that any bookie has. Raises Unavailable if one does not say."""
        first, top = metadata.fragments[-1].first, NO_ENTRY
        for bookie in dict.fromkeys(metadata.ensemble):
            if bookie not in absent:
                try:
                    listed = await self._context.bookies.entry_list(bookie, self._ledger)
                except NoSuchLedger:
                    continue
                top = max(top, listed.last)
        self._lac, digest = NO_ENTRY, Digest.of(metadata.digest_type, metadata.password)
        for entry in range(top, first - 1, -1):
            read = await copying.read([entry], sources)
            _certain(read, self._ledger)
            if read.frames:
                self._lac = digest.decode(self._ledger, entry, read.frames[entry])[0].lac
                break
        return max(self._lac, first - 1), top


def _certain(read: ReadResult, ledger: LedgerId) -> list[EntryId]:
    """Return the entries that every bookie said no of, or has a bad copy. Raises Unavailable if one did not say."""
    if read.unknown:
        entries = shortfall.text_of(shortfall.runs_of(sorted(read.unknown)))
        raise Unavailable(
            "a bookie that is registered does not say whether it has entries", ledger=ledger, entries=entries
        )
    return read.missing
