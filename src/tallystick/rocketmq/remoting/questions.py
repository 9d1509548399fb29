"""What a server asks its clients, over the connections that they made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command

MAX_OPAQUE = 2**31 - 1
MAX_OF_LINK = 64  # that one client has not answered
MAX_WAITING = 1000  # that all have not

Answered = Callable[[Command | None], None]


class Questions:
    """Of one server, whatever the number of its ports. ``done(None)``: no answer came in time, or the link ended."""

    def __init__(self) -> None:
        self.waiting = 0  # questions without an answer
        self._opaque = 0
        self._of_link: dict[Link, dict[int, tuple[Answered, asyncio.TimerHandle]]] = {}

    def tell(self, link: Link, command: Command) -> None:
        """Send what has no answer."""
        self._opaque = command.opaque = (self._opaque + 1) & MAX_OPAQUE
        link.send(command)

    def ask(self, link: Link, command: Command, within_s: float, done: Answered) -> bool:
        """``done`` is called once, on the loop. Returns False, and asks nothing, where too many wait for answers."""
        of_link = self._of_link.get(link, {})
        if self.waiting >= MAX_WAITING or len(of_link) >= MAX_OF_LINK:
            return False
        self.tell(link, command)
        timer = asyncio.get_running_loop().call_later(within_s, self._end, link, command.opaque, None)
        of_link[command.opaque] = (done, timer)
        self._of_link[link] = of_link
        self.waiting += 1
        return True

    def answered(self, link: Link, answer: Command) -> None:
        """A client sent an answer; one to nothing is dropped."""
        self._end(link, answer.opaque, answer)

    def closed(self, link: Link) -> None:
        """Its answers do not come any more."""
        for opaque in list(self._of_link.get(link, ())):
            self._end(link, opaque, None)

    def _end(self, link: Link, opaque: int, answer: Command | None) -> None:
        of_link = self._of_link.get(link, {})
        waiting = of_link.pop(opaque, None)
        if waiting is None:
            return
        self.waiting -= 1
        if not of_link:
            del self._of_link[link]
        done, timer = waiting
        timer.cancel()
        done(answer)
