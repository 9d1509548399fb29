"""One of the connections to a bookie: its living link, and when the next attempt to connect is allowed.

A bookie is named by its id; where it listens is asked again at each connect, since a restarted bookie may have moved.
What has no response (refused, lost, timed out, not registered) is unknown, never a "no" (Q15). A bookie whose
connection could not be made is not tried again for a short, growing while: requests meanwhile fail at once. Only an
attempt that was really made lengthens that while; a request that came too early does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.bookkeeper.ledger.handshake import Handshaker, no_offers
from tallystick.bookkeeper.ledger.identity import (
    ANOTHER_BOOKIE,
    MOVED,
    Address,
    Identify,
    Identity,
    IdentityCallback,
    LinkIdentity,
    Unidentified,
)
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.owners import BookieResponse
from tallystick.bookkeeper.ledger.peer_times import PeerTimes
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.wire_v2 import ClientWireV2
from tallystick.bookkeeper.ledger.wires import (
    BookieRequest,
    WireFactory,
)
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import BookieUnavailable
from tallystick.runtime.outside import Outside

Resolve = Callable[[BookieId], Awaitable[Address]]

FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0
# A response's frame can be longer than any request's: a batch response has a length in front of each entry.
RESPONSE_SLACK_BYTES = 16 * 1024
# A bookie that closed a connection on its first request of version 3 is not asked for more of that for so long.
WITHOUT_V3_S = 10.0


class BookiePeer:
    """One bookie: its link, and when the next attempt to connect is allowed."""

    def __init__(
        self,
        bookie: BookieId,
        *,
        outside: Outside,
        resolve: Resolve,
        settings: ClientSettings,
        identify: Identify | None,
        wire: WireFactory,
        numbers: Iterator[int],
        counts: ClientCounts,
        times: PeerTimes | None,
        handshaker: Handshaker | None = None,
    ) -> None:
        self.bookie, self.times = bookie, times
        self.bookie, self._wire, self._numbers = bookie, wire, numbers
        self.is_closed = False
        self._counts, self._was_connected = counts, False
        self.connection = 0  # the number of the newest link
        self._identify = identify
        self._identity: LinkIdentity | None = None  # of the newest link, once somebody asked
        self._address: Address | None = None  # to which the newest link leads, once it is connected
        self._clock, self._events = outside.clock, outside.events
        self._handshaker = handshaker or Handshaker(outside, None, no_offers)
        self._resolve, self._settings = resolve, settings
        self._link: BookieLink | None = None
        self._attempt: asyncio.Task[None] | None = None  # to connect the living link; None once it ended or succeeded
        self._backoff_s = 0.0
        self._retry_at = self._clock.now()
        self._reason = ""  # why the last attempt failed
        # A second connection alone may find that there is no version 3: on the only one nothing would go on.
        self._is_second = settings.wire == "auto" and wire is not ClientWireV2
        self._without_v3_until = self._retry_at

    def link(self) -> BookieLink:
        """Return the living link, a new one that is being connected, or one that is about to fail."""
        if self._link is not None and self._link.alive:
            return self._link
        limit = self._settings.max_frame_bytes + RESPONSE_SLACK_BYTES
        link = BookieLink(self.bookie, self._clock, self._events, limit, self._ended, self._wire)
        self._link, self._identity, self._address = link, None, None
        self.connection = next(self._numbers)
        if self.is_closed:
            asyncio.get_running_loop().call_soon(link.end, "this client is closed")
        elif self._clock.now() < self._retry_at:
            asyncio.get_running_loop().call_soon(link.end, f"it could not be reached a moment ago: {self._reason}")
        else:
            self._attempt = asyncio.create_task(self._connect(link))
        return link

    @property
    def lacks_v3(self) -> bool:
        """Whether it closed a second connection a while ago."""
        return self._clock.now() < self._without_v3_until

    def identify(self, link: BookieLink, callback: IdentityCallback) -> None:
        """Call back with the identity at the other end of the living link."""
        assert link is self._link, "an older link has no channel"
        if self._identify is None:
            callback(None)
            return
        if self._identity is None:
            timeout_s = self._settings.add_timeout_s
            self._identity = LinkIdentity(self.bookie, self._identify, self._connected, link.end, timeout_s)
        self._identity.ask(callback)

    def registrations_changed(self) -> None:
        """Nothing new counts over the living link before it was read again who is at its other end."""
        if self._identity is not None:
            self._identity.registrations_changed()

    def registered_at(self, address: Address) -> None:
        """End the living link if it leads elsewhere."""
        if self._link is not None and self._link.alive and self._address not in (None, address):
            self._link.end(MOVED.format(*address))

    async def _connected(self) -> Address | None:
        if self._attempt is not None:
            await asyncio.wait([self._attempt])
        return self._address

    async def ask_proven(self, request: BookieRequest, timeout_s: float) -> BookieResponse:
        """Return a response of this bookie, not of another at its address. Raises BookieUnavailable, RequestTimeout."""
        link, identified, identities = self.link(), asyncio.Event(), list[Identity]()

        def came(identity: Identity) -> None:
            identities.append(identity)
            identified.set()

        self.identify(link, came)
        response = await link.ask(request, timeout_s)
        await identified.wait()
        if isinstance(identity := identities[0], Unidentified):
            raise BookieUnavailable(f"nobody knows who answered: {identity.reason}", bookie=self.bookie)
        return response

    def doubted(self, ledger: LedgerId, identity: Identity) -> None:
        """Answers of this bookie do not count for a ledger."""
        if isinstance(identity, Unidentified):
            reason = f"its identity cannot be read: {identity.reason}"
        else:
            reason = ANOTHER_BOOKIE
        self._events.emit("bookie not believed", bookie=self.bookie, ledger=ledger, reason=reason)

    async def _connect(self, link: BookieLink) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                host, port = await self._resolve(self.bookie)
            await self._handshaker.connect(self.bookie, (host, port), link, self._settings.connect_timeout_s)
            if link is self._link:
                self._address = host, port
        except Exception as error:  # whatever it is, those who wait on the link must hear of it
            # An error of ours that names the bookie goes into one that names it, too.
            self._failed(
                (error.message if isinstance(error, BookieUnavailable) else str(error)) or type(error).__name__
            )
            link.end(f"the bookie cannot be reached: {self._reason}")
        else:
            if link.alive:
                self._counts.reconnects += self._was_connected
                self._was_connected = True
                self._attempt, self._backoff_s = None, 0.0

    def _failed(self, reason: str) -> None:
        """Note a failed attempt to connect. Nothing else moves the back-off."""
        self._attempt, self._reason = None, reason
        self._backoff_s = min(max(self._backoff_s * 2, FIRST_BACKOFF_S), MAX_BACKOFF_S)
        self._retry_at = self._clock.now() + self._backoff_s
        if not self.is_closed:
            self._events.emit("bookie not reached", bookie=self.bookie, reason=reason)

    def _ended(self, link: BookieLink, reason: str) -> None:
        if self._identity is not None and link is self._link:
            self._identity.close()
        if self._attempt is not None and link is self._link:  # nobody waits for it any longer
            self._attempt.cancel()
            self._failed(reason)
        elif not link.disconnected.is_set() and not self.is_closed:
            self._events.emit("bookie connection ended", bookie=self.bookie, reason=reason)
            if self._is_second and not link.has_heard:
                self._reason = "it closed a connection on version 3 of the protocol, which older bookies do not speak"
                self._retry_at = self._without_v3_until = self._clock.now() + WITHOUT_V3_S

    async def close(self) -> None:
        self.is_closed = True
        link, attempt = self._link, self._attempt
        if link is not None:
            link.end("this client is closed")
        if attempt is not None:
            await asyncio.gather(attempt, return_exceptions=True)
        if link is not None:
            link.tell_all()
            await link.disconnected.wait()
