"""The ledgers of a streaming query, as its planner process follows them for as long as the query runs.

Of each open one a reader is kept, which asks the bookies anew how far that is confirmed, and hears of its close; a
closed one is known from its metadata. So a look at an open ledger costs one round of requests, and ``Rounds`` says at
which of many a trigger looks. Nothing is fenced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import DigestMismatch, EntryLost, NoSuchEntry, NoSuchLedger, Unavailable
from tallystick.pipeline.bookies import connect_here
from tallystick.pipeline.entry_sizes import planned_size, size_of
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerExtent
from tallystick.pipeline.ledger.schema import FORMAT
from tallystick.pipeline.ledger.survey import AT_ONCE, TOGETHER, matching_ledgers, state_of
from tallystick.pipeline.listing import Listing
from tallystick.pipeline.notes import note
from tallystick.pipeline.rounds import Rounds
from tallystick.runtime.tasks import together

PATIENCE_S = 60.0  # a query goes on so long although too few bookies say how far a ledger is confirmed


class LedgerEnd(NamedTuple):
    """How far a ledger can be read. ``extent`` has its payload bytes where it is closed."""

    extent: LedgerExtent
    is_closed: bool

    @property
    def entry(self) -> EntryId:
        """The entry behind the last one that can be read."""
        return self.extent.last + 1


@dataclass
class _Open:
    """``seen_at``: the last time when its end was known."""

    seen_at: float
    reader: LedgerReader | None = None


@dataclass(frozen=True)
class FollowedLedgers:
    """What a planner process connects to."""

    options: LedgerOptions

    async def connect(self) -> LedgerFollower:
        bk = await connect_here(self.options.uri)
        await bk.context.driver.instance_id()  # no cluster at all is an error, not an empty one
        return LedgerFollower(bk, self.options)


class LedgerFollower:
    """Used on one running loop; ``close`` it."""

    def __init__(self, bk: BookKeeper, options: LedgerOptions) -> None:
        self.bk, self.options = bk, options
        driver, clock = bk.context.driver, bk.context.clock
        self._listing = Listing(lambda: matching_ledgers(driver, options.selection), clock, FORMAT)
        self._open: dict[LedgerId, _Open] = {}
        self._ends: dict[LedgerId, LedgerEnd] = {}
        self._rounds: Rounds[LedgerId] = Rounds()

    async def ledgers(self) -> Sequence[LedgerId]:
        """Returns the ledgers that the query reads, as they were not long ago; single ones may not be there."""
        return await self._listing.names()

    async def ends(self, ledgers: Collection[LedgerId], *, is_patient: bool) -> dict[LedgerId, LedgerEnd]:
        """Returns how far each ledger can be read; those that are not there (any more) are left out, and other ledgers
        are followed no more. Raises Unauthorized, MetadataError, Unavailable and its kinds; ``is_patient``: the latter
        only when the end of a ledger was not known for a while, and of many open ones the quiet ones are as they were
        seen last."""
        ids = set(ledgers)
        for ledger in [ledger for ledger in self._open if ledger not in ids]:
            await self._leave(ledger)
        self._ends = {ledger: end for ledger, end in self._ends.items() if ledger in ids}
        unknown = [ledger for ledger in ledgers if ledger not in self._ends]
        now = self.bk.context.clock.now()
        for ledger, node in (await self._nodes(unknown)).items():
            state = state_of(self.options, ledger, node)
            if isinstance(state, LedgerExtent):
                self._ends[ledger] = LedgerEnd(state, is_closed=True)
            else:  # the bookies are asked how far it is confirmed; until they respond it is there, and empty
                self._open[ledger] = _Open(now)
                self._ends[ledger] = LedgerEnd(LedgerExtent(ledger, state.value, NO_ENTRY, 0), is_closed=False)
        due = self._rounds.due(now) if is_patient else ids
        due_ledgers = [each for each in self._open.items() if each[0] in due or each[1].reader is None]
        await together((self._refresh(*each, is_patient=is_patient) for each in due_ledgers), AT_ONCE)
        return {ledger: self._ends[ledger] for ledger in sorted(ids) if ledger in self._ends}

    async def entry_bytes(self, end: LedgerEnd, first: EntryId) -> int:
        """Returns about how many payload bytes an entry from ``first`` to an end has, at least 1."""
        extent = end.extent
        if end.is_closed:
            return max(-(-extent.length // max(end.entry, 1)), 1)
        with contextlib.suppress(NoSuchEntry, EntryLost, DigestMismatch):  # which whoever reads them will hear of
            size = await size_of(self.bk.context.bookies, extent.ledger, extent.metadata, first, extent.last)
            return max(-(-size // (end.entry - first)), 1)
        return 1

    async def extents(self, ranges: Mapping[LedgerId, tuple[EntryId, EntryId | None]]) -> list[LedgerExtent]:
        """Returns the entries from the first to before the second of some ledgers, as they are stored now; None is the
        end of a closed one. Those that are not there any more are left out. Raises as reading does."""
        extents = []
        for ledger, node in (await self._nodes(list(ranges))).items():
            state, (first, end) = state_of(self.options, ledger, node), ranges[ledger]
            if isinstance(state, LedgerExtent):
                end = state.last + 1 if end is None else end
                if (first, end) == (0, state.last + 1):
                    extents.append(state)
                    continue
                metadata = state.metadata
            elif end is not None:
                metadata = state.value
            else:
                raise Unavailable("the metadata do not say yet that this ledger is closed: try again", ledger=ledger)
            size = await self._size(ledger, metadata, first, end - 1) if first < end else 0
            extents.append(LedgerExtent(ledger, metadata, end - 1, size, first))
        return extents

    async def _size(self, ledger: LedgerId, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> int:
        bookies, is_strict = self.bk.context.bookies, self.options.fail_on_data_loss
        return await planned_size(bookies, ledger, metadata, first, last, fail_on_data_loss=is_strict)

    async def close(self) -> None:
        for ledger in tuple(self._open):
            await self._leave(ledger)
        await self.bk.close()

    async def _nodes(self, ledgers: Sequence[LedgerId]) -> dict[LedgerId, Znode]:
        nodes: dict[LedgerId, Znode] = {}
        for at in range(0, len(ledgers), TOGETHER):
            nodes.update(await self.bk.context.driver.read_ledgers(ledgers[at : at + TOGETHER]))
        return nodes

    async def _refresh(self, ledger: LedgerId, followed: _Open, *, is_patient: bool) -> None:
        """Have the end of a ledger as it is now; none of one that is deleted."""
        context, is_new = self.bk.context, followed.reader is None
        try:
            if followed.reader is None:
                password = self.options.password_of(ledger)
                followed.reader = await LedgerReader.open(context, ledger, password=password)
            else:
                await followed.reader.refresh()
        except NoSuchLedger:
            await self._leave(ledger)
            return
        except Unavailable as error:
            if not is_patient or context.clock.now() > followed.seen_at + PATIENCE_S:
                raise
            note(FORMAT, f"the end of a ledger is not known now: ledger={ledger} {error}")
            return
        followed.seen_at = context.clock.now()
        reader = followed.reader
        extent = LedgerExtent(ledger, reader.metadata, reader.last_entry, reader.length)
        end, before = LedgerEnd(extent, reader.is_closed), self._ends[ledger]
        self._rounds.looked(ledger, followed.seen_at, has_news=not is_new and end.entry != before.entry)
        if reader.is_closed:
            await self._leave(ledger)
        self._ends[ledger] = end

    async def _leave(self, ledger: LedgerId) -> None:
        self._ends.pop(ledger, None)
        self._rounds.forget(ledger)
        if (reader := self._open.pop(ledger).reader) is not None:
            await reader.close()
