"""The cursors of a client: how one is opened, made and deleted.

1. Take the cursor's lease: who is alive keeps it, unless it is taken over.
2. A newest ledger that is open and has no mark of ours may have a Pulsar broker, which has all cursors: then stop here.
3. Read the cursor's node, or make it.
4. Recover its ledger, and write the node: nobody else changes the cursor from then on.
5. Read the list of the stream, which is newer than what the cursor says of it, and begin behind what has expired.

One that is not durable needs step 5 alone.
"""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.cursor_list import CursorList, SharedCounts
from tallystick.bookkeeper.stream.cursor_places import CursorPlaces
from tallystick.bookkeeper.stream.cursor_reading import CursorReading
from tallystick.bookkeeper.stream.cursor_saves import CursorSaves
from tallystick.bookkeeper.stream.cursor_store import CursorStore
from tallystick.bookkeeper.stream.entries import Damaged
from tallystick.bookkeeper.stream.expired import expired_in
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.messages import ENTRY_FORMATS, EntryDecoder, ReadAgain
from tallystick.bookkeeper.stream.names import cursor_name, stream_name
from tallystick.bookkeeper.stream.opening import require_ours
from tallystick.bookkeeper.stream.places import position_of
from tallystick.bookkeeper.stream.reader import MAX_MESSAGE_BYTES, StreamReaders
from tallystick.bookkeeper.stream.retention import DEDUPLICATION
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorInfo, Position
from tallystick.errors import MetadataUncertain, NoSuchCursor, StreamFenced, StreamOwned, UsageError
from tallystick.runtime.arguments import instance
from tallystick.runtime.opening import Opening
from tallystick.runtime.turn_steps import in_turns

ENDED_A_TURN = 256  # cursors, or streams, as a client is closed: some ms
ATTEMPTS = 5  # to make a cursor, while responses are lost or others delete it


