"""Who bookies are and where they are registered, as a test says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from support.links import add_frame
from tallystick.bookkeeper.ledger.identity import Address
from tallystick.bookkeeper.metadata.driver import BookiePresence


class Metadata:
    """The identities as a test sets them; counts the questions."""

    def __init__(self, bench: Any) -> None:
        self.creation: int | None = 1
        self.asked = 0
        self.gate: Callable[[], Awaitable[object]] | None = None
        self.registered: Callable[[str], Address | None] = lambda bookie: bench.bookies[bookie].address

    async def identify(self, bookie: str) -> BookiePresence:
        self.asked += 1
        if self.gate is not None:
            await self.gate()
        return BookiePresence(self.creation, self.registered(bookie))


def send_adds(bench: Any, channel: Any, *entries: int) -> None:
    channel.send(list(entries), b"".join(add_frame(bench, 7, entry) for entry in entries))
