"""Wait until more of an open ledger is confirmed: the shell of ``PollPlanCore``.

A *long poll* is a read that a bookie answers when the LAC that it knows is beyond that of the reader. At most one is
under way to each bookie of the newest ensemble; those that others were faster than stay, as they are good for what
comes next. What a bookie tells is as good as the LAC in an entry that it stores: it has it from the writer.

One append wakes all who follow a ledger, thousands maybe: each turn of the loop some of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.heard_lacs import HeardLac
from tallystick.bookkeeper.ledger.owners import Waiter
from tallystick.bookkeeper.ledger.poll_plan import PollPlanCore
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.ledger.wires import unpack_lac
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, Ensemble, EntryId, LedgerId, LedgerMetadata
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError, Unauthorized

WAIT_S = 5.0  # a bookie is asked to wait for so long


class Moved(NamedTuple):
    """The LAC of a ledger has come so far. ``entry`` has the id ``first`` and is as stored, its digest not checked; it
    is empty where none came."""

    lac: EntryId
    first: EntryId = NO_ENTRY
    entry: Buffer = b""


class _Poll(NamedTuple):
    waiter: Waiter
    previous_lac: EntryId
    asked_at: float


class MetadataChange:
    """Whether the metadata of a ledger are newer than those that its reader has. ``listeners`` are called when it is
    set."""

    def __init__(self) -> None:
        self.is_set = False
        self.listeners: dict[Callable[[], None], None] = {}

    def set(self) -> None:
        """They are newer, or nobody looks at them any more."""
        self.is_set = True
        for listener in tuple(self.listeners):
            listener()

    def clear(self) -> None:
        """They are read again from now on."""
        self.is_set = False


class LacFollower:
    """Follow the LAC of one ledger. ``close`` it: nothing is then waited for any longer."""

    def __init__(self, client: BookieClient, ledger: LedgerId, heard: HeardLac, changed: MetadataChange) -> None:
        """``changed`` is set when the metadata are newer than those that ``moved`` is given."""
        self._client, self._ledger, self._heard, self._changed = client, ledger, heard, changed
        self._ensemble: Ensemble = ()
        self._plan: PollPlanCore | None = None
        self._polls: dict[BookieId, _Poll] = {}
        self._waiter: asyncio.Future[None] | None = None  # until it is about to be woken

    async def moved(self, metadata: LedgerMetadata, previous_lac: EntryId) -> Moved | None:
        """Wait until the LAC is beyond ``previous_lac``. Returns None if it is to be asked for instead (``read_lac``),
        or the metadata have changed.

        Raises Unauthorized.
        """
        plan = self._plan_of(metadata)
        self._changed.listeners[self._wake] = None
        try:
            while not self._changed.is_set:
                now = self._client.now()
                for slot in plan.take_due(now):
                    self._ask(plan, slot, previous_lac, now)
                if plan.must_ask(now):
                    return None
                await self._wait(plan.wake_at(now), now)
                if (moved := self._take_answers(plan, previous_lac)) is not None:
                    return moved
            return None
        finally:
            self._changed.listeners.pop(self._wake, None)

    def close(self) -> None:
        """Wait for nothing more."""
        for poll in self._polls.values():
            poll.waiter.cancel()
        self._polls.clear()

    async def _wait(self, wake_at: float | None, now: float) -> None:
        """Wait for an answer, newer metadata or this time."""
        if any(poll.waiter.done() for poll in self._polls.values()):
            return
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if wake_at is None else loop.call_later(max(0.0, wake_at - now), self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self, _: object = None) -> None:
        """Whatever it waits for has come: it is woken when it is its turn."""
        if self._waiter is not None:
            self._client.wakes.wake(self._waiter)
            self._waiter = None

    def _plan_of(self, metadata: LedgerMetadata) -> PollPlanCore:
        if self._plan is None or metadata.ensemble != self._ensemble:
            self.close()
            self._ensemble = metadata.ensemble
            slot = self._ledger % metadata.ensemble_size
            self._plan = PollPlanCore(Striping.of(metadata), slot, self._client.now())
        return self._plan

    def _ask(self, plan: PollPlanCore, slot: int, previous_lac: EntryId, now: float) -> None:
        bookie = self._ensemble[slot]
        if self._client.settings.wire == "v2" or self._client.lacks_v3(bookie, self._ledger):
            plan.failed(slot, now)
        else:
            waiter = self._client.long_poll(bookie, self._ledger, previous_lac, wait_s=WAIT_S)
            waiter.add_done_callback(self._wake)
            self._polls[bookie] = _Poll(waiter, previous_lac, now)

    def _take_answers(self, plan: PollPlanCore, previous_lac: EntryId) -> Moved | None:
        """Take all that have come. Returns how far the LAC has moved by them, None if it did not."""
        now, best = self._client.now(), Moved(previous_lac)
        for bookie, poll in [(bookie, poll) for bookie, poll in self._polls.items() if poll.waiter.done()]:
            del self._polls[bookie]
            slot = self._ensemble.index(bookie)
            moved = self._answer_of(poll, bookie)
            if moved is None or (moved.lac <= poll.previous_lac and now < poll.asked_at + WAIT_S / 2):
                plan.failed(slot, now)  # or it has too many that wait
            elif moved.lac <= poll.previous_lac:
                plan.waited(slot)
            else:
                plan.moved(slot, now)
                if moved.lac > best.lac:
                    best = moved
        if self._heard.lac > best.lac:
            best = best._replace(lac=self._heard.lac)
        if best.lac <= previous_lac:
            return None
        plan.moved(None, now)
        return best

    def _answer_of(self, poll: _Poll, bookie: BookieId) -> Moved | None:
        """Return what a bookie has told, None if it did not."""
        try:
            response = poll.waiter.result()
        except TallyError:
            return None
        if response.code == Code.UNAUTHORIZED:
            raise Unauthorized("a bookie refuses to be read", ledger=self._ledger, bookie=bookie)
        if response.code != Code.OK:
            return None
        return Moved(unpack_lac(response.entries[0]), poll.previous_lac + 1, b"".join(response.entries[1:]))
