"""The bytes that one connection has not yet given to its transport, and who waits until they are written.

Bytes come in *pieces*, each a sequence of parts that leave together. Short parts are joined once, for all connections
that send the same piece. Long ones stay as they are: every connection holds the caller's own bytes, and a write gathers
them (``sendmsg``), so that no replica costs a copy, and no fresh memory for one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from tallystick.codec.frames import Buffer

SLICE_BYTES = 1024 * 1024  # so much is written in one call, and held by the transport; a longer part is a slice alone
# From this mean on, parts are not joined: below it a part costs more time than its copy. A kernel takes 1,024 parts at
# most in one call: a slice has no more.
LONG_PART_BYTES = 1024


class OutgoingPiece(NamedTuple):
    """Bytes to send together, in parts of ``size`` bytes altogether."""

    parts: Sequence[Buffer]
    size: int

    @classmethod
    def of(cls, data: Buffer) -> OutgoingPiece:
        return cls((data,), len(data))

    @property
    def is_long(self) -> bool:
        """Whether its parts are not worth joining."""
        return len(self.parts) == 1 or self.size >= LONG_PART_BYTES * len(self.parts)

    def joined(self) -> OutgoingPiece:
        """Return the same bytes in one part, unless the parts are long."""
        return self if self.is_long else OutgoingPiece((b"".join(self.parts),), self.size)


class SharedPieces(list[OutgoingPiece]):
    """Pieces that several connections send. ``encoded``: what one of them made of these for its protocol, and the id of
    the first request in that; those whose requests begin with the same id send the same bytes."""

    encoded: tuple[int, list[OutgoingPiece]] | None = None


def cut(parts: Sequence[Buffer], *, join: bool = True) -> list[OutgoingPiece]:
    """Cut parts into pieces of at most a slice each, or of one longer part; ``join`` joins short parts of a piece."""
    size, pieces = sum(map(len, parts)), []
    if size <= SLICE_BYTES:
        pieces = [OutgoingPiece(parts, size)] if size else []
    else:
        ends, start, begin = list(accumulate(map(len, parts))), 0, 0
        while start < len(parts):
            stop = max(bisect_right(ends, begin + SLICE_BYTES), start + 1)
            pieces.append(OutgoingPiece(parts[start:stop], ends[stop - 1] - begin))
            start, begin = stop, ends[stop - 1]
    return [piece.joined() for piece in pieces] if join else pieces


class Outgoing:
    """A queue of pieces. ``queued_bytes`` and ``written_bytes`` count bytes since the beginning."""

    def __init__(self) -> None:
        self.queued_bytes = self.written_bytes = 0
        self._pieces: deque[OutgoingPiece] = deque()
        self._on_written: deque[tuple[int, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def parts(self) -> list[Buffer]:
        """All parts that are held."""
        return [part for piece in self._pieces for part in piece.parts]

    def put(self, piece: OutgoingPiece) -> None:
        self._pieces.append(piece)
        self.queued_bytes += piece.size

    def take(self) -> OutgoingPiece:
        """Take the next pieces as one, a slice at most; they count as written. Only when there are some."""
        pieces = self._pieces
        piece = pieces.popleft()
        if pieces and piece.size + pieces[0].size <= SLICE_BYTES:
            parts, size = list(piece.parts), piece.size
            while pieces and size + pieces[0].size <= SLICE_BYTES:
                parts += pieces[0].parts
                size += pieces.popleft().size
            piece = OutgoingPiece(parts, size)
        self.written_bytes += piece.size
        return piece if len(piece.parts) == 1 else piece.joined()

    def clear(self) -> None:
        """Drop all pieces: nothing of them will be written."""
        self._pieces.clear()

    def when_written(self, position: int, callback: Callable[[], None]) -> None:
        """Let ``waiters`` return the callback once ``written_bytes`` has come so far. Positions must not descend."""
        self._on_written.append((position, callback))

    def waiters(self, *, ended: bool = False) -> list[Callable[[], None]]:
        """Return the callbacks whose bytes are written, or all when the connection has ended; each once."""
        ready = []
        while self._on_written and (ended or self._on_written[0][0] <= self.written_bytes):
            ready.append(self._on_written.popleft()[1])
        return ready
