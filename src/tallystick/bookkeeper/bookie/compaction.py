"""Rewrite entry logs: what is live in some of them moves to a new one, beside the checkpoints and slowly.

::

    begin (an id, in a checkpoint's turn) ─► load ─► choose (loop) ─► copy, slice by slice ─► the new log is synced, and
    its index ─► state file, in a checkpoint's turn: the new log counts, the old ones do not ─► each entry that is still
    where it was copied from is read from the new log ─► the old files are deleted

A crash anywhere leaves either the old logs or the new one in the state file; files that it does not name are deleted at
the next start. The id of the new log is lower than that of any checkpoint's that begins later: where both have an
entry, the checkpoint's is the newer version, on the disk as in memory. A log that cannot be read stays.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.bookkeeper.bookie.ledgers import Ledger, holds
from tallystick.bookkeeper.bookie.log_index import EntryLog, Piece, load_index, log_path
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.pages import PAGE_BITS
from tallystick.codec.steps import Steps
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk, File

_SLICE_FRAMES, _SLICE_BYTES = 1024, 1024 * 1024  # copied at once: a checkpoint waits for no more
_STEP_ENTRIES = 4096  # looked at in one step of the loop: a millisecond or two
_STEP_PIECES = 500  # the same, where they are short

NewLog = tuple[EntryLog, list[Piece]]
_Part = tuple["array[int]", "array[int]"]  # ascending entries, and where they are


class UnreadableLog(Exception):
    """A log could not be read while it was rewritten. Nothing else failed: the others can still be rewritten."""

    def __init__(self, log: int, reason: str) -> None:
        super().__init__(reason)
        self.log, self.reason = log, reason


@dataclass(frozen=True)
class Slice:
    """What was copied at once."""

    entries: int
    bytes: int


@contextlib.contextmanager
def _reading(log_id: int) -> Iterator[None]:
    """Tell errors of a log that is read apart from those of the log that is written."""
    try:
        yield
    except StorageError as error:
        raise UnreadableLog(log_id, str(error)) from error


class _Source:
    """A log that is rewritten, read chunk by chunk. All methods raise UnreadableLog."""

    def __init__(self, disk: Disk, directory: str, log_id: int) -> None:
        with _reading(log_id):
            self.log, self.pieces = load_index(disk, directory, log_id)
            self.file: File = disk.open(log_path(directory, log_id))
        self._number, self._chunk = -1, b""

    def frame(self, location: index.Location) -> bytes:
        offset = location & index.OFFSET_MASK
        number = self.log.chunk_of(offset)
        if number != self._number:
            with _reading(self.log.id):
                self._number, self._chunk = number, self.log.read_chunk(self.file, number)
        start = offset - self.log.chunks[number]
        return self._chunk[start : start + 4 + int.from_bytes(self._chunk[start : start + 4], "big")]


class Compaction:
    """One new log with what is live in the ``victims``. ``abandon`` it if any step fails."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: int,
        victims: Sequence[int],
        chunk_bytes: int,
        watching: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """``watching`` tells a failure of the folder from others, where the bookie has several."""
        self.victims = tuple(victims)
        self.new_log: NewLog | None = None  # when all is copied; None also if nothing was live
        self._disk, self._directory, self._log_id, self._chunk_bytes = disk, directory, log_id, chunk_bytes
        self._sources: dict[int, _Source] = {}
        self._live: dict[LedgerId, list[_Part]] = {}
        self._writer: LogWriter | None = None
        self._watching = watching
        self._copying = self._copy()

    def load(self) -> None:
        """Thread: read the indexes of the victims. Raises UnreadableLog."""
        for log_id in self.victims:
            self._sources[log_id] = _Source(self._disk, self._directory, log_id)

    def choose(self, alive: Mapping[LedgerId, Ledger]) -> Steps[None]:
        """Loop, in steps: find what is live. Nobody else changes the index during a step."""
        entries = pieces = 0
        for log_id, source in self._sources.items():
            for piece in source.pieces:
                if holds(alive, piece.ledger, log_id) and (part := _live_part(piece, alive[piece.ledger].pages)):
                    self._live.setdefault(piece.ledger, []).append(part)
                entries, pieces = entries + len(piece.locations), pieces + 1
                if entries >= _STEP_ENTRIES or pieces >= _STEP_PIECES:
                    entries = pieces = 0
                    yield
            source.pieces = []

    def copy(self) -> Slice | None:
        """Thread: copy some entries. Returns None when the new log is durable. Raises UnreadableLog, and StorageError
        of the new log."""
        with self._watching():
            return next(self._copying, None)

    def _copy(self) -> Iterator[Slice]:
        if self._live:
            writer = self._writer = LogWriter(self._disk, self._directory, self._log_id, self._chunk_bytes)
            for ledger in sorted(self._live):
                yield from self._copy_ledger(writer, ledger, *_joined(self._live.pop(ledger)))
            self.new_log, self._writer = (writer.finish(), writer.pieces), None
        self._close()

    def _copy_ledger(
        self, writer: LogWriter, ledger: LedgerId, entries: array[int], locations: array[int]
    ) -> Iterator[Slice]:
        frames, starts, size, first = list[bytes](), array("Q"), 0, 0
        for at, location in enumerate(locations, 1):
            frames.append(self._sources[location >> index.OFFSET_BITS].frame(location))
            starts.append(size)
            size += len(frames[-1])
            if len(frames) == _SLICE_FRAMES or size >= _SLICE_BYTES or at == len(locations):
                writer.add(ledger, entries[first:at], starts, b"".join(frames))
                yield Slice(len(frames), size)
                frames, starts, size, first = [], array("Q"), 0, at

    def _close(self) -> None:
        for source in self._sources.values():
            source.file.close()
        self._sources.clear()

    def abandon(self) -> None:
        """Thread: give the space of the new log back."""
        self._copying.close()  # type: ignore[attr-defined]  # a generator
        self._close()
        if self._writer is not None:
            self._writer.abandon()


def _live_part(piece: Piece, pages: index.Pages) -> _Part | None:
    """Return the entries that the index finds in this piece, None if there are none."""
    first, locations = (piece.page << PAGE_BITS) + piece.slot, piece.locations
    page = pages.get(piece.page)
    if page is not None and page[piece.slot : piece.slot + len(locations)] == locations and 0 not in locations:
        return array("q", range(first, first + len(locations))), locations
    live = [
        (entry, location)
        for entry, location in enumerate(locations, first)
        if location and index.get(pages, entry) == location
    ]
    return (array("q", [entry for entry, _ in live]), array("Q", [place for _, place in live])) if live else None


def _joined(parts: list[_Part]) -> _Part:
    """Return the entries of one ledger, ascending; each is live in one log only."""
    parts.sort(key=lambda part: part[0][0])
    if any(before[0][-1] > after[0][0] for before, after in pairwise(parts)):
        pairs = sorted(pair for part in parts for pair in zip(*part, strict=True))
        return array("q", [entry for entry, _ in pairs]), array("Q", [location for _, location in pairs])
    entries, locations = array("q"), array("Q")
    for part in parts:
        entries.extend(part[0])
        locations.extend(part[1])
    return entries, locations
