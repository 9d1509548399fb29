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
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId

LOOK_LEDGERS = 512  # whose records one Look asks for
MAX_RESTARTS = 3


@dataclass(frozen=True)
class GarbageRules:
    """When deletions are proven, and when they are too many to be believed at once."""

    gap_s: float = 60.0  # between the two proofs
    large_share: float = 0.25  # of the stored ledgers
    large_count: int = 100
    patience_s: float = 24 * 3600.0  # how long the ledgers of a large deletion must lack


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
    ledgers are newer than the metadata."""

    delete: tuple[LedgerId, ...] = ()
    waiting: int = 0
    waits_s: float = 0.0  # until the first of them are deleted, if they still lack
    refused: str | None = None  # why nothing could be proven
    ahead: int = 0


Action = List | Look | Wait | Finish


class GarbageCore:
    """Decide one run after another: ``begin``, then what the actions say, up to Finish."""

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
        self._restarts, self._override = 0, False

    def begin(self, stored: Sequence[LedgerId], *, override: bool = False) -> list[Action]:
        """Begin a run over the ledgers that are stored now; ``override`` deletes however many have no metadata."""
        self._stored, self._restarts, self._override = array("q", sorted(stored)), 0, override
        return self._start()

    def compare(
        self, moment: Moment, creations: Iterable[tuple[LedgerId, Creation]], never_made: Container[Creation] = ()
    ) -> list[LedgerId]:
        """Return the stored ledgers that are found to be ahead only now; ``never_made`` are the creations that the
        metadata did not make, though it has made later ones since."""
        if moment.instance != self._instance:
            return []
        newest, ahead = moment.newest, self.waiting.ahead
        newly_ahead = {
            ledger: creation
            for ledger, creation in creations
            if (creation > newest or creation in never_made) and ledger not in ahead
        }
        ahead.update(newly_ahead)
        return list(newly_ahead)

    def _start(self) -> list[Action]:
        self._first_proof_at: float | None = None
        return self._list(self._stored)

    def _list(self, candidates: array[int]) -> list[Action]:
        self._candidates, self._missing, self._position = candidates, array("q"), 0
        self._reused_ids: set[LedgerId] = set()  # ids of ledgers that are ahead, and that other ledgers have
        return [List()]

    def listed(self, page: Sequence[LedgerId]) -> None:
        """Take a page of the listing; ids ascend, within a page and from page to page."""
        if page:
            end = bisect_right(self._candidates, page[-1], self._position)
            present = set(page)
            self._missing.extend(ledger for ledger in self._candidates[self._position : end] if ledger not in present)
            self._position = end

    def listing_ended(self, began: Moment, ended: Moment, now: float) -> list[Action]:
        """The listing is complete; it was read between these moments."""
        if refused := self._doubt(began, ended):
            return refused
        self._missing.extend(self._candidates[self._position :])
        ahead = (ledger for ledger in self._stored if ledger in self.waiting.ahead)
        self._candidates = array("q", sorted({*self._missing, *ahead}))
        self._missing, self._position = array("q"), 0
        return self._look(now)

    def _look(self, now: float) -> list[Action]:
        batch = tuple(self._candidates[self._position : self._position + LOOK_LEDGERS])
        if batch:
            return [Look(batch)]
        if self._missing and self._first_proof_at is None:
            self._first_proof_at = now
            return [Wait(self._rules.gap_s)]
        return [self._finish(now)]

    def looked(
        self, began: Moment, ended: Moment, records: Mapping[LedgerId, Record | None], now: float
    ) -> list[Action]:
        """The records of the last Look were read between these moments. One that could not be read exists."""
        if refused := self._doubt(began, ended):
            return refused
        batch = self._candidates[self._position : self._position + LOOK_LEDGERS]
        self._missing.extend(ledger for ledger in batch if ledger in records and records[ledger] is None)
        for ledger in batch:
            if ledger in self.waiting.ahead and (record := records.get(ledger)) is not None:
                self._compare_ahead(ledger, record)
        self._position += len(batch)
        return self._look(now)

    def _compare_ahead(self, ledger: LedgerId, record: Record) -> None:
        """Compare a ledger that is ahead with the record that its id has in the metadata."""
        if record.creation == self.waiting.ahead[ledger]:
            del self.waiting.ahead[ledger]  # the right metadata is back
        else:
            self._reused_ids.add(ledger)

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

    def _finish(self, now: float) -> Finish:
        stored, ahead = set(self._stored), self.waiting.ahead
        for ledger in [ledger for ledger in ahead if ledger not in stored]:
            del ahead[ledger]
        if self._override:
            missing = array("q", sorted({*self._missing, *self._reused_ids}))
        else:
            missing = array("q", [ledger for ledger in self._missing if ledger not in ahead])
        elapsed_s = 0.0 if self._proven_at is None else now - self._proven_at
        self._proven_at = now
        excess = [] if self._override else self._excess(missing)
        if not excess:
            self.waiting.groups = []
            if self._override:
                self.waiting.ahead = {}
            return Finish(tuple(missing), ahead=len(self.waiting.ahead))
        self.waiting.proven(excess, elapsed_s)
        bare = set(missing).difference(excess)
        delete = tuple(sorted(bare.union(self.waiting.take_due(self._rules.patience_s))))
        waits_s = max(0.0, self._rules.patience_s - self.waiting.longest_s) if self.waiting.groups else 0.0
        return Finish(delete, self.waiting.count, waits_s, ahead=len(ahead))

    def _excess(self, missing: Iterable[LedgerId]) -> list[LedgerId]:
        """Return the missing ledgers that are too many to be deleted at once."""
        missed = list(filter(self._is_missed, missing))
        if not self._large(len(missed), self._stored):
            return []
        made = sum(map(self._was_made, missed))
        if self._large(made, filter(self._was_made, self._stored)):
            return missed
        return [ledger for ledger in missed if not self._was_made(ledger)]

    def _large(self, count: int, stored: Iterable[LedgerId]) -> bool:
        """Return whether ``count`` missed ledgers of ``stored`` ones are too many to be deleted at once."""
        return count > self._rules.large_count and count > self._rules.large_share * sum(map(self._is_missed, stored))
