"""Which stored ledgers may be deleted because the metadata has them no longer. The core decides from records of it.

::

    begin ─► List ─► Look … ─► Wait ─► List ─► Look … ─► Finish
             └─ first proof ─┘  gap    └ second proof ┘

One wrong deletion loses acknowledged entries, so a listing alone proves nothing: a follower of ZooKeeper may lag, and a
tree may be empty, or another cluster's, for a while. A ledger is deleted when a synced listing lacked it and a synced
read of its own record found none, both twice, ``gap_s`` apart (a deposed leader of ZooKeeper does not last as long),
and all of it under the instance id of the bookie's own cookie. A broken connection begins the run again: the reads
after it were perhaps made at a server that lags. A ledger that was not stored when the run began is left alone.

Ledgers whose creation (``ledgers.py``) is later than all that the metadata has or had, or that it never made, show that
it was restored from an older copy. They are *ahead*, across restarts, and also when their id is given to another
ledger: they are not deleted, however long they lack, until an operator says so or they are in the metadata again.

A run that would delete much at once (``large_count`` ledgers *and* ``large_share`` of all) waits: the same ledgers must
lack for ``patience_s``, or an operator says so. Ledgers without an entry, and those that were in no metadata when they
were first added to, count on neither side and do not wait: anybody can invent them, and they say nothing of the
metadata. Ledgers that came while nobody looked at the metadata may be invented, or honest: they wait, but ledgers that
the metadata had wait only if these are too many by themselves. A ledger that is given up is remembered as deleted, so
adds to it are refused as before. Time counts from one proof to the next by the clock of the process, and what has
passed is kept across restarts (``waiting_deletions.py``): a wall clock that jumps ends no wait, and a bookie that is
restarted every day does not wait for ever. (The original's ScanAndCompareGarbageCollector believes one listing.)

A run can be a *survey*: it ends behind the first proof, deletes nothing, and says which ledgers lack.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS, ascending
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions, place_of
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.steps import Steps

LOOK_LEDGERS = 512  # whose records one Look asks for
MAX_RESTARTS = 3


@dataclass(frozen=True)
class GarbageRules:
    """When deletions are proven, and when they are too many to be believed at once."""

    gap_s: float = 60.0  # between the two proofs
    large_share: float = 0.25  # of the stored ledgers
    large_count: int = 100
    patience_s: float = 24 * 3600.0  # how long the ledgers of a large deletion must lack

    @classmethod
    def of(cls, settings: BookieSettings, wait_s: float) -> GarbageRules:
        """Return the rules of a bookie for runs that are so far apart."""
        return cls(min(cls.gap_s, wait_s), settings.gc_large_share, patience_s=settings.gc_large_wait_s)


@dataclass(frozen=True)
class List:
    """Sync, list all ledgers, sync again: ``listed`` for each page, then ``listing_ended``."""


@dataclass(frozen=True)
class Look:
    """Sync, read these records, sync again: ``looked``."""

    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True)
class Wait:
    """Let so many seconds pass, then ``waited``."""

    seconds: float


@dataclass(frozen=True)
class Finish:
    """The run is over: these are to be deleted. ``waiting`` more have no metadata and are too many at once; ``ahead``
    ledgers are newer than the metadata. ``lacking``, of a survey: those that the metadata lacks, ascending."""

    delete: tuple[LedgerId, ...] = ()
    waiting: int = 0
    waits_s: float = 0.0  # until the first of them are deleted, if they still lack
    refused: str | None = None  # why nothing could be proven
    ahead: int = 0
    lacking: Sequence[LedgerId] | None = None


Action = List | Look | Wait | Finish


class GarbageCore:
    """Decide one run after another: ``begin``, then what the actions say, up to Finish.

    There may be very many ledgers, so most methods work in steps. Nothing else may be called until they are done; what
    ``is_missed`` and ``was_made`` say may change meanwhile.
    """

    def __init__(
        self,
        rules: GarbageRules,
        instance: str,
        is_missed: Callable[[LedgerId], bool],
        was_made: Callable[[LedgerId], bool],
        waiting: WaitingDeletions | None = None,
    ) -> None:
        """``instance`` is that of the bookie's cookie. ``is_missed`` says that entries of a ledger are stored and that
        somebody may have made it, ``was_made`` that its metadata was read once; ``waiting`` is an earlier process's."""
        self._rules, self._instance, self._is_missed, self._was_made = rules, instance, is_missed, was_made
        is_of_cluster = waiting is not None and waiting.instance == instance
        self.waiting = waiting if waiting is not None and is_of_cluster else WaitingDeletions(instance)
        self._proven_at: float | None = None  # when a run of this process last ended with a proof
        self._stored: array[int] = array("q")  # ascending; when the run began
        self._restarts, self._override, self._is_survey = 0, False, False

    def begin(self, stored: Sequence[LedgerId], *, override: bool = False, survey: bool = False) -> Steps[list[Action]]:
        """Begin a run over the ledgers that are stored now; ``override`` deletes however many have no metadata, a
        ``survey`` nothing."""
        self._stored = yield from ascending(stored)
        self._restarts, self._override, self._is_survey = 0, override, survey
        return self._start()

    def compare(
        self, moment: Moment, creations: Iterable[tuple[LedgerId, Creation]], never_made: Container[Creation] = ()
    ) -> Steps[list[LedgerId]]:
        """Find the stored ledgers that are seen to be ahead only now; ``never_made`` are the creations that the
        metadata did not make, though it has made later ones since."""
        newly_ahead = list[LedgerId]()
        if moment.instance != self._instance:
            return newly_ahead
        newest, ahead = moment.newest, self.waiting.ahead
        for count, (ledger, creation) in enumerate(creations, 1):
            if (creation > newest or creation in never_made) and ledger not in ahead:
                ahead[ledger] = creation
                newly_ahead.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        return newly_ahead

    def _start(self) -> list[Action]:
        self._first_proof_at: float | None = None
        return self._list(self._stored)

    def _list(self, candidates: array[int]) -> list[Action]:
        self._candidates, self._missing, self._position = candidates, array("q"), 0
        self._reused_ids = array("q")  # ids of ledgers that are ahead, and that other ledgers have; ascending
        return [List()]

    def listed(self, page: Sequence[LedgerId]) -> Steps[None]:
        """Take a page of the listing; ids ascend, within a page and from page to page."""
        if not page:
            return
        end, present = bisect_right(self._candidates, page[-1], self._position), set(page)
        while self._position < end:  # there may be many more candidates than ids in the page
            part = self._candidates[self._position : min(end, self._position + STEP_LEDGERS)]
            self._missing.extend(ledger for ledger in part if ledger not in present)
            self._position += len(part)
            if self._position < end:
                yield

    def listing_ended(self, began: Moment, ended: Moment, now: float) -> Steps[list[Action]]:
        """The listing is complete; it was read between these moments."""
        if refused := self._doubt(began, ended):
            return refused
        self._missing.extend(self._candidates[self._position :])
        self._candidates = (yield from self._with_ahead(self._missing)) if self.waiting.ahead else self._missing
        self._missing, self._position = array("q"), 0
        return (yield from self._look(now))

    def _with_ahead(self, missing: array[int]) -> Steps[array[int]]:
        """Return the stored ledgers that are ahead or ``missing``."""
        candidates, position, ahead = array("q"), 0, self.waiting.ahead
        for count, ledger in enumerate(self._stored, 1):
            is_missing = position < len(missing) and missing[position] == ledger
            position += is_missing
            if is_missing or ledger in ahead:
                candidates.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        return candidates

    def _look(self, now: float) -> Steps[list[Action]]:
        batch = tuple(self._candidates[self._position : self._position + LOOK_LEDGERS])
        if batch:
            return [Look(batch)]
        if self._is_survey:
            return [Finish(lacking=self._missing)]
        if self._missing and self._first_proof_at is None:
            self._first_proof_at = now
            return [Wait(self._rules.gap_s)]
        return [(yield from self._finish(now))]

    def looked(
        self, began: Moment, ended: Moment, records: Mapping[LedgerId, Record | None], now: float
    ) -> Steps[list[Action]]:
        """The records of the last Look were read between these moments. One that could not be read exists."""
        if refused := self._doubt(began, ended):
            return refused
        batch = self._candidates[self._position : self._position + LOOK_LEDGERS]
        self._missing.extend(ledger for ledger in batch if ledger in records and records[ledger] is None)
        for ledger in batch:
            if ledger in self.waiting.ahead and (record := records.get(ledger)) is not None:
                self._compare_ahead(ledger, record)
        self._position += len(batch)
        return (yield from self._look(now))

    def _compare_ahead(self, ledger: LedgerId, record: Record) -> None:
        """Compare a ledger that is ahead with the record that its id has in the metadata."""
        if record.creation == self.waiting.ahead[ledger]:
            del self.waiting.ahead[ledger]  # the right metadata is back
        else:
            self._reused_ids.append(ledger)

    def waited(self, now: float) -> list[Action]:
        assert self._first_proof_at is not None, "nothing was to wait for"
        rest_s = self._first_proof_at + self._rules.gap_s - now
        return [Wait(rest_s)] if rest_s > 0 else self._list(self._missing)

    def _doubt(self, began: Moment, ended: Moment) -> list[Action]:
        for moment in (began, ended):
            if moment.instance != self._instance:
                return [Finish(refused=f"the metadata is of another cluster: {moment.instance}, not {self._instance}")]
        if began == ended:
            return []
        self._restarts += 1
        if self._restarts > MAX_RESTARTS:
            return [Finish(refused="the connection to the metadata broke again and again")]
        return self._start()

    def _finish(self, now: float) -> Steps[Finish]:
        yield from self._forget_ahead()
        missing, ahead = (yield from self._deletable()), self.waiting.ahead
        elapsed_s = 0.0 if self._proven_at is None else now - self._proven_at
        self._proven_at = now
        excess = array("q") if self._override else (yield from self._excess(missing))
        if not excess:
            self.waiting.groups = []
            if self._override:
                self.waiting.ahead = {}
            return Finish(tuple(missing), ahead=len(self.waiting.ahead))
        yield from self.waiting.proven(excess, elapsed_s)
        self.waiting.drop_due(self._rules.patience_s)
        delete = yield from self.waiting.without(missing)
        waits_s = max(0.0, self._rules.patience_s - self.waiting.longest_s) if self.waiting.groups else 0.0
        return Finish(delete, self.waiting.count, waits_s, ahead=len(ahead))

    def _forget_ahead(self) -> Steps[None]:
        """Forget the ledgers that are ahead and not stored any more."""
        ahead, stored = self.waiting.ahead, self._stored
        for count, ledger in enumerate(list(ahead), 1):
            if place_of(stored, ledger) < 0:
                del ahead[ledger]
            if not count % STEP_LEDGERS:
                yield

    def _deletable(self) -> Steps[array[int]]:
        """Return the missing ledgers, without those that are ahead; or these, too, and the ids of others."""
        ahead = self.waiting.ahead
        if not ahead:
            return self._missing
        ledgers: Iterable[LedgerId] = self._missing
        if self._override:
            ledgers, ahead = merge(self._missing, self._reused_ids), {}
        deletable = array("q")
        for count, ledger in enumerate(ledgers, 1):
            if ledger not in ahead:
                deletable.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        return deletable

    def _excess(self, missing: array[int]) -> Steps[array[int]]:
        """Return the missing ledgers that are too many to be deleted at once, ascending.

        Each ledger is asked about once: what it is may change from step to step, and then it would count on one side
        alone."""
        excess, unmade = array("q"), array("q")
        if len(missing) <= self._rules.large_count:
            return excess
        position = stored_count = stored_made = 0
        for count, ledger in enumerate(self._stored, 1):
            is_missing = position < len(missing) and missing[position] == ledger
            position += is_missing
            if self._is_missed(ledger):
                was_made = self._was_made(ledger)
                stored_count, stored_made = stored_count + 1, stored_made + was_made
                if is_missing:
                    excess.append(ledger)
                    if not was_made:
                        unmade.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        if not self._is_large(len(excess), stored_count):
            return array("q")
        return excess if self._is_large(len(excess) - len(unmade), stored_made) else unmade

    def _is_large(self, count: int, stored_count: int) -> bool:
        """Return whether ``count`` missed ledgers of ``stored_count`` are too many to be deleted at once."""
        return count > self._rules.large_count and count > self._rules.large_share * stored_count
