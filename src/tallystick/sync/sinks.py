"""Sinks of streams without ``async``: see ``tallystick.BookKeeper.open_sink``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from tallystick.bookkeeper.stream.splice import attempt, sink
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger
from tallystick.bookkeeper.stream.splice.sink import Committed
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import Buffer
from tallystick.sync.loop import LoopThread


class StreamSink:
    """Commits batches of one application into a stream, each exactly once."""

    def __init__(self, loop: LoopThread, wrapped: sink.StreamSink) -> None:
        self._loop, self._sink = loop, wrapped

    def __repr__(self) -> str:
        return repr(self._sink)

    @property
    def ticket(self) -> SinkTicket:
        """What whoever writes parts of its batches has to know; it can be sent to other processes."""
        return self._sink.ticket

    @property
    def stream(self) -> str:
        """The stream's name, as the metadata has it."""
        return self._sink.stream

    @property
    def batch(self) -> int:
        """The last batch that is known to be committed; -1 when there is none."""
        return self._sink.batch

    def attempt(self, batch: int, partition: int = 0, attempt: int = 0) -> SinkAttempt:
        """Write a part of a batch from here."""
        return SinkAttempt(self._loop, self._loop.call(lambda: self._sink.attempt(batch, partition, attempt)))

    def commit(
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
        return self._loop.run(self._sink.commit(batch, ledgers, offsets=offsets))

    def sweep(self) -> list[LedgerId]:
        """Delete what no commit can list any more, of whatever application. Returns it. Raises as ``commit``."""
        return self._loop.run(self._sink.sweep())

    def trim(self) -> list[LedgerId]:
        """Drop what retention does not keep and no cursor needs. Returns it. Raises as ``commit``."""
        return self._loop.run(self._sink.trim())


class SinkAttempt:
    """Append messages, then ``close`` it; its ledger is made with the first one. ``with`` gives up what is not
    closed."""

    def __init__(self, loop: LoopThread, wrapped: attempt.SinkAttempt) -> None:
        self._loop, self._attempt = loop, wrapped

    def __repr__(self) -> str:
        return repr(self._attempt)

    @property
    def ledger(self) -> LedgerId | None:
        """The ledger that it writes, None before the first entry."""
        return self._attempt.ledger

    def append(
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
        self._loop.run(self._attempt.append(data, key=key, event_time=event_time, properties=properties))

    def append_batch(self, messages: Iterable[Buffer | OutMessage]) -> None:
        """Append messages one after another. Raises as ``append``."""
        self._loop.run(self._attempt.append_batch(messages))

    def close(self) -> WrittenLedger | None:
        """Close the ledger. Returns what a commit wants of it, None if nothing was appended. Raises as ``append``."""
        return self._loop.run(self._attempt.close())

    def abort(self) -> None:
        """Give up. What was written is deleted by a sweep, when no commit can name it."""
        self._loop.call(self._attempt.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._attempt.__aexit__(kind, error, traceback))
