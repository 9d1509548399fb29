"""Ledgers without ``async``: see ``tallystick.BookKeeper.create_ledger``."""

from __future__ import annotations

import concurrent.futures
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallystick.bookkeeper.ledger import reader, writer
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.codec.frames import Buffer
from tallystick.runtime.arguments import payload_bytes
from tallystick.sync.loop import LoopThread, alone

if TYPE_CHECKING:
    import pyarrow as pa


def _entry_weight(entry: Entry) -> float:
    return 1 / 512 + len(entry.data) / (1024 * 1024)


class LedgerWriter:
    """Appends to a ledger that this client created; may be used from several threads. ``close`` it, or use ``with``."""

    def __init__(self, loop: LoopThread, wrapped: writer.LedgerWriter) -> None:
        self._loop, self._writer = loop, wrapped

    def __repr__(self) -> str:
        return repr(self._writer)

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._writer.id

    @property
    def max_payload_bytes(self) -> int:
        """Of one entry, by the ledger's digest."""
        return self._writer.max_payload_bytes

    @property
    def lac(self) -> EntryId:
        """The highest entry id with all entries up to it confirmed; -1 when there is none (Q6)."""
        return self._writer.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._writer.length

    @property
    def missing(self) -> tuple[BookieId, ...]:
        """Bookies of the newest ensemble that failed and could not be replaced: entries are stored without them."""
        return self._writer.missing

    @property
    def metadata(self) -> LedgerMetadata:
        """As this writer stored or read it last."""
        return self._writer.metadata

    def append(self, data: Buffer, entry: EntryId | None = None) -> EntryId:
        """Append one entry and return its id when it is safe. Other threads may append meanwhile.

        Waits first while ``max_inflight_bytes`` are unconfirmed. Raises UsageError (it got no id), LedgerClosed,
        LedgerFenced, NotEnoughBookies, Unauthorized, MetadataError. ``entry`` is the id where the caller gives them: it
        is safe when all before it are, which other threads may append. Then raises EntryExists, EntriesMissing too.
        """
        return self._loop.run(self._writer.append(data, entry))

    def append_nowait(self, data: Buffer, entry: EntryId | None = None) -> concurrent.futures.Future[EntryId]:
        """A future of the id; errors of the call itself come through it too. Entries keep the order of the calls."""
        return self._loop.submit(self._append(payload_bytes(data, "an entry"), entry))

    async def _append(self, data: bytes, entry: EntryId | None) -> EntryId:
        return await self._writer.append_nowait(data, entry)

    def append_batch(self, data: Iterable[Buffer]) -> range:
        """Append entries with consecutive ids and return the ids when all are safe. Raises as ``append``."""
        return self._loop.run(self._writer.append_batch(data))

    def force(self) -> EntryId:
        """Make durable what was acknowledged so far, and return the LAC: with ``deferred_sync`` it moves by this alone.

        Raises as ``LedgerWriter.force``: Unavailable and MetadataError when it cannot be done now, LedgerError when a
        bookie has lost entries, LedgerFenced, LedgerClosed.
        """
        return self._loop.run(self._writer.force())

    def drain(self) -> None:
        """Return when everything appended so far is confirmed, and there is room for more. Raises why not."""
        self._loop.run(self._writer.drain())

    def read(self, first: EntryId, last: EntryId) -> Iterator[Entry]:
        """The entries ``first`` … ``last`` of this ledger, up to the LAC (Q17). Raises as ``LedgerReader.read``."""
        return self._loop.iterate(lambda: self._writer.read(first, last), _entry_weight)

    def close(self) -> None:
        """Take no more appends, wait for those under way, and store the end of the ledger. Repeated calls are one.

        Raises LedgerFenced when another client recovers the ledger, MetadataError when its end could not be stored.
        """
        self._loop.run(self._writer.close())

    def abort(self) -> None:
        """Stop at once, as if the process died: nothing is stored, pending appends fail and may have taken effect."""
        self._loop.call(self._writer.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._writer.__aexit__(kind, error, trace))


class LedgerReader:
    """A ledger to read from. Never fences, never writes. ``close`` it, or use ``with``."""

    def __init__(self, loop: LoopThread, wrapped: reader.LedgerReader) -> None:
        self._loop, self._reader = loop, wrapped
        self.id = wrapped.id

    def __repr__(self) -> str:
        return repr(self._reader)

    @property
    def metadata(self) -> LedgerMetadata:
        """As this reader read it last."""
        return self._reader.metadata

    @property
    def is_closed(self) -> bool:
        """The ledger is closed, as far as this reader knows: ``last_entry`` is final."""
        return self._reader.is_closed

    @property
    def last_entry(self) -> EntryId:
        """The last entry that can be read; -1 when there is none. ``refresh`` may move it, never back."""
        return self._reader.last_entry

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 of an open one."""
        return self._reader.length

    def __iter__(self) -> Iterator[Entry]:
        """All entries that can be read now; none if the ledger is empty. Raises as ``read``."""
        return self._loop.iterate(self._reader.__aiter__, _entry_weight)

    def refresh(self) -> EntryId:
        """Ask again how far the ledger can be read; the last entry. Raises Unavailable when too few bookies answer."""
        return self._loop.run(self._reader.refresh())

    def read(self, first: EntryId, last: EntryId) -> Iterator[Entry]:
        """The entries ``first`` … ``last``, both included, in order.

        Raises UsageError (no such range) and NoSuchEntry (beyond ``last_entry``) at once; in the loop NoSuchEntry,
        DigestMismatch, Unavailable and its kinds.
        """
        return self._loop.iterate(lambda: self._reader.read(first, last), _entry_weight)

    def read_arrow(
        self,
        first: EntryId,
        last: EntryId,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = 4096,
        batch_bytes: int = 1024 * 1024,
    ) -> Iterator[pa.RecordBatch]:
        """As ``read``, in Arrow batches: at most ``batch_rows`` rows, ``batch_bytes`` of payload. Needs pyarrow."""

        def batches() -> AsyncIterator[pa.RecordBatch]:
            return self._reader.read_arrow(first, last, columns=columns, batch_rows=batch_rows, batch_bytes=batch_bytes)

        return self._loop.iterate(batches, alone)

    def follow(self, first: EntryId) -> Iterator[Entry]:
        """The entries from ``first`` on, as they are confirmed; ends when the ledger is closed and read to its end.

        Bookies that do not speak version 3 do not say when there is more: they are asked again and again, and of an
        idle open ledger the newest entries stay out until the next append or the close. Raises as ``read``.
        """
        return self._loop.iterate(lambda: self._reader.follow(first), alone)

    def close(self) -> None:
        """Stop watching the ledger, and take no more calls. What was read stays valid."""
        self._loop.run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
