"""The client of ledgers and streams without ``async``: see ``tallystick.connect``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.stream import client
from tallystick.bookkeeper.stream.hand_over_core import BrokerDeletions
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.stream.splice.record import SinkRecord
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import BookieId, DigestType, LedgerId, LedgerMetadata
from tallystick.runtime.events import Events
from tallystick.sync.connection import BlockingClient
from tallystick.sync.ledgers import LedgerReader, LedgerWriter
from tallystick.sync.sinks import SinkAttempt, StreamSink
from tallystick.sync.streams import Cursor, Stream, StreamReader


class BookKeeper(BlockingClient[client.BookKeeper]):
    """Made by ``connect``. Connects when first used, once for each process. ``close`` it, or use ``with``."""

    def create_ledger(
        self,
        ensemble: int = 3,
        *,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: str | DigestType = "crc32c",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: LedgerId | None = None,
        accept_silent_bookies: bool = False,
        entry_ids: str = "counted",
        deferred_sync: bool = False,
        beside: Callable[[LedgerId], Sequence[Create]] | None = None,
    ) -> LedgerWriter:
        """A new ledger; without ``ledger_id`` it gets a new unique id. ``with bk.create_ledger() as writer`` closes it.

        Raises UsageError, NotEnoughBookies, MetadataError; LedgerExists, as ``tallystick.BookKeeper.create_ledger``
        tells. ``entry_ids``: "counted", or "given" with each append. ``deferred_sync``: entries are confirmed by
        ``force`` alone. ``beside``: nodes of the metadata to make in one with the ledger.
        """
        loop, bk = self._client()
        opening = bk.create_ledger(
            ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=digest,
            password=password,
            custom_metadata=custom_metadata,
            ledger_id=ledger_id,
            accept_silent_bookies=accept_silent_bookies,
            entry_ids=entry_ids,
            deferred_sync=deferred_sync,
            beside=beside,
        )
        return LedgerWriter(loop, loop.open(opening))

    def open_ledger(
        self, ledger: LedgerId, *, password: bytes = b"", digest: str | DigestType = "crc32", recover: bool = False
    ) -> LedgerReader:
        """A reader; one that is written is read up to its LAC. ``recover`` fences and closes it: its writer can append
        no more. ``digest`` is that of a ledger whose metadata store none.

        Raises NoSuchLedger, Unauthorized, Unavailable, MetadataError; with ``recover`` RecoveryIncomplete.
        """
        loop, bk = self._client()
        return LedgerReader(loop, loop.open(bk.open_ledger(ledger, password=password, digest=digest, recover=recover)))

    def delete_ledger(self, ledger: LedgerId) -> None:
        """Forget a ledger; bookies refuse its writer and free its space later. Raises NoSuchLedger, MetadataError."""
        loop, bk = self._client()
        loop.run(bk.delete_ledger(ledger))

    def ledger_metadata(self, ledger: LedgerId) -> LedgerMetadata:
        """The metadata as stored. Raises NoSuchLedger, MetadataError."""
        loop, bk = self._client()
        return loop.run(bk.ledger_metadata(ledger))

    def bookies(self) -> RegisteredBookies:
        """The registered bookies. Raises MetadataError."""
        loop, bk = self._client()
        return loop.run(bk.bookies())

    def degraded(self) -> dict[LedgerId, tuple[BookieId, ...]]:
        """The ledgers that this client writes without some of their bookies now, and which those are."""
        loop, bk = self._client()
        return loop.call(bk.degraded)

    @property
    def degraded_total(self) -> int:
        """How often a writer of this client lost bookies that nothing could replace, and went on."""
        loop, bk = self._client()
        return loop.call(lambda: bk.degraded_total)

    def metrics(self) -> dict[str, float]:
        """What this client counted since it was made, by the names of docs/metrics.md, with their labels."""
        loop, bk = self._client()
        return loop.call(bk.metrics)

    def ledgers(self) -> Iterator[LedgerId]:
        """The ids of all ledgers, ascending. Raises MetadataError rather than leaving any out."""
        loop, bk = self._client()
        return loop.iterate(bk.ledgers, lambda ledger: 1 / 512)

    def open_stream(
        self, name: str, *, takeover: bool = False, wait_s: float = 0.0, settings: StreamSettings | None = None
    ) -> Stream:
        """Own a stream, and append to it: ``with bk.open_stream("tenant/ns/persistent/topic") as stream``.

        It is made where there is none. Raises StreamOwned while another client owns it, for ``wait_s`` at most, unless
        ``takeover``: that fences whoever writes it. Raises StreamFenced when another owner was faster; UsageError,
        NotEnoughBookies, RecoveryIncomplete, Unavailable, MetadataError.
        """
        loop, bk = self._client()
        return Stream(loop, loop.open(bk.open_stream(name, takeover=takeover, wait_s=wait_s, settings=settings)))

    def read_stream(self, name: str, *, entry_format: str = "pulsar") -> StreamReader:
        """A reader of a stream, beside its owner. Never fences, and never reads what is not confirmed.

        ``entry_format`` "raw": a message is an entry, whatever its bytes are. Raises UsageError, NoSuchStream,
        MetadataError.
        """
        loop, bk = self._client()
        return StreamReader(loop, loop.open(loop.call(lambda: bk.read_stream(name, entry_format=entry_format))))

    def cursor(
        self,
        name: str,
        cursor: str,
        *,
        durable: bool = True,
        start: Position | str = "beginning",
        create: bool = True,
        takeover: bool = False,
        entry_format: str = "pulsar",
    ) -> Cursor:
        """A cursor of a stream: ``with bk.cursor("tenant/ns/persistent/topic", "billing") as cursor``.

        It is made where there is none, if ``create``: at ``start``, which is "beginning", "end", or the position that
        is read first. One that is not ``durable`` is in memory alone, and begins at ``start``. ``entry_format`` "raw":
        a message is an entry, whatever its bytes are.

        Raises UsageError; StreamOwned while another client owns the cursor, unless ``takeover``, and for a durable one
        while a Pulsar broker may have the stream; NoSuchStream, NoSuchCursor, NoSuchPosition, StreamFenced (another
        owner was faster), RecoveryIncomplete, Unavailable, MetadataError.
        """
        loop, bk = self._client()
        opening = loop.call(
            lambda: bk.cursor(
                name,
                cursor,
                durable=durable,
                start=start,
                create=create,
                takeover=takeover,
                entry_format=entry_format,
            )
        )
        return Cursor(loop, loop.open(opening))

    def delete_cursor(self, name: str, cursor: str, *, takeover: bool = False) -> None:
        """Delete a cursor; what it alone kept from being trimmed can go. Raises NoSuchStream, NoSuchCursor; StreamOwned
        while another client owns it, unless ``takeover``; StreamFenced, Unavailable, MetadataError."""
        loop, bk = self._client()
        loop.run(bk.delete_cursor(name, cursor, takeover=takeover))

    def create_for_pulsar(self, name: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Make an empty stream, and the tenant and namespace that a Pulsar broker needs to load it. Returns the paths
        of what was made: what exists stays as it is. A namespace that is made keeps its topics.

        ``cluster``: the name of Pulsar's, where there are several. Raises UsageError, MetadataError.
        """
        loop, bk = self._client()
        return loop.run(bk.create_for_pulsar(name, cluster=cluster))

    def hand_over(self, name: str, *, force: bool = False, takeover: bool = False) -> BrokerDeletions:
        """Close a stream and leave it to a Pulsar broker, which loads it when a client asks there for the topic.
        Returns what the broker deletes of it.

        Raises HandOverRefused if that is anything, or its clients cannot read the entries, unless ``force``;
        StreamOwned while another client owns the stream, or anybody one of its cursors, unless ``takeover``; NotFound
        if no broker could load it, UsageError if none takes such a name; NoSuchStream, StreamFenced,
        RecoveryIncomplete, Unavailable, MetadataError.
        """
        loop, bk = self._client()
        return loop.run(bk.hand_over(name, force=force, takeover=takeover))

    def take_back(self, name: str, *, takeover: bool = False, settings: StreamSettings | None = None) -> Stream:
        """Own a stream that a Pulsar broker had: ``open_stream`` of one that exists. Nothing keeps a broker from
        loading it again, when a client asks there for the topic or it begins to serve that part of the namespace.

        Raises StreamOwned while a broker may write it, with its address as ``owner`` if one serves the namespace:
        unload the topic there, or ``takeover``, which fences the broker. Raises NoSuchStream, and as ``open_stream``.
        """
        loop, bk = self._client()
        return Stream(loop, loop.open(bk.take_back(name, takeover=takeover, settings=settings)))

    def delete_stream(self, name: str, *, takeover: bool = False) -> None:
        """Delete a stream with its cursors and ledgers; bookies give their space back later.

        Raises NoSuchStream; StreamOwned while somebody owns it, unless ``takeover``: that fences whoever writes it. Any
        other error may leave an empty stream, or ledgers of none: call it again. Raises StreamFenced, Unavailable,
        MetadataError.
        """
        loop, bk = self._client()
        loop.run(bk.delete_stream(name, takeover=takeover))

    def open_sink(
        self,
        name: str,
        application: str,
        query: str,
        *,
        run: str | None = None,
        switch: bool = False,
        settings: StreamSettings | None = None,
    ) -> StreamSink:
        """Write a stream in batches, each exactly once, of which any number of processes write parts.

        ``application`` is a name that is kept for good. ``query`` says who it is: what comes back without its memory is
        another. ``run`` names this start of it, which ends those before; by itself each call begins another one. The
        stream is made where there is none. Raises StreamOwned for one that an owner writes, unless ``switch``, and then
        while it is open; CheckpointLost if another query has committed under the application's name; StreamFenced for
        a run that is over; UsageError, StreamTerminated, RecoveryIncomplete, Unavailable, MetadataError.
        """
        loop, bk = self._client()
        return StreamSink(
            loop, loop.run(bk.open_sink(name, application, query, run=run, switch=switch, settings=settings))
        )

    def sink_attempt(self, ticket: SinkTicket, batch: int, partition: int, attempt: int = 0) -> SinkAttempt:
        """Write a part of a batch for the sink that gave the ticket, in whatever process that is. Raises UsageError."""
        loop, bk = self._client()
        return SinkAttempt(loop, loop.call(lambda: bk.sink_attempt(ticket, batch, partition, attempt)))

    def sweep_sinks(self, name: str) -> list[LedgerId]:
        """Delete the ledgers of a stream that sinks wrote and no commit can list any more; applications that run go on.
        Returns them. Raises NoSuchStream, Unavailable, MetadataError."""
        loop, bk = self._client()
        return loop.run(bk.sweep_sinks(name))

    def forget_sink(self, name: str, application: str) -> SinkRecord:
        """Forget an application that writes the stream no more, and delete what its attempts left; its rows stay. A run
        that goes on ends with its next commit (StreamFenced). Returns how far it was. Raises NotFound, StreamOwned if
        an owner or a broker has the stream by now, NoSuchStream, UsageError, Unavailable, MetadataError."""
        loop, bk = self._client()
        return loop.run(bk.forget_sink(name, application))

    def streams(self, prefix: str = "") -> Iterator[str]:
        """The names of all streams that begin so. Raises MetadataError rather than leaving any out."""
        loop, bk = self._client()
        return loop.iterate(lambda: bk.streams(prefix), lambda name: 1 / 512)


def connect(
    uri: str,
    *,
    settings: ClientSettings | None = None,
    events: Events | None = None,
    streams: StreamClientSettings | None = None,
) -> BookKeeper:
    """A client of the cluster at ``uri``; see ``tallystick.connect``. Nothing is contacted before its first use."""
    opening = client.connect(uri, settings=settings, events=events, streams=streams)
    return BookKeeper(opening, settings or ClientSettings())
