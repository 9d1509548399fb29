"""A bookie's port: accepts connections, knows them all, and bounds what they may take of the machine together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from operator import attrgetter

from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.requests import Requests, SpeaksV3
from tallystick.bookkeeper.bookie.session import ARENA_BYTES, Session, Surroundings
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.events import Events
from tallystick.runtime.network import Listener, Network

MAX_CONNECTIONS = 4096  # a broker of Pulsar has up to 64 to each bookie
MAX_UNFINISHED_BYTES = 512 * 1024 * 1024  # a hundred of the longest frames at once
OTHER_FILES = 512  # of the process's open files: entry logs, journal, metadata; a bookie that cannot open those ends

_REMEMBERED_PEERS = 1000
_DRAIN_S = 0.5


@dataclass(frozen=True)
class Bounds:
    """What all connections may take together."""

    connections: int = MAX_CONNECTIONS
    unfinished_bytes: int = MAX_UNFINISHED_BYTES  # received of frames that are not whole

    @classmethod
    def of(cls, open_files: int, max_frame_bytes: int) -> Bounds:
        """For a process that may have so many files open; one frame at least always fits."""
        room = max(open_files - OTHER_FILES, open_files // 4)
        return cls(min(MAX_CONNECTIONS, room), max(MAX_UNFINISHED_BYTES, 2 * max_frame_bytes))


class BookieServer:
    """``start`` it, then ``stop`` it or ``abort`` it."""

    def __init__(
        self, network: Network, requests: Requests, committer: Committer, counts: Counts, events: Events, bounds: Bounds
    ) -> None:
        self._network, self._committer, self._counts, self._events = network, committer, counts, events
        self._bounds = bounds
        self._around = Surroundings(
            requests, committer, bytearray(ARENA_BYTES), self._opened, self._closed, self._refused, self._unfinished
        )
        self._sessions: dict[Session, None] = {}
        self._told: set[str] = set()  # peers whose protocol version was already complained about
        self._crowded = False  # there were too many, and it was said
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
        if len(self._sessions) >= self._bounds.connections:
            self._counts.connections_refused += 1
            if not self._crowded:
                self._crowded = True
                self._events.emit("connections refused", peer=session.peer, reason=f"{len(self._sessions)} are open")
            session.abort()
            return
        self._sessions[session] = None
        self._counts.connections += 1

    def _closed(self, session: Session) -> None:
        if session in self._sessions:  # else it was refused
            del self._sessions[session]
            self._counts.connections -= 1
            self._crowded = self._crowded and len(self._sessions) > self._bounds.connections // 2

    def _unfinished(self, change: int) -> None:
        """Over the bound the connection that holds most is closed: honest peers finish their frames and come again."""
        self._counts.unfinished_bytes += change
        while self._counts.unfinished_bytes > self._bounds.unfinished_bytes:
            greediest = max(self._sessions, key=attrgetter("unfinished"))
            self._counts.unfinished_closed += 1
            self._events.emit(
                "connection closed", peer=greediest.peer, bytes=greediest.unfinished,
                reason="unfinished frames fill the memory that is set aside for them",
            )  # fmt: skip
            greediest.abort()

    def _refused(self, peer: str, error: RemoteProtocolError) -> None:
        if not isinstance(error, SpeaksV3):
            self._counts.malformed += 1
            self._events.emit("connection closed", peer=peer, reason=str(error))
            return
        self._counts.v3_refused += 1
        if peer not in self._told and len(self._told) < _REMEMBERED_PEERS:
            self._told.add(peer)
            self._events.emit("connection closed", peer=peer, reason=str(error))
