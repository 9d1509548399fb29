"""The shell of ``LookCore``: it holds requests, reads the metadata of many ledgers at once, and lets them go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from typing import Protocol

from tallystick.bookkeeper.bookie.look import BATCH_LEDGERS, NOT_WRITTEN, Judgement, LookCore, Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.state import LedgerIdentity
from tallystick.bookkeeper.bookie.turns import TURN_S
from tallystick.bookkeeper.metadata.driver import Records
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.codec.steps import Steps
from tallystick.errors import DiskFull, MetadataError, MetadataUnavailable
from tallystick.runtime.events import Events
from tallystick.runtime.running_timeout import running_timeout
from tallystick.runtime.tasks import watch
from tallystick.runtime.turn_steps import in_turns

HELD_LEDGERS = 8 * BATCH_LEDGERS  # more that wait are no room for those that need not
ANSWER_S = 1.0  # a look that takes longer, while the loop runs, counts as unreadable: writers wait for their adds
PAUSE_S = 10.0  # after such a look
ANSWERING_S = 0.25  # of what waited for one look, until another host has its turn
REPORT_S = 60.0  # between two reports that adds are refused: anybody can send such
MOST_REPORTED = 100  # ledgers of which all requests are refused, in that time: one that is asked for is looked at again


class LookMetadata(Protocol):
    async def look(self, ledgers: Sequence[LedgerId]) -> Records: ...

    async def bookie_creation(self, bookie: BookieId) -> Creation | None: ...

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]: ...


class StoredLedgers(Protocol):
    """The part of ``LedgerIdentities`` that looks need."""

    def identity(self, ledger: LedgerId) -> LedgerIdentity | None: ...

    def given_up(self, ledger: LedgerId) -> Collection[Creation]: ...

    def looked(self, ledger: LedgerId, creation: Creation, *, written: bool) -> None: ...

    def missed_looks(self) -> None: ...

    def look_again(self) -> None: ...

    def anchored(self, anchor: Creation) -> Steps[bool]: ...


GoOn = Callable[[Verdict], None]
Renew = Callable[[Mapping[LedgerId, LedgerIdentity]], Awaitable[None]]


class Looks:
    """Hold requests until their ledger was looked at. ``active`` is False for a while after a look that failed."""

    def __init__(
        self,
        metadata: LookMetadata,
        *,
        bookie: BookieId,
        instance: str,
        ledgers: StoredLedgers,
        renew: Renew,
        reserve: Callable[[int], None],
        flush: Callable[[], None],
        counts: Counts,
        events: Events,
        failed: Callable[[Exception], None],
    ) -> None:
        """``renew`` durably forgets ledgers that have these identities; ``reserve`` hears of the bytes that are held
        here, negative when they leave; ``flush`` makes durable what ``ledgers`` noted; ``failed`` hears of an error
        that leaves requests without a response."""
        self._metadata, self._bookie, self._ledgers, self._renew = metadata, bookie, ledgers, renew
        self._core, self._instance = LookCore(instance, ledgers.identity, ledgers.given_up), instance
        self._reserve, self._flush, self._counts, self._events = reserve, flush, counts, events
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._requests: dict[LedgerId, deque[tuple[GoOn, int, bool]]] = {}
        self._unreported_ledgers = 0  # whose adds were refused since the last report
        self._report_at = 0.0
        self._amiss = set[LedgerId]()  # those that were reported, since:
        self._amiss_since = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self.active = True

    def has_room(self, more: int) -> bool:
        """Return whether a request that can do without a look may wait for one, behind so many ``more``."""
        return self.active and len(self._requests) + more < HELD_LEDGERS

    def hold(
        self, ledger: LedgerId, size: int, go_on: GoOn, *, adds: bool = True, who: Hashable = None, host: str = ""
    ) -> None:
        """Call ``go_on`` on the loop, in the order of ``hold``, when the ledger was looked at or nothing can be read.

        ``adds`` says that not only reads wait. ``who`` waits, of a ``host``: all of them have their turns.
        """
        self._requests.setdefault(ledger, deque()).append((go_on, size, adds))
        self._reserve(size)
        self.look_at(ledger, who, host)

    def look_at(self, ledger: LedgerId, who: Hashable = None, host: str = "") -> None:
        """Look at the ledger's metadata, though no request waits for that."""
        self._core.requested(ledger, who, host)
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())
            watch([self._looking], self._failed)

    async def _look(self) -> None:
        try:
            await asyncio.sleep(0)  # what came in this turn of the loop shares the look
            while batch := self._core.next_batch():
                await self._decide(await self._renewed(await self._certain(await self._read(batch))))
        finally:
            self._looking = None

    async def _read(self, batch: tuple[LedgerId, ...]) -> dict[LedgerId, Judgement]:
        self._counts.looks += len(batch)
        try:
            async with running_timeout(ANSWER_S):
                records = await self._metadata.look(batch)
                if self._instance != records.start.instance or self._instance != records.end.instance:
                    raise MetadataError("the metadata is of another cluster", instance=records.end.instance)
                return self._core.read(records.start, records.end, records.by_ledger)
        except (MetadataError, TimeoutError) as error:
            is_away = isinstance(error, MetadataUnavailable | TimeoutError)
            self._pause(str(error) or "the metadata did not answer in time", is_away=is_away)
            return self._core.unreadable()

    def _pause(self, reason: str, *, is_away: bool) -> None:
        """Look no more for a while. Without ``is_away`` the metadata is not what it was: it may give ids out again."""
        if self.active and not is_away:
            self._ledgers.look_again()
        if self.active:
            self._events.emit("ledgers not looked at", seconds=PAUSE_S, reason=reason)
            self.active = False
            self._ledgers.missed_looks()
            self._resume = self._loop.call_later(PAUSE_S, self._look_again)

    def _look_again(self) -> None:
        self._ledgers.missed_looks()
        self.active = True

    async def _certain(self, judgements: dict[LedgerId, Judgement]) -> dict[LedgerId, Judgement]:
        """Check the judgements by which another ledger has an id: two creations can be compared only if they are of the
        same metadata.

        If the metadata was copied meanwhile, these ledgers are looked at again. They become AMISS if nobody can say
        whether it was, and if it was restored from an older copy: that gave the id out twice, and what is stored here
        is the first ledger's. Of a ledger that an operator gave up nothing is stored, so it is not checked.
        """
        others = [
            ledger for ledger, judgement in judgements.items() if judgement.renew or judgement.verdict is Verdict.AMISS
        ]
        if not others:
            return judgements
        try:
            async with running_timeout(ANSWER_S):
                anchor = await self._metadata.bookie_creation(self._bookie)
                identities = {ledger: self._ledgers.identity(ledger) for ledger in others}
                creations = {
                    ledger: identity.creation
                    for ledger, identity in identities.items()
                    if identity and not identity.was_given_up
                }
                never_made = await self._metadata.never_made(list(creations.values()))
        except (MetadataError, TimeoutError):
            anchor = None
        if anchor is None:
            return judgements | dict.fromkeys(others, Judgement(Verdict.AMISS))
        if await in_turns(self._ledgers.anchored(anchor)):
            amiss = [ledger for ledger in others if creations.get(ledger) in never_made]
            return judgements | dict.fromkeys(amiss, Judgement(Verdict.AMISS))
        self._events.emit("metadata was copied", reason="what is known of ledgers' creations is forgotten")
        for ledger in others:
            self._core.requested(ledger)
        return {ledger: judgement for ledger, judgement in judgements.items() if ledger not in others}

    async def _renewed(self, judgements: dict[LedgerId, Judgement]) -> dict[LedgerId, Judgement]:
        """Forget the ledgers whose ids others have now; they become AMISS if the disk is full. Ids for which something
        came meanwhile, a fence perhaps, are looked at again."""
        renew = {ledger: judgement.renew for ledger, judgement in judgements.items() if judgement.renew}
        if not renew:
            return judgements
        try:
            await self._renew(renew)
        except DiskFull as error:
            self._events.emit("ledgers not replaced", ledgers=list(renew), reason=str(error))
            return judgements | dict.fromkeys(renew, Judgement(Verdict.AMISS))
        used = [ledger for ledger in renew if self._ledgers.identity(ledger) is not None]
        for ledger in used:
            self._core.requested(ledger)
        return {ledger: judgement for ledger, judgement in judgements.items() if ledger not in used}

    async def _decide(self, judgements: dict[LedgerId, Judgement]) -> None:
        began = self._loop.time()
        ends, rest, count = began + TURN_S, list(judgements), 0
        for count, (ledger, judgement) in enumerate(judgements.items(), 1):
            verdict = judgement.verdict
            self._count(ledger, verdict, any(adds for *_, adds in self._requests.get(ledger, ())))
            ends = await self._go_on(ledger, verdict, ends, began + ANSWERING_S if count == len(rest) else ends)
            if verdict is not Verdict.AMISS and self.active:  # else it is looked at when that can be done again
                self._ledgers.looked(ledger, judgement.creation, written=verdict not in NOT_WRITTEN)
            if (now := self._loop.time()) >= ends:
                # While nobody can look, to look again would take the longer.
                if self.active and now >= began + ANSWERING_S and self._core.another_waits(rest[count:]):
                    break
                await asyncio.sleep(0)
                ends = self._loop.time() + TURN_S
        self._core.answered(count, rest[count:])
        self._flush()

    async def _go_on(self, ledger: LedgerId, verdict: Verdict, ends: float, share_ends: float) -> float:
        """Let what now waits for a ledger go on, over several turns until ``share_ends``. Returns when the turn ends.

        What is left, and what comes meanwhile, is looked at again: a peer that sends without end would keep all other
        ledgers waiting, and who makes the ledger meanwhile would be refused by a verdict of before.
        """
        requests = self._requests.get(ledger, deque())
        for left in range(len(requests) - 1, -1, -1):
            go_on, size, _ = requests.popleft()
            self._reserve(-size)
            go_on(verdict)
            if left and (now := self._loop.time()) >= ends:
                if self.active and now >= share_ends:
                    self._core.put_off(ledger)
                    break
                await asyncio.sleep(0)
                ends = self._loop.time() + TURN_S
        if not requests:
            self._requests.pop(ledger, None)
        return ends

    def _count(self, ledger: LedgerId, verdict: Verdict, adds: bool) -> None:
        if verdict in NOT_WRITTEN and adds:
            self._counts.looks_refused += 1
            self._report_refusal(ledger)
        elif verdict is Verdict.UNKNOWN:
            self._counts.looks_failed += 1
        elif verdict is Verdict.AMISS:
            self._counts.looks_amiss += 1
            self._report_amiss(ledger)

    def _report_amiss(self, ledger: LedgerId) -> None:
        if (now := self._loop.time()) >= self._amiss_since + REPORT_S:
            self._amiss, self._amiss_since = set(), now
        if ledger in self._amiss or len(self._amiss) >= MOST_REPORTED:
            return
        self._amiss.add(ledger)
        reason = (
            "what is stored here is newer than the ledger of this id in the metadata, or cannot be deleted; "
            "or that ledger is in the metadata again, and its entries were deleted here"
        )
        self._events.emit("requests refused", ledger=ledger, reason=reason)

    def _report_refusal(self, ledger: LedgerId) -> None:
        self._unreported_ledgers += 1
        if (now := self._loop.time()) >= self._report_at:
            reason = "by its metadata nobody writes it"
            self._events.emit("adds refused", ledger=ledger, ledgers=self._unreported_ledgers, reason=reason)
            self._unreported_ledgers, self._report_at = 0, now + REPORT_S

    async def close(self) -> None:
        """Look no more. Requests that are held get no response."""
        if self._resume is not None:
            self._resume.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
