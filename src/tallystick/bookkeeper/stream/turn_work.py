"""How much all that read streams, or acknowledge, do in one turn of the loop together: a thousand may at once.

Whoever did work says so, and waits when the turn has had enough; some of those that wait go on in each later turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from tallystick.bookkeeper.stream.messages import StreamMessage

MOST_WORK = 512  # messages, properties and pieces of 16 KiB, or acknowledgements: some ms
PART_WORK = 64  # after so much one says what it did, at the latest
PIECE_BITS = 14


class TurnWork:
    """See the module. One for each client."""

    __slots__ = ("_is_counting", "_left", "_most_woken", "_waiting")

    def __init__(self, part_work: int = PART_WORK) -> None:
        """``part_work``: what one that was woken does before it says so."""
        self._most_woken = MOST_WORK // part_work
        self._left = MOST_WORK
        self._is_counting = False  # for this turn, which has an end
        self._waiting: deque[asyncio.Future[None]] = deque()

    def did(self, work: int) -> bool:
        """So much was done. Returns whether to ``wait`` before more is."""
        if not self._is_counting:
            self._begin()
        self._left -= work
        return self._left <= 0

    @property
    def is_over(self) -> bool:
        """Whether this turn has had enough: then ``wait`` before work of which nobody knows yet how much it is."""
        return self._left <= 0

    async def wait(self) -> None:
        """Wait for a turn that has time left, behind all others that wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if not self._is_counting:
            self._begin()
        await turn

    def _begin(self) -> None:
        self._is_counting = True
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._left, self._is_counting = MOST_WORK, False
        woken = 0
        while self._waiting and woken < self._most_woken:
            turn = self._waiting.popleft()
            if not turn.done():  # its reader may have been cancelled
                turn.set_result(None)
                woken += 1
        if self._waiting:
            self._begin()


def message_work(message: StreamMessage) -> int:
    """Returns what it is to decode a message: what it has is copied."""
    return 1 + len(message.properties) + (len(message.data) >> PIECE_BITS)


def step_work(messages: Sequence[StreamMessage]) -> int:
    """Returns what it is to decode some messages of an entry: none are left of thousands that are not wanted."""
    return sum(map(message_work, messages)) if messages else MOST_WORK
