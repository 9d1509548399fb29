"""What a transport holds for a peer that has not taken all: more than the bytes that are left.

A loop holds each write as a whole until the last byte of it is taken, and objects beside it, which are thirty times a
small response. A peer that asks for one response at a time, and takes none, would have a server hold gigabytes of
which it counts some megabytes.
"""

from __future__ import annotations

from collections import deque

WRITE_BYTES = 850  # that uvloop takes for a write beside its bytes


class UnsentWrites:
    """Tell what was ``wrote``, then ``look`` what is left of it."""

    __slots__ = ("_left_bytes", "_sizes", "_sum")

    def __init__(self) -> None:
        self._sizes: deque[int] = deque()  # of each write of which the peer has not taken all
        self._sum = 0  # of these
        self._left_bytes = 0  # at the last look, and what was written since

    def wrote(self, size: int) -> None:
        """The transport got one write of ``size`` bytes."""
        self._sizes.append(size)
        self._sum += size
        self._left_bytes += size

    def look(self, left_bytes: int) -> bool:
        """Note how many bytes the transport has. Returns whether the peer has taken some since the last look."""
        while self._sizes and self._sum - self._sizes[0] >= left_bytes:
            self._sum -= self._sizes.popleft()
        has_taken = left_bytes < self._left_bytes
        self._left_bytes = left_bytes
        return has_taken

    @property
    def held_bytes(self) -> int:
        """How much memory the transport takes for what the peer had not taken at the last look."""
        return max(self._left_bytes, self._sum) + WRITE_BYTES * len(self._sizes)

    def clear(self) -> None:
        """The connection has ended."""
        self._sizes.clear()
        self._sum = self._left_bytes = 0
