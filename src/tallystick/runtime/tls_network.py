"""A network whose servers take TLS by the first byte of a connection (0x16), and whose clients begin with it.

::

    accepted ─► first byte ─► 0x16: handshake ─► the protocol, with plain bytes
                   └─► another one: the protocol, if the door takes plain connections from that host; else closed

What has not come so far is bounded in number and time, whoever sends it, and nothing of it reaches the server behind.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from tallystick.runtime.certificates import TlsContexts
from tallystick.runtime.events import Events
from tallystick.runtime.handshake_turns import HandshakeTurns
from tallystick.runtime.network import Listener, Network, ProtocolFactory, Reservation
from tallystick.runtime.once import Once
from tallystick.runtime.peers import peer_of
from tallystick.runtime.places import Places
from tallystick.runtime.tls import TlsBuffer, TlsConnection

HANDSHAKE_BYTE = 0x16
HANDSHAKE_S = 5.0  # from the first byte, and for it where plain connections are not taken
FIRST_BYTE_S = 30.0  # for it where they are: slaves of the original are silent for five seconds
MAX_UNFINISHED = 512  # connections of one listener without a first byte, or within their handshake
HANDSHAKES_EACH_TURN = 4  # steps of handshakes: the long one of each takes a millisecond
FIRST_BYTES = 4096  # read at once, until the first byte is known
_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class Door:
    """How a server's listeners take connections. ``plain_from``: whether a host may come without TLS."""

    contexts: TlsContexts
    plain_from: Callable[[str], bool]


class TlsNetwork(Network):
    """``plain`` with TLS. ``door``: of its listeners; None: as in ``plain``. ``dial``: what its clients begin with;
    None: nothing."""

    def __init__(self, plain: Network, events: Events, *, door: Door | None, dial: TlsContexts | None) -> None:
        self.plain, self._events, self._door, self._dial = plain, events, door, dial

    def changed(self, plain_from: Callable[[str], bool], *, dials: bool) -> TlsNetwork:
        """Returns the same network whose listeners take plain connections from more hosts; ``dials``: whether its
        clients begin with TLS if those here do."""
        before = self._door
        door = None
        if before is not None:
            door = Door(before.contexts, lambda host: before.plain_from(host) or plain_from(host))
        return TlsNetwork(self.plain, self._events, door=door, dial=self._dial if dials else None)

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        if self._dial is None:
            return await self.plain.connect(host, port, factory, within_s)
        async with asyncio.timeout(within_s):
            transport = await self.plain.connect(host, port, asyncio.Protocol, within_s)
            protocol, done = factory(), asyncio.get_running_loop().create_future()

            def ready(error: Exception | None) -> None:
                if not done.done():
                    done.set_result(error)

            try:
                buffered = _Awaiting(protocol)
                connection = TlsConnection(
                    transport, buffered, self._dial.current(), TlsBuffer(), ready, host=host.strip("[]")
                )
                connection.begin()
                error = await done
                if error is not None:
                    raise ConnectionError(f"TLS failed: {reason_of(error)}") from error
            except BaseException:
                transport.abort()
                raise
        buffered.go_on(connection)
        return connection

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> Listener:
        if self._door is None:
            return await self.plain.listen(host, port, factory, serving=serving)
        hall = _Hall(self._door, self._events, factory)
        return await self.plain.listen(host, port, lambda: _Newcomer(hall), serving=serving)

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> Reservation:
        return self.plain.reserve(host, *offsets, port=port, purpose=purpose)


class _Hall:
    """The connections of one listener that are not its server's yet."""

    def __init__(self, door: Door, events: Events, factory: ProtocolFactory) -> None:
        self.door, self.events, self.factory = door, events, factory
        self.loop, self.buffer = asyncio.get_running_loop(), TlsBuffer()
        self.turns = HandshakeTurns(HANDSHAKES_EACH_TURN)
        self.places: Places[_Newcomer] = Places(MAX_UNFINISHED)
        self._reports = Once()

    def refuse(self, newcomer: _Newcomer, reason: str) -> None:
        """Close a connection. Each reason is told once a host."""
        if self._reports.is_new((newcomer.host, reason)):
            self.events.emit("connection refused", peer=newcomer.peer, reason=reason)
        newcomer.abort()


class _Newcomer(asyncio.BufferedProtocol):
    """A connection of which the first byte has not come, or whose handshake is under way."""

    def __init__(self, hall: _Hall) -> None:
        self._hall = hall
        self.host = self.peer = "unknown"
        self._first = memoryview(bytearray(FIRST_BYTES))
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False  # it has a place in the hall

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = peer_of(transport)
        if peer:
            self.peer, self.host = f"{peer[0]}:{peer[1]}", peer[0]
        self._waits = True
        self._wait(FIRST_BYTE_S if self._hall.door.plain_from(self.host) else HANDSHAKE_S)
        goes = self._hall.places.arrived(self, self.host)
        if goes is not None:
            goes._waits = False
            self._hall.refuse(goes, "too many connections that have not begun")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._first

    def buffer_updated(self, nbytes: int) -> None:
        data, transport = bytes(self._first[:nbytes]), self._transport
        if transport is None or not self._waits:
            return
        if data[0] == HANDSHAKE_BYTE:
            self._shake_hands(transport, data)
        elif self._hall.door.plain_from(self.host):
            self._leave()
            protocol = self._hall.factory()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            feed(protocol, data)
        else:
            self._leave()
            self._hall.refuse(self, "it did not begin with TLS")

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def abort(self) -> None:
        """Close at once."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def _shake_hands(self, transport: asyncio.Transport, data: bytes) -> None:
        self._wait(HANDSHAKE_S)
        awaiting = _Awaiting(self._hall.factory())

        def ready(error: Exception | None) -> None:
            self._leave()
            if error is None:
                awaiting.go_on(connection)
            else:
                self._hall.refuse(self, f"TLS failed: {reason_of(error)}")

        in_turn, context = partial(self._hall.turns.run, self, self.host), self._hall.door.contexts.current()
        connection = TlsConnection(transport, awaiting, context, self._hall.buffer, ready, in_turn=in_turn)
        connection.begin()
        feed(connection, data)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._hall.loop.call_later(seconds, self._hall.refuse, self, "it did not begin in time")

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits:
            self._waits = False
            self._hall.places.left(self)


class _Awaiting(asyncio.BufferedProtocol):
    """What a ``TlsConnection`` gives its bytes to: the protocol behind it, once the handshake is over."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_made = False
        self._own_buffer: memoryview | None = None

    def go_on(self, connection: TlsConnection) -> None:
        """The other side has shown who it is: the protocol begins."""
        self._is_made = True
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            connection.set_protocol(self._protocol)
        self._protocol.connection_made(connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            return cast("memoryview", self._protocol.get_buffer(sizehint))
        if self._own_buffer is None:
            self._own_buffer = memoryview(bytearray(_READ_BYTES))
        return self._own_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.buffer_updated(nbytes)
        else:
            assert self._own_buffer is not None, "it was asked for before"
            cast("asyncio.Protocol", self._protocol).data_received(bytes(self._own_buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return cast("Any", self._protocol).eof_received() if self._is_made else None

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_made:
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        if self._is_made:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._is_made:
            self._protocol.resume_writing()


def feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give a protocol bytes as its transport would."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        cast("asyncio.Protocol", protocol).data_received(data)
        return
    view = memoryview(data)
    while view:
        buffer = memoryview(cast("bytearray", protocol.get_buffer(len(view))))
        size = min(len(view), len(buffer))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]


def reason_of(error: Exception) -> str:
    """Returns why a handshake failed, without what only a program reads."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
