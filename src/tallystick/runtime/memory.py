"""The process's memory: what it frees it keeps, but for what a crowd or a load had; where the C library can be told so
(glibc).

A storage node takes and frees buffers of hundreds of kilobytes all the time. Given back to the system, each page of
them costs several times the copy of its bytes when it is needed again. When the load is over, it is not.

Buffers of thousands of peers are something else: they grow to any size and go in any order, and what is free between
those that stay fits none of the next ones. Kept, it takes as much again as the peers may have.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable

GIVE_BACK_BYTES = 16 * 1024 * 1024  # freed of peers that ended: at least so many are worth it
_SOON_S = 1.0  # the last of thousands of connections that end at once are closed some turns of the loop later
_EVERY_S = 10.0  # while a crowd comes and goes it would be taken again at once, page by page

_LOOK_EVERY_S = 10.0
_BUSY = 0.1  # of a processor: a server that works as much has a load

# Parameters of ``mallopt``: what may lie free at the end of the heap, from which size on an allocation is a mapping of
# its own, and how many heaps there are: one, so that what one thread freed the others use.
_PARAMETERS = ((-1, 1 << 30), (-3, 32 * 1024 * 1024), (-8, 1))


def keep_freed_memory() -> bool:
    """Keep what this process frees, from now on. Returns False where the system has no such switch."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(parameter, value) for parameter, value in _PARAMETERS)


def give_back_freed_memory() -> None:
    """Give back to the system whatever lies free now. No thread can allocate meanwhile: 0.04 ms a MiB of long pieces,
    0.16 of pieces of 4 KiB, so 25 ms behind a crowd that had all it may (560 MiB were free), and never in steps."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def _on_a_thread() -> None:
    threading.Thread(target=give_back_freed_memory, name="tally-memory", daemon=True).start()


class FreedMemory:
    """What a server held for peers that ended goes back to the system, once in a while. ``close`` it with the
    server."""

    def __init__(self, give_back: Callable[[], None] = _on_a_thread) -> None:
        self._give_back = give_back
        self._freed_bytes = 0
        self._given_at = -_EVERY_S
        self._soon: asyncio.TimerHandle | None = None

    def freed(self, size: int) -> None:
        """``size`` bytes of a peer that ended were freed, or will be in the next turns of the loop."""
        self._freed_bytes += size
        if self._freed_bytes >= GIVE_BACK_BYTES and self._soon is None:
            loop = asyncio.get_running_loop()
            self._soon = loop.call_at(max(loop.time() + _SOON_S, self._given_at + _EVERY_S), self._now)

    def _now(self) -> None:
        self._soon, self._freed_bytes, self._given_at = None, 0, asyncio.get_running_loop().time()
        self._give_back()

    def close(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None


class LoadMemory:
    """What a server held while it had a load goes back to the system when the load is over: it works little for some
    seconds. Made on the server's loop; ``start`` and ``close`` it with the server."""

    def __init__(
        self, give_back: Callable[[], None] = _on_a_thread, used_s: Callable[[], float] = time.process_time
    ) -> None:
        """``used_s`` gives the processor time of the process so far."""
        self._give_back, self._used_s = give_back, used_s
        self._loop = asyncio.get_running_loop()
        self._used_before_s = 0.0
        self._had_load = False
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look, every ten seconds. What the start itself took counts as a load."""
        self._next = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        self.start()  # first: a thread to give it back on may be one too many, and then a later look tries again
        used_s = self._used_s()
        is_busy = used_s - self._used_before_s >= _BUSY * _LOOK_EVERY_S
        self._used_before_s = used_s
        if self._had_load and not is_busy:
            self._give_back()
        self._had_load = is_busy

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
