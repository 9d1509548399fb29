"""The list of a stream as its owner keeps it: every change is a compare-and-set, and a lost response is looked for.

A change is a function of the list, so that it can be decided again on what turned out to be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.stream.catalog import ChangeOvertaken, StreamCatalog
from tallystick.bookkeeper.stream.list_front import with_gone
from tallystick.bookkeeper.wire.ledger_runs import changed, joined
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import MetadataUncertain, NoSuchStream, StreamFenced


@dataclass(frozen=True)
class ListChange:
    """A list to store. ``noted`` are ledgers that it has no more, ``settled`` those that it has from now on."""

    info: StreamInfo
    noted: tuple[LedgerId, ...] = ()
    settled: tuple[LedgerId, ...] = ()


Edit = Callable[[StreamInfo], ListChange]


class OwnedList:
    """What is stored of a stream, as its owner wrote or read it last. One change at a time."""

    __slots__ = ("_catalog", "_creation", "_doubtful", "_name", "_stream", "info", "version")

    def __init__(self, catalog: StreamCatalog, stream: str, versioned: Versioned[StreamInfo]) -> None:
        self._catalog, self._stream = catalog, stream
        self.info, self.version, self._creation = versioned.value, versioned.version, versioned.creation
        self._name = catalog.change_name()
        self._doubtful: StreamInfo | None = None  # a write whose response was lost

    async def begin(self) -> str:
        """Begin a change that depends on more than the list: read that after this. Raises MetadataError."""
        return await self._catalog.begin(self._stream, self._name)

    async def change(self, edit: Edit, begun: str | None = None) -> ListChange:
        """Store what ``edit`` makes of the list, nothing if that is the same. Returns what it made.

        ``begun``: what it makes depends on what was read since ``begin`` returned this; raises ChangeOvertaken if that
        may be another by now. Raises StreamFenced when another owner wrote the list. After any other MetadataError call
        it again: a write that was made all the same is found then.
        """
        while True:
            try:
                return await self._change_now(edit, begun)
            except ChangeOvertaken:
                if begun is not None:
                    raise

    async def _change_now(self, edit: Edit, begun: str | None) -> ListChange:
        while True:
            if self._doubtful is not None:
                await self._read_back(self._doubtful)
            change = edit(self.info)
            if change.info == self.info:
                return change
            if begun is None and not change.settled:  # else a note says whether there is another stream by now
                begun = await self.begin()
            await self._require_same()
            try:
                self.version = await self._catalog.write(
                    self._stream,
                    change.info,
                    self.version,
                    noted=change.noted,
                    settled=change.settled,
                    begun=begun,
                )
            except MetadataUncertain:
                self._doubtful = change.info
            else:
                self.info = change.info
                return change

    async def _require_same(self) -> None:
        """Raises StreamFenced if this stream was deleted. Another one of its name may have the same version.

        A ledger to be listed is noted before, and any other change begun: who makes the stream anew after this condemns
        the note, and overtakes the change.
        """
        if await self._catalog.creation(self._stream) != self._creation:
            raise self._deleted()

    def _deleted(self) -> StreamFenced:
        return StreamFenced("this stream was deleted", stream=self._stream)

    async def is_unchanged(self) -> bool:
        """Whether no other owner wrote the list, as of now. Raises MetadataError when nobody can tell."""
        try:
            if self._doubtful is not None:
                await self._read_back(self._doubtful)
            stored = await self._catalog.read(self._stream, synced=True, known=self.info.ledgers)
            return (stored.version, stored.creation) == (self.version, self._creation)
        except (StreamFenced, NoSuchStream):
            return False

    async def _read_back(self, doubtful: StreamInfo) -> None:
        """See whether the list is what was written last, or what it was before. Raises StreamFenced."""
        try:
            stored = await self._catalog.read(self._stream, synced=True, known=doubtful.ledgers)
        except NoSuchStream:
            raise self._deleted() from None
        if stored.creation != self._creation:
            raise self._deleted()
        if stored.version == self.version + 1 and stored.value == doubtful:
            self.info, self.version = doubtful, stored.version
        elif stored.version != self.version:
            raise StreamFenced("another owner changed the list of this stream", stream=self._stream)
        self._doubtful = None


def rolled(ended: StreamLedger, ledger: LedgerId) -> Edit:
    """The newest ledger is closed as ``ended`` says, and stays in the list if it has entries; ``ledger`` is the newest
    from now on."""

    def edit(info: StreamInfo) -> ListChange:
        newest = info.ledgers[-1]
        if newest.ledger == ledger:
            return ListChange(info)  # the response was lost
        assert newest.ledger == ended.ledger, "only its owner changes the end of the list"
        end = closed(newest, ended)
        kept = changed(info.ledgers, {end.ledger: end if end.entries else None})
        after = replace(info, ledgers=joined(kept, [StreamLedger(ledger, has_counts=False)]))
        return ListChange(with_gone(info, after, (end,)), () if ended.entries else (ended.ledger,), (ledger,))

    return edit


def closed(listed: StreamLedger, ended: StreamLedger) -> StreamLedger:
    """Returns the end of a ledger with what else the list has of it."""
    counts = ended.entries, ended.size, ended.timestamp_ms
    return listed._replace(entries=counts[0], size=counts[1], timestamp_ms=counts[2], has_counts=True)


def terminated(last: Position) -> Edit:
    """The stream takes no more entries."""
    return lambda info: ListChange(info if info.terminated else replace(info, terminated=last))
