"""The shell of ``LacScheduleCore``: the LACs that idle writers tell, so that who follows a ledger gets its last entry.

Whatever becomes of such a request, no entry waits for it, and no bookie is thought worse of: what readers lose without
it is time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.lac_schedule import LacScheduleCore
from tallystick.bookkeeper.ledger.owners import BookieResponse
from tallystick.bookkeeper.ledger.wires import WriteLacRequest
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, LedgerId
from tallystick.errors import TallyError
from tallystick.runtime.alarm import Alarm

WRITERS_A_TURN = 128  # tell their LACs before the loop goes on


@dataclass(frozen=True)
class ExplicitLac:
    """The LAC of a ledger, as its ``bookies`` are told it: those that store that entry."""

    ledger: LedgerId
    lac: EntryId
    bookies: Ensemble
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)


class LacWriter(Protocol):
    """A writer, as far as its LAC is concerned."""

    def explicit_lac(self) -> ExplicitLac | None:
        """Return the LAC to tell, None if it is busy again or its ledger is not its own any more."""
        ...


class ExplicitLacs:
    """Tell the LACs of a client's writers. Nothing is sent before one was idle for the interval of the settings, and
    nothing at all where that is 0 or the client speaks version 2 alone."""

    def __init__(self, context: LedgerContext) -> None:
        self._bookies, self._clock, self._events = context.bookies, context.clock, context.events
        settings = context.settings
        self._is_off = not settings.explicit_lac_interval_s or settings.wire == "v2"
        self._core: LacScheduleCore[LacWriter] = LacScheduleCore(settings.explicit_lac_interval_s)
        self._loop = context.loop
        self._alarm = Alarm(context.clock, self._tell_due)
        self._failed_bookies: set[BookieId] = set()  # that did not take the last one: it was said

    def confirmed(self, writer: LacWriter) -> None:
        """All that the writer appended is confirmed."""
        if not self._is_off:
            self._alarm.set(self._core.confirmed(writer, self._clock.now()))

    def appended(self, writer: LacWriter) -> None:
        """The writer sends entries."""
        self._core.appended(writer)

    def close(self) -> None:
        """Tell nothing more."""
        self._is_off = True
        self._alarm.cancel()

    def _tell_due(self) -> None:
        if self._is_off:
            return
        now = self._clock.now()
        for writer in self._core.take_due(now, WRITERS_A_TURN):
            if (explicit_lac := writer.explicit_lac()) is None:
                self._core.appended(writer)
                continue
            for bookie in explicit_lac.bookies:
                self._tell(writer, explicit_lac, bookie)
        wake_at = self._core.wake_at()
        if wake_at is not None and wake_at <= now:
            self._loop.call_soon(self._tell_due)
        else:
            self._alarm.set(wake_at)

    def _tell(self, writer: LacWriter, explicit_lac: ExplicitLac, bookie: BookieId) -> None:
        ledger = explicit_lac.ledger
        if self._bookies.lacks_v3(bookie, ledger) or not self._core.tells(writer, bookie, ledger):
            return
        waiter = self._bookies.write_lac(bookie, ledger, partial(self._request, writer, bookie))
        waiter.add_done_callback(partial(self._answered, bookie, ledger))

    def _request(self, writer: LacWriter, bookie: BookieId) -> WriteLacRequest | None:
        """Return what is true when it is sent: the connection may have come late, and the writer may be fenced or have
        sent entries. None if there is nothing to tell now."""
        explicit_lac = None if self._is_off else writer.explicit_lac()
        if explicit_lac is None:
            self._core.appended(writer)
            return None
        if bookie not in explicit_lac.bookies or not self._core.is_current(bookie, explicit_lac.ledger):
            return None
        return WriteLacRequest(explicit_lac.ledger, explicit_lac.lac, explicit_lac.master_key, explicit_lac.body)

    def _answered(self, bookie: BookieId, ledger: LedgerId, response: asyncio.Future[BookieResponse]) -> None:
        is_taken = False
        if not response.cancelled():
            reason = self._refusal(response)
            is_taken = reason is None
            if not self._is_off:
                self._note(bookie, reason)
        writer = self._core.answered(bookie, ledger, self._clock.now(), taken=is_taken)
        if self._is_off:
            return
        self._alarm.set(self._core.wake_at())
        if writer is not None and (explicit_lac := writer.explicit_lac()) and bookie in explicit_lac.bookies:
            self._tell(writer, explicit_lac, bookie)

    def _refusal(self, response: asyncio.Future[BookieResponse]) -> str | None:
        """Return why the bookie did not take a LAC, None if it did."""
        try:
            code = response.result().code
        except TallyError as error:
            return error.message
        return None if code == Code.OK else code.name

    def _note(self, bookie: BookieId, reason: str | None) -> None:
        if reason is None:
            self._failed_bookies.discard(bookie)
        elif bookie not in self._failed_bookies:
            self._failed_bookies.add(bookie)
            self._events.emit("explicit LAC not taken", bookie=bookie, reason=reason)
