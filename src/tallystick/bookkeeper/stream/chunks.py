"""Messages that are too long for one entry: their chunks are joined here, in whatever order producers interleave.

A producer that sends a chunk again may send all from the first one on; one that dies leaves a message without an end.
So what is kept of those that are begun is bounded: of the oldest the bytes go, and its chunks are read again when the
last one is there. So it is when all readings of a client keep more than it has for them: then the oldest bytes of the
one that got a chunk longest ago go. A message of which nothing came for very many entries ends.
Of a message whose first chunk was not read, as the reading began behind it, nothing is delivered
(``ConsumerImpl.processMessageChunk``). Of what is given up all chunks are told: a cursor needs none of them any more.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256

from tallystick.bookkeeper.wire.pulsar_messages import Chunk, InMessage
from tallystick.bookkeeper.wire.stream_values import Position

MOST_KEPT_BYTES = 256 << 20  # of all readings of a client
MOST_MESSAGES = 10_000  # begun at once
MOST_CHUNKS = 65_536  # of all that are begun
# Entries without a chunk of it after which a message is given up: no time, as clocks differ, and who reads may pause.
MOST_BEHIND = 1_000_000

LONGEST_NAME = (
    256  # letters of a producer, or a uuid, that are kept: else a digest is, as it may be as long as an entry
)

_Name = tuple[str, str]  # producer, uuid


@dataclass
class _Begun:
    """``positions`` are those of its chunks, also of those that were sent again."""

    chunks: int
    total_bytes: int
    positions: list[Position]
    parts: list[bytes] = field(default_factory=list)
    bytes: int = 0
    places: list[Position] = field(default_factory=list)  # of the parts
    is_kept: bool = True  # else the parts are to be read again
    read_at: int = 0  # the number of the entry in which its newest chunk was


@dataclass(frozen=True)
class Joined:
    """A whole message: its chunks, as they are stored, and the positions of all but the last."""

    parts: tuple[bytes, ...]
    positions: tuple[Position, ...]


@dataclass(frozen=True)
class Scattered:
    """A whole message of which the bytes were not kept: ``parts`` are its chunks, in order, to be read again."""

    parts: tuple[Position, ...]
    positions: tuple[Position, ...]


class KeptChunks:
    """What all readings of a client keep of messages that are begun: so many bytes. A reading that nobody refers to any
    more does not count."""

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        # Of the one that got a chunk longest ago first.
        self._sizes: OrderedDict[weakref.ref[ChunksCore], int] = OrderedDict()
        self.bytes = 0

    def changed(self, core: ChunksCore) -> None:
        """It keeps more or less than before."""
        reference = weakref.ref(core, self._forget)
        self._forget(reference)
        if core.kept_bytes:
            self._sizes[reference] = core.kept_bytes
            self.bytes += core.kept_bytes

    def make_room(self) -> None:
        """Let the oldest go, where there is too much."""
        while self.bytes > self._most_bytes:
            oldest = next(iter(self._sizes))()
            assert oldest is not None, "else it would have been forgotten"
            size = oldest.let_go_oldest()
            self._sizes[weakref.ref(oldest)] -= size
            self.bytes -= size
            if not oldest.kept_bytes:
                self._forget(weakref.ref(oldest))

    def _forget(self, reference: weakref.ref[ChunksCore]) -> None:
        self.bytes -= self._sizes.pop(reference, 0)


class ChunksCore:
    """Joins the chunks of one reading; ``max_bytes`` are those of all messages that are begun, and as many of names.
    ``kept`` is shared by all readings of a client."""

    def __init__(self, max_bytes: int, kept: KeptChunks | None = None) -> None:
        self._max_bytes, self._shared = max_bytes, kept or KeptChunks()
        self._begun: dict[_Name, _Begun] = {}  # the oldest first
        self._kept: dict[_Name, None] = {}  # those of which the bytes are here, in the same order
        self.kept_bytes = self._chunks = self._letters = 0  # ``letters``: of the names
        self._entries = 0  # that were read
        self._by_read: OrderedDict[_Name, None] = OrderedDict()  # those begun, that of the oldest newest chunk first
        self._dropped: list[tuple[Position, ...]] = []
        self._strays: list[Position] = []

    @property
    def first(self) -> Position | None:
        """Returns the first chunk of all messages that are begun, None if there is none."""
        return min((begun.positions[0] for begun in self._begun.values()), default=None)

    def passed(self) -> None:
        """One more entry is read, whatever it is."""
        self._entries += 1
        while self._by_read:
            name = next(iter(self._by_read))
            if self._begun[name].read_at + MOST_BEHIND > self._entries:
                return
            self._drop(name)

    def arrived(self, message: InMessage, chunk: Chunk) -> Joined | Scattered | None:
        """Take the next chunk. Returns the message that it ends, if it does."""
        ended = self._arrived(message, chunk)
        self._shared.changed(self)
        self._shared.make_room()
        return ended

    def _arrived(self, message: InMessage, chunk: Chunk) -> Joined | Scattered | None:
        name = _name_of(message.producer, chunk.uuid)
        begun = self._begun.get(name)
        if chunk.index == 0:
            self._forget(name)
            positions = [] if begun is None else begun.positions
            begun = self._begun[name] = _Begun(chunk.count, chunk.total_bytes, positions)
            self._kept[name] = None
            self._chunks += len(positions)
            self._letters += _letters(name)
        if begun is None:
            self._strays.append(message.position)
            return None
        begun.positions.append(message.position)
        begun.read_at = self._entries
        self._by_read[name] = None
        self._by_read.move_to_end(name)
        self._chunks += 1
        if chunk.index < len(begun.parts):  # sent again
            self._make_room()
            return None
        size = begun.bytes + len(message.data)
        is_next = chunk.index == len(begun.parts) and size <= begun.total_bytes
        if not is_next or (chunk.count, chunk.total_bytes) != (begun.chunks, begun.total_bytes):
            self._drop(name)
            return None
        begun.parts.append(message.data if begun.is_kept else b"")
        begun.places.append(message.position)
        begun.bytes = size
        self.kept_bytes += len(begun.parts[-1])
        if len(begun.parts) == begun.chunks:
            self._forget(name)
            if not begun.is_kept:
                return Scattered(tuple(begun.places), tuple(begun.positions[:-1]))
            return Joined(tuple(begun.parts), tuple(begun.positions[:-1]))
        self._make_room()
        return None

    def take_dropped(self) -> list[tuple[Position, ...]]:
        """Take the chunks of each message that was given up since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def take_strays(self) -> list[Position]:
        """Take chunks of messages that were given up before, or whose first chunk was not read."""
        strays, self._strays = self._strays, []
        return strays

    def _make_room(self) -> None:
        while self.kept_bytes > self._max_bytes:
            self.let_go_oldest()
        while self._letters > self._max_bytes or self._chunks > MOST_CHUNKS or len(self._begun) > MOST_MESSAGES:
            self._drop(next(iter(self._begun)))

    def let_go_oldest(self) -> int:
        """Keep no bytes of the oldest message of which there are any here. Returns how many they were."""
        name = next(iter(self._kept))
        begun = self._begun[name]
        del self._kept[name]
        self.kept_bytes -= begun.bytes
        begun.is_kept, begun.parts = False, [b""] * len(begun.parts)
        return begun.bytes

    def _drop(self, name: _Name) -> None:
        self._dropped.append(tuple(self._begun[name].positions))
        self._forget(name)

    def _forget(self, name: _Name) -> None:
        if (begun := self._begun.pop(name, None)) is not None:
            self.kept_bytes -= begun.bytes if begun.is_kept else 0
            self._kept.pop(name, None)
            self._by_read.pop(name, None)
            self._letters -= _letters(name)
            self._chunks -= len(begun.positions)


def _name_of(producer: str, uuid: str) -> _Name:
    return _kept_name(producer), _kept_name(uuid)


def _kept_name(name: str) -> str:
    """Returns the name, or what stands for a long one and is no other's."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{len(name)} {sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _letters(name: _Name) -> int:
    return sum(map(len, name))
