"""Read an entry log as its index describes it, chunk by chunk, and find what of it is damaged.

A chunk must match its checksum, and each entry must be where the index says, under its own ids. Entries lie in a log in
the order of its index, so a scan holds no more than a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.log_index import Piece, load_index, log_path
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.pages import PAGE_BITS
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk, File

ELSEWHERE = "the index says that other entries are there"
_IDENTITY_AT, _BODY_AT = 12, 28  # in a frame of an entry log: its ids, and its entry


@dataclass(frozen=True)
class Place:
    """Where the index says that an entry is."""

    ledger: LedgerId
    entry: EntryId
    location: index.Location


@dataclass(frozen=True)
class BadPlace:
    """An entry that cannot be read from its place, and why."""

    place: Place
    reason: str


@dataclass
class ChunkScan:
    """What one chunk has: entries that are where they should be, as stored, and those that are not."""

    number: int
    bytes: int
    bodies: list[tuple[Place, memoryview]] = field(default_factory=list, repr=False)
    bad: list[BadPlace] = field(default_factory=list)


class LogScan:
    """One log. Raises StorageError if its index cannot be read; ``close`` it."""

    def __init__(self, disk: Disk, directory: str, log_id: int) -> None:
        self.log, pieces = load_index(disk, directory, log_id)
        self._places = places(pieces)
        self._next = next(self._places, None)
        self._file: File | None = None
        self._problem = ""
        try:
            self._file = disk.open(log_path(directory, log_id))
        except StorageError as error:
            self._problem = error.message

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def chunks(self, first: int = 0) -> Iterator[ChunkScan]:
        """Scan the chunks from ``first`` on."""
        for number in range(len(self.log.chunks)):
            expected = self._places_before(self.log.chunk_end(number))
            if number >= first:
                yield self._scan(number, expected)
        rest = self._places_before(1 << index.OFFSET_BITS)
        if rest:
            yield ChunkScan(len(self.log.chunks), 0, bad=[BadPlace(place, ELSEWHERE) for place in rest])

    def _places_before(self, end: int) -> list[Place]:
        before = list[Place]()
        while self._next is not None and self._next.location & index.OFFSET_MASK < end:
            before.append(self._next)
            self._next = next(self._places, None)
        return before

    def _scan(self, number: int, expected: list[Place]) -> ChunkScan:
        start = self.log.chunks[number]
        scan = ChunkScan(number, self.log.chunk_end(number) - start)
        try:
            chunk = memoryview(self._read(number))
        except StorageError as error:
            scan.bad = [BadPlace(place, error.message) for place in expected]
            return scan
        for place in expected:
            body = _body(chunk, (place.location & index.OFFSET_MASK) - start, place)
            if body is None:
                scan.bad.append(BadPlace(place, ELSEWHERE))
            else:
                scan.bodies.append((place, body))
        return scan

    def _read(self, number: int) -> bytes:
        if self._file is None:
            raise StorageError(self._problem)
        return self.log.read_chunk(self._file, number)


def places(pieces: list[Piece]) -> Iterator[Place]:
    """Yield the places of the entries of a log, in its order."""
    for piece in pieces:
        for entry, location in enumerate(piece.locations, (piece.page << PAGE_BITS) + piece.slot):
            if location:
                yield Place(piece.ledger, entry, location)


def _body(chunk: memoryview, start: int, place: Place) -> memoryview | None:
    """Return the entry at this place of a chunk, None if it is not there, or says itself that it is another one."""
    stop = start + 4 + int.from_bytes(chunk[start : start + 4], "big")
    body = chunk[start + _BODY_AT : stop]
    if start < 0 or stop > len(chunk) or len(body) < ENTRY_HEADER.size:
        return None
    ids = place.ledger.to_bytes(8, "big", signed=True) + place.entry.to_bytes(8, "big", signed=True)
    return body if chunk[start + _IDENTITY_AT : start + _BODY_AT] == ids == body[: len(ids)] else None
