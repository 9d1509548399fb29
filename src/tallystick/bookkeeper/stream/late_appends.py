"""Appends of which the first is yet to be encoded, on the side thread, and all that were appended behind it.

None overtakes another: what is encoded already waits behind what is not. What is here counts with the bytes that were
given, which are more than those that are stored, as a rule. Very many messages are checked before that, some in each
turn of the loop, and count as they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.wire.stream_values import Position

Append = tuple[bytes, asyncio.Future[Position]]
Sized = tuple[Append, int]
NO_CHECKS: Iterator[int] = iter(())


class LateEntry(NamedTuple):
    """An entry of ``size`` bytes about, whose bytes ``encode`` returns, on ``thread``; not before the last of
    ``checks``, each of which yields how many bytes more there are. They raise UsageError for what cannot be encoded."""

    size: int
    encode: Callable[[], bytes]
    thread: SideThread
    checks: Iterator[int] = NO_CHECKS

    async def now(self) -> bytes:
        """Returns the bytes of one without checks, for who keeps the order of entries by itself. Raises UsageError."""
        return await self.thread.worker().run(self.encode)


class Encoded(NamedTuple):
    """What came of a late entry, and the appends behind it that need wait no longer, with all their bytes. The checks
    of the entry found so many ``more_bytes``."""

    future: asyncio.Future[Position]
    entry: bytes | None
    error: Exception | None
    behind: deque[Sized]
    behind_bytes: int
    more_bytes: int


class _Late:
    """A late entry, and what was appended behind it and before the next one."""

    __slots__ = ("behind", "behind_bytes", "encode", "entry", "error", "future", "more_bytes", "size")

    def __init__(self, entry: LateEntry, future: asyncio.Future[Position]) -> None:
        self.future, self.size, self.more_bytes = future, entry.size, 0
        self.encode: Callable[[], bytes] | None = entry.encode  # None: nobody wants it any more
        self.entry: bytes | None = None
        self.error: Exception | None = None
        self.behind: deque[Sized] = deque()
        self.behind_bytes = 0

    def run(self) -> bytes:
        """For the thread."""
        encode = self.encode
        return b"" if encode is None else encode()


class LateAppends:
    """See the module. ``encoded`` hears of each late entry in the order of their appends."""

    __slots__ = ("_count", "_encoded", "_queue", "_waiters", "bytes")

    def __init__(self, encoded: Callable[[Encoded], None]) -> None:
        self._encoded = encoded
        self._queue: deque[_Late] = deque()
        self._count = self.bytes = 0
        self._waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return self._count

    def append_late(self, entry: LateEntry, future: asyncio.Future[Position]) -> None:
        """It waits behind all others. Raises UsageError when the client is closed."""
        worker, late = entry.thread.worker(), _Late(entry, future)
        self._queue.append(late)
        self._count += 1
        self.bytes += late.size
        if entry.checks is NO_CHECKS:
            worker.submit(late.run, partial(self._done, late))
        else:
            entry.thread.steps.run(self._check(late, entry))

    def _check(self, late: _Late, entry: LateEntry) -> Iterator[None]:
        try:
            for more_bytes in entry.checks:
                if late.encode is None:
                    return
                late.size += more_bytes
                late.more_bytes += more_bytes
                self.bytes += more_bytes
                yield
            if late.encode is not None:
                entry.thread.worker().submit(late.run, partial(self._done, late))
        except Exception as error:  # also of a mapping that the caller gave
            self._done(late, None, error)

    def append(self, item: Append, size: int) -> None:
        """It waits behind all others, of which there are some."""
        newest = self._queue[-1]
        newest.behind.append((item, size))
        newest.behind_bytes += size
        self._count += 1
        self.bytes += size

    async def wait(self) -> None:
        """Wait until there is none."""
        while self._queue:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def take_all(self) -> Iterator[asyncio.Future[Position]]:
        """Returns the futures of all, to be looked at once; none is left."""
        queue, self._queue, self._count, self.bytes = self._queue, deque(), 0, 0
        for late in queue:
            late.encode = None
        self._wake()
        return _futures(queue)

    def _done(self, late: _Late, entry: bytes | None, error: Exception | None) -> None:
        late.entry, late.error, late.encode = entry, error, None
        queue = self._queue
        while queue and (queue[0].entry is not None or queue[0].error is not None):
            first = queue.popleft()
            self._count -= 1 + len(first.behind)
            self.bytes -= first.size + first.behind_bytes
            self._encoded(
                Encoded(first.future, first.entry, first.error, first.behind, first.behind_bytes, first.more_bytes)
            )
        self._wake()

    def _wake(self) -> None:
        if not self._queue:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


def _futures(queue: deque[_Late]) -> Iterator[asyncio.Future[Position]]:
    while queue:
        late = queue.popleft()
        yield late.future
        while late.behind:
            yield late.behind.popleft()[0][1]
