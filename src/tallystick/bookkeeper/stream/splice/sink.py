"""The commits of one application into a stream, exactly once (design: splicing ledgers).

One process of the application has the ``StreamSink``: it begins a run, which ends those of its earlier lives.
Attempts write anywhere, with its ``ticket``. A commit is one compare-and-set of the list: the ledgers of the batch are
in it and the record says so, or neither. A list that others wrote meanwhile, other applications or retention, is read
again; a response that was lost is found there, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.catalog import ChangeOvertaken
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.owned_list import OwnedList
from tallystick.bookkeeper.stream.splice.attempt import SinkAttempt, SinkTicket, looked_at, make_attempt_ledger
from tallystick.bookkeeper.stream.splice.attempt_note import AttemptNote
from tallystick.bookkeeper.stream.splice.commit_core import (
    Batch,
    WrittenLedger,
    is_stored,
    require_no_owner,
    spliced,
    to_copy,
)
from tallystick.bookkeeper.stream.splice.list_size import require_short
from tallystick.bookkeeper.stream.splice.sweep import sweep
from tallystick.bookkeeper.stream.trim import trim_stream
from tallystick.bookkeeper.wire.ledger_runs import find
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import LedgerClosed, LedgerError, MetadataUncertain, NoSuchLedger, StreamFenced, UsageError
from tallystick.runtime.arguments import optional, whole

_COPIED = -1  # the partition of a copy
_COPY_BYTES = 4 * 1024 * 1024  # that are read and not yet stored


@dataclass(frozen=True)
class Committed:
    """What a commit did. ``was_stored``: the batch had been committed before, and what was written now is not used."""

    ledgers: tuple[LedgerId, ...]
    was_stored: bool


class StreamSink:
    """See the module; ``open_sink`` makes it. On one event loop."""

    def __init__(self, context: StreamContext, ticket: SinkTicket, batch: int, creation: object) -> None:
        """``batch``: the last one that was committed; ``creation``: which of all streams of the name it is."""
        self._ticket, self._batch = ticket, batch
        self._context, self._creation = context, creation
        self._known: Sequence[StreamLedger] = ()

    def __repr__(self) -> str:
        ticket = self.ticket
        return f"<StreamSink {ticket.stream} application={ticket.application} run={ticket.run} batch={self.batch}>"

    @property
    def ticket(self) -> SinkTicket:
        """What whoever writes parts of its batches has to know; it can be sent to other processes."""
        return self._ticket

    @property
    def batch(self) -> int:
        """The last batch that is known to be committed; -1 when there is none."""
        return self._batch

    @property
    def stream(self) -> str:
        """The stream's name, as the metadata has it."""
        return self.ticket.stream

    def attempt(self, batch: int, partition: int = 0, attempt: int = 0) -> SinkAttempt:
        """Write a part of a batch from here."""
        return open_attempt(self._context, self.ticket, batch, partition, attempt)

    async def commit(
        self, batch: int, ledgers: Iterable[WrittenLedger | None] = (), *, offsets: int | None = None
    ) -> Committed:
        """Store a batch: what ``SinkAttempt.close`` returned for each of its parts. One that is stored stays as it is.

        ``offsets``: a digest of where the batch ends in its source. If the last batch comes again with another one, it
        has other rows, and nobody else would store them: CheckpointLost.

        Raises StreamFenced if another run of the application goes on, CheckpointLost also if another query does;
        StreamOwned if an owner or a broker writes the stream by now, LedgerError if a ledger is not what its attempt
        said, UsageError for a list that is too long to be stored, NoSuchStream, Unavailable, MetadataError. After any
        of these nothing of the batch is in the stream, or all of it: commit it again.
        """
        number = whole(batch, "batch")
        written = tuple(each for each in ledgers if each is not None)
        if len({each.ledger for each in written}) < len(written):
            raise UsageError("a ledger is committed twice in one batch", stream=self.stream, ledgers=written)
        ticket = self.ticket
        new_batch = Batch(
            ticket.application, ticket.query, ticket.run, number, written, optional(offsets, int, "offsets")
        )
        while True:
            stored = await self._read()
            if is_stored(stored.value, new_batch, self.stream):
                self._batch = max(self._batch, number)
                return _found(stored.value, new_batch)
            for each in new_batch.ledgers:
                await self._require_closed(each)
            new_batch = await self._above_the_last(stored.value, new_batch)
            if await self._splice(stored, new_batch):
                self._batch = number
                return Committed(tuple(sorted(each.ledger for each in new_batch.ledgers)), was_stored=False)

    async def sweep(self) -> list[LedgerId]:
        """Delete what no commit can list any more, of whatever application. Returns it. Raises as ``commit``."""
        return await sweep(self._context, self.stream)

    async def trim(self) -> list[LedgerId]:
        """Drop what retention does not keep and no cursor needs. Returns it. Raises as ``commit``."""
        settings = self.ticket.settings
        if not settings.has_retention:
            return []
        stored = await self._read()
        require_no_owner(stored.value, self.stream)
        stored_list = OwnedList(self._context.catalog, self.stream, stored)
        try:
            return await trim_stream(
                self._context, self.stream, stored_list, settings, keep=_keeps_nothing, give_way=_gives_way_to_nobody
            )
        except StreamFenced:
            return []  # another application committed just now: there is a next time

    async def _read(self) -> Versioned[StreamInfo]:
        stored = await self._context.catalog.read(self.stream, synced=True, known=self._known)
        if stored.creation != self._creation:
            raise StreamFenced("this stream was deleted, and made anew", stream=self.stream)
        self._known = stored.value.ledgers
        return stored

    async def _require_closed(self, written: WrittenLedger) -> None:
        """Raises LedgerError if the ledger is not what its attempt said: then its rows would be lost."""
        metadata = await self._context.ledgers.ledger_metadata(written.ledger)
        if not metadata.is_closed:
            raise LedgerClosed("the ledger of an attempt is not closed: nobody knows its end", ledger=written.ledger)
        if (metadata.last_entry + 1, metadata.length) != (written.entries, written.size):
            raise LedgerError(
                "the ledger of an attempt has another end than the attempt said: commit what the attempt returned",
                ledger=written.ledger,
                entries=metadata.last_entry + 1,
                expected=written.entries,
            )

    async def _above_the_last(self, info: StreamInfo, batch: Batch) -> Batch:
        """Copy ledgers that are not above the last one of the list: another application's commit was faster."""
        copies = {each: await self._copy(each, batch.number) for each in to_copy(info, batch.ledgers)}
        return replace(batch, ledgers=tuple(copies.get(each, each) for each in batch.ledgers))

    async def _copy(self, written: WrittenLedger, batch: int) -> WrittenLedger:
        note = AttemptNote(self.ticket.application, self.ticket.run, batch, _COPIED, 0)
        writer = await make_attempt_ledger(self._context, self.ticket, note)
        async with writer, self._context.ledgers.open_ledger(written.ledger) as reader:
            size = 0
            async for entry in reader.read(0, written.entries - 1):
                writer.append_nowait(entry.data).add_done_callback(looked_at)  # ``drain`` raises it
                size += len(entry.data)
                if size >= _COPY_BYTES:
                    await writer.drain()
                    size = 0
            await writer.drain()
        return WrittenLedger(writer.id, writer.lac + 1, writer.length)

    async def _splice(self, stored: Versioned[StreamInfo], batch: Batch) -> bool:
        """Store the list with the batch. Returns False if that must be decided again, on the list as it is then."""
        catalog, stream = self._context.catalog, self.stream
        info = spliced(stored.value, batch, self._context.context.clock.wall_ms())
        await require_short(self._context, stream, info)
        # A batch without a ledger depends on that there is no other stream of the name by now; with one its note does.
        begun = None
        if not batch.ledgers:
            begun = await catalog.begin(stream, catalog.change_name())
            if await catalog.creation(stream) != self._creation:
                return False
        settled = [each.ledger for each in batch.ledgers]
        try:
            await catalog.write(stream, info, stored.version, settled=settled, begun=begun)
        except (ChangeOvertaken, MetadataUncertain):
            return False
        except StreamFenced:
            if (await self._read()).version == stored.version:
                await self._require_noted(batch)
            return False
        self._context.context.events.emit(
            "sink committed", stream=stream, application=batch.application, batch=batch.number, ledgers=len(settled)
        )
        return True

    async def _require_noted(self, batch: Batch) -> None:
        """Raises NoSuchLedger for a ledger that a sweep has condemned."""
        noted = dict(await self._context.catalog.notes(self.stream))
        for each in batch.ledgers:
            if not noted.get(each.ledger, b"").startswith(b"{"):
                raise NoSuchLedger("the ledger of an attempt was swept: write the batch again", ledger=each.ledger)


def open_attempt(context: StreamContext, ticket: SinkTicket, batch: int, partition: int, attempt: int) -> SinkAttempt:
    """Begin an attempt at a part of a batch, in any process. Raises UsageError."""
    note = AttemptNote(
        ticket.application,
        ticket.run,
        whole(batch, "batch"),
        whole(partition, "partition"),
        whole(attempt, "attempt"),
    )
    return SinkAttempt(context, ticket, note)


def _found(info: StreamInfo, batch: Batch) -> Committed:
    """Returns what a commit of a stored batch did: the response of its write may have been lost."""
    ledgers = tuple(sorted(each.ledger for each in batch.ledgers))
    is_this_one = bool(ledgers) and all(find(info.ledgers, each) is not None for each in ledgers)
    return Committed(ledgers if is_this_one else (), was_stored=not is_this_one)


async def _keeps_nothing(position: Position) -> None:
    """Entries of sinks have no numbers, and those of an owner were saved before sinks wrote the stream."""


async def _gives_way_to_nobody() -> None:
    """No append waits for a sink's trimming."""
