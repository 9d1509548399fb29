"""The shell of ``GarbageCore``: it reads the metadata as the core says, and deletes what is proven to have none."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

from tallystick.bookkeeper.bookie.collection_orders import Order, OrderFile
from tallystick.bookkeeper.bookie.cookies import folder_of
from tallystick.bookkeeper.bookie.garbage import (
    LOOK_LEDGERS,
    Action,
    Finish,
    GarbageCore,
    GarbageRules,
    List,
    Look,
    Wait,
)
from tallystick.bookkeeper.bookie.look import judge
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.restore_hold import RestoreHold
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions, WaitingFile
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Moment
from tallystick.bookkeeper.metadata.restored import RestoredMetadata, RestoredTree
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.codec.steps import finished
from tallystick.errors import CorruptRecord, DiskFull, MetadataError, StorageError
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events
from tallystick.runtime.turn_steps import in_turns
from tallystick.runtime.worker import Worker

FIRST_RUN_S = 60.0  # after the start: a deleted ledger is not acknowledged for long
ORDER_POLL_S = 2.0
WAITING_FILE = "waiting-deletions"
SHOWN_LEDGERS = 10  # in an event

_PAGE = 4096
_AHEAD_REASON = (
    "it was restored from an older copy, which lacks them, or they were made by such a copy that was replaced since; "
    "they are kept. Put the right metadata back, if it is not, or give them up: tally bookie collect --now"
)


class GarbageCollection:
    """Compare the stored ledgers with the metadata; ``runs`` is an endless task.

    ``delete`` gives the space of some ledgers back and no longer remembers others as deleted; ``report`` hears how many
    ledgers wait for their deletion, and how many are newer than the metadata; ``save`` makes the storage's state
    durable.
    """

    def __init__(
        self,
        driver: MetadataDriver,
        *,
        bookie: BookieId,
        rules: GarbageRules,
        instance: str,
        storage: Storage,
        disk: Disk,
        folder: str,
        worker: Worker,
        recent: RecentAdds,
        clock: Clock,
        counts: Counts,
        events: Events,
        delete: Callable[[Callable[[], Iterable[LedgerId]], Collection[LedgerId]], Awaitable[int]],
        report: Callable[[int, int], None],
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self._driver, self._bookie, self._storage, self._worker = driver, bookie, storage, worker
        self._recent, self._clock, self._counts, self._events = recent, clock, counts, events
        self._identities = storage.identities
        self._delete, self._report, self._save_state = delete, report, save
        self._instance = instance
        self._file = WaitingFile(disk, os.path.join(folder_of(folder), WAITING_FILE))
        self._orders = OrderFile(disk, folder)
        self._core = GarbageCore(rules, instance, storage.identities.is_missed, self._was_made, self._stored_waiting())
        self._file.begin(self._core.waiting)
        finished(self._identities.set_ahead(self._core.waiting.ahead))
        self.ordered: Callable[[Order], None] = lambda order: None  # settable: hears of what an operator ordered
        self._skipped_ids: set[LedgerId] = set()
        self._again: set[LedgerId] = set()  # deleted once, and other ledgers in the metadata now
        self._deleted_here: list[LedgerId] = []  # deleted once, and in the metadata now
        self._hold = RestoreHold(bookie, clock, counts, events)

    def _was_made(self, ledger: LedgerId) -> bool:
        """Return whether the metadata had the ledger: its creation is known here."""
        identity = self._identities.identity(ledger)
        return identity is not None and identity.creation != UNKNOWN

    async def compare(self) -> None:
        """Find the ledgers that are newer than the metadata, before anybody can use their ids again. Raises
        MetadataError."""
        await self._compare()
        self._show()

    async def _compare(self) -> Moment:
        """Compare the creations that are known before the moment that it returns: one that is noted later may be
        newer."""
        known_anchor, stored = self._identities.anchor, await in_turns(self._identities.creations())
        moment = await self._driver.sync()
        if moment.instance != self._instance:
            return moment  # which the run that follows says
        anchor = await self._driver.bookie_creation(self._bookie)
        if anchor is None:
            raise MetadataError("the bookie has no cookie any more", bookie=self._bookie)
        if not await in_turns(self._identities.anchored(anchor)) or anchor != known_anchor:
            self._core.waiting.ahead.clear()  # by creations of other metadata, which this is a copy of
            stored = []
            with contextlib.suppress(DiskFull):  # what is noted from now on is forgotten by a crash
                await self._save_state()
        newly_ahead = await in_turns(self._core.compare(moment, stored, await self._never_made(stored)))
        if newly_ahead:
            await in_turns(self._identities.set_ahead(self._core.waiting.ahead))
            await self._save()
            self._show()
            ledgers, reason = newly_ahead[:SHOWN_LEDGERS], _AHEAD_REASON
            self._events.emit(
                "metadata is older than the ledgers", count=len(newly_ahead), ledgers=ledgers, reason=reason
            )
        await self._skip_ids()
        return moment

    async def _skip_ids(self) -> None:
        """Let no new ledger have the id of one that is ahead: what was written of that one, a cursor's place perhaps,
        may still be there, and would be taken for the new one's."""
        ahead = self._core.waiting.ahead.keys() - self._skipped_ids
        if ahead:
            await self._driver.skip_ids(ahead)
            self._skipped_ids |= ahead

    async def _never_made(self, stored: list[tuple[LedgerId, Creation]]) -> set[Creation]:
        never_made = set[Creation]()
        for start in range(0, len(stored), _PAGE):
            never_made |= await self._driver.never_made([creation for _, creation in stored[start : start + _PAGE]])
        return never_made

    def _show(self) -> None:
        waiting, ahead = self._core.waiting.count, len(self._core.waiting.ahead)
        if (self._counts.deletions_waiting, self._counts.ledgers_ahead) != (waiting, ahead):
            self._report(waiting, ahead)
        self._counts.deletions_waiting, self._counts.ledgers_ahead = waiting, ahead

    async def runs(self, wait_s: float) -> None:
        due_at = self._clock.now() + (0.0 if await self._is_held() else min(wait_s, FIRST_RUN_S))
        while True:
            if (order := await self._next_order(due_at)) is not None:
                self.ordered(order)
            try:
                await self.run(override=order is Order.NOW)
            except (MetadataError, DiskFull) as error:
                self._counts.collections_failed += 1
                self._events.emit("deleted ledgers not looked for", reason=str(error))
            due_at = self._clock.now() + wait_s

    async def _is_held(self) -> bool:
        """Return whether somebody waits for what this bookie has and restored metadata lacks."""
        with contextlib.suppress(MetadataError):  # the first run says so
            return await self._hold.look(RestoredTree(self._driver)) is not None
        return False

    async def _next_order(self, due_at: float) -> Order | None:
        while (rest_s := due_at - self._clock.now()) > 0:
            if (order := self._take_order()) is not None:
                return order
            await asyncio.sleep(min(rest_s, ORDER_POLL_S))
        return self._take_order()

    def _take_order(self) -> Order | None:
        return self._orders.take(self._clock.wall_ms() / 1000, self._events)

    async def run(self, *, override: bool = False) -> int:
        """Do one run, with its wait. Returns how many ledgers were deleted; after MetadataError, DiskFull none was.

        Over metadata that was restored, which no operator has confirmed, it says what lacks, and deletes nothing.
        """
        try:
            tree = RestoredTree(self._driver)
            restored, stored = await self._hold.look(tree), self._storage.ledger_ids()
            actions = await in_turns(self._core.begin(stored, override=override, survey=restored is not None))
            while not isinstance(action := actions[0], Finish):
                actions = await self._perform(action)
            if restored is not None:
                await self._say(action, restored, tree)
                return 0
            if await self._hold.look(tree) is not None:
                raise MetadataError("the metadata was restored while it was looked through")
            count = await self._finish(action)
            with contextlib.suppress(MetadataError):  # the next run does it
                await self._note()
            return count
        finally:
            self._recent.forget()

    async def _say(self, end: Finish, restored: RestoredMetadata, tree: RestoredTree) -> None:
        """Say what a survey found. Raises MetadataError."""
        if end.refused is not None:
            raise MetadataError(end.refused)
        await self._hold.say(tree, restored, self._core.waiting.ahead, end.lacking or (), self._deleted_here)

    async def _perform(self, action: Action) -> list[Action]:
        if isinstance(action, Wait):
            self._recent.forget()
            await asyncio.sleep(action.seconds)
            return self._core.waited(self._clock.now())
        if isinstance(action, Look):
            self._recent.watch(action.ledgers)
            records = await self._driver.look(action.ledgers)
            return await in_turns(self._core.looked(records.start, records.end, records.by_ledger, self._clock.now()))
        assert isinstance(action, List)
        began = await self._compare()
        await self._list()
        ended = await self._driver.sync()
        return await in_turns(self._core.listing_ended(began, ended, self._clock.now()))

    async def _list(self) -> None:
        deleted, page, again = self._storage.deleted_ids(), list[LedgerId](), list[LedgerId]()

        async def take() -> None:
            await in_turns(self._core.listed(page))
            again.extend(ledger for ledger in page if ledger in deleted)
            page.clear()

        async for ledger in self._driver.ledgers():
            page.append(ledger)
            if len(page) == _PAGE:
                await take()
                await asyncio.sleep(0)  # the driver may have the next page already
        await take()
        self._again, self._deleted_here = await self._of_others(again), again

    async def _of_others(self, again: Sequence[LedgerId]) -> set[LedgerId]:
        """Return the ids of deleted ledgers that newer ones have, or any others where they were given up.

        A deleted ledger that came back itself, or an older one, is no reason to forget that entries were deleted: a
        fence would be answered as if there had been none.
        """
        others = set()
        for start in range(0, len(again), LOOK_LEDGERS):
            records = await self._driver.look_up(again[start : start + LOOK_LEDGERS])
            for ledger, record in records.items():
                identity = self._identities.identity(ledger)
                if record is None:
                    continue
                given_up = self._identities.given_up(ledger)
                if identity is not None and judge(record, identity, given_up).renew is not None:
                    others.add(ledger)
                else:
                    self._storage.touch(ledger)
        return others

    async def _finish(self, end: Finish) -> int:
        if end.refused is not None:
            raise MetadataError(end.refused)
        await self._save()
        self._show()
        if end.waiting:
            reason = "so many ledgers at once lack in the metadata; if that is right: tally bookie collect --now"
            self._events.emit("deletions wait", count=end.waiting, hours=round(end.waits_s / 3600, 1), reason=reason)

        def candidates() -> Iterator[LedgerId]:
            # Who used an id again after the last look has entries here that nobody may delete.
            return (ledger for ledger in end.delete if ledger not in self._recent.touched)

        count = await self._delete(candidates, self._again)
        await in_turns(self._identities.set_ahead(self._core.waiting.ahead))
        self._counts.collections += 1
        return count

    async def _note(self) -> None:
        """Note the creations of ledgers that have none yet: a ledger that came while nobody could look at the metadata
        may never be added to again. Compare those that nobody has compared since the start: later, when the metadata is
        out of reach, they are read all the same. Raises MetadataError."""
        doubtful = await in_turns(self._identities.doubtful())
        for start in range(0, len(doubtful), LOOK_LEDGERS):
            batch = doubtful[start : start + LOOK_LEDGERS]
            self._recent.forget()
            self._recent.watch(batch)
            records = await self._driver.look(batch)
            if records.start != records.end or records.start.instance != self._instance:
                return
            for ledger in batch:
                # An id that was used again meanwhile may be that of a newer ledger than what was read.
                if ledger not in self._recent.touched and (record := records.by_ledger.get(ledger)) is not None:
                    self._identities.note(ledger, record.creation)

    def _stored_waiting(self) -> WaitingDeletions | None:
        try:
            return self._file.read()
        except CorruptRecord as error:  # it begins to wait anew
            self._events.emit("wait of large deletions begins anew", reason=str(error))
        return None

    async def _save(self) -> None:
        """Save what waits and what is ahead, if it is not what was saved last; nothing changes it meanwhile."""
        try:
            await self._worker.run(lambda: self._file.write(self._core.waiting))
        except StorageError as error:  # a full disk: the wait is shorter after a restart than it might be, no less safe
            self._events.emit("wait of a large deletion not saved", reason=str(error))
