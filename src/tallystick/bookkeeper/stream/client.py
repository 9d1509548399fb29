"""The client of a cluster, as users have it: ledgers, and what is built of them."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator
from dataclasses import replace

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.uri import parse
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursors import ENDED_A_TURN, Cursors
from tallystick.bookkeeper.stream.deletion import delete_stream
from tallystick.bookkeeper.stream.deletions import Deletions
from tallystick.bookkeeper.stream.due_times import DueTimes
from tallystick.bookkeeper.stream.hand_over_core import BrokerDeletions
from tallystick.bookkeeper.stream.leases import Leases
from tallystick.bookkeeper.stream.names import StreamPaths, broker_stream_name, stream_name
from tallystick.bookkeeper.stream.opening import open_owned
from tallystick.bookkeeper.stream.pulsar import create_for_pulsar, hand_over, take_back
from tallystick.bookkeeper.stream.reader import StreamReader, StreamReaders
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.stream.splice.attempt import SinkAttempt, SinkTicket
from tallystick.bookkeeper.stream.splice.forget import forget
from tallystick.bookkeeper.stream.splice.opening import open_sink
from tallystick.bookkeeper.stream.splice.record import SinkRecord, application_name, recorded_name
from tallystick.bookkeeper.stream.splice.sink import StreamSink, open_attempt
from tallystick.bookkeeper.stream.splice.sweep import sweep
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.runtime.arguments import instance, number, optional, text
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.machine import this_machine
from tallystick.runtime.opening import Opening
from tallystick.runtime.outside import Outside


class BookKeeper(LedgerClient):
    """A client, made by ``connect``; on one running event loop. ``close`` it, or use it with ``async with``."""

    def __init__(
        self,
        driver: MetadataDriver,
        outside: Outside,
        settings: ClientSettings,
        streams: StreamClientSettings | None = None,
    ) -> None:
        super().__init__(driver, outside, settings)
        context, chosen = self.context, streams or StreamClientSettings()
        owner = chosen.owner or f"client-{context.random.getrandbits(64):016x}"
        catalog = StreamCatalog(driver.store, StreamPaths(driver.root))
        leases, deletions = Leases(context, owner, chosen.lease_s), Deletions(self, catalog, context)
        self._readers = StreamReaders(self, catalog, outside.workers)
        encoding_thread = SideThread(outside.workers, "encode")
        self._stream_context = StreamContext(
            self, context, catalog, leases, deletions, self._readers, chosen, encoding_thread
        )
        self._cursors = Cursors(self._stream_context, self._readers)
        self._due_times = DueTimes(context.clock)
        self._open_streams: dict[str, Stream] = {}

    @property
    def stream_context(self) -> StreamContext:
        """The parts of the client that its streams, readers and cursors use."""
        return self._stream_context

    def open_stream(
        self, name: str, *, takeover: bool = False, wait_s: float = 0.0, settings: StreamSettings | None = None
    ) -> Opening[Stream]:
        """Own a stream, and append to it: ``async with bk.open_stream("tenant/ns/persistent/topic") as stream``.

        It is made where there is none. Raises StreamOwned while another client owns it, for ``wait_s`` at most, unless
        ``takeover``: that fences whoever writes it. Raises StreamFenced when another owner was faster; UsageError,
        NotEnoughBookies, RecoveryIncomplete, Unavailable, MetadataError.
        """
        stream = stream_name(name)
        instance(takeover, bool, "takeover")
        number(wait_s, "wait_s")
        chosen = optional(settings, StreamSettings, "settings") or self._stream_context.settings.stream

        async def open_() -> Stream:
            self._require_open()
            opened = await open_owned(self._stream_context, stream, chosen, takeover=takeover, wait_s=wait_s)
            handle = Stream(self._stream_context, stream, chosen, opened, self._due_times, self._released)
            self._open_streams[stream] = handle
            self._stream_context.deletions.add(stream, opened.dead_ledgers)
            return handle

        return Opening(open_, "bk.open_stream(…)")

    def _released(self, stream: Stream) -> None:
        if self._open_streams.get(stream.name) is stream:
            del self._open_streams[stream.name]

    def read_stream(self, name: str, *, entry_format: str = "pulsar") -> Opening[StreamReader]:
        """Open a stream to read it, whoever owns it: ``async with bk.read_stream(name) as reader``. Nothing is fenced.

        ``entry_format`` "raw": a message is an entry, whatever its bytes are. Raises UsageError, NoSuchStream,
        MetadataError.
        """
        self._require_open()
        return self._readers.open(name, entry_format=entry_format)

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
    ) -> Opening[Cursor]:
        """Open a cursor of a stream: ``async with bk.cursor("tenant/ns/persistent/topic", "billing") as cursor``.

        It is made where there is none, if ``create``: at ``start``, which is "beginning", "end", or the position that
        is read first. One that is not ``durable`` is in memory alone, and begins at ``start``. ``entry_format`` "raw":
        a message is an entry, whatever its bytes are.

        Raises UsageError at once; when opened StreamOwned while another client owns the cursor, unless ``takeover``,
        and for a durable one while a Pulsar broker may have the stream; NoSuchStream, NoSuchCursor, NoSuchPosition,
        StreamFenced (another owner was faster), RecoveryIncomplete, Unavailable, MetadataError.
        """
        self._require_open()
        return self._cursors.open(
            name,
            cursor,
            durable=durable,
            start=start,
            create=create,
            takeover=takeover,
            entry_format=entry_format,
        )

    async def delete_cursor(self, name: str, cursor: str, *, takeover: bool = False) -> None:
        """Delete a cursor; what it alone kept from being trimmed can go. Raises NoSuchStream, NoSuchCursor; StreamOwned
        while another client owns it, unless ``takeover``; StreamFenced, Unavailable, MetadataError."""
        self._require_open()
        await self._cursors.delete(name, cursor, takeover=takeover)

    async def create_for_pulsar(self, name: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Make an empty stream, and the tenant and namespace that a Pulsar broker needs to load it. Returns the paths
        of what was made: what exists stays as it is. A namespace that is made keeps its topics.

        ``cluster``: the name of Pulsar's, where there are several. Raises UsageError, MetadataError.
        """
        self._require_open()
        stream = broker_stream_name(name)
        return await create_for_pulsar(self._stream_context, stream, cluster=optional(cluster, str, "cluster"))

    async def hand_over(self, name: str, *, force: bool = False, takeover: bool = False) -> BrokerDeletions:
        """Close a stream and leave it to a Pulsar broker, which loads it when a client asks there for the topic.
        Returns what the broker deletes of it.

        Raises HandOverRefused if that is anything, or its clients cannot read the entries, unless ``force``;
        StreamOwned while another client owns the stream, or anybody one of its cursors, unless ``takeover``; NotFound
        if no broker could load it, UsageError if none takes such a name; NoSuchStream, StreamFenced,
        RecoveryIncomplete, Unavailable, MetadataError.
        """
        self._require_open()
        stream = broker_stream_name(name)
        return await hand_over(
            self._stream_context,
            stream,
            self._open_streams.get(stream),
            force=instance(force, bool, "force"),
            takeover=instance(takeover, bool, "takeover"),
        )

    def take_back(
        self, name: str, *, takeover: bool = False, settings: StreamSettings | None = None
    ) -> Opening[Stream]:
        """Own a stream that a Pulsar broker had: ``open_stream`` of one that exists. Nothing keeps a broker from
        loading it again, when a client asks there for the topic or it begins to serve that part of the namespace.

        Raises StreamOwned while a broker may write it, with its address as ``owner`` if one serves the namespace:
        unload the topic there, or ``takeover``, which fences the broker. Raises NoSuchStream, and as ``open_stream``.
        """
        opening = self.open_stream(name, takeover=takeover, settings=settings)
        stream = stream_name(name)

        async def open_() -> Stream:
            self._require_open()
            return await take_back(self._stream_context, stream, opening, takeover=takeover)

        return Opening(open_, "bk.take_back(…)")

    async def delete_stream(self, name: str, *, takeover: bool = False) -> None:
        """Delete a stream with its cursors and ledgers; bookies give their space back later.

        Raises NoSuchStream; StreamOwned while somebody owns it, unless ``takeover``: that fences whoever writes it. Any
        other error may leave an empty stream, or ledgers of none: call it again. Raises StreamFenced, Unavailable,
        MetadataError.
        """
        self._require_open()
        stream = stream_name(name)
        await delete_stream(self._stream_context, stream, takeover=instance(takeover, bool, "takeover"))

    async def open_sink(
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
        self._require_open()
        chosen = optional(settings, StreamSettings, "settings") or self._stream_context.settings.stream
        ticket = SinkTicket(
            stream_name(name),
            application_name(application),
            recorded_name(query, "query"),
            f"{self.context.random.getrandbits(64):016x}" if run is None else recorded_name(run, "run"),
            chosen,
        )
        return await open_sink(self._stream_context, ticket, switch=instance(switch, bool, "switch"))

    def sink_attempt(self, ticket: SinkTicket, batch: int, partition: int, attempt: int = 0) -> SinkAttempt:
        """Write a part of a batch for the sink that gave the ticket, in whatever process that is. Raises UsageError."""
        self._require_open()
        return open_attempt(self._stream_context, instance(ticket, SinkTicket, "ticket"), batch, partition, attempt)

    async def sweep_sinks(self, name: str) -> list[LedgerId]:
        """Delete the ledgers of a stream that sinks wrote and no commit can list any more; applications that run go on.
        Returns them. Raises NoSuchStream, Unavailable, MetadataError."""
        self._require_open()
        return await sweep(self._stream_context, stream_name(name))

    async def forget_sink(self, name: str, application: str) -> SinkRecord:
        """Forget an application that writes the stream no more, and delete what its attempts left; its rows stay. A run
        that goes on ends with its next commit (StreamFenced). Returns how far it was. Raises NotFound, StreamOwned if
        an owner or a broker has the stream by now, NoSuchStream, UsageError, Unavailable, MetadataError."""
        self._require_open()
        return await forget(self._stream_context, stream_name(name), application_name(application))

    def streams(self, prefix: str = "") -> AsyncIterator[str]:
        """List the names of all streams that begin so. Raises MetadataError rather than leaving any out."""
        self._require_open()
        return self._stream_context.catalog.streams(text(prefix, "prefix"))

    async def _close(self) -> None:
        await self._cursors.close()
        for count, stream in enumerate(tuple(self._open_streams.values()), 1):
            if self._open_streams.get(stream.name) is stream:  # nobody closed it meanwhile
                stream.end_with_client()
            if not count % ENDED_A_TURN:
                await asyncio.sleep(0)
        self._due_times.close()
        await self._readers.close()
        await self._stream_context.encoding_thread.close()
        await self._stream_context.deletions.close()
        try:
            await self._stream_context.leases.close()
        finally:
            await super()._close()


def connect(
    uri: str,
    *,
    settings: ClientSettings | None = None,
    events: Events | None = None,
    streams: StreamClientSettings | None = None,
) -> Opening[BookKeeper]:
    """Connect to the cluster at ``uri``: ``sqlite:///path``, ``zk+hierarchical://h:p;h2:p/ledgers``, ``memory://name``.

    ``async with connect(uri) as bk`` or ``bk = await connect(uri)``. Raises UsageError for a bad URI, MetadataError
    where no cluster is, MetadataUnavailable. Without a ``security`` in the settings it is what stands behind the URI
    (``?user=me&passwordFile=/etc/tally/password``), else the file's that ``TALLY_SECURITY`` names.
    """

    parse(uri)  # a typing error is told at once
    optional(settings, ClientSettings, "settings")
    optional(events, Events, "events")
    optional(streams, StreamClientSettings, "streams")

    async def start() -> BookKeeper:
        chosen = secured(settings or ClientSettings(), uri)
        driver = await open_driver(uri)
        try:
            await driver.instance_id()  # no cluster at all is told at once, too
        except BaseException:
            await driver.close()
            raise
        outside = this_machine(events or Events(log_listener()), keep_alive=chosen.tcp_keep_alive)
        owning = streams or StreamClientSettings()
        if not owning.owner:
            owning = replace(owning, owner=f"{platform.node()}:{os.getpid()}")
        try:
            return BookKeeper(driver, outside, chosen, owning)
        except BaseException:  # its keys are no good
            await driver.close()
            raise

    return Opening(start, "connect(…)")
