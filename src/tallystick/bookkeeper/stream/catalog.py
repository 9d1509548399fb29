"""What the metadata has of streams: their lists of ledgers, their cursors, and the notes of ledgers that come or go.

Every write of a list or a cursor is a compare-and-set by the version that was read before (Pulsar's ``MetaStore``). A
ledger is noted in one with being made, and the note goes in one with the list that has it: what is noted and not listed
was never part of the stream, or is no more. So nothing leaks, and nothing has to be searched for. Whoever deletes a
noted ledger condemns it first: a list that would have it is refused from then on, so that of the owner that made it and
is about to list it, and whoever deletes what is not listed, one fails.

A change of the list that depends on more than the list, on where cursors are or that there is no other stream of the
name by now, begins with a node beside the notes, which goes in one with the change. Whoever makes a stream or a cursor,
or moves one back, deletes such nodes: the change fails then, and is decided again.

What is made for a cursor is noted apart: the stream's owner, who deletes what is noted, knows nothing of it. As soon as
nobody needs it its note is among the stream's.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from urllib.parse import quote

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.store import (
    Change,
    Check,
    Create,
    Creation,
    Delete,
    MetadataStore,
    Update,
    Version,
    Znode,
)
from tallystick.bookkeeper.stream.names import StreamPaths, require_broker_name
from tallystick.bookkeeper.wire import managed_ledgers as wire
from tallystick.bookkeeper.wire.stream_lists import list_decoding, list_encoding
from tallystick.bookkeeper.wire.stream_values import CursorInfo, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import (
    MetadataUncertain,
    NoSuchCursor,
    NoSuchStream,
    NoSuchZnode,
    StreamFenced,
    ZnodeChanged,
    ZnodeExists,
    ZnodeNotEmpty,
)
from tallystick.runtime.turn_steps import in_turns

MISSING: Version = -1  # of a node that is to be made
CONDEMNED = b"condemned"  # what the note of a ledger says that no list may get any more
NOTES_AT_ONCE = 1000

_BEGUN = "change-"  # how the nodes of changes begin that are under way


class ChangeOvertaken(Exception):
    """What the change depends on may be another by now: decide it again."""


class StreamCatalog:
    """See the module. Raises MetadataUnavailable and its kinds in every call."""

    def __init__(self, store: MetadataStore, paths: StreamPaths) -> None:
        self.store, self.paths = store, paths
        self._names = 0  # that were given

    async def read(
        self, stream: str, *, synced: bool = False, known: Sequence[StreamLedger] = ()
    ) -> Versioned[StreamInfo]:
        """Returns the list of a stream. ``synced``: as of now. Raises NoSuchStream, MetadataError for foreign bytes.

        ``known`` are the ledgers that it had before, for who reads it again: little changes.
        """
        path = self.paths.stream(stream)
        if synced:
            await self.store.sync()
        node = await self.store.get(path)
        if node is None and not synced:
            return await self.read(stream, synced=True, known=known)
        if node is None:
            raise NoSuchStream(stream=stream)
        info = await in_turns(list_decoding(node.data, where=f"{self.store.where}{path}", known=known))
        return Versioned(info, node.version, node.creation)

    async def creation(self, stream: str, cursor: str | None = None) -> Creation | None:
        """Returns which of all streams, or cursors, of this name there is now, None if there is none. Their versions
        are alike."""
        await self.store.sync()
        node = await self.store.get(self.paths.stream(stream) if cursor is None else self.paths.cursor(stream, cursor))
        return None if node is None else node.creation

    async def create(self, stream: str, beside: Sequence[Change] = ()) -> Versioned[StreamInfo]:
        """Make an empty stream, or return the one that exists.

        What is noted is condemned before: an owner of an earlier stream of this name, which was deleted, lists nothing
        in the new one, and changes nothing there. Raises UsageError for a name by which no Pulsar broker finds a topic;
        streams that have such a name are read and written as ever.
        """
        require_broker_name(stream)
        while True:
            await self.overtake(stream)
            for ledger in await self.going(stream):
                await self.condemn(stream, ledger)
            with contextlib.suppress(ZnodeExists, MetadataUncertain):
                await self.store.change(Create(self.paths.stream(stream)), *beside)
            with contextlib.suppress(NoSuchStream):  # it was not made, or is deleted again
                return await self.read(stream, synced=True)

    async def write(
        self,
        stream: str,
        info: StreamInfo,
        version: Version,
        *,
        noted: Collection[LedgerId] = (),
        settled: Collection[LedgerId] = (),
        begun: str | None = None,
    ) -> Version:
        """Replace the list. Returns its new version. Raises StreamFenced when another owner wrote it, or deleted it.

        ``noted`` get notes in one with it: they are to be deleted. The notes of ``settled`` go. ``begun`` is what
        ``begin`` returned: raises ChangeOvertaken if the change was overtaken. A write whose response was lost raises
        MetadataUncertain: read the list, and write again what is not there.
        """
        data = await in_turns(list_encoding(info))
        update = Update(self.paths.stream(stream), data, version)
        ends = [] if begun is None else [Delete(begun)]
        try:
            await self._change(update, stream, noted, settled, beside=ends)
        except (ZnodeChanged, NoSuchZnode, ZnodeExists) as error:
            if begun is not None and error.path == begun:
                raise ChangeOvertaken from None
            raise StreamFenced("another owner changed the list of this stream", stream=stream) from error
        return version + 1

    async def delete(self, stream: str, version: Version) -> bool:
        """Delete the node of a stream without cursors, and the folder of its notes. Returns False while there are
        cursors. Raises StreamFenced when another owner wrote the list."""
        try:
            await self.store.change(Delete(self.paths.stream(stream), version))
        except ZnodeNotEmpty:
            return False
        except ZnodeChanged as error:
            raise StreamFenced("another owner changed the list of this stream", stream=stream) from error
        except NoSuchZnode:
            pass  # by an earlier attempt whose response was lost
        await self.forget_notes(stream)
        return True

    def change_name(self) -> str:
        """Returns the name of a change that nobody else gives to one, for whoever makes one at a time."""
        self._names += 1
        return f"{_BEGUN}{quote(self.store.owners[-1], safe='')}-{self._names}"

    async def begin(self, stream: str, name: str, cursor: str | None = None) -> str:
        """Begin a change of the list, or of a cursor. Returns what writing wants of it; read what it depends on after
        this."""
        path = f"{self.paths.going(stream, cursor=cursor)}/{name}"
        with contextlib.suppress(ZnodeExists):  # it failed before: nobody has overtaken it since
            await self.store.change(Create(path))
        return path

    async def overtake(self, stream: str, cursor: str | None = None) -> None:
        """Let all changes of the list, or of a cursor, that are begun be decided again."""
        await self.store.sync()
        folder = self.paths.going(stream, cursor=cursor)
        for name in await self.store.children(folder) or []:
            if name.startswith(_BEGUN):
                with contextlib.suppress(NoSuchZnode):
                    await self.store.change(Delete(f"{folder}/{name}"))

    async def forget_notes(self, stream: str) -> None:
        """Delete the folder of a stream's notes, unless there are any."""
        await self.overtake(stream)
        with contextlib.suppress(NoSuchZnode, ZnodeNotEmpty):
            await self.store.change(Delete(self.paths.going(stream)))

    async def streams(self, prefix: str = "") -> AsyncIterator[str]:
        """Yields the names that begin so, sorted by tenant, namespace and topic."""
        for tenant in await self._below(""):
            for namespace in await self._below(tenant):
                folder = f"{tenant}/{namespace}/persistent"
                if folder.startswith(prefix[: len(folder)]):
                    for topic in await self._below(folder):
                        if (name := f"{folder}/{topic}").startswith(prefix):
                            yield name

    async def _below(self, folder: str) -> list[str]:
        path = f"{self.paths.streams}/{folder}" if folder else self.paths.streams
        return await self.store.children(path) or []

    # -- cursors ------------------------------------------------------------------------------------------------------

    async def cursors(self, stream: str) -> list[str]:
        """Returns the names of all cursors, as of now."""
        await self.store.sync()
        return await self.store.children(self.paths.stream(stream)) or []

    async def read_cursor(self, stream: str, cursor: str) -> Versioned[CursorInfo]:
        """Returns what the node of a cursor has, as of now. Raises NoSuchCursor, MetadataError for foreign bytes."""
        path = self.paths.cursor(stream, cursor)
        await self.store.sync()
        node = await self.store.get(path)
        if node is None:
            raise NoSuchCursor(stream=stream, cursor=cursor)
        info = await in_turns(wire.cursor_decoding(node.data, where=f"{self.store.where}{path}"))
        return Versioned(info, node.version, node.creation)

    async def _create_cursor(self, stream: str, cursor: str, info: CursorInfo) -> Version:
        """Never below a stream that is deleted: the nodes above are made if they are missing."""
        change = Create(self.paths.cursor(stream, cursor), await in_turns(wire.cursor_encoding(info)))
        while True:
            listed = await self.read(stream, synced=True)
            await self.overtake(stream, cursor)  # what would change an earlier one of its name
            try:
                await self.store.change(Check(self.paths.stream(stream), listed.version), change)
            except (ZnodeChanged, NoSuchZnode):  # its owner wrote the list, or it was deleted just now
                continue
            except ZnodeExists as error:
                raise StreamFenced("another owner made this cursor", stream=stream, cursor=cursor) from error
            await self.overtake(stream)
            return 0

    async def write_cursor(
        self,
        stream: str,
        cursor: str,
        info: CursorInfo,
        version: Version,
        *,
        noted: Collection[LedgerId] = (),
        settled: Collection[LedgerId] = (),
        begun: str | None = None,
    ) -> Version:
        """Make the node of a cursor (version MISSING) or replace it. Returns its new version. Raises StreamFenced as
        ``write`` does, also when there is one already, or ``begun`` was overtaken; NoSuchStream where one is to be
        made.

        ``noted`` are to be deleted: the stream notes them. The notes of ``settled``, which the cursor made, go.
        """
        if version == MISSING:
            return await self._create_cursor(stream, cursor, info)
        update = Update(self.paths.cursor(stream, cursor), await in_turns(wire.cursor_encoding(info)), version)
        try:
            await self._change(update, stream, noted, settled, cursor, beside=[] if begun is None else [Delete(begun)])
        except (ZnodeChanged, NoSuchZnode, ZnodeExists) as error:
            raise StreamFenced("another owner changed this cursor", stream=stream, cursor=cursor) from error
        return version + 1

    async def delete_cursor(
        self, stream: str, cursor: str, version: Version, *, noted: Collection[LedgerId]
    ) -> list[LedgerId]:
        """Delete the node of a cursor, and the folder of its notes. Returns the ledgers that the stream notes for it
        now: they are to be deleted. Raises StreamFenced as ``write`` does."""
        unused = await self.going(stream, cursor)
        dead = sorted({*noted, *unused})
        delete = Delete(self.paths.cursor(stream, cursor), version)
        try:
            await self._change(delete, stream, dead, unused, cursor)
        except (ZnodeChanged, NoSuchZnode) as error:
            raise StreamFenced("another owner changed this cursor", stream=stream, cursor=cursor) from error
        await self.overtake(stream, cursor)
        with contextlib.suppress(NoSuchZnode, ZnodeNotEmpty):
            await self.store.change(Delete(self.paths.going(stream, cursor=cursor)))
        return dead

    async def _change(
        self,
        change: Change,
        stream: str,
        noted: Collection[LedgerId],
        settled: Collection[LedgerId],
        cursor: str | None = None,
        beside: Sequence[Change] = (),
    ) -> None:
        """Make a change with its notes, and others ``beside`` it; the notes that are settled are the cursor's, if one
        is named. A ledger that has a note already gets no other."""
        new_notes = {path: Create(path) for path in [self.paths.going(stream, ledger) for ledger in noted]}
        # A note that is not as it was made is of a ledger that is condemned.
        old_notes = [Delete(self.paths.going(stream, ledger, cursor=cursor), 0) for ledger in settled]
        while True:
            try:
                return await self.store.change(change, *new_notes.values(), *old_notes, *beside)
            except ZnodeExists as error:
                if new_notes.pop(error.path or "", None) is None:
                    raise

    # -- notes --------------------------------------------------------------------------------------------------------

    def note(self, stream: str, ledger: LedgerId, cursor: str | None = None, data: bytes = b"") -> Create:
        """Returns the change that notes a ledger which is made for the stream, or for a cursor. ``data`` says whose it
        is, where more than one make ledgers."""
        return Create(self.paths.going(stream, ledger, cursor=cursor), data)

    async def going(self, stream: str, cursor: str | None = None) -> list[LedgerId]:
        """Returns the ledgers that are noted for the stream, or for a cursor, ascending."""
        names = await self.store.children(self.paths.going(stream, cursor=cursor)) or []
        return sorted(int(name) for name in names if name.isdecimal())

    async def notes(self, stream: str) -> list[tuple[LedgerId, bytes]]:
        """Returns the ledgers that are noted for the stream, ascending, with what their notes say now."""
        ledgers, nodes = await self.going(stream), dict[str, Znode]()
        paths = [self.paths.going(stream, ledger) for ledger in ledgers]
        for start in range(0, len(paths), NOTES_AT_ONCE):
            nodes |= await self.store.get_many(paths[start : start + NOTES_AT_ONCE])
        return [(ledger, nodes[path].data) for ledger, path in zip(ledgers, paths, strict=True) if path in nodes]

    async def condemn(self, stream: str, ledger: LedgerId) -> bool:
        """Let no list get this ledger any more. Returns False if it has no note: it is listed, or deleted."""
        try:
            await self.store.change(Update(self.paths.going(stream, ledger), CONDEMNED, 0))
        except ZnodeChanged:
            pass  # it is condemned
        except NoSuchZnode:
            return False
        return True

    async def gone(self, stream: str, ledgers: Collection[LedgerId], cursor: str | None = None) -> None:
        """Delete the notes of ledgers that are deleted."""
        for ledger in ledgers:
            with contextlib.suppress(NoSuchZnode):
                await self.store.change(Delete(self.paths.going(stream, ledger, cursor=cursor)))
