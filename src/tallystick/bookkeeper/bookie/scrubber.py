"""Read all that a bookie stores, again and again, slowly, and tell what cannot be read or does not match its digest.

All chunks of all entry logs are read from the disk and compared with their checksums, and each entry in them with its
index; where the metadata says which digest a ledger has, and the password that HMAC needs, each entry with its digest,
too. A finding is no proof: whoever repairs it reads the entry again. What is in memory alone the journal has, which a
start reads; the index files are read whole in each round.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from tallystick.bookkeeper.bookie.damages import Damages
from tallystick.bookkeeper.bookie.log_scan import BadPlace, ChunkScan, LogScan, Place
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.scrub import COVERED_S, SCRUB_FILE, ScrubProgress
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import DigestMismatch, MetadataError, StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import read_file
from tallystick.runtime.outside import Outside
from tallystick.runtime.pace import Pace
from tallystick.runtime.worker import Worker

SLICE_BYTES = 256 * 1024  # read at once, on a thread
SAVE_EVERY_S = 60.0
SHOW_EVERY_S = 3600.0
_DIGESTS = 1024  # of ledgers, kept
_PART = 128  # ledgers whose metadata is decoded in one turn: a slice may have thousands
_LOOK_S = 3600.0  # between two looks whether a round is due: the clock of the wall may be set
_SHOWN = 10


class Scrubber:
    """``run`` is an endless task. ``show`` hears of the progress, and of how much is damaged."""

    def __init__(
        self,
        storage: Storage,
        driver: MetadataDriver,
        outside: Outside,
        *,
        folder: str,
        bytes_per_s: float,
        worker: Worker,
        counts: Counts,
        show: Callable[[], None],
    ) -> None:
        """``folder`` has the progress."""
        self._storage, self._driver, self._disk = storage, driver, outside.disk
        self._path = os.path.join(folder, SCRUB_FILE)
        self._bytes_per_s, self._pace = bytes_per_s, Pace(outside.clock, bytes_per_s)
        self._worker, self._clock, self._events = worker, outside.clock, outside.events
        self._counts, self._show = counts, show
        self._digests: OrderedDict[LedgerId, Digest | None] = OrderedDict()
        self._saved_at = self._shown_at = self._clock.now()
        self._progress = ScrubProgress()

    @property
    def damages(self) -> Damages:
        return self._storage.damages

    @property
    def progress(self) -> ScrubProgress:
        return self._progress

    @property
    def ends_ms(self) -> int:
        return self._progress.ends_ms(self._clock.wall_ms(), self._bytes_per_s)

    async def run(self) -> None:
        self._progress = await self._worker.run(self._read)
        for ledger, entry in self._progress.damaged:
            self.damages.add(ledger, entry)
        while True:
            while (due_s := self._progress.due_in_s(self._clock.wall_ms())) > 0:
                await self._tell()
                await asyncio.sleep(min(due_s, _LOOK_S))
            await self.round()

    def _read(self) -> ScrubProgress:
        try:
            if self._disk.exists(self._path):
                progress = ScrubProgress.decode(read_file(self._disk, self._path))
                if progress is not None:
                    return progress
                self._events.emit("scrub begins anew", reason="how far the last one came cannot be read")
        except StorageError as error:
            self._events.emit("scrub begins anew", reason=str(error))
        return ScrubProgress()

    async def round(self) -> None:
        """Read all that is not read yet in this round, or begin one."""
        now_ms = self._clock.wall_ms()
        if not self._progress.is_running:
            self._progress = self._progress.begin(now_ms, self._storage.stats().entry_log_bytes)
            needed_s = self._progress.total_bytes / self._bytes_per_s
            if needed_s > COVERED_S:
                reason = "a round takes longer than two weeks: let scrubBytesPerSecond be more"
                self._events.emit("scrub too slow", days=round(needed_s / 86_400, 1), reason=reason)
        await self._tell()
        while (log_id := self._next_log()) is not None:
            await self._log(log_id)
        self._progress = self._progress.end(self._clock.wall_ms())
        self._counts.scrubs += 1
        self._events.emit("scrub ended", bytes=self._progress.read_bytes, damaged=len(self.damages))
        await self._tell()

    def _next_log(self) -> int | None:
        return min((log for log in self._storage.log_ids() if log >= self._progress.log), default=None)

    async def _log(self, log_id: int) -> None:
        chunk = self._progress.chunk if log_id == self._progress.log else 0
        try:
            scan = await self._worker.run(lambda: LogScan(self._disk, self._storage.folders.directory(log_id), log_id))
        except StorageError as error:
            if log_id in self._storage.log_ids():  # else it was deleted meanwhile
                self._counts.scrub_damaged += 1
                reason = "it is whole in memory, and the next start makes it anew from its log"
                self._events.emit("index of an entry log damaged", log=log_id, error=str(error), reason=reason)
        else:
            try:
                await self._chunks(scan, chunk)
            finally:
                await self._worker.run(scan.close)
        self._moved(log_id + 1, 0)

    def _moved(self, log: int, chunk: int, read_bytes: int = 0) -> None:
        progress = self._progress
        self._progress = ScrubProgress(
            progress.began_ms, progress.total_bytes, progress.read_bytes + read_bytes, log, chunk, progress.ended_ms
        )

    async def _chunks(self, scan: LogScan, first: int) -> None:
        chunks = scan.chunks(first)
        while slice_ := await self._worker.run(lambda: _slice(chunks)):
            await self._learn_digests({place.ledger for chunk in slice_ for place, _ in chunk.bodies})
            bad = [each for chunk in slice_ for each in chunk.bad]
            bad += await self._worker.run(lambda slice_=slice_: self._mismatches(slice_))  # type: ignore[misc]
            self._found(scan.log.id, bad)
            size = sum(chunk.bytes for chunk in slice_)
            self._counts.scrub_bytes += size
            self._moved(scan.log.id, slice_[-1].number + 1, size)
            now = self._clock.now()
            if now - self._saved_at >= SAVE_EVERY_S:
                await self._tell(only_save=now - self._shown_at < SHOW_EVERY_S)
            await self._pace.spend(size)

    def _mismatches(self, slice_: Sequence[ChunkScan]) -> list[BadPlace]:
        bad = list[BadPlace]()
        for chunk in slice_:
            for place, body in chunk.bodies:
                digest = self._digests.get(place.ledger)
                if digest is not None and (reason := _mismatch(digest, place, body)):
                    bad.append(BadPlace(place, reason))
        return bad

    def _found(self, log_id: int, bad: Sequence[BadPlace]) -> None:
        """Remember those of the entries that no newer log has, and of which this is the ledger."""
        new = list[Place]()
        for each in bad:
            place = each.place
            is_here = self._storage.is_at(place.ledger, place.entry, place.location)
            if is_here and self.damages.add(place.ledger, place.entry):
                new.append(place)
        if new:
            self._counts.scrub_damaged += len(new)
            shown = [f"{place.ledger}:{place.entry}" for place in new[:_SHOWN]]
            self._events.emit("entries damaged", log=log_id, count=len(new), entries=shown, reason=bad[0].reason)
            self._saved_at = 0.0  # soon
            self._show()

    async def _learn_digests(self, ledgers: set[LedgerId]) -> None:
        """Read which digests ledgers have. Of those that the metadata does not tell nothing is compared."""
        unread = sorted(ledger for ledger in ledgers if ledger not in self._digests)
        if not unread:
            return
        try:
            nodes = await self._driver.read_ledgers(unread)
        except MetadataError:
            return
        for count, ledger in enumerate(unread, 1):
            if not count % _PART:
                await asyncio.sleep(0)
            self._digests[ledger] = None
            if (node := nodes.get(ledger)) is None or not self._storage.has_creation(ledger, node.creation):
                continue
            try:
                metadata = wire.decode(node.data, where=str(ledger), ctime_ms=node.ctime_ms)
            except MetadataError:
                continue
            if metadata.has_password:  # else nobody knows which digest it is
                self._digests[ledger] = Digest.of(metadata.digest_type, metadata.password)
        while len(self._digests) > max(_DIGESTS, len(ledgers)):
            self._digests.popitem(last=False)

    async def save(self) -> None:
        """Keep how far the scrub is, and what is damaged."""
        progress = self._progress
        damaged = tuple(self.damages.pairs())
        data = ScrubProgress(
            progress.began_ms, progress.total_bytes, progress.read_bytes, progress.log, progress.chunk,
            progress.ended_ms, damaged,
        ).encode()  # fmt: skip
        try:
            await self._worker.run(lambda: write_atomic(self._disk, self._path, data))
        except StorageError as error:  # the next one makes up for it; a crash until then costs time alone
            self._events.emit("scrub not saved", reason=str(error))
        self._saved_at = self._clock.now()

    async def _tell(self, *, only_save: bool = False) -> None:
        await self.save()
        if not only_save:
            self._shown_at = self._clock.now()
            self._show()


def _slice(chunks: Iterator[ChunkScan]) -> list[ChunkScan]:
    """Return the next chunks, [] after the last one."""
    parts, size = list[ChunkScan](), 0
    for chunk in chunks:
        parts.append(chunk)
        size += chunk.bytes
        if size >= SLICE_BYTES:
            break
    return parts


def _mismatch(digest: Digest, place: Place, body: memoryview) -> str:
    try:
        digest.decode(place.ledger, place.entry, body)
    except DigestMismatch as error:
        return error.message
    return ""