class Cursors:
    """See the module. ``close`` it with the client."""

    def __init__(self, context: StreamContext, readers: StreamReaders) -> None:
        self._context, self._readers = context, readers
        self._counts = SharedCounts()
        self._open_cursors: dict[Cursor, None] = {}

    def open(
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
        is read first. One that is not durable is in memory alone, and begins at ``start``. ``entry_format`` "raw": a
        message is an entry, whatever its bytes are.

        Raises UsageError at once; when opened StreamOwned while another client owns the cursor, unless ``takeover``,
        and for a durable one while a Pulsar broker may have the stream; NoSuchStream, NoSuchCursor, NoSuchPosition,
        StreamFenced (another owner was faster), RecoveryIncomplete, Unavailable, MetadataError.
        """
        stream, id = stream_name(name), cursor_name(cursor)
        if id == DEDUPLICATION:
            raise UsageError("this cursor has the numbers of appends, and no place: it is opened by nobody", cursor=id)
        for value, what in ((durable, "durable"), (create, "create"), (takeover, "takeover")):
            instance(value, bool, what)
        if start not in ("beginning", "end"):
            position_of(start, 'start is "beginning", "end", a Position, or a text "ledger:entry"; seek takes a time')
        if entry_format not in ENTRY_FORMATS:
            raise UsageError(f"entry_format is one of {', '.join(ENTRY_FORMATS)}", given=entry_format)
        is_raw = entry_format == "raw"

        async def open_() -> Cursor:
            stream_list = await self._readers.lists.open(stream)
            cursor_list = CursorList(self._context.ledgers, stream_list, self._counts, id)
            try:
                if not durable:
                    return self._handle(await self._begin(cursor_list, start, is_raw), cursor_list, is_raw=is_raw)
                path = self._context.catalog.paths.owner(stream, id)
                lease = await self._context.leases.take(path, takeover=takeover, stream=stream, cursor=id)
                try:
                    return await self._open_durable(
                        cursor_list, lease, start if create else None, is_raw=is_raw, takeover=takeover
                    )
                except BaseException:
                    self._context.leases.give_back_soon(lease)
                    raise
            except BaseException:
                cursor_list.release()
                raise

        return Opening(open_, "bk.cursor(…)")

    async def delete(self, name: str, cursor: str, *, takeover: bool = False) -> None:
        """Delete a cursor; what it alone kept from being trimmed can go. Raises NoSuchStream, NoSuchCursor; StreamOwned
        while somebody owns it, unless ``takeover``; StreamFenced, MetadataError."""
        stream, id = stream_name(name), cursor_name(cursor)
        catalog, leases = self._context.catalog, self._context.leases
        instance(takeover, bool, "takeover")
        await catalog.read(stream, synced=True)
        # The numbers of appends are kept by who has the stream.
        path = catalog.paths.owner(stream) if id == DEDUPLICATION else catalog.paths.owner(stream, id)
        lease = await leases.take(path, takeover=takeover, stream=stream, cursor=id)
        try:
            await self._require_no_broker(stream)
            node = await catalog.read_cursor(stream, id)
            noted = [] if node.value.ledger == NO_LEDGER else [node.value.ledger]
            dead = await catalog.delete_cursor(stream, id, node.version, noted=noted)
            self._context.deletions.add(stream, dead)
            self._context.context.events.emit("cursor deleted", stream=stream, cursor=id)
        finally:
            await leases.give_back(lease)

    async def close(self) -> None:
        """Stop all cursors that are open, as if the process died."""
        for count, cursor in enumerate(tuple(self._open_cursors), 1):
            if cursor in self._open_cursors:  # nobody closed it meanwhile
                cursor.end_with_client()
            if not count % ENDED_A_TURN:
                await asyncio.sleep(0)

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _open_durable(
        self, cursor_list: CursorList, lease: Lease, start: Position | str | None, *, is_raw: bool, takeover: bool
    ) -> Cursor:
        stream, cursor = cursor_list.stream, cursor_list.cursor
        await self._require_no_broker(stream)
        node = await self._read_or_create(cursor_list, start, is_raw)
        store = CursorStore(self._context, stream, cursor, lease, node)
        state = await store.recover()
        await cursor_list.list.sync()
        ends = await cursor_list.ends()
        core = await in_turns(CursorCore.restored(cursor_list.counts, ends, state))
        if core.mark < state.mark:
            cursor_list.emit("cursor moved", mark=str(state.mark), to=str(core.mark))
        expired = expired_in(cursor_list.list.info)
        if core.mark < expired and core.exists(expired):
            mark = core.mark
            core.ack_up_to(expired)
            await store.save_in_node(core)  # who reads nothing more would keep the ledgers
            cursor_list.emit("cursor messages expired", mark=str(mark), to=str(expired))
        cursor_list.emit("cursor opened", mark=str(core.mark), takeover=takeover)
        return self._handle(core, cursor_list, store, lease, is_raw=is_raw)

    async def _require_no_broker(self, stream: str) -> None:
        """Raises StreamOwned if a Pulsar broker may have the stream, and so its cursors."""
        listed = await self._context.catalog.read(stream, synced=True)
        try:
            await require_ours(self._context, stream, listed.value)
        except StreamOwned as error:
            raise StreamOwned(
                "the newest ledger of the stream is open, and no owner of ours made it: a Pulsar broker may have the "
                "stream and keeps its cursors. Read with durable=False; or unload the topic there and open the stream",
                **error.fields,
            ) from None

    async def _read_or_create(
        self, cursor_list: CursorList, start: Position | str | None, is_raw: bool
    ) -> Versioned[CursorInfo]:
        stream, cursor, catalog = cursor_list.stream, cursor_list.cursor, self._context.catalog
        failure: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                return await catalog.read_cursor(stream, cursor)
            except NoSuchCursor:
                if start is None:
                    raise
            core = await self._begin(cursor_list, start, is_raw)
            info = CursorInfo(NO_LEDGER, core.state(), self._context.context.clock.wall_ms())
            try:
                await catalog.write_cursor(stream, cursor, info, MISSING)
                return await catalog.read_cursor(stream, cursor)
            except (MetadataUncertain, StreamFenced, NoSuchCursor) as error:  # look whether it is there
                failure = error
        assert failure is not None, "only then it is tried again"
        raise failure

    async def _begin(self, cursor_list: CursorList, start: Position | str, is_raw: bool) -> CursorCore:
        """Returns a cursor that begins there. Raises NoSuchPosition and as looking at the stream does."""
        core = CursorCore(cursor_list.counts, EARLIEST)
        place = await CursorPlaces(core, cursor_list, is_raw=is_raw).at(start, "start")
        core.reset(place.position, place.batch_size)
        return core

    def _handle(
        self,
        core: CursorCore,
        cursor_list: CursorList,
        store: CursorStore | None = None,
        lease: Lease | None = None,
        *,
        is_raw: bool,
    ) -> Cursor:
        stream, cursor, events = cursor_list.stream, cursor_list.cursor, self._context.context.events

        def new_decoder(damaged: Damaged, read_again: ReadAgain, *, read_before: Position) -> EntryDecoder:
            return EntryDecoder(
                stream,
                self._readers.decompressor,
                damaged,
                read_again,
                events,
                is_raw=is_raw,
                max_bytes=MAX_MESSAGE_BYTES,
                given_up=core.ack,
                read_before=read_before,
            )

        handle = Cursor(
            core,
            cursor_list,
            CursorPlaces(core, cursor_list, is_raw=is_raw),
            CursorReading(core, cursor_list, new_decoder, self._readers.turn),
            CursorSaves(core, store, events, stream=stream, cursor=cursor),
            acks_turn=self._readers.acks_turn,
            leases=self._context.leases,
            lease=lease,
            released=self._released,
        )
        self._open_cursors[handle] = None
        return handle

    def _released(self, cursor: Cursor) -> None:
        self._open_cursors.pop(cursor, None)
