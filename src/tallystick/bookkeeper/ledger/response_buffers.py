"""The memory of long responses, used again for the next ones of the same connection.

Memory that comes fresh from the system is filled with zeros twice, and taken page by page: that costs more than all
else that is done with a response of a megabyte. A buffer is used again when nothing refers to it any more, be it by a
view of one entry. Where no long response has come for a while nothing is held.
"""

from __future__ import annotations

import asyncio
import sys

MOST_BUFFERS = 8  # as many as one read has responses under way
UNUSED_S = 1.0  # after which all are given back
_ROUND_BYTES = 64 * 1024


def _references(buffers: list[bytearray], at: int) -> int:
    """Count who refers to a buffer: the list does, each view, and in part what counts here."""
    return sys.getrefcount(buffers[at])


_BY_LIST_ALONE = _references([bytearray()], 0)  # by the same steps, as what they add is another number in each Python


class ResponseBuffers:
    """See the module. ``close`` it with the connection."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []  # those that were given last, oldest first, be they in use or not
        self._was_used = False
        self._timer: asyncio.TimerHandle | None = None

    def take(self, size: int) -> memoryview:
        """Return a writable view of so many bytes, with anything in them. Its buffer is in use while there is any
        view of it."""
        self._was_used = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(UNUSED_S, self._look)
        for at, room in enumerate(map(len, self._buffers)):
            if size <= room < 2 * size + _ROUND_BYTES and _references(self._buffers, at) == _BY_LIST_ALONE:
                return memoryview(self._buffers[at])[:size]
        buffer = bytearray(size + -size % _ROUND_BYTES)
        self._buffers.append(buffer)
        if len(self._buffers) > MOST_BUFFERS:
            del self._buffers[0]  # it is gone with its last view
        return memoryview(buffer)[:size]

    def _look(self) -> None:
        if self._was_used:
            self._was_used = False
            self._timer = asyncio.get_running_loop().call_later(UNUSED_S, self._look)
        else:
            self.close()

    def close(self) -> None:
        """Hold nothing. It may be used again."""
        self._buffers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
