"""A thread beside the event loop for what takes milliseconds, and how much of that the loop does itself.

A call on the thread costs more than it takes to compress a short entry. So the loop compresses and decompresses for
some ms in each of its turns, whichever stream that is for; what is more than that is done on the thread. What a caller
might change meanwhile is not for the thread: that is done in steps, some in each turn.
"""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.wire.compression import Compression
from tallystick.errors import UsageError
from tallystick.runtime.turn_steps import TurnSteps
from tallystick.runtime.worker import Worker, Workers

TURN_US = 4_000.0  # of the loop's time that is used in each turn
TURN_STEPS = 4  # and beside that: of about a millisecond

# About what a KiB of text takes, and the memory for what is made; zlib.compress takes a while for no bytes, too.
_COMPRESS_US = {
    Compression.NONE: 0.0,
    Compression.LZ4: 1.5,
    Compression.ZLIB: 16.0,
    Compression.ZSTD: 5.0,
    Compression.SNAPPY: 1.5,
}
_DECOMPRESS_US = {
    Compression.NONE: 0.0,
    Compression.LZ4: 1.3,
    Compression.ZLIB: 4.0,
    Compression.ZSTD: 1.8,
    Compression.SNAPPY: 1.5,
}
_CALL_US = 10.0
_JOIN_US = 0.5  # of a KiB of chunks


class SideThread:
    """See the module. All streams of a client share it; the thread begins with its first call. ``close`` it."""

    __slots__ = ("_is_closed", "_name", "_spent_us", "_steps", "_worker", "_workers")

    def __init__(self, workers: Workers, name: str) -> None:
        self._workers, self._name = workers, name
        self._worker: Worker | None = None
        self._steps: TurnSteps | None = None
        self._spent_us = 0.0  # by the loop in this turn
        self._is_closed = False

    def takes(self, cost_us: float) -> bool:
        """Whether this is for the thread: next is a call of the ``worker``. Else it is to be done now, on the loop."""
        if self._spent_us + cost_us > TURN_US:
            return True
        if not self._spent_us and cost_us:
            asyncio.get_running_loop().call_soon(self._turn_ended)
        self._spent_us += cost_us
        return False

    def worker(self) -> Worker:
        """Returns what runs calls on the thread. Raises UsageError once it is closed."""
        if self._is_closed:
            raise UsageError("this client is closed")
        if self._worker is None:
            self._worker = self._workers(self._name)
        return self._worker

    @property
    def steps(self) -> TurnSteps:
        """What the loop does in steps before a call of the worker, for all streams."""
        if self._steps is None:
            self._steps = TurnSteps(TURN_STEPS)
        return self._steps

    async def close(self) -> None:
        """Take nothing more, and end the thread once its calls have run. Repeated calls are one."""
        worker, self._worker, self._is_closed = self._worker, None, True
        if self._steps is not None:
            self._steps.close()
        if worker is not None:
            await worker.idle()
            worker.close()

    def _turn_ended(self) -> None:
        self._spent_us = 0.0


def compress_us(size: int, how: Compression | None) -> float:
    """Returns about how many microseconds it takes to compress so many bytes."""
    return 0.0 if how is None else _CALL_US + (size >> 10) * _COMPRESS_US[how]


def join_us(size: int) -> float:
    """Returns about how many microseconds it takes to make one piece of several that have so many bytes."""
    return (size >> 10) * _JOIN_US


def decompress_us(size: int, how: Compression) -> float:
    """Returns about how many microseconds it takes to make so many bytes of compressed ones."""
    return (size >> 10) * _DECOMPRESS_US[how]
