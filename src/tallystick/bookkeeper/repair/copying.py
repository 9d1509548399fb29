"""Copy entries of one place to a bookie: read elsewhere, digest checked, sent as they are stored, read back.

What is copied is the stored frame, byte for byte: LAC, length and digest are the writer's (the original's worker
encodes the entry anew). An answer that says "no such entry" is a no; none at all is unknown, and never a no (Q15).

A bookie that did not answer is asked last for a while, and for some seconds not at all: what it has is unknown
meanwhile. Else each batch of each ledger would wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.identity import Belief
from tallystick.bookkeeper.metadata.lost_entries import MOST_RUNS
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import Runs, Sources
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata, Slot
from tallystick.codec.frames import RECOVERY_FLAGS, encode_stored_add
from tallystick.errors import BookieUnavailable, DigestMismatch, NoSuchLedger, TallyError
from tallystick.runtime.pace import Pace

FIRST_ENTRIES = 4
TURN_BYTES = 1024 * 1024  # whose digests are checked in one turn of the loop: a few milliseconds


@dataclass
class ReadResult:
    """What a read of entries from one or several bookies gave."""

    frames: dict[EntryId, bytes] = field(default_factory=dict)  # as stored, digest checked
    missing: list[EntryId] = field(default_factory=list)  # every bookie that was asked said no, or has a bad copy
    unknown: list[EntryId] = field(default_factory=list)  # not one good copy, and somebody did not say

    @property
    def bytes(self) -> int:
        return sum(map(len, self.frames.values()))


class Unreadable:
    """What reads did not give, as runs of entries: no more than can be told of."""

    def __init__(self) -> None:
        self.missing, self.unknown = Runs(MOST_RUNS), Runs(MOST_RUNS)

    def add(self, read: ReadResult) -> None:
        self.missing.add(read.missing)
        self.unknown.add(read.unknown)


class Copying:
    """Reads and writes the entries of one ledger."""

    def __init__(
        self,
        bookies: BookieClient,
        ledger: LedgerId,
        metadata: LedgerMetadata,
        settings: RepairSettings,
        pace: Pace,
        tell_bad: Callable[[LedgerId, EntryId, BookieId, str], None] = lambda ledger, entry, bookie, reason: None,
    ) -> None:
        self._tell_bad = tell_bad  # hears of copies that do not match their digest
        self._bookies, self._ledger, self._settings, self._pace = bookies, ledger, settings, pace
        self._digest = Digest.of(metadata.digest_type, metadata.password)
        self._key = master_key(metadata.password)
        self._longest = 0  # of the entries that were read

    async def batches(self, parts: Iterable[Sequence[EntryId]]) -> AsyncIterator[Sequence[EntryId]]:
        """Yield the entries of these parts as they are copied together: so many that they fit if each is as long as the
        longest that was read so far. Only few go first, when that is not known."""
        for entries in parts:
            at = 0
            while at < len(entries):
                fitting = self._settings.batch_bytes // self._longest if self._longest else FIRST_ENTRIES
                count = max(1, min(self._settings.batch_entries, fitting))
                yield entries[at : at + count]
                at += count
            await asyncio.sleep(0)  # also where many parts have nothing

    async def read(self, entries: Sequence[EntryId], sources: Sources) -> ReadResult:
        """Read each entry from one of its sources after the other, until one has a good copy."""
        result, doubtful, slow = ReadResult(), dict[EntryId, None](), self._bookies.slow
        waiting = {entry: sorted(sources(entry), key=slow.since) if slow else [*sources(entry)] for entry in entries}
        while waiting:
            by_bookie = dict[BookieId, list[EntryId]]()
            for entry in [entry for entry, bookies in waiting.items() if not bookies]:
                del waiting[entry]
                (result.unknown if entry in doubtful else result.missing).append(entry)
            for entry, bookies in waiting.items():
                by_bookie.setdefault(bookies.pop(0), []).append(entry)
            reads = [self._read_from(bookie, part) for bookie, part in by_bookie.items()]
            for frames, unknown in await asyncio.gather(*reads):
                result.frames.update(frames)
                doubtful.update(dict.fromkeys(unknown))
                for entry in frames:
                    del waiting[entry]
        return result

    async def _read_from(
        self, bookie: BookieId, entries: Sequence[EntryId]
    ) -> tuple[Mapping[EntryId, bytes], list[EntryId]]:
        """Return the good copies that a bookie has, and the entries of which it did not say whether it has them."""
        if self._bookies.is_silent(bookie):
            return {}, [*entries]
        run = self._bookies.read_run(bookie, self._ledger, entries)
        try:
            await run.done
        finally:
            run.close()
        good, unknown = dict[EntryId, bytes](), list(run.errors)
        if unknown:
            self._bookies.slow.add(bookie)
            self._bookies.silent.add(bookie)
        unknown += [entry for entry, code in run.codes.items() if code not in NO_CODES]
        checked_bytes = 0
        for entry, stored in run.stored_entries.items():
            try:
                self._digest.decode(self._ledger, entry, stored)
                good[entry] = bytes(stored)
                self._longest = max(self._longest, len(stored))
            except DigestMismatch as error:  # a bad copy is none
                self._tell_bad(self._ledger, entry, bookie, str(error))
            checked_bytes += len(stored)
            if checked_bytes >= TURN_BYTES:
                checked_bytes = 0
                await asyncio.sleep(0)
        return good, unknown

    async def write(self, bookie: BookieId, belief: Belief, frames: Mapping[EntryId, bytes]) -> None:
        """Store the frames on a bookie, durably, and read them back. Raises BookieUnavailable if that fails."""
        adds = _Adds(len(frames))
        channel = self._bookies.adds(bookie, self._ledger, adds, belief=belief)
        try:
            parts = [encode_stored_add(self._key, frame, RECOVERY_FLAGS) for frame in frames.values()]
            channel.send(list(frames), b"".join(parts))
            await adds.done
        finally:
            channel.close()
        stored = await self.read(list(frames), lambda entry: [bookie])
        if any(stored.frames.get(entry) != frame for entry, frame in frames.items()):
            raise BookieUnavailable("it does not have what it acknowledged", bookie=bookie)
        await self._pace.spend(stored.bytes)

    async def require(self, bookie: BookieId, parts: Callable[[], Iterable[Sequence[EntryId]]]) -> None:
        """Raise BookieUnavailable unless a bookie has all of these: by its list, or by reads if it gives none."""
        has_all = True
        try:
            listed = await self._bookies.entry_list(bookie, self._ledger)
            for entries in parts():
                has_all = has_all and all(entry in listed for entry in entries)
                await asyncio.sleep(0)
        except NoSuchLedger:
            has_all = not any(map(len, parts()))
        except TallyError:  # it has no lists, knows nothing now, or does not answer
            async for batch in self.batches(parts()):
                there = await self.read(batch, lambda entry: [bookie])
                await self._pace.spend(there.bytes)
                has_all = has_all and len(there.frames) == len(batch)
        if not has_all:
            raise BookieUnavailable("it does not have any more what it acknowledged", bookie=bookie)


class _Adds:
    """An AddListener: ``done`` ends when all were acknowledged, or with BookieUnavailable when one was not."""

    def __init__(self, count: int) -> None:
        self._outstanding_count = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_acked(self, slot: Slot, entries: list[EntryId]) -> None:
        self._outstanding_count -= len(entries)
        if not self._outstanding_count and not self.done.done():
            self.done.set_result(None)

    def on_failed(self, slot: Slot, entries: list[EntryId], code: Code | None) -> None:
        if not self.done.done():
            reason = "no answer in time, or nobody knows from whom" if code is None else f"code {code.name}"
            self.done.set_exception(BookieUnavailable(f"it did not take a copy: {reason}"))
