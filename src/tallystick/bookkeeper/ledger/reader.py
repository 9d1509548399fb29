"""Reading a ledger: a closed one to its end, an open one up to its LAC, without ever fencing it (Q6, Q17).

The LAC of an open ledger is asked from the bookies of its newest ensemble: each entry carries the writer's LAC of the
moment it was sent, so the highest stored entry tells how far readers may go. That lags the writer by one round; an
idle writer tells the rest by itself (``explicit_lacs.py``). Where it does not, or the reader speaks version 2 of the
protocol alone, **what is known of an idle open ledger ends before the writer's LAC**, until the next append or the
close. The close is seen by watching the metadata.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.fetch import Opener, fetch_runs, open_as_objects, open_without_objects
from tallystick.bookkeeper.ledger.follow import LacFollower, MetadataChange
from tallystick.bookkeeper.ledger.heard_lacs import HeardLac
from tallystick.bookkeeper.ledger.lac import read_lac
from tallystick.bookkeeper.ledger.password import with_password
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.ledger.read import Entry, check_bounds, entries_of
from tallystick.bookkeeper.ledger.single_reads import SingleReads
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import Watch
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import NO_ENTRY, DigestType, EntryId, LedgerId, LedgerMetadata
from tallystick.codec.frames import Buffer
from tallystick.codec.reads import EntryRun
from tallystick.errors import DigestMismatch, EntryLost, NoSuchEntry, NoSuchLedger, Unavailable, UsageError
from tallystick.runtime.arguments import whole
from tallystick.runtime.extras import require
from tallystick.runtime.loops import check_loop

if TYPE_CHECKING:
    import pyarrow as pa


class LedgerReader:
    """A ledger to read from. Never fences, never writes. ``close`` it, or use it with ``async with``."""

    def __init__(self, context: LedgerContext, ledger: LedgerId, versioned: Versioned[LedgerMetadata]) -> None:
        """For a ledger whose metadata is known, its password checked. An open one needs ``refresh`` before reading."""
        self.id = ledger
        self._context = context
        self._versioned = versioned
        self._last = NO_ENTRY
        self._singles = SingleReads(context.bookies, ledger)
        self._heard = context.bookies.heard_lacs.listen(ledger, versioned.value.ctime_ms)
        self._changed = MetadataChange()
        self._watch: Watch | None = None
        self._ended = False  # close() was called
        self._install(versioned)
        if not self.is_closed:
            this = weakref.ref(self)  # a reader that was dropped without close() is not kept alive by its watch
            self._watch = context.driver.watch_ledger(ledger, lambda: _changed(this()))

    @classmethod
    async def open(
        cls,
        context: LedgerContext,
        ledger: LedgerId,
        *,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32,
    ) -> LedgerReader:
        """Open without fencing; ``digest`` is for metadata that store none.

        Raises NoSuchLedger, Unauthorized, Unavailable (too few bookies know the LAC).
        """
        versioned = await context.driver.read_ledger(ledger)
        metadata = with_password(ledger, versioned.value, password, digest)
        reader = cls(context, ledger, Versioned(metadata, versioned.version))
        reader._changed.set()  # the watch does not report what was stored between that read and it: read once more
        try:
            await reader.refresh()
        except BaseException:
            await reader.close()
            raise
        return reader

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this reader read it last."""
        return self._versioned.value

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed, as far as this reader knows: ``last_entry`` is final."""
        return self._versioned.value.is_closed

    @property
    def last_entry(self) -> EntryId:
        """The last entry that can be read; -1 when there is none. ``refresh`` and reads may move it, never back."""
        return self._last if self._versioned.value.is_closed else max(self._last, self._heard.lac)

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 of an open one."""
        return self.metadata.length

    async def refresh(self) -> EntryId:
        """Ask again how far the ledger can be read. Returns the last entry; a closed ledger needs no asking.

        Raises Unavailable or one of its kinds when too few bookies answered.
        """
        self._require_open()
        if self._changed.is_set:
            await self._reread()
        while not self.is_closed:
            metadata = self.metadata
            try:
                lac = await read_lac(self._context.bookies, self.id, metadata)
            except Unavailable:
                # The ensemble may have been changed just because these bookies are gone.
                if not await self._reread():
                    raise
                continue
            # Everything before the newest fragment was confirmed when that was stored (Q8).
            self._last = max(self._last, lac, metadata.fragments[-1].first - 1)
            break
        return self.last_entry

    def read(self, first: EntryId, last: EntryId) -> AsyncGenerator[Entry, None]:
        """Read the entries ``first`` … ``last``, both included, in order.

        Raises UsageError (no such range) and NoSuchEntry (``last`` is beyond ``last_entry``) at once; when iterated
        NoSuchEntry (all replicas of an entry say that they lack it), EntryLost (an operator gave it up),
        DigestMismatch, Unavailable and its kinds.
        """
        self._require_open()
        check_bounds(self.id, first, last, self.last_entry)
        return self._entries(first, last)

    async def __aiter__(self) -> AsyncGenerator[Entry, None]:
        """Read all entries there are now: ``async for entry in reader``; none if it is empty. Raises as ``read``."""
        self._require_open()
        if (last := self.last_entry) >= 0:
            async with contextlib.aclosing(self._entries(0, last)) as entries:
                async for entry in entries:
                    yield entry

    def read_arrow(
        self,
        first: EntryId,
        last: EntryId,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = 4096,
        batch_bytes: int = 1024 * 1024,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Read as Arrow batches with the columns ``ledger``, ``entry``, ``lac``, ``length``, ``payload``.

        A batch has at most ``batch_rows`` rows and ``batch_bytes`` payload bytes (or one longer entry). Raises
        UsageError at once, also when pyarrow or NumPy is not installed.
        """
        require("read_arrow", "pyarrow", "numpy")
        from tallystick.bookkeeper.ledger.arrow import Batching, batches_of

        self._require_open()
        check_bounds(self.id, first, last, self.last_entry)
        return batches_of(self._runs(first, last, open_without_objects), Batching(columns, batch_rows, batch_bytes))

    def follow(self, first: EntryId) -> AsyncGenerator[Entry, None]:
        """Read the entries from ``first`` on as they are confirmed; ends when the ledger is closed and read to its end.

        By version 3 bookies say when there is more. Where that is not spoken they are asked again and again, and the
        newest entries of an idle open ledger stay out until the next append or the close. Raises UsageError at once;
        when iterated as ``read`` and ``refresh``, and UsageError once this reader is closed.
        """
        self._require_open()
        return self._follow(whole(first, "first"))

    async def _follow(self, first: EntryId) -> AsyncGenerator[Entry, None]:
        follower = LacFollower(self._context.bookies, self.id, self._heard, self._changed)
        try:
            while True:
                self._require_open()  # a closed reader would not hear of the ledger's end
                is_closed, last = self.is_closed, self.last_entry
                if first <= last:
                    async with contextlib.aclosing(self._entries(first, last)) as entries:
                        async for entry in entries:
                            yield entry
                    first = last + 1
                elif is_closed:
                    return
                elif (moved := await follower.moved(self.metadata, last)) is None:
                    await self.refresh()
                else:
                    self._last = max(self._last, moved.lac)
                    if (
                        moved.entry
                        and moved.first == first
                        and (polled := self._opened(first, moved.entry)) is not None
                    ):
                        yield polled
                        first += 1
        finally:
            follower.close()

    def _opened(self, entry: EntryId, data: Buffer) -> Entry | None:
        """Check an entry that came with its LAC. Returns None for a bad one: it is read from its other replicas."""
        metadata = self.metadata
        try:
            digest = Digest.of(metadata.digest_type, metadata.password)
            header, payload = digest.decode(self.id, entry, data)
        except DigestMismatch:
            return None
        return Entry(entry, bytes(payload), self.id, header.length, header.lac)

    async def close(self) -> None:
        """Stop watching the ledger: the reader takes no more calls, and ``follow`` ends with UsageError. What was read
        stays valid, and a ``read`` that is under way goes on. Repeated calls are one."""
        self._ended = True
        self._changed.set()  # who follows wakes up
        self._last = self.last_entry
        self._heard = HeardLac(self.metadata.ctime_ms, 0)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<LedgerReader ledger={self.id} last_entry={self.last_entry} {state} ledger>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        check_loop(self._context.loop)
        if self._context.bookies.is_closed:
            raise UsageError("this reader's client is closed", ledger=self.id)
        if self._ended:
            raise UsageError("this reader is closed", ledger=self.id)

    async def _reread(self) -> bool:
        """Read the metadata again. Returns whether it has changed in a way that matters to a reader."""
        self._changed.clear()  # before reading: a change meanwhile sets it again
        before = self.metadata
        versioned = await self._context.driver.read_ledger(self.id)
        if versioned.value.ctime_ms != before.ctime_ms:
            raise NoSuchLedger("this ledger was deleted, and its id is another ledger's now", ledger=self.id)
        # The password was checked once; where neither it nor a digest type is stored the caller's go on.
        metadata = replace(versioned.value, password=before.password, digest_type=before.digest_type)
        self._install(Versioned(metadata, versioned.version))
        after = self.metadata
        return (after.fragments, after.is_closed, after.custom) != (before.fragments, before.is_closed, before.custom)

    def _install(self, versioned: Versioned[LedgerMetadata]) -> None:
        self._versioned = versioned
        if versioned.value.is_closed:
            self._last = versioned.value.last_entry
            if self._watch is not None:
                self._watch.cancel()
                self._watch = None

    async def _entries(self, first: EntryId, last: EntryId) -> AsyncGenerator[Entry, None]:
        if first == last and (single := await self._single(first)) is not None:
            yield single
            return
        async with contextlib.aclosing(self._runs(first, last)) as runs:
            async for run in runs:
                for entry in entries_of(run):
                    yield entry

    async def _single(self, entry: EntryId) -> Entry | None:
        """Read an entry as ``SingleReads`` does. Returns None if it is to be read in another way."""
        try:
            return await self._singles.read(self.metadata, entry)
        except (NoSuchEntry, DigestMismatch, Unavailable):
            if not await self._reread():
                raise
        return None

    async def _runs(
        self, first: EntryId, last: EntryId, opener: Opener = open_as_objects
    ) -> AsyncGenerator[EntryRun, None]:
        """Read checked runs; where no bookie gives an entry, the metadata is read again: the entry may have moved."""
        while first <= last:
            ranges = ranges_of(self.id, self.metadata, first, last)
            try:
                async with contextlib.aclosing(fetch_runs(self._context.bookies, ranges, opener=opener)) as runs:
                    async for run in runs:
                        yield run
                        first = run.last + 1
            except (NoSuchEntry, EntryLost, DigestMismatch, Unavailable):
                if not await self._reread():
                    raise


def _changed(reader: LedgerReader | None) -> None:
    if reader is not None:
        reader._changed.set()
