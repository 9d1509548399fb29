"""Requests of a server to its clients, over the connections that they made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command

MAX_OPAQUE = 2**31 - 1
MAX_OF_LINK = 64  # requests without a response from one client
MAX_IN_FLIGHT = 1000  # from all clients

OnResponse = Callable[[Command | None], None]


class ServerRequests:
    """The requests of one server, whatever the number of its ports.

    ``done`` gets the response, or None when none came in time or the link ended.
    """

    def __init__(self) -> None:
        self.in_flight = 0  # requests without a response
        self._opaque = 0
        self._of_link: dict[Link, dict[int, tuple[OnResponse, asyncio.TimerHandle]]] = {}

    def tell(self, link: Link, command: Command) -> None:
        """Send a request that has no response."""
        self._opaque = command.opaque = (self._opaque + 1) & MAX_OPAQUE
        link.send(command)

    def ask(self, link: Link, command: Command, within_s: float, done: OnResponse) -> bool:
        """Send a request; ``done`` is called once, on the loop. Returns False, and sends nothing, if too many are in
        flight."""
        of_link = self._of_link.get(link, {})
        if self.in_flight >= MAX_IN_FLIGHT or len(of_link) >= MAX_OF_LINK:
            return False
        self.tell(link, command)
        timer = asyncio.get_running_loop().call_later(within_s, self._end, link, command.opaque, None)
        of_link[command.opaque] = (done, timer)
        self._of_link[link] = of_link
        self.in_flight += 1
        return True

    def responded(self, link: Link, response: Command) -> None:
        """A client sent a response; one to no request of ours is dropped."""
        self._end(link, response.opaque, response)

    def closed(self, link: Link) -> None:
        """The link ended: its responses do not come any more."""
        for opaque in list(self._of_link.get(link, ())):
            self._end(link, opaque, None)

    def _end(self, link: Link, opaque: int, response: Command | None) -> None:
        of_link = self._of_link.get(link, {})
        pending_request = of_link.pop(opaque, None)
        if pending_request is None:
            return
        self.in_flight -= 1
        if not of_link:
            del self._of_link[link]
        done, timer = pending_request
        timer.cancel()
        done(response)
