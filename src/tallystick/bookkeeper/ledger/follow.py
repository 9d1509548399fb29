"""Wait until more of an open ledger is confirmed: the shell of ``PollPlanCore``.

A *long poll* is a read that a bookie answers when the LAC that it knows is beyond that of the reader. At most one is
under way to each bookie of the newest ensemble; those that others were faster than stay, as they are good for what
comes next. What a bookie tells is as good as the LAC in an entry that it stores: it has it from the writer.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

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


class LacFollower:
    """Follow the LAC of one ledger. ``close`` it: nothing is then waited for any longer."""

    def __init__(self, client: BookieClient, ledger: LedgerId, heard: HeardLac, changed: asyncio.Event) -> None:
        """``changed`` is set when the metadata are newer than those that ``moved`` is given."""
        self._client, self._ledger, self._heard, self._changed = client, ledger, heard, changed
        self._ensemble: Ensemble = ()
        self._plan: PollPlanCore | None = None
        self._polls: dict[BookieId, _Poll] = {}

    async def moved(self, metadata: LedgerMetadata, previous_lac: EntryId) -> Moved | None:
        """Wait until the LAC is beyond ``previous_lac``. Returns None if it is to be asked for instead (``read_lac``),
        or the metadata have changed.

        Raises Unauthorized.
        """
        plan = self._plan_of(metadata)
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            while not self._changed.is_set():
                now = self._client.now()
                for slot in plan.take_due(now):
                    self._ask(plan, slot, previous_lac, now)
                if plan.must_ask(now):
                    return None
                wake_at = plan.wake_at(now)
                awaited: list[asyncio.Future[Any]] = [changed, *(poll.waiter for poll in self._polls.values())]
                await asyncio.wait(
                    awaited,
                    timeout=None if wake_at is None else max(0.0, wake_at - now),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if (moved := self._take_answers(plan, previous_lac)) is not None:
                    return moved
            return None
        finally:
            changed.cancel()

    def close(self) -> None:
        """Wait for nothing more."""
        for poll in self._polls.values():
            poll.waiter.cancel()
        self._polls.clear()

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
