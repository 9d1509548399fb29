"""The runs of ``GarbageCore``: reads the metadata as it says, and deletes what is proven gone.

An operator's order is a file in the ledger folder, ``ORDER_FILE``: who may write there may delete the data anyway. It
is taken once and only while it is fresh, so that no order waits for months in a stopped bookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

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
    Waiting,
)
from tallystick.bookkeeper.bookie.looks import judge
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Moment
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import CorruptRecord, DiskFull, MetadataError, StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk, read_file
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

FIRST_RUN_S = 60.0  # after the start: a deleted ledger is not acknowledged for long
ORDER_FILE = "collect"
ORDER_POLL_S = 2.0
ORDER_FRESH_S = 3600.0
WAITING_FILE = "waiting-deletions"
SHOWN_LEDGERS = 10  # in an event

_PAGE = 4096


class Order(enum.Enum):
    """What the order file says: collect soon; and, with NOW, delete however many ledgers are gone."""

    SOON = "soon"
    NOW = "now"


def order(disk: Disk, ledger_dir: str, what: Order, now_s: int) -> None:
    """Ask the bookie on this folder, from another process. Raises StorageError when the folder is not a bookie's.

    SOON leaves a fresh NOW that the bookie has not taken yet: that does all that SOON does.
    """
    path = os.path.join(folder_of(ledger_dir), ORDER_FILE)
    if what is Order.SOON:
        with contextlib.suppress(StorageError, ValueError):  # a damaged or old one is replaced
            if _waits(disk, path, now_s) is Order.NOW:
                return
    try:
        write_atomic(disk, path, f"{what.value} {now_s}\n".encode())
    except OSError as error:
        raise StorageError(f"the order cannot be written: {error.strerror}", path=path) from error


def _waits(disk: Disk, path: str, now_s: float) -> Order | None:
    """The order in the file. Returns None if there is none; raises StorageError, ValueError for one that counts not."""
    if not disk.exists(path):
        return None
    text, given_s = read_file(disk, path).decode("ascii").split()
    found = Order(text)
    if abs(now_s - int(given_s)) > ORDER_FRESH_S:
        raise ValueError("it is old")
    return found


class GarbageCollection:
    """``runs`` is an endless task. ``delete`` gives the space of these ledgers back and forgets about those others that
    they were deleted; ``told`` hears how many ledgers wait, and how many are newer than the metadata;
    ``save`` makes the storage's state durable."""

    def __init__(
        self, driver: MetadataDriver, bookie: BookieId, rules: GarbageRules, instance: str, storage: Storage,
        disk: Disk, folder: str, worker: Worker, recent: RecentAdds, clock: Clock, counts: Counts, events: Events, *,
        delete: Callable[[Callable[[], Iterable[LedgerId]], Collection[LedgerId]], Awaitable[int]],
        told: Callable[[int, int], None], save: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._driver, self._bookie, self._storage, self._disk, self._worker = driver, bookie, storage, disk, worker
        self._recent, self._clock, self._counts, self._events = recent, clock, counts, events
        self._identities = storage.identities
        self._delete, self._told, self._save_state = delete, told, save
        self._instance = instance
        self._waiting_path = os.path.join(folder_of(folder), WAITING_FILE)
        self._order_path = os.path.join(folder_of(folder), ORDER_FILE)
        self._core = GarbageCore(rules, instance, storage.identities.is_missed, self._was_made, self._stored_waiting())
        self._saved = self._core.waiting.encode()
        self._identities.set_ahead(self._core.waiting.ahead)
        self._again: set[LedgerId] = set()  # deleted once, and other ledgers in the metadata now

    def _was_made(self, ledger: LedgerId) -> bool:
        """Whether the metadata had it: its creation is known here."""
        identity = self._identities.identity(ledger)
        return identity is not None and identity.creation != UNKNOWN

    async def compare(self) -> None:
        """See whether the metadata is older than what is stored: before anybody can use its ids again. Raises
        MetadataError."""
        stored = self._identities.creations()
        await self._compare(stored, await self._driver.sync())
        self._show()

    async def _compare(self, stored: list[tuple[LedgerId, Creation]], moment: Moment) -> None:
        """``stored``: creations that were known before ``moment``. One that was noted later may be later."""
        if moment.instance != self._instance:
            return  # which the run that follows says
        anchor = await self._driver.bookie_creation(self._bookie)
        if anchor is None:
            raise MetadataError("the bookie has no cookie any more", bookie=self._bookie)
        if not self._identities.anchored(anchor):
            self._core.waiting.ahead.clear()  # by creations of other metadata, which this is a copy of
            stored = []
            with contextlib.suppress(DiskFull):  # what is noted from now on is forgotten by a crash
                await self._save_state()
        found = self._core.compare(moment, stored, await self._lost(stored))
        if found:
            self._identities.set_ahead(self._core.waiting.ahead)
            await self._save()
            self._show()
            self._events.emit(
                "metadata is older than the ledgers", count=len(found), ledgers=found[:SHOWN_LEDGERS],
                reason="it was restored from an older copy, which lacks them, or they were made by such a copy that "
                "was replaced since; they are kept. Put the right metadata back, if it is not, or give them up: tally "
                "bookie collect --now",
            )  # fmt: skip

    async def _lost(self, stored: list[tuple[LedgerId, Creation]]) -> set[Creation]:
        lost = set[Creation]()
        for start in range(0, len(stored), _PAGE):
            lost |= await self._driver.never_made([creation for _, creation in stored[start : start + _PAGE]])
        return lost

    def _show(self) -> None:
        waiting, ahead = self._core.waiting.count, len(self._core.waiting.ahead)
        if (self._counts.deletions_waiting, self._counts.ledgers_ahead) != (waiting, ahead):
            self._told(waiting, ahead)
        self._counts.deletions_waiting, self._counts.ledgers_ahead = waiting, ahead

    async def runs(self, wait_s: float) -> None:
        due = self._clock.now() + min(wait_s, FIRST_RUN_S)
        while True:
            given = await self._next_order(due)
            try:
                await self.run(override=given is Order.NOW)
            except (MetadataError, DiskFull) as error:
                self._counts.collections_failed += 1
                self._events.emit("deleted ledgers not looked for", reason=str(error))
            due = self._clock.now() + wait_s

    async def _next_order(self, due: float) -> Order | None:
        while (left := due - self._clock.now()) > 0:
            if (given := self._take_order()) is not None:
                return given
            await asyncio.sleep(min(left, ORDER_POLL_S))
        return self._take_order()

    def _take_order(self) -> Order | None:
        if not self._disk.exists(self._order_path):
            return None
        try:
            found = _waits(self._disk, self._order_path, self._clock.wall_ms() / 1000)
        except (StorageError, ValueError) as error:
            self._events.emit("order for a collection passed over", reason=str(error))
            found = None
        self._disk.unlink(self._order_path)
        if found is not None:
            self._events.emit("collection ordered", order=found.value)
        return found

    async def run(self, *, override: bool = False) -> int:
        """One run, with its wait; how many ledgers were deleted. Raises MetadataError, DiskFull: nothing was."""
        try:
            actions = self._core.begin(self._storage.ledger_ids(), override=override)
            while not isinstance(action := actions[0], Finish):
                actions = await self._perform(action)
            count = await self._finish(action)
            with contextlib.suppress(MetadataError):  # the next run does it
                await self._note()
            return count
        finally:
            self._recent.forget()

    async def _perform(self, action: Action) -> list[Action]:
        if isinstance(action, Wait):
            self._recent.forget()
            await asyncio.sleep(action.seconds)
            return self._core.waited(self._clock.now())
        if isinstance(action, Look):
            self._recent.watch(action.ledgers)
            seen = await self._driver.look(action.ledgers)
            return self._core.looked(seen.began, seen.ended, seen.by_ledger, self._clock.now())
        assert isinstance(action, List)
        stored, began = self._identities.creations(), await self._driver.sync()
        await self._compare(stored, began)
        await self._list()
        return self._core.listing_ended(began, await self._driver.sync(), self._clock.now())

    async def _list(self) -> None:
        deleted, page, again = self._storage.deleted_ids(), list[LedgerId](), list[LedgerId]()

        def take() -> None:
            self._core.listed(page)
            again.extend(ledger for ledger in page if ledger in deleted)
            page.clear()

        async for ledger in self._driver.ledgers():
            page.append(ledger)
            if len(page) == _PAGE:
                take()
        take()
        self._again = await self._of_others(again)

    async def _of_others(self, again: Sequence[LedgerId]) -> set[LedgerId]:
        """Those ids of deleted ledgers that later ones have, or any other ones where they were given up. One that came
        back itself, or an older one, is no reason to forget that entries were deleted: a fence would be answered as if
        there had been none."""
        found = set()
        for start in range(0, len(again), LOOK_LEDGERS):
            records = await self._driver.look_up(again[start : start + LOOK_LEDGERS])
            for ledger, record in records.items():
                identity = self._identities.identity(ledger)
                if record is None:
                    continue
                given_up = self._identities.given_up(ledger)
                if identity is not None and judge(record, identity, given_up).renew is not None:
                    found.add(ledger)
                else:
                    self._storage.touch(ledger)
        return found

    async def _finish(self, end: Finish) -> int:
        if end.refused is not None:
            raise MetadataError(end.refused)
        await self._save()
        self._show()
        if end.waiting:
            self._events.emit(
                "deletions wait", count=end.waiting, hours=round(end.waits_s / 3600, 1),
                reason="so many ledgers at once lack in the metadata; if that is right: tally bookie collect --now",
            )  # fmt: skip

        def gone() -> Iterator[LedgerId]:
            # Who used an id again after the last look has entries here that nobody may delete.
            return (ledger for ledger in end.delete if ledger not in self._recent.touched)

        count = await self._delete(gone, self._again)
        self._identities.set_ahead(self._core.waiting.ahead)
        self._counts.collections += 1
        return count

    async def _note(self) -> None:
        """Find the creations of ledgers that have none: what came while nobody could look may never be added to again.
        Raises MetadataError."""
        unknown = [ledger for ledger, creation in self._identities.creations() if creation == UNKNOWN]
        for start in range(0, len(unknown), LOOK_LEDGERS):
            batch = unknown[start : start + LOOK_LEDGERS]
            self._recent.forget()
            self._recent.watch(batch)
            seen = await self._driver.look(batch)
            if seen.began != seen.ended or seen.began.instance != self._instance:
                return
            for ledger in batch:
                # To who used an id again meanwhile what was read says nothing.
                if ledger not in self._recent.touched and (record := seen.by_ledger.get(ledger)) is not None:
                    self._identities.note(ledger, record.creation)

    def _stored_waiting(self) -> Waiting | None:
        if not self._disk.exists(self._waiting_path):
            return None
        try:
            return Waiting.decode(read_file(self._disk, self._waiting_path))
        except CorruptRecord as error:  # it begins to wait anew
            self._events.emit("wait of large deletions begins anew", reason=str(error))
        return None

    async def _save(self) -> None:
        data = self._core.waiting.encode()
        if data == self._saved:
            return
        try:
            await self._worker.run(lambda: write_atomic(self._disk, self._waiting_path, data))
            self._saved = data
        except StorageError as error:  # a full disk: the wait is shorter after a restart than it might be, no less safe
            self._events.emit("wait of a large deletion not saved", reason=str(error))
