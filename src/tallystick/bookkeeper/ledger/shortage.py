"""A writer that lacks bookies: it reports that, waits for others, and ends if it has no quorum for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from tallystick.bookkeeper.ledger.add import Action, AddCore, Reason
from tallystick.bookkeeper.ledger.degraded import FailedBookies, QuorumLossCore
from tallystick.bookkeeper.ledger.identity import ANOTHER_BOOKIE
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.replicas import BookieIdentities
from tallystick.bookkeeper.ledger.restorer import Restorer
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, Slot
from tallystick.errors import MetadataUnavailable, NotEnoughBookies, TallyError
from tallystick.runtime.clock import Clock

Perform = Callable[[list[Action], Exception | None], None]
Believes = Callable[[BookieId, Creation | None], bool]  # whether acks of a bookie count when this is who it is


class Shortage:
    """The shell of the degraded part of one writer's ``AddCore``. Call ``checked`` after each of its events."""

    def __init__(
        self,
        ledger: LedgerId,
        *,
        core: AddCore,
        perform: Perform,
        emit: Callable[..., None],
        placement: Placement,
        restorer: Restorer,
        clock: Clock,
        limit_s: float,
        believes: Believes,
        avoided: Collection[BookieId],
        failed_bookies: FailedBookies,
    ) -> None:
        """``avoided`` bookies are never taken for the missing ones; ``failed_bookies`` are the writer's."""
        self.id, self._avoided, self._failed_bookies = ledger, avoided, failed_bookies
        self._believes = believes
        self._reported_identities: dict[
            BookieId, Creation | None
        ] = {}  # identities of missing bookies that were reported as not believed
        self._core, self._perform, self._emit = core, perform, emit
        self._placement, self._restorer, self._clock, self._limit_s = placement, restorer, clock, limit_s
        self._loss = QuorumLossCore(limit_s)
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at: float | None = None
        self._degraded = self._has_ended = False
        self._reported_bookies: set[BookieId] = set()  # as missing, since the ledger was written to a full ensemble
        self._awaited_slots: set[Slot] = set()  # places that were missing, and whose bookies have taken nothing since

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        return self._core.missing_bookies

    def began(self, cause: Exception) -> None:
        """Nothing can replace the failed bookies: the ledger goes on without them."""
        if self._core.failure is not None:
            return
        before, self._degraded = self.missing_bookies, True
        self._perform(self._core.no_replacement(), None)
        if self.missing_bookies == before:
            return
        self._awaited_slots.update(
            slot for slot, bookie in enumerate(self._core.ensemble) if bookie in self.missing_bookies
        )
        is_news = not self._reported_bookies.issuperset(self.missing_bookies)
        if is_news:  # else whoever was tried in the place of one was as dead
            self._reported_bookies.update(self.missing_bookies)
            first, missing, answers = self._core.lac + 1, self.missing_bookies, self._failed_bookies.last_responses()
            self._emit("ledger degraded", first=first, missing=missing, reason=str(cause), answers=answers)
        self._restorer.join(self, is_news=is_news)

    def acked(self, slot: Slot) -> None:
        """The slot's bookie takes entries."""
        self._awaited_slots.discard(slot)

    async def restore(self, identities: BookieIdentities) -> None:
        """Replace the missing bookies, or send to those that answer again and have one of the ``identities``.

        Nothing is sent to a bookie that is another one by now: its acks would not count, and the place would fail
        again.
        """
        try:
            core, missing = self._core, self.missing_bookies
            await self._placement.without(missing, core.ensemble, core.striping, never=self._avoided)
        except TallyError:
            for bookie in self.missing_bookies:
                if bookie in identities and self._is_believed(bookie, identities[bookie]):
                    self._perform(self._core.resumed(bookie), None)
        else:
            self._failed_bookies.again()
            self._perform(self._core.retry(), None)

    def _is_believed(self, bookie: BookieId, identity: Creation | None) -> bool:
        if self._believes(bookie, identity):
            self._reported_identities.pop(bookie, None)
            return True
        if bookie not in self._reported_identities or self._reported_identities[bookie] != identity:
            self._reported_identities[bookie] = identity
            self._emit("bookie not believed", bookie=bookie, reason=ANOTHER_BOOKIE)
        return False

    def checked(self) -> None:
        """Check, after each event of the core, whether the writer has all bookies again, or no quorum for too long."""
        if self._has_ended:
            return
        if self._degraded and not self.missing_bookies:
            self._degraded = False
            self._restorer.leave(self)
            if self._core.is_quiet:  # nothing that they could take
                self._awaited_slots.clear()
        if self._reported_bookies and not self.missing_bookies and not self._awaited_slots:
            self._reported_bookies.clear()
            self._emit("ledger restored", first=self._core.lac + 1, ensemble=self._core.ensemble)
        starved = self._core.starved
        self._loss.observed(starved, self._core.lac, self._clock.now())
        # While a bookie is tried nothing ends: its response, or that there is none, comes in time.
        wakes_at = self._loss.wake_at() if starved else None
        if wakes_at != self._wakes_at:
            self._wake_at(wakes_at)

    def ended(self) -> None:
        """The writer takes no more entries."""
        self._degraded, self._has_ended = False, True
        self._restorer.leave(self)
        self._wake_at(None)

    def _wake_at(self, moment: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wakes_at = moment
        if moment is not None:
            delay_s = max(moment - self._clock.now(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._timed_out)

    def _timed_out(self) -> None:
        if self._loss.over(self._clock.now()):
            fields: dict[str, Any] = {"ledger": self.id, "missing": self.missing_bookies, "waited_s": self._limit_s}
            error = NotEnoughBookies(
                "the ack quorum could not be met", **fields, answers=self._failed_bookies.last_responses()
            )
            self._perform(self._core.change_failed(Reason.NO_QUORUM), error)
        else:
            self._wake_at(self._wakes_at)


def changed_nothing(error: Exception) -> bool:
    """Return whether an ensemble change that failed so has certainly left the metadata as it was."""
    return isinstance(error, NotEnoughBookies | MetadataUnavailable) and not error.ambiguous
