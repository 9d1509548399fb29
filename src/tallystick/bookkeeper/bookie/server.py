"""A bookie's port: accepts connections and knows them all."""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.requests import Requests, SpeaksV3
from tallystick.bookkeeper.bookie.session import ARENA_BYTES, Session, Surroundings
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.events import Events
from tallystick.runtime.network import Listener, Network

_REMEMBERED_PEERS = 1000
_DRAIN_S = 0.5


class BookieServer:
    """``start`` it, then ``stop`` it or ``abort`` it."""

    def __init__(
        self, network: Network, requests: Requests, committer: Committer, counts: Counts, events: Events
    ) -> None:
        self._network, self._committer, self._counts, self._events = network, committer, counts, events
        self._around = Surroundings(
            requests, committer, bytearray(ARENA_BYTES), self._opened, self._closed, self._refused
        )
        self._sessions: dict[Session, None] = {}
        self._told: set[str] = set()  # peers whose protocol version was already complained about
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Where it listens. Raises OSError."""
        self._listener = await self._network.listen(host, port, lambda: Session(self._around))
        return self._listener.address

    async def stop(self) -> None:
        """Accept nothing more, let answers that wait for the disk go out, close all connections."""
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

    def _opened(self, session: Session) -> None:
        self._sessions[session] = None
        self._counts.connections += 1

    def _closed(self, session: Session) -> None:
        del self._sessions[session]
        self._counts.connections -= 1

    def _refused(self, peer: str, error: RemoteProtocolError) -> None:
        if not isinstance(error, SpeaksV3):
            self._counts.malformed += 1
            self._events.emit("connection closed", peer=peer, reason=str(error))
            return
        self._counts.v3_refused += 1
        if peer not in self._told and len(self._told) < _REMEMBERED_PEERS:
            self._told.add(peer)
            self._events.emit("connection closed", peer=peer, reason=str(error))
