"""Requests to any number of addresses: connections made on demand, responses matched by opaque, time-outs by one timer.

A request without a response (refused, lost, timed out) ends in an ``Unavailable``; its ``ambiguous`` says whether the
peer may have done it. A peer that stays silent for the whole time-out of a request is disconnected: a new connection
may do better.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from tallystick.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    TallyError,
    Unavailable,
    UsageError,
)
from tallystick.rocketmq.remoting.link import Link, Outbox, Surroundings, close_links
from tallystick.rocketmq.remoting.replays import Numbered
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.numbers import number_of
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.signature import Credentials, sign
from tallystick.rocketmq.wire.values import Flag
from tallystick.runtime.arena import Arena
from tallystick.runtime.outside import Outside

MIN_TIMER_S = 0.005
MAX_OPAQUE = 2**31 - 1
_RESPONSE = int(Flag.RESPONSE)

OnResult = Callable[[Command | TallyError], None]
_PendingRequest = tuple[float, float, OnResult]  # its deadline, when it was sent, who gets the response


class _Peer:
    """One connection, with the requests over it that have no response, by opaque."""

    def __init__(self, address: str, link: Link) -> None:
        self.address, self.link = address, link
        self.connected = False
        self.connecting: asyncio.Task[None] | None = None
        self.pending_requests: dict[int, _PendingRequest] = {}
        self.numbered: Numbered | None = None  # of requests that are signed


class RemotingClient:
    """See the module. Made and used on one running loop; ``close`` it.

    ``on_request`` gets the requests of servers: such a command can come before the response to an earlier request, and
    its opaque can equal that of a request. ``on_lost`` gets each address whose connection ended.
    """

    def __init__(
        self,
        outside: Outside,
        settings: RemotingSettings,
        on_request: Callable[[Link, Command], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        credentials: Callable[[], Credentials | None] = lambda: None,
    ) -> None:
        """``credentials`` returns who signs the next request."""
        self._credentials = credentials
        self._network, self._clock, self._events = outside.network, outside.clock, outside.events
        self._settings, self._random = settings, outside.random
        self._on_request, self._on_lost = on_request, on_lost
        self._loop = asyncio.get_running_loop()
        self._around = Surroundings(
            self._clock,
            settings,
            Outbox(self._clock),
            Arena(),
            True,
            self._opened,
            self._received,
            self._ended,
            self._garbage,
            unsendable=self._unsendable,
        )
        self._peers: dict[str, _Peer] = {}
        self._of_link: dict[Link, _Peer] = {}
        self._unreachable_addresses: set[str] = set()  # addresses of which that has been logged
        self._connecting: set[asyncio.Task[None]] = set()  # also those that were cancelled and have not ended yet
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._closed = False

    async def ask(self, address: str, command: Command, within_s: float) -> Command:
        """Send a request. Returns the response, whatever its code.

        Raises Unavailable, ConnectionLost, RequestTimeout, and LocalProtocolError for what cannot be encoded.
        """
        waiter: asyncio.Future[Command] = self._loop.create_future()

        def done(result: Command | TallyError) -> None:
            if waiter.done():
                return
            if isinstance(result, TallyError):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)

        self.ask_nowait(address, command, within_s, done)
        return await waiter

    def ask_nowait(self, address: str, command: Command, within_s: float, done: OnResult) -> None:
        """Send a request. ``done`` is called once, on the loop, never inside this call."""
        peer = self._peer(address)
        self._sign(command, peer)
        self._opaque = opaque = (self._opaque + 1) & MAX_OPAQUE
        command.opaque = opaque
        now = self._clock.now()
        deadline = now + within_s
        peer.pending_requests[opaque] = (deadline, now, done)
        peer.link.send(command)
        if self._timer is None or deadline < self._wake_at:
            self._set_timer(deadline)

    def tell(self, address: str, command: Command) -> None:
        """Send a request that has no response; whether it arrives is never known."""
        peer = self._peer(address)
        self._sign(command, peer)
        self._opaque = command.opaque = (self._opaque + 1) & MAX_OPAQUE
        peer.link.send(command)

    def _sign(self, command: Command, peer: _Peer) -> None:
        credentials = self._credentials()
        if credentials is not None:
            if peer.numbered is None:
                peer.numbered = Numbered(self._random.getrandbits(64))
            sign(command, credentials, peer.numbered.next(command.code, self._clock.wall_ms()))

    async def close(self) -> None:
        """End all connections, once what was asked has left if the servers take it; requests without a response fail as
        lost."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        links = [peer.link for peer in self._of_link.values()]
        await close_links(links, "this client is closed")
        await asyncio.gather(*self._connecting, return_exceptions=True)  # cancelled with their links
        for link in links:
            await link.disconnected.wait()

    # Connections

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is not None and peer.link.alive:
            return peer
        if self._closed:
            raise UsageError("this client is closed")
        host, port = parse_address(address)
        peer = _Peer(address, Link(self._around))
        self._peers[address] = self._of_link[peer.link] = peer
        peer.connecting = attempt = self._loop.create_task(self._connect(peer, host, port))
        self._connecting.add(attempt)
        attempt.add_done_callback(self._connecting.discard)
        return peer

    async def _connect(self, peer: _Peer, host: str, port: int) -> None:
        try:
            await self._network.connect(host, port, lambda: peer.link, self._settings.connect_timeout_s)
        except Exception as error:  # whatever it is, those who wait on the link must hear of it
            peer.connecting = None
            peer.link.abort(f"cannot be reached: {str(error) or type(error).__name__}")
        else:
            peer.connecting = None

    def _opened(self, link: Link) -> None:
        peer = self._of_link[link]
        peer.connected = True
        self._unreachable_addresses.discard(peer.address)

    def _ended(self, link: Link, reason: str) -> None:
        peer = self._of_link.pop(link)
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
        if peer.connecting is not None:  # nobody waits for the attempt any longer; a later request makes its own
            peer.connecting.cancel()
        requests, peer.pending_requests = peer.pending_requests, {}
        if peer.connected and not self._closed:
            self._events.emit("connection ended", peer=peer.address, reason=reason)
        elif peer.address not in self._unreachable_addresses and not self._closed:
            self._unreachable_addresses.add(peer.address)
            self._events.emit("not reached", peer=peer.address, reason=reason)
        # What was never connected was never sent.
        kind = ConnectionLost if peer.connected else Unavailable
        self._loop.call_soon(self._report_lost, peer, kind, reason, requests)

    def _report_lost(
        self, peer: _Peer, kind: type[Unavailable], reason: str, requests: dict[int, _PendingRequest]
    ) -> None:
        for _, _, done in requests.values():
            done(kind(reason, address=peer.address))
        if self._on_lost is not None and not self._closed:
            self._on_lost(peer.address)

    def _garbage(self, link: Link, error: RemoteProtocolError) -> None:
        self._events.emit("peer broke the protocol", peer=link.peer, reason=str(error))

    def _unsendable(self, link: Link, command: Command, error: LocalProtocolError) -> None:
        request = self._of_link[link].pending_requests.pop(command.opaque, None)
        if request is not None:
            self._loop.call_soon(request[2], error)

    # Responses and time

    def _received(self, link: Link) -> None:
        requests = self._of_link[link].pending_requests
        for command in link.take():
            if command.flag & _RESPONSE:
                request = requests.pop(command.opaque, None)  # None: it had timed out
                if request is not None:
                    request[2](command)
            elif self._on_request is not None:
                self._on_request(link, command)

    def _set_timer(self, wake_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wake_at = wake_at
        self._timer = self._loop.call_later(max(wake_at - self._clock.now(), MIN_TIMER_S), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.now()
        for peer in tuple(self._of_link.values()):
            late = [opaque for opaque, (deadline, _, _) in peer.pending_requests.items() if deadline <= now]
            silent = False
            for opaque in late:
                _, since, done = peer.pending_requests.pop(opaque)
                silent = silent or peer.link.last_read <= since
                done(RequestTimeout("no answer in time", address=peer.address))
            if silent and peer.link.alive:
                peer.link.abort("the peer is silent")
        deadlines = [deadline for peer in self._of_link.values() for deadline, _, _ in peer.pending_requests.values()]
        if deadlines and self._timer is None:
            self._set_timer(min(deadlines))


_MAX_SHOWN = 100  # characters of an address that is none
_NOT_OF_A_HOST = re.compile(r"[\s/,;]")  # as in a URL, or in a list


def parse_address(address: str) -> tuple[str, int]:
    """Returns host and port of ``host:port``, also with an IPv6 host in brackets. Raises UsageError."""
    host, _, port = address.rpartition(":")
    number = number_of(port)
    if not host or _NOT_OF_A_HOST.search(host) or number is None or number > 65535:
        raise UsageError("an address is host:port; several are separated by ; or ,", address=address[:_MAX_SHOWN])
    return host.strip("[]"), number


def addresses_in(text: str) -> tuple[str, ...]:
    """Returns each ``host:port`` of a text that separates them by ``;`` or ``,``. Raises UsageError."""
    addresses = tuple(address.strip() for address in re.split("[;,]", text) if address.strip())
    for address in addresses:
        parse_address(address)
    return addresses
