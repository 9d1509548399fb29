"""One listening port of a broker or name server: the frames of all connections in one loop tick are one batch.

However many producers there are, what they sent meanwhile becomes one call of the handler, and its responses become one
write per connection. What is too much for one turn of the loop waits for the next ones (``intake.py``). A connection
that sends garbage is closed, and nothing else notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.remoting.backlog import TURN_S
from tallystick.rocketmq.remoting.intake import Intake
from tallystick.rocketmq.remoting.link import Link, Outbox, Surroundings, close_links
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.server_requests import ServerRequests
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import Flag, ResponseCode
from tallystick.runtime.arena import Arena
from tallystick.runtime.ended import EndedConnections
from tallystick.runtime.network import Listener
from tallystick.runtime.once import Once
from tallystick.runtime.outside import Outside
from tallystick.runtime.places import Places
from tallystick.runtime.turn_steps import TurnSteps
from tallystick.runtime.turn_time import TurnTime

_RESPONSE = int(Flag.RESPONSE)  # a plain number: per request
_ARENAS_SHARE = 0.125  # of the server's memory is what one read of each connection may bring; two come before it waits
CLOSE_EACH_TURN = 32  # connections that the server closes for their silence, or for what they take: some milliseconds
FORGET_EACH_TURN = 100  # connections that ended, whoever ended them: some milliseconds


class RequestReceiver(Protocol):
    """The part of a server that gets its requests."""

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        """Get the requests of one loop tick, in order for each link; responses may be sent now or later.

        If it raises, each of them that has no response yet gets one with code 1.
        """
        ...

    def closed(self, link: Link) -> None:
        """A link has ended; what is sent to it is dropped, and no request of it comes any more."""
        ...


class RemotingServer:
    """``start`` it on a running loop, then ``close`` it."""

    def __init__(
        self,
        outside: Outside,
        handler: RequestReceiver,
        settings: RemotingSettings,
        memory: Memory | None = None,
        server_requests: ServerRequests | None = None,
    ) -> None:
        """``memory`` is that of a server with more ports than this one, whose maker closes it. ``server_requests`` gets
        the responses of clients."""
        self._server_requests = server_requests
        self.memory = memory or Memory(outside.clock, outside.events, settings.held_limit_bytes, settings.stalled_s)
        self._owns_memory = memory is None
        self.malformed_connections = 0  # connections closed for garbage
        self._network, self._clock, self._events = outside.network, outside.clock, outside.events
        self._handler, self._settings = handler, settings
        self._links: dict[Link, None] = {}
        self._places: Places[Link] = Places(
            settings.max_connections, lambda link: link.last_active, lambda link: link.has_asked
        )
        self._intake: Intake[Link] = Intake(outside.clock)
        self._turn_is_due = False
        self._reports = Once()  # the host and kind of each
        self._listener: Listener | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        return len(self._links)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns the host and port. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._outbox, self._arena = Outbox(self._clock), Arena()
        self._turn_time = TurnTime.of(self._loop)
        self._closing = TurnSteps(CLOSE_EACH_TURN)
        self._ended: EndedConnections[Link] = EndedConnections(self._forget, FORGET_EACH_TURN)
        self._around = Surroundings(
            self._clock,
            self._settings,
            self._outbox,
            self._arena,
            False,
            self._opened,
            self._received,
            self._closed,
            self._garbage,
            self.memory,
            condemned=self._condemned,
        )
        self._listener = await self._network.listen(host, port, lambda: Link(self._around))
        self._sweep()
        return self._listener.address

    async def close(self) -> None:
        """Accept nothing more; let queued responses go out, close all connections."""
        if self._listener is not None:  # else it was never started, or could not listen
            await self._listener.close()
            await self._end_links()
        if self._owns_memory:
            self.memory.close()

    async def _end_links(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._closing.close()
        await close_links(list(self._links), "the server stops")
        self._ended.forget_all()

    def _opened(self, link: Link) -> None:
        self._ended.make_way()
        self._links[link] = None
        excess = self._places.arrived(link, link.host)
        if excess is not None:
            if self._reports.is_new(("refused", excess.host)):
                self._events.emit("connection refused", peer=excess.peer, reason="too many connections")
            excess.abort("too many connections")
        self._share()

    def _closed(self, link: Link, reason: str) -> None:
        """Thousands may end in one turn of the loop, which they are not all forgotten in."""
        if link in self._links:
            del self._links[link]
            self._ended.add(link)

    def _forget(self, link: Link) -> None:
        self._places.left(link)
        self._intake.discard(link)
        self._arena.closed(link, link.host)
        if self._server_requests is not None:
            self._server_requests.closed(link)
        self._handler.closed(link)
        self._share()

    def _share(self) -> None:
        """Share memory out: one read may bring less when there are many connections, as all of them may have to keep
        it."""
        self._arena.share(int(self._settings.held_limit_bytes * _ARENAS_SHARE) // max(1, len(self._links)))
        self._intake.share(len(self._links))

    def _garbage(self, link: Link, error: RemoteProtocolError) -> None:
        self.malformed_connections += 1
        if self._reports.is_new(("garbage", link.host)):
            self._events.emit("connection closed", peer=link.peer, reason=str(error))

    def _received(self, link: Link) -> None:
        self._intake.received(link)
        if not self._turn_is_due:
            self._turn_soon()

    def _turn_soon(self) -> None:
        if self._intake.due and not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            commands = self._intake.turn(self._turn_time.ends(self._clock.now(), TURN_S))
        finally:  # whatever happens, those that still wait have a turn
            self._turn_soon()
        # Of a peer that broke the protocol behind its requests nothing is known any more.
        requests = [entry for entry in commands if entry[0].alive and not entry[1].flag & _RESPONSE]
        self._handle(requests)
        if self._server_requests is not None and len(requests) < len(commands):
            for link, command in commands:
                if command.is_response:
                    self._server_requests.responded(link, command)

    def _handle(self, requests: list[tuple[Link, Command]]) -> None:
        self._outbox.promise()
        try:
            self._handler.received(requests)
        except Exception as error:  # a bug of the handler: the peers hear of it, the server lives
            self._events.emit("request failed", reason=repr(error), requests=len(requests))
            self._fail_requests(requests, error)
        finally:
            self._outbox.flush()

    def _fail_requests(self, requests: list[tuple[Link, Command]], error: Exception) -> None:
        queued_opaques = {link: link.unsent_responses() for link, _ in requests}
        for link, command in requests:
            if not command.is_one_way and command.opaque not in queued_opaques[link]:
                link.send(command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _sweep(self) -> None:
        """Close the connections that were idle for too long."""
        self._sweeper = self._loop.call_later(self._settings.idle_s / 4, self._sweep)
        self._closing.run(self._close_idle(self._clock.now() - self._settings.idle_s))

    def _close_idle(self, since: float) -> Iterator[None]:
        for link in [link for link in self._links if link.last_active < since]:
            if link.last_active < since:  # still
                link.abort("idle")
                yield

    def _condemned(self, link: Link, reason: str) -> None:
        self._closing.run(map(link.abort, (reason,)))
