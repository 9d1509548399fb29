"""The memory into which all connections of a server read; what came is copied out at once.

A loop may read of a thousand connections in one turn, of each some dozen times. So once much has come every further
read of the turn is short, and the last of its connection: the rest stays with the kernel until the next turn. Many
bytes are much, and so are many reads that left something: a short read costs almost what a long one does.

Those that read in such a turn rest, and so does whoever reads while some rest: of them ``READ_ON_EACH_TURN`` read on in
each turn, who read least often first. Of thousands that always have something a turn reads so many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from tallystick.runtime.turn_order import TurnOrderCore

ARENA_BYTES = 1024 * 1024
LEAST_READ_BYTES = 8 * 1024  # however many connections share
TURN_BYTES = 8 * 1024 * 1024  # then reads are short: some ten milliseconds
TURN_READS = 256  # or so many reads that left something with the kernel: some milliseconds, where thousands share
SHORT_READ_BYTES = 4 * 1024
READ_ON_EACH_TURN = 128


class Reader(Hashable, Protocol):
    """A connection that reads into the arena."""

    def rest(self) -> None:
        """Read nothing more in this turn of the loop."""
        ...

    def read_on(self) -> None:
        """It is another turn."""
        ...


class Arena:
    """A connection reads into ``buffer``, then calls ``received`` once."""

    def __init__(self) -> None:
        self._all = memoryview(bytearray(ARENA_BYTES))
        self._shared = self.buffer = self._all
        self._bytes = self._full_reads = 0  # since reads were short last: of this turn, or of several
        self._is_short = False
        self._resting: TurnOrderCore[Reader] = TurnOrderCore()
        self._turn_is_due = False

    def share(self, read_bytes: int) -> None:
        """Bound what one read may bring."""
        self._shared = self._all[: max(LEAST_READ_BYTES, read_bytes)]
        if not self._is_short:
            self.buffer = self._shared

    def received(self, nbytes: int, reader: Reader, host: str) -> memoryview:
        """So many bytes came from a host. Returns them; the next read overwrites them."""
        self._bytes += nbytes
        if nbytes == len(self.buffer):
            self._full_reads += 1
        if not self._is_short and (self._bytes >= TURN_BYTES or self._full_reads >= TURN_READS):
            self._is_short, self.buffer = True, self._all[:SHORT_READ_BYTES]
        if self._is_short or self._resting:
            self._resting.add(reader, host)
            reader.rest()
            self._turn_soon()
        return self._all[:nbytes]

    def closed(self, reader: Reader, host: str) -> None:
        """It reads no more."""
        self._resting.discard(reader, host)

    def _turn_soon(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = self._is_short = False
        self._bytes, self._full_reads, self.buffer = 0, 0, self._shared
        try:
            for _ in range(min(len(self._resting), READ_ON_EACH_TURN)):
                self._resting.pop().read_on()
        finally:  # whatever happens, those that still rest have a turn
            if self._resting:
                self._turn_soon()
