"""The writers of one client: what they share, and which of them have a session.

A writer has an ``AddSession`` while it has something under way: its core, channels to its bookies, a deque here and
there, some thirty objects. Of those that have nothing under way the ``IDLE_SESSIONS`` that had something last keep
theirs; the others keep their ``WriterState``, packed, and make a session when they append again. Which bookies
failed is part of that state: the next session begins with replacing them.

Who watches for the bookies of all of them (``absences.py``) needs those without a session, too. They are held until
they are closed, stopped or failed, or their client is closed: a weak reference would be as many objects as a writer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Protocol

from tallystick.bookkeeper.ledger.absences import OpenWriter
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.explicit_lacs import ExplicitLacs, LacWriter
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.restorer import Restorer
from tallystick.bookkeeper.wire.values import LedgerId

IDLE_SESSIONS = 128  # a session costs about as much as the append that it is made for
SESSIONS_A_TURN = 128  # send before the loop goes on


class SessionOwner(LacWriter, Protocol):
    """A writer, as the others of its client see it."""

    def drop_session(self) -> None:
        """Do without a session until the next append, if nothing is under way."""
        ...

    def abort(self) -> None: ...


class Flushable(Protocol):
    """A session, as its client's writers see it."""

    def flush(self) -> None:
        """Send what was appended in this tick."""
        ...


class Writers:
    """The writers of a client. Must be made on the running event loop."""

    def __init__(self, context: LedgerContext, placement: Placement, restorer: Restorer) -> None:
        self.context, self.placement, self.restorer = context, placement, restorer
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self.lacs = ExplicitLacs(context)
        self.open: dict[LedgerId, OpenWriter] = {}  # in the order of their opening
        self._with_session: dict[SessionOwner, None] = {}
        self._unsent: deque[Flushable] = deque()  # what they appended in this tick
        self._idle: OrderedDict[SessionOwner, None] = OrderedDict()  # of those, in order of when they became it

    def __len__(self) -> int:
        """Count the writers that have a session."""
        return len(self._with_session)

    def opened(self, writer: OpenWriter) -> None:
        """The writer's ledger was made."""
        self.open[writer.id] = writer

    def left(self, ledger: LedgerId) -> None:
        """The writer of this ledger takes no more."""
        self.open.pop(ledger, None)

    def began(self, writer: SessionOwner) -> None:
        """The writer has a session now."""
        self._with_session[writer] = None

    def ended(self, writer: SessionOwner) -> None:
        """The writer has no session any more."""
        self._with_session.pop(writer, None)
        self._idle.pop(writer, None)

    def busy(self, writer: SessionOwner) -> None:
        """The writer has something under way."""
        self._idle.pop(writer, None)
        self.lacs.appended(writer)

    def idle(self, writer: SessionOwner) -> None:
        """The writer has nothing under way: it may have to drop its session from now on."""
        if writer not in self._with_session:  # its session has ended
            return
        self._idle[writer] = None
        self._idle.move_to_end(writer)
        if len(self._idle) > IDLE_SESSIONS:
            oldest, _ = self._idle.popitem(last=False)
            oldest.drop_session()

    def flush_soon(self, session: Flushable) -> None:
        """Send what is appended to it in this tick, when the tick is over."""
        if not self._unsent:
            self.loop.call_soon(self._flush)
        self._unsent.append(session)

    def _flush(self) -> None:
        try:
            for _ in range(min(len(self._unsent), SESSIONS_A_TURN)):
                self._unsent.popleft().flush()
        finally:
            if self._unsent:
                self.loop.call_soon(self._flush)

    def close(self) -> None:
        """Stop them as if the process died. One without a session has nothing under way, and looks at ``is_closed``."""
        self.is_closed = True
        self.open.clear()
        self.lacs.close()
        for writer in tuple(self._with_session):
            writer.abort()
