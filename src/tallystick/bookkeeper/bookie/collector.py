"""Give space back: delete logs that nothing refers to, rewrite those that are mostly dead, merge small ones.

A ledger is deleted only when it was here before the metadata was listed and the whole listing does not name it: its
metadata is created before its first entry. What a rewritten log still holds is decided entry by entry by the index; the
index changes only after the new log is durable.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.entry_log import EntryLog, LogWriter, Piece, load_index, log_path
from tallystick.bookkeeper.bookie.ledgers import Ledger, holds
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import CorruptRecord
from tallystick.runtime.disk import Disk, File

_SMALL = 8  # a log with less than the memtable's size / 8 of live bytes is a small one
_BATCH_FRAMES = 1024


@dataclass(frozen=True)
class Choice:
    """What to do with the entry logs."""

    rewrite: tuple[int, ...]
    gone: tuple[int, ...]


def choose_logs(logs: Collection[EntryLog], alive: Mapping[LedgerId, Ledger], settings: StorageSettings) -> Choice:
    """By the bytes of live ledgers in each log; overwritten entries count as live until their log is rewritten."""
    live = {log.id: sum(size for ledger, size in log.by_ledger.items() if holds(alive, ledger, log.id)) for log in logs}
    gone = tuple(log.id for log in logs if not live[log.id])
    rest = [log for log in logs if live[log.id]]
    rewrite = {log.id for log in rest if live[log.id] < settings.compact_below * log.size}
    small = [log.id for log in rest if live[log.id] < settings.memtable_bytes / _SMALL]
    if len(small) >= settings.merge_logs:
        rewrite.update(small)
    return Choice(tuple(sorted(rewrite)), gone)


class _Source:
    """A log that is being rewritten, read chunk by chunk."""

    def __init__(self, disk: Disk, directory: str, log: EntryLog) -> None:
        self.log = log
        self.file: File = disk.open(log_path(directory, log.id))
        self._number, self._chunk = -1, b""

    def check(self) -> bool:
        """Whether each chunk matches its checksum."""
        try:
            for number in range(len(self.log.chunks)):
                self.log.read_chunk(self.file, number)
        except CorruptRecord:
            return False
        return True

    def frame(self, location: index.Location) -> bytes:
        offset = location & index.OFFSET_MASK
        number = self.log.chunk_of(offset)
        if number != self._number:
            self._number, self._chunk = number, self.log.read_chunk(self.file, number)
        start = offset - self.log.chunks[number]
        return self._chunk[start : start + 4 + int.from_bytes(self._chunk[start : start + 4], "big")]


def compact(
    disk: Disk, directory: str, victims: Iterable[int], alive: Mapping[LedgerId, Ledger], writer: LogWriter
) -> tuple[int, ...]:
    """Copy the live entries of the victims to a new log; which victims can go. A damaged one stays as it is."""
    sources: dict[int, _Source] = {}
    pieces: dict[LedgerId, list[Piece]] = {}
    try:
        for log_id in victims:
            log, found = load_index(disk, directory, log_id)
            source = sources[log_id] = _Source(disk, directory, log)
            if not source.check():
                source.file.close()
                del sources[log_id]
                continue
            for piece in found:
                if holds(alive, piece.ledger, log_id):
                    pieces.setdefault(piece.ledger, []).append(piece)
        for ledger in sorted(pieces):
            _copy(sources, writer, ledger, _live_entries(pieces[ledger], alive[ledger].pages))
        return tuple(sources)
    finally:
        for source in sources.values():
            source.file.close()


def _live_entries(pieces: list[Piece], pages: index.Pages) -> list[tuple[EntryId, index.Location]]:
    """The entries of one ledger that the index finds in these pieces, ascending."""
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
