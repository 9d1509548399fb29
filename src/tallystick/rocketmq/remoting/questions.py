"""What a server asks its clients, over the connections that they made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command

MAX_OPAQUE = 2**31 - 1

Answered = Callable[[Command | None], None]


class Questions:
    """Of one server, whatever the number of its ports. ``done(None)``: no answer came in time, or the link ended."""

    def __init__(self) -> None:
        self._opaque = 0
        self._waiting: dict[tuple[Link, int], tuple[Answered, asyncio.TimerHandle]] = {}

    def tell(self, link: Link, command: Command) -> None:
        """Send what has no answer."""
        self._opaque = command.opaque = (self._opaque + 1) & MAX_OPAQUE
        link.send(command)

    def ask(self, link: Link, command: Command, within_s: float, done: Answered) -> None:
        """``done`` is called once, on the loop."""
        self.tell(link, command)
        key = (link, command.opaque)
        timer = asyncio.get_running_loop().call_later(within_s, self._end, key, None)
        self._waiting[key] = (done, timer)

    def answered(self, link: Link, answer: Command) -> None:
        """A client sent an answer; one to nothing is dropped."""
        self._end((link, answer.opaque), answer)

    def closed(self, link: Link) -> None:
        """Its answers do not come any more."""
        for key in [key for key in self._waiting if key[0] is link]:
            self._end(key, None)

    def _end(self, key: tuple[Link, int], answer: Command | None) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            done, timer = waiting
            timer.cancel()
            done(answer)
