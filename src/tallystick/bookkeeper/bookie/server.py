"""The server accepts a bookie's connections, and bounds what they may take of the machine together.

Their time is bounded by ``turns``, their memory by one ``Budget``. With half of it in use responses to reads get short,
and beyond it the largest holder is closed. A peer that takes nothing for a minute is closed in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.handshakes import Handshakes
from tallystick.bookkeeper.bookie.long_polls import LongPolls
from tallystick.bookkeeper.bookie.looks import Looks
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.session import Session, SessionContext
from tallystick.bookkeeper.bookie.turns import TURN_S, Kind, TurnsCore
from tallystick.bookkeeper.bookie.wires import Wires
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.arena import Arena
from tallystick.runtime.budget import Budget, CloseReason, Excess
from tallystick.runtime.ended import EndedConnections
from tallystick.runtime.events import Events
from tallystick.runtime.memory import FreedMemory
from tallystick.runtime.network import Listener
from tallystick.runtime.once import Once
from tallystick.runtime.places import Places
from tallystick.runtime.turn_steps import TurnSteps

MAX_CONNECTIONS = 4096  # a broker of Pulsar has up to 64 to each bookie
MAX_HELD_BYTES = 512 * 1024 * 1024  # a hundred of the longest frames or answers at once
OTHER_FILES = 512  # of the process's open files: entry logs, journal, metadata; a bookie that cannot open those ends
STALLED_S = 60.0  # a peer that takes nothing for so long is closed
TICK_S = 0.25  # between two looks at which peers took responses, while some wait to be taken

FORGET_EACH_TURN = 200  # connections that ended: some milliseconds
LOOKS_EACH_TURN = 64  # connections of which is measured what they took, or that must go: the same
_SHORT_SHARE = 0.5  # of the budget; with more in use answers to reads are short
_ARENAS_SHARE = 0.25  # of the budget is what one read of each connection may bring
_DRAIN_S = 0.5


@dataclass(frozen=True)
class Bounds:
    """What all connections may take together."""

    connections: int = MAX_CONNECTIONS
    held_bytes: int = (
        MAX_HELD_BYTES  # of responses that are not taken, and of requests that are not whole or not served yet
    )

    @classmethod
    def of(cls, open_files: int, max_frame_bytes: int) -> Bounds:
        """Return the bounds of a process that may have so many files open; one frame at least always fits."""
        room = max(open_files - OTHER_FILES, open_files // 4)
        return cls(min(MAX_CONNECTIONS, room), max(MAX_HELD_BYTES, 2 * max_frame_bytes))


class BookieServer:
    """Bind a port whose connections are ``session``s, ``serve`` it, then ``stop`` or ``abort`` it."""

    def __init__(
        self,
        wires: Wires,
        committer: Committer,
        looks: Looks,
        polls: LongPolls,
        lists: EntryLists,
        counts: Counts,
        events: Events,
        bounds: Bounds,
        handshakes: Handshakes | None = None,
    ) -> None:
        self._polls, self._lists = polls, lists
        self._committer, self._counts, self._events = committer, counts, events
        self._bounds, self._loop = bounds, asyncio.get_running_loop()
        self._budget: Budget[Session] = Budget(bounds.held_bytes, STALLED_S)
        self._freed = FreedMemory()
        self._turns: TurnsCore[Session] = TurnsCore(TURN_S)
        self._around = SessionContext(wires, committer, self._turns, self, looks, handshakes)
        self._sessions: dict[Session, None] = {}
        self._ended: EndedConnections[Session] = EndedConnections(self._forget, FORGET_EACH_TURN)
        self._places: Places[Session] = Places(bounds.connections, has_spoken=lambda session: session.has_asked)
        self._reports = Once()  # by host and reason
        self._crowded = False  # there were too many, and that was reported
        self._turn_is_due = self._looking = False
        self._looks = TurnSteps(LOOKS_EACH_TURN)
        self._ticking: asyncio.TimerHandle | None = None
        self._arena = Arena()
        self._revoking = TurnSteps(LOOKS_EACH_TURN)
        if handshakes is not None:
            handshakes.watch(lambda: self._revoking.run(self._throw_out()))
        self._listener: Listener | None = None

    def session(self) -> Session:
        """Make the session of a new connection."""
        return Session(self._around)

    async def serve(self, listener: Listener) -> None:
        """Accept connections on a port that was bound. Raises OSError."""
        self._listener = listener
        await listener.serve()

    async def stop(self) -> None:
        """Accept nothing more, send the responses that wait for the disk, close all connections."""
        if self._listener is not None:
            await self._listener.close()
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._committer.idle.wait()
        except TimeoutError:
            self._events.emit("stopped with unanswered requests", reason="the disk did not take them in time")
        self.abort()

    def abort(self) -> None:
        """Close all connections at once."""
        for session in tuple(self._sessions):
            session.abort()
        self._ended.forget_all()
        self._looks.close()
        self._revoking.close()
        self._freed.close()
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    # Calls of the sessions.

    @property
    def buffer(self) -> memoryview:
        return self._arena.buffer

    def received(self, nbytes: int, session: Session) -> memoryview:
        return self._arena.received(nbytes, session, session.peer)

    def opened(self, session: Session) -> None:
        self._ended.make_way()
        self._sessions[session] = None
        self._counts.connections += 1
        excess = self._places.arrived(session, session.peer)
        if excess is not None:
            self._refuse(excess)
        self._share_buffer()

    def _refuse(self, session: Session) -> None:
        """Close a connection that is one too many."""
        self._counts.connections_refused += 1
        if not self._crowded:
            self._crowded = True
            reason = f"{self._bounds.connections} are open"
            self._events.emit("connection refused", peer=session.peer, reason=reason)
        self._drop(session)
        session.abort()

    def closed(self, session: Session) -> None:
        """A connection ended. Thousands may end in one turn of the loop; they are forgotten over many."""
        if session not in self._sessions:  # it was refused
            return
        self._ended.add(session)

    def _forget(self, session: Session) -> None:
        if session in self._sessions:  # else it was refused since
            self._drop(session)
            self._crowded = self._crowded and len(self._sessions) > self._bounds.connections // 2
            self._share_buffer()

    def _drop(self, session: Session) -> None:
        del self._sessions[session]
        self._places.left(session)
        self._counts.connections -= 1

    def _throw_out(self) -> Iterator[None]:
        """Close the connections of those whose secret is taken away, or who may do something else now."""
        for session in tuple(self._sessions):
            if session.is_revoked:
                self._events.emit(
                    "connection closed", peer=session.peer, reason="its key or its permission was changed"
                )
                session.abort()
            yield

    def _share_buffer(self) -> None:
        """Bound what one read may bring: less with many connections, as all of them may have to hold it."""
        share = int(self._bounds.held_bytes * _ARENAS_SHARE) // max(1, len(self._sessions))
        self._arena.share(share)

    def unsent(self, session: Session, size: int, has_taken: bool) -> None:
        self._budget.unsent(session, size, self._loop.time(), has_taken=has_taken)
        if self._ticking is None and size:
            self._ticking = self._loop.call_later(TICK_S, self._tick)
        self._changed()

    def unfinished(self, session: Session, size: int, progress: bool) -> None:
        self._budget.unfinished(session, size, self._loop.time(), progress=progress)
        self._changed()

    def remembers(self, session: Session, size: int) -> None:
        self._budget.kept(session, size)
        self._changed()

    def forget(self, session: Session) -> None:
        self._freed.freed(self._budget.forget(session))
        self._turns.leave(session, session.peer)
        self._committer.forget(session)
        self._arena.closed(session, session.peer)
        self._polls.forget(session)
        self._lists.forget(session)
        self._changed()

    def wait(self, session: Session, kind: Kind) -> None:
        self._turns.wait(kind, session, session.peer)
        self._changed()

    def refused(self, peer: str, error: RemoteProtocolError) -> None:
        self._counts.malformed += 1
        if self._reports.is_new((type(error), peer)):
            self._events.emit("connection closed", peer=peer, reason=str(error))

    def failed(self, peer: str, error: Exception) -> None:
        if self._reports.is_new((repr(error), peer)):
            self._events.emit("request failed", peer=peer, reason=repr(error))

    # Time and memory.

    @property
    def short(self) -> bool:
        return self._budget.held_bytes > self._bounds.held_bytes * _SHORT_SHARE

    def _changed(self) -> None:
        self._counts.unsent_bytes = self._budget.unsent_bytes
        self._counts.unfinished_bytes = self._budget.unfinished_bytes
        if self._budget.over and not self._looking:
            self._look(self._close_excess())
        if not self._turn_is_due and self._turns.due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        try:
            for session, kind in self._turns.begin():
                session.go_on(kind)
        finally:  # whatever happens, those that still wait have a turn
            self._turn_is_due = False
            self._changed()

    def _tick(self) -> None:
        """Measure which peers took responses, and close those that must go."""
        self._ticking = None
        if not self._looking:
            self._look(self._look_at_all())
        if self._ticking is None and self._budget.unsent_bytes:
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _look(self, steps: Iterator[None]) -> None:
        self._looking = True
        self._looks.run(self._to_the_end(steps))

    def _to_the_end(self, steps: Iterator[None]) -> Iterator[None]:
        try:
            yield from steps
        finally:
            self._looking = False
        self._changed()

    def _look_at_all(self) -> Iterator[None]:
        for session in self._budget.takers():
            session.look()
            yield
            if self._budget.over:
                yield from self._close_excess()
        yield from self._close_excess()

    def _close_excess(self) -> Iterator[None]:
        for excess in self._budget.excess(self._loop.time(), lambda session: session.look()):
            if excess is not None:
                self._close(excess)
            yield

    def _close(self, excess: Excess[Session]) -> None:
        if excess.reason is CloseReason.UNFINISHED:
            self._counts.unfinished_closed += 1
        else:
            self._counts.unsent_closed += 1
        host, reason = excess.peer.peer, str(excess.reason)
        if self._reports.is_new((host, reason)):  # who is closed connects again and does the same
            self._events.emit("connection closed", peer=host, bytes=excess.bytes, reason=reason)
        excess.peer.abort()
        self._freed.freed(excess.bytes)
