"""Messages that are too long for one entry: their chunks are joined here, in whatever order producers interleave.

A producer that sends a chunk again may send all from the first one on; one that dies leaves a message without an end.
So what is begun is bounded, and the oldest gives way. Of a message whose first chunk was not read, as the reading began
behind it, nothing is delivered (``ConsumerImpl.processMessageChunk``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.pulsar_messages import Chunk, InMessage
from tallystick.bookkeeper.wire.stream_values import Position

MOST_MESSAGES = 100  # begun at once

_Name = tuple[str, str]  # producer, uuid


@dataclass
class _Begun:
    """``positions`` are those of its chunks, also of those that were sent again."""

    chunks: int
    total_bytes: int
    positions: list[Position]
    parts: list[bytes] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class Joined:
    """A whole message: the data of its chunks, as they are stored, and the positions of all but the last."""

    data: bytes
    positions: tuple[Position, ...]


class ChunksCore:
    """Joins the chunks of one reading; ``max_bytes`` are those of all messages that are begun."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun: dict[_Name, _Begun] = {}  # the oldest first
        self._bytes = 0
        self._dropped: list[Position] = []

    def arrived(self, message: InMessage, chunk: Chunk) -> Joined | None:
        """Take the next chunk. Returns the message that it ends, if it does."""
        name = message.producer, chunk.uuid
        begun = self._begun.get(name)
        if chunk.index == 0:
            self._forget(name)
            positions = [] if begun is None else begun.positions
            begun = self._begun[name] = _Begun(chunk.count, chunk.total_bytes, positions)
        if begun is None:
            return None
        begun.positions.append(message.position)
        if chunk.index < len(begun.parts):  # sent again
            return None
        size = begun.bytes + len(message.data)
        is_next = chunk.index == len(begun.parts) and size <= begun.total_bytes
        if not is_next or (chunk.count, chunk.total_bytes) != (begun.chunks, begun.total_bytes):
            self._drop(name)
            return None
        begun.parts.append(message.data)
        begun.bytes = size
        self._bytes += len(message.data)
        if len(begun.parts) == begun.chunks:
            self._forget(name)
            return Joined(b"".join(begun.parts), tuple(begun.positions[:-1]))
        while self._bytes > self._max_bytes or len(self._begun) > MOST_MESSAGES:
            self._drop(next(iter(self._begun)))
        return None

    def take_dropped(self) -> list[Position]:
        """Take the first positions of messages that were given up since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop(self, name: _Name) -> None:
        self._dropped.append(self._begun[name].positions[0])
        self._forget(name)

    def _forget(self, name: _Name) -> None:
        if (begun := self._begun.pop(name, None)) is not None:
            self._bytes -= begun.bytes
