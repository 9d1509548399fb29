"""The chunks of a message that began before the entries of a task, or of which too many others were begun to keep them.

Where the chunks are is noted of each entry that is read; entries before those are looked at once, the newest first, as
far as a first chunk is looked for. So it costs no more where very many last chunks belong to nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.bookkeeper.ledger.ranges import Range
from tallystick.bookkeeper.wire.pulsar_messages import Buffer, Chunk, OpenEntry, open_entry
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import CorruptEntry

FIRST_WINDOW = 16  # entries that are looked at behind the beginning; each window has twice as many as the one before
LARGEST_WINDOW = 1024
MOST_BEFORE = 100_000  # entries: chunks of one message are near each other

_Name = bytes  # of a message: a digest, as producers' names may be long


@dataclass
class _Begun:
    """Chunks of a message, in the order in which they were looked at. ``count`` is the number of all that its first
    chunk told, 0 before that was looked at."""

    count: int = 0
    positions: list[Position] = field(default_factory=list)


class EarlierChunks:
    """Told of each chunk that is read, it knows those that were before."""

    def __init__(self, client: BookieClient, before: Sequence[Range], ranges: Sequence[Range]) -> None:
        """``ranges`` are read, ``before`` are the entries before them, the oldest first."""
        self._client, self._ranges = client, (*before, *ranges)
        self._windows = _windows(before)
        self._before: dict[_Name, _Begun] = {}  # from the newest first chunk on, backwards
        # Of each message the chunks since its newest first one, or since the beginning; None: nothing of it is begun.
        self._read: dict[_Name, _Begun | None] = {}

    def ended(self, opened: OpenEntry, chunk: Chunk) -> None:
        """The message of this chunk is complete."""
        self._read[_name_of(opened, chunk)] = None

    async def since_first(self, opened: OpenEntry, chunk: Chunk) -> AsyncGenerator[OpenEntry, None]:
        """This chunk is read, and ends no message that is known. Yields the chunks that are before it, from the newest
        first one on, if it is a last one. Raises as ``fetch_runs``, and CorruptEntry."""
        name = _name_of(opened, chunk)
        begun = self._read.setdefault(name, _Begun())
        is_last = chunk.index == chunk.count - 1
        if chunk.index == 0:
            begun = self._read[name] = _Begun(chunk.count)
        elif begun is None:
            return
        elif not begun.count and is_last:
            begun = self._read[name] = await self._with_those_before(name, begun)
            if begun is None:
                return
        if not is_last or begun.count != chunk.count:
            begun.positions.append(opened.position)
            return
        self._read[name] = None  # a last chunk ends a message, whatever is missing
        async with aclosing(fetch_runs(self._client, self._pieces(begun.positions))) as runs:
            async for run in runs:
                for entry, data in enumerate(run.payloads, run.first):
                    yield open_entry(data, position=Position(run.ledger, entry))

    async def _with_those_before(self, name: _Name, begun: _Begun) -> _Begun | None:
        """Returns None if there is no first chunk."""
        while (earlier := self._before.get(name)) is None or not earlier.count:
            window = next(self._windows, None)
            if window is None:
                return None
            await self._look_at(window)
        return _Begun(earlier.count, [*reversed(earlier.positions), *begun.positions])

    async def _look_at(self, window: Range) -> None:
        entries: list[tuple[Position, Buffer]] = []
        async with aclosing(fetch_runs(self._client, [window])) as runs:
            async for run in runs:
                entries += [(Position(run.ledger, entry), data) for entry, data in enumerate(run.payloads, run.first)]
        for position, data in reversed(entries):
            try:
                opened = open_entry(data, position=position)
            except CorruptEntry:  # no chunk, whatever it is
                continue
            if opened.chunk is None:
                continue
            begun = self._before.setdefault(_name_of(opened, opened.chunk), _Begun())
            if not begun.count:
                begun.positions.append(position)
                begun.count = opened.chunk.count if opened.chunk.index == 0 else 0

    def _pieces(self, positions: Sequence[Position]) -> Iterator[Range]:
        """Yields what is to be read to have the entries at some positions, which ascend."""
        piece = whole = None
        for ledger, entry, _ in positions:
            if piece is not None and whole is not None:
                if ledger == piece.ledger and piece.last + 1 == entry <= whole.last:
                    piece = piece._replace(last=entry)
                    continue
                yield piece
            whole = next(each for each in self._ranges if each.ledger == ledger and each.first <= entry <= each.last)
            piece = whole._replace(first=entry, last=entry)
        if piece is not None:
            yield piece


def _name_of(opened: OpenEntry, chunk: Chunk) -> _Name:
    text = f"{len(opened.producer)} {opened.producer} {chunk.uuid}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _windows(ranges: Sequence[Range]) -> Iterator[Range]:
    """Yields pieces of some ranges, the newest first."""
    count, left = FIRST_WINDOW, MOST_BEFORE
    for whole in reversed(ranges):
        last = whole.last
        while last >= whole.first and left > 0:
            first = max(whole.first, last - count + 1)
            yield whole._replace(first=first, last=last)
            left -= last - first + 1
            last, count = first - 1, min(2 * count, LARGEST_WINDOW)
