"""An attempt at a part of a batch: it writes a ledger of its own, which is part of the stream once a commit lists it.

Any number of attempts may write at once, of a task that is repeated or that runs twice. None of them touches the list;
those that no commit names are deleted (``sweep``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.append_flow import APPEND_COST_BYTES
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.encoding import EntryEncoder
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.marks import custom_metadata
from tallystick.bookkeeper.stream.producers import sink_producer
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.attempt_note import AttemptNote, encode_note
from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.frames import Buffer
from tallystick.errors import UsageError
from tallystick.runtime.arguments import items

MOST_MESSAGES = 1000  # of one entry
MOST_BYTES = 128 * 1024  # then an entry is full
ATTEMPT_KEY = "tallystick/attempt"  # in the custom metadata of its ledger, as in the note


@dataclass(frozen=True)
class SinkTicket:
    """What whoever writes for a sink has to know, in whatever process it is."""

    stream: str
    application: str
    query: str
    run: str
    settings: StreamSettings


async def make_attempt_ledger(context: StreamContext, ticket: SinkTicket, note: AttemptNote) -> LedgerWriter:
    """Make the ledger of an attempt, noted in one with it. Raises NotEnoughBookies, MetadataError."""
    settings, written = ticket.settings, encode_note(note)
    marks = {**custom_metadata(ticket.stream, context.leases.owner, ""), ATTEMPT_KEY: written}
    return await context.ledgers.create_ledger(
        settings.ensemble,
        write_quorum=settings.write_quorum,
        ack_quorum=settings.ack_quorum,
        custom_metadata=marks,
        beside=lambda ledger: [context.catalog.note(ticket.stream, ledger, data=written)],
    )


class SinkAttempt:
    """Append messages, then ``close`` it; its ledger is made with the first one. On one event loop."""

    def __init__(self, context: StreamContext, ticket: SinkTicket, note: AttemptNote) -> None:
        self._context, self._ticket, self._note = context, ticket, note
        producer = sink_producer(ticket.application)
        self._encoder = EntryEncoder(ticket.settings, producer, context.context.clock, context.encoding_thread)
        self._writer: LedgerWriter | None = None
        self._messages: list[OutMessage] = []
        self._bytes = 0  # of these
        self._entries = 0  # that were appended
        self._pending: deque[tuple[asyncio.Future[EntryId], int]] = deque()  # not known to be stored, and their bytes
        self._pending_bytes = 0
        self._is_closed = False

    def __repr__(self) -> str:
        note = self._note
        return f"<SinkAttempt {self._ticket.stream} batch={note.batch} partition={note.partition} ledger={self.ledger}>"

    async def append(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Append a message; waits while too many bytes are not stored yet. ``event_time`` is in ms since 1970.

        Raises UsageError for what is no message, or has fields that raw entries have not; NotEnoughBookies and other
        Unavailable, MetadataError: then the attempt has failed as a whole.
        """
        self._require_open()
        if self._encoder.is_raw:
            message = OutMessage(self._encoder.raw(data, key, event_time, properties))
        else:
            message = self._encoder.message(data, key, event_time, properties)
        await self._append(message)

    async def append_batch(self, messages: Iterable[Buffer | OutMessage]) -> None:
        """Append messages one after another. Raises as ``append``."""
        self._require_open()
        for given in items(messages, "messages"):
            message = self._encoder.checked(given)
            if self._encoder.is_raw and message != OutMessage(message.data):
                raise UsageError("raw entries have no key, event time or properties", stream=self._ticket.stream)
            await self._append(message)

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError("this attempt is closed", stream=self._ticket.stream)

    async def _append(self, message: OutMessage) -> None:
        size = message.size
        if self._messages and self._bytes + size > MOST_BYTES:
            await self._write()  # a long one fits into an entry of its own, and may not behind others
        self._messages.append(message)
        self._bytes += size
        if self._bytes >= MOST_BYTES or len(self._messages) >= MOST_MESSAGES:
            await self._write()

    async def close(self) -> WrittenLedger | None:
        """Close the ledger. Returns what a commit wants of it, None if nothing was appended. Raises as ``append``."""
        self._is_closed = True
        try:
            if self._messages:
                await self._write()
            if (writer := self._writer) is None:
                return None
            await self._until_pending(0)
            await writer.close()
        except BaseException:  # nobody tries again
            self.abort()
            raise
        return WrittenLedger(writer.id, self._entries, writer.length)

    def abort(self) -> None:
        """Give up. What was written is deleted by a sweep, when no commit can name it."""
        self._is_closed = True
        self._messages = []
        if self._writer is not None:
            self._writer.abort()

    @property
    def ledger(self) -> LedgerId | None:
        """The ledger that it writes, None before the first entry."""
        return None if self._writer is None else self._writer.id

    async def _write(self) -> None:
        messages, self._messages, self._bytes = self._messages, [], 0
        await asyncio.sleep(0)  # others have a turn, whether or not anything is to be waited for
        if self._encoder.is_raw:
            entries = [bytes(message.data) for message in messages]
        else:
            entry = self._encoder.encode(messages, None, None)
            entries = [await entry.now() if isinstance(entry, LateEntry) else entry]
        if self._writer is None:
            self._writer = await make_attempt_ledger(self._context, self._ticket, self._note)
        size = sum(map(len, entries)) + len(entries) * APPEND_COST_BYTES
        await self._until_pending(max(0, self._ticket.settings.max_pending_bytes - size))
        future = self._writer.append_batch_nowait(entries)
        future.add_done_callback(looked_at)
        self._pending.append((future, size))
        self._pending_bytes += size
        self._entries += len(entries)

    async def _until_pending(self, most_bytes: int) -> None:
        """Wait until no more is pending. Raises what an append failed with."""
        while self._pending and self._pending_bytes > most_bytes:
            future, size = self._pending[0]
            await future
            self._pending.popleft()
            self._pending_bytes -= size

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_closed:
            self.abort()


def looked_at(future: asyncio.Future[Any]) -> None:
    """Take what an append failed with: of an attempt that was given up, or a copy, nobody else looks at it."""
    if not future.cancelled():
        future.exception()
