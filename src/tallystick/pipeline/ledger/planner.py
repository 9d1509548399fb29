"""What the planner process of a streaming query decides: where a batch begins and ends, and its partitions.

A ledger that is new to the query enters with its first entry, and is read from the batch after that on: so each batch
says where it begins in every ledger, and is the same when it is planned again. One that is closed and read to its end
is left alone from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import NoSuchEntry, NoSuchLedger
from tallystick.pipeline.bookies import addresses_of
from tallystick.pipeline.lag import Lag, mean, most_behind
from tallystick.pipeline.ledger.follow import FollowedLedgers, LedgerEnd, LedgerFollower
from tallystick.pipeline.ledger.offsets import LedgerPositions, from_offset, to_offset
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition, plan
from tallystick.pipeline.ledger.schema import FORMAT
from tallystick.pipeline.ledger.selection import IdSpan
from tallystick.pipeline.ledger.survey import AT_ONCE
from tallystick.pipeline.notes import note
from tallystick.pipeline.planner import QueryPlanner
from tallystick.pipeline.trigger import Backlog, TriggerDelay, TriggerLimits, admit
from tallystick.runtime.tasks import together

GO_ON = "rows may be lost; failOnDataLoss=false goes on with what is left"


def planner(options: LedgerOptions) -> QueryPlanner[LedgerFollower, LedgerPositions, LedgerPartition]:
    return QueryPlanner(FollowedLedgers(options), LedgerDecisions(options), to_offset, from_offset)


class LedgerDecisions:
    """See the module."""

    def __init__(self, options: LedgerOptions) -> None:
        self.options = options
        self._heads: Mapping[LedgerId, LedgerEnd] | None = None  # the ledgers as they were seen last
        self._ends: Mapping[LedgerId, EntryId] = {}  # where the batch ends that was decided last
        self._unread: tuple[Sequence[LedgerId], tuple[IdSpan, ...], Sequence[LedgerId]] | None = None
        self._is_frozen = False
        self._delay = TriggerDelay()

    @property
    def may_begin_later(self) -> bool:
        """Whether ``initial`` returns other positions when there is more."""
        return self.options.start.is_moving

    def reached(self) -> LedgerPositions | None:
        """Returns how far the ledgers that are not read reached when it was last looked; None before that."""
        if self._heads is None:
            return None
        return LedgerPositions({ledger: head.entry for ledger, head in self._heads.items()})

    async def lag(self, follower: LedgerFollower) -> Lag:
        """Returns what the batch that was decided last leaves. An entry does not say when it was written. Raises as
        reading does."""
        heads = self._heads or {}
        counts = {
            ledger: heads[ledger].entry - at
            for ledger, at in self._ends.items()
            if ledger in heads and at < heads[ledger].entry
        }
        if not counts:
            return Lag()
        samples = most_behind(counts)
        questions = (follower.entry_bytes(heads[ledger], self._ends[ledger]) for ledger in samples)
        sizes = dict(zip(samples, await together(questions), strict=True))
        usual = mean(sizes.values())
        size = sum(count * sizes.get(ledger, usual) for ledger, count in counts.items())
        return Lag(sum(counts.values()), size, seconds=None)

    async def freeze(self, follower: LedgerFollower) -> None:
        """From now on nothing that comes is seen (Trigger.AvailableNow)."""
        self._heads = await self._all(follower)
        self._is_frozen = True

    async def initial(self, follower: LedgerFollower) -> LedgerPositions:
        """Returns where a query begins. Raises NoSuchLedger, NoSuchEntry, UsageError, Unauthorized, MetadataError,
        Unavailable and its kinds."""
        bound = self.options.start
        heads = self._heads if self._is_frozen and self._heads is not None else await self._all(follower)
        self._require_named(heads, LedgerPositions({}))
        bound.check(heads)
        entries = {ledger: bound.entry(ledger, head.entry) for ledger, head in heads.items()}
        return self._moved(LedgerPositions({}), entries, heads)

    async def latest(
        self, follower: LedgerFollower, positions: LedgerPositions, limits: TriggerLimits
    ) -> LedgerPositions:
        """Returns where the batch that begins at ``positions`` ends. Raises NoSuchLedger and NoSuchEntry for what is
        lost, unless the options say to go on."""
        # A ledger that the options do not name any more is left out.
        places = {ledger: at for ledger, at in positions.next.items() if ledger in self.options.selection}
        heads = await self._look(follower, positions, places)
        for ledger in sorted(places.keys() - heads.keys()):
            self._lost(NoSuchLedger("a ledger that the query reads is deleted", ledger=ledger))
        starts = {ledger: self._resumed(at, heads[ledger]) for ledger, at in places.items() if ledger in heads}
        new = {ledger: 0 for ledger in heads if ledger not in starts and not positions.has_read(ledger)}
        behind = [ledger for ledger, at in starts.items() if at < heads[ledger].entry]
        count = sum(heads[ledger].entry - starts[ledger] for ledger in behind)
        now = follower.bk.context.clock.now()
        if not (new or self._is_frozen) and self._delay.waits(limits, count, now):
            self._ends = starts
            return positions
        self._delay.batch_began(now)
        sizes = [1] * len(behind)
        if limits.bytes is not None:
            questions = (follower.entry_bytes(heads[ledger], starts[ledger]) for ledger in behind)
            sizes = await together(questions, AT_ONCE)
        backlogs = [
            Backlog(starts[ledger], heads[ledger].entry, size) for ledger, size in zip(behind, sizes, strict=True)
        ]
        ends = dict(zip(behind, admit(backlogs, limits), strict=True))
        self._ends = {**starts, **ends, **new}
        return self._moved(positions, self._ends, heads)

    async def commit(self, follower: LedgerFollower, positions: LedgerPositions) -> None:
        """Nobody is told how far a query of ledgers is."""

    async def partitions(
        self, follower: LedgerFollower, starts: LedgerPositions, ends: LedgerPositions
    ) -> list[LedgerPartition]:
        """Returns the partitions of a batch, which hang on its two ends alone. Raises as ``latest``."""
        ranges: dict[LedgerId, tuple[EntryId, EntryId | None]] = {}
        for ledger, first in starts.next.items():  # one that is new is not read yet
            if ends.has_read(ledger):
                ranges[ledger] = (first, None)
            elif first < ends.next.get(ledger, first):
                ranges[ledger] = (first, ends.next[ledger])
        extents = await follower.extents(dict(sorted(ranges.items())))
        for ledger in sorted(ranges.keys() - {extent.ledger for extent in extents}):
            self._lost(NoSuchLedger("a ledger that the query reads is deleted", ledger=ledger))
        return plan(
            extents,
            IdSpan(),
            addresses_of(await follower.bk.bookies()) if extents else {},
            self.options.limits,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )

    async def _look(
        self, follower: LedgerFollower, positions: LedgerPositions, places: Mapping[LedgerId, EntryId]
    ) -> Mapping[LedgerId, LedgerEnd]:
        if self._heads is None or not self._is_frozen:
            there = self._unread_of(await follower.ledgers(), positions)
            self._heads = await follower.ends(sorted({*there, *places}), is_patient=True)
        if self.options.fail_on_data_loss:
            self._require_named(self._heads, positions)
        return self._heads

    def _unread_of(self, ledgers: Sequence[LedgerId], positions: LedgerPositions) -> Sequence[LedgerId]:
        """Returns the ledgers that are not read to their end. They are looked for once a listing."""
        if self._unread is None or self._unread[0] is not ledgers or self._unread[1] != positions.read:
            unread = [ledger for ledger in ledgers if not positions.has_read(ledger)]
            self._unread = (ledgers, positions.read, unread)
        return self._unread[2]

    async def _all(self, follower: LedgerFollower) -> Mapping[LedgerId, LedgerEnd]:
        return await follower.ends(await follower.ledgers(), is_patient=False)

    def _require_named(self, heads: Mapping[LedgerId, LedgerEnd], positions: LedgerPositions) -> None:
        """Raises NoSuchLedger for one that the options name, and that neither is there nor was read."""
        for ledger in self.options.selection.named_ledgers:
            if ledger not in heads and ledger not in positions.next and not positions.has_read(ledger):
                raise NoSuchLedger("there is no such ledger", ledger=ledger)

    def _moved(
        self, positions: LedgerPositions, entries: Mapping[LedgerId, EntryId], heads: Mapping[LedgerId, LedgerEnd]
    ) -> LedgerPositions:
        """Returns the positions where these entries are next: none of a ledger that is closed and read to its end."""
        finished = {ledger for ledger, at in entries.items() if heads[ledger].is_closed and at >= heads[ledger].entry}
        return positions.moved({ledger: at for ledger, at in entries.items() if ledger not in finished}, finished)

    def _resumed(self, position: EntryId, head: LedgerEnd) -> EntryId:
        """Returns where reading goes on in a ledger. Of an open one others may have been told more of what is
        confirmed."""
        if position <= head.entry or not head.is_closed:
            return position
        ledger = head.extent.ledger
        reason = "the ledger does not reach to this entry"
        self._lost(NoSuchEntry(reason, ledger=ledger, entry=position, end=head.entry))
        return head.entry

    def _lost(self, error: NoSuchLedger | NoSuchEntry) -> None:
        if self.options.fail_on_data_loss:
            raise type(error)(f"{error.message}: {GO_ON}", **error.fields)
        note(FORMAT, f"{error}; the query goes on with what is left")
