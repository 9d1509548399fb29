"""The list of a stream as a cursor sees it: counted once a client, however many cursors there are."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.entries import Damaged, EntryWalk, LedgerGone
from tallystick.bookkeeper.stream.entry_counts import EntryCounts
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import NoSuchPosition, TallyError


class SharedCounts:
    """The counts of the lists that somebody uses now."""

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[StreamList, tuple[StreamInfo, EntryCounts]] = WeakKeyDictionary()

    def of(self, stream_list: StreamList) -> EntryCounts:
        """Returns the counts of the list as it was read last. Raises NoSuchStream, MetadataError."""
        info = stream_list.info
        counted = self._counts.get(stream_list)
        if counted is None or counted[0] is not info:
            counted = self._counts[stream_list] = info, EntryCounts(info)
        return counted[1]


class CursorList:
    """The list, for one cursor; ``release`` it."""

    def __init__(self, ledgers: LedgerClient, stream_list: StreamList, counts: SharedCounts, cursor: str) -> None:
        self.stream, self.cursor, self.list = stream_list.stream, cursor, stream_list
        self._ledgers, self._counts = ledgers, counts
        self._listener: Callable[[], None] | None = None

    @property
    def counts(self) -> EntryCounts:
        """Returns the newest counts. Raises NoSuchStream, MetadataError."""
        return self._counts.of(self.list)

    def walk(self, damaged: Damaged) -> EntryWalk:
        """Returns a reading of the stream's entries; ``close`` it."""
        return EntryWalk(self._ledgers, self.list, damaged)

    def update(self, core: CursorCore) -> None:
        """Tell the cursor when the list has changed. Raises as ``counts``."""
        counts = self.counts
        if counts is core.counts:
            return
        mark, following = core.mark, core.after(core.mark)
        is_lost = core.exists(following) and following.ledger not in counts
        core.listed(counts)
        if is_lost:
            self.emit("cursor moved", mark=str(mark), to=str(core.mark))

    async def look(self, core: CursorCore) -> None:
        """Tell the cursor what the stream has as of now. Raises NoSuchStream, Unavailable, MetadataError."""
        await self.list.sync()
        self.update(core)
        for ledger, end in (await self.ends()).items():
            core.learned(ledger, end)

    async def ends(self) -> dict[LedgerId, EntryId]:
        """Returns how many entries the open ledgers have, as of now. Raises as ``look``."""
        ends, walk = {}, self.walk(no_damage)
        try:
            for ledger in self.counts.open_ledgers:
                if (reader := await reader_of(walk, ledger)) is not None:
                    ends[ledger] = reader.last_entry + 1
            return ends
        finally:
            await walk.close()

    async def batch_size(self, position: Position) -> int:
        """Returns how many messages an entry has. Raises NoSuchPosition, CorruptEntry, and as reading does."""
        walk = self.walk(no_damage)
        try:
            if (reader := await reader_of(walk, position.ledger)) is not None:
                async for entry in reader.read(position.entry, position.entry):
                    return open_entry(entry.data, position=position.of_entry).count
            raise NoSuchPosition(stream=self.stream, position=position)
        finally:
            await walk.close()

    def emit(self, kind: str, **fields: object) -> None:
        self._ledgers.context.events.emit(kind, stream=self.stream, cursor=self.cursor, **fields)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this after each change of the list."""
        self._listener = listener
        self.list.listeners[listener] = None

    def release(self) -> None:
        if self._listener is not None:
            self.list.listeners.pop(self._listener, None)
        self.list.release()


async def reader_of(walk: EntryWalk, ledger: LedgerId) -> LedgerReader | None:
    """Returns the reader of a ledger. Returns None if it left the stream just now."""
    try:
        return await walk.reader(ledger)
    except LedgerGone:
        return None


def no_damage(position: Position, error: TallyError) -> None:
    """For a walk that reads nothing of which it could not be."""
    raise error
