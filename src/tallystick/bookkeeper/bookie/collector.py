"""Give space back: delete logs that nothing refers to, rewrite those that are mostly dead, merge small ones.

A ledger is deleted only when it was here before the metadata was listed and the whole listing does not name it: its
metadata is created before its first entry. What a rewritten log still holds is decided entry by entry by the index; the
index changes only after the new log is durable. A log that cannot be read stays: the rest of its entries may be sound.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.entry_log import LogWriter
from tallystick.bookkeeper.bookie.ledgers import Ledger, holds
from tallystick.bookkeeper.bookie.log_index import EntryLog, Piece, load_index, log_path
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.steps import Steps
from tallystick.errors import StorageError
from tallystick.runtime.disk import Disk, File

_SMALL = 8  # a log with less than the memtable's size / 8 of live bytes is a small one
_BATCH_FRAMES = 1024


@dataclass(frozen=True)
class DamagedLog:
    """A log that could not be read, and why."""

    log: int
    reason: str


class UnreadableLog(Exception):
    """A log could not be read while it was rewritten. Nothing else failed: the others can still be rewritten."""

    def __init__(self, damaged: DamagedLog) -> None:
        super().__init__(damaged.reason)
        self.damaged = damaged


def _live_bytes(log: EntryLog, alive: Mapping[LedgerId, Ledger]) -> int:
    """Count the bytes of live ledgers; overwritten entries count until their log is rewritten."""
    return sum(size for ledger, size in log.by_ledger.items() if holds(alive, ledger, log.id))


def logs_without_a_ledger(logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger]) -> Steps[tuple[int, ...]]:
    """Return the logs to delete as they are.

    A step is some ledgers, not a log: a bookie may have thousands of logs, most of them with a live ledger first.
    """
    dead_logs, steps = list[int](), 0
    for log in logs:
        steps += 1
        for ledger, size in log.by_ledger.items():
            if size and holds(alive, ledger, log.id):
                break
            steps += 1
            if steps >= STEP_LEDGERS:
                steps = 0
                yield
        else:
            dead_logs.append(log.id)
    return tuple(dead_logs)


def logs_to_rewrite(
    logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger], settings: StorageSettings
) -> tuple[int, ...]:
    """Choose the logs that are mostly dead, and the small ones if there are many."""
    live = {log.id: _live_bytes(log, alive) for log in logs}
    rewrite = {log.id for log in logs if live[log.id] < settings.compact_below * log.size}
    small = [log.id for log in logs if live[log.id] < settings.memtable_bytes / _SMALL]
    if len(small) >= settings.merge_logs:
        rewrite.update(small)
    return tuple(sorted(rewrite))


@contextlib.contextmanager
def _reading(log_id: int) -> Iterator[None]:
    """Tell errors of a log that is read apart from those of the log that is written."""
    try:
        yield
    except StorageError as error:
        raise UnreadableLog(DamagedLog(log_id, str(error))) from error


class _Source:
    """A log that is being rewritten, read chunk by chunk. All methods raise UnreadableLog."""

    def __init__(self, disk: Disk, directory: str, log_id: int) -> None:
        with _reading(log_id):
            self.log, self.pieces = load_index(disk, directory, log_id)
            self.file: File = disk.open(log_path(directory, log_id))
        self._number, self._chunk = -1, b""

    def check(self) -> None:
        """Read each chunk and compare it with its checksum."""
        with _reading(self.log.id):
            for number in range(len(self.log.chunks)):
                self.log.read_chunk(self.file, number)

    def frame(self, location: index.Location) -> bytes:
        offset = location & index.OFFSET_MASK
        number = self.log.chunk_of(offset)
        if number != self._number:
            with _reading(self.log.id):
                self._number, self._chunk = number, self.log.read_chunk(self.file, number)
        start = offset - self.log.chunks[number]
        return self._chunk[start : start + 4 + int.from_bytes(self._chunk[start : start + 4], "big")]


def compact(
    disk: Disk, directory: str, victims: Iterable[int], alive: Mapping[LedgerId, Ledger], writer: LogWriter
) -> None:
    """Copy the live entries of the victims to a new log. Raises UnreadableLog, and StorageError of the new log."""
    sources: dict[int, _Source] = {}
    pieces: dict[LedgerId, list[Piece]] = {}
    try:
        for log_id in victims:
            source = sources[log_id] = _Source(disk, directory, log_id)
            source.check()
            for piece in source.pieces:
                if holds(alive, piece.ledger, log_id):
                    pieces.setdefault(piece.ledger, []).append(piece)
        for ledger in sorted(pieces):
            _copy(sources, writer, ledger, _live_entries(pieces[ledger], alive[ledger].pages))
    finally:
        for source in sources.values():
            source.file.close()


def _live_entries(pieces: list[Piece], pages: index.Pages) -> list[tuple[EntryId, index.Location]]:
    """Return the entries of one ledger that the index finds in these pieces, ascending."""
    return sorted(
        (entry, location)
        for piece in pieces
        for entry, location in enumerate(piece.locations, (piece.page << index.PAGE_BITS) + piece.slot)
        if location and index.get(pages, entry) == location
    )


def _copy(
    sources: Mapping[int, _Source], writer: LogWriter, ledger: LedgerId, live: list[tuple[EntryId, index.Location]]
) -> None:
    for at in range(0, len(live), _BATCH_FRAMES):
        batch = live[at : at + _BATCH_FRAMES]
        starts, frames, size = array("Q"), [], 0
        for _, location in batch:
            frames.append(sources[location >> index.OFFSET_BITS].frame(location))
            starts.append(size)
            size += len(frames[-1])
        writer.add(ledger, array("q", [entry for entry, _ in batch]), starts, b"".join(frames))
