"""Which stored ledgers may be deleted because the metadata has them no longer. Decides from what was read of it.

::

    begin ─► List ─► Look … ─► Wait ─► List ─► Look … ─► Finish
             └─ first proof ─┘  gap    └ second proof ┘

One wrong deletion loses acknowledged entries, so a listing alone proves nothing: a follower of ZooKeeper may lag, and a
tree may be empty, or another cluster's, for a while. A ledger is deleted when a synced listing lacked it and a synced
read of its own record found none, both twice, ``gap_s`` apart (a deposed leader of ZooKeeper does not last as long),
and all of it under the instance id of the bookie's own cookie. A broken connection begins the run again: the reads
after it were perhaps made at a server that lags. A ledger that was not stored when the run began is left alone.

Ledgers whose creation (``ledgers.py``) is later than all that the metadata has or had, or that it never made, show that
it was restored from an older copy. They are *ahead*: not deleted, however long they lack, until an operator says so or
they are in the metadata again, and known as that across restarts. Also when their id is given to another ledger.

A run that would delete much at once (``large_count`` ledgers *and* ``large_share`` of all) waits: the same ledgers must
lack for ``patience_s``, or an operator says so. Ledgers without an entry, and those that were in no metadata when they
were first added to, count on neither side and do not wait: anybody can invent them, and they say nothing of the
metadata. Others can be invented while nobody looks, and may be honest: such wait, but keep those of which the metadata
was seen waiting only if these are too many by themselves. What is given up is remembered as deleted, so adds to it are
refused as before. Time counts from one proof to the next by the clock of the process, and what has passed is kept
across restarts (``Waiting.encode``): a wall clock that jumps ends no wait, and a bookie that is restarted every day
does not wait for ever. (The original's ScanAndCompareGarbageCollector believes one listing.)
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord

LOOK_LEDGERS = 512  # whose records one Look asks for
MAX_RESTARTS = 3

_MAGIC, _MAGIC_1 = b"TALLYGC2", b"TALLYGC1"  # the first version had no ledgers that are ahead
_HEAD = struct.Struct(">8sHI")  # magic, bytes of the instance id, groups
_GROUP = struct.Struct(">dQ")  # seconds, ledgers
_AHEAD = struct.Struct(">qq")  # ledger, its creation


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
    """Then ``waited``."""

    seconds: float


@dataclass(frozen=True)
class Finish:
    """The run is over: delete these. ``waiting`` more were proven gone and wait as too many at once, and ``ahead`` are
    newer than the metadata."""

    delete: tuple[LedgerId, ...] = ()
    waiting: int = 0
    waits_s: float = 0.0  # until the first of them are deleted, if they still lack
    refused: str | None = None  # why nothing could be proven
    ahead: int = 0


Action = List | Look | Wait | Finish


@dataclass
class Waiting:
    """Ledgers of a large deletion, in groups that have lacked for equally long."""

    instance: str
    groups: list[tuple[float, array[int]]] = field(default_factory=list)  # seconds, ids ascending
    ahead: dict[LedgerId, Creation] = field(default_factory=dict)  # these do not wait: an operator decides

    def proven(self, gone: Sequence[LedgerId], elapsed_s: float) -> None:
        """These lack now, and no others; the last proof was so long ago."""
        rest, groups = set(gone), []
        for seconds, ledgers in self.groups:
            still = array("q", [ledger for ledger in ledgers if ledger in rest])
            rest.difference_update(still)
            if still:
                groups.append((seconds + elapsed_s, still))
        if rest:
            groups.append((0.0, array("q", sorted(rest))))
        self.groups = groups

    def due(self, patience_s: float) -> list[LedgerId]:
        """Take out what has lacked for long enough."""
        found = [ledger for seconds, ledgers in self.groups if seconds >= patience_s for ledger in ledgers]
        self.groups = [(seconds, ledgers) for seconds, ledgers in self.groups if seconds < patience_s]
        return found

    @property
    def count(self) -> int:
        return sum(len(ledgers) for _, ledgers in self.groups)

    @property
    def longest_s(self) -> float:
        return max((seconds for seconds, _ in self.groups), default=0.0)

    def encode(self) -> bytes:
        """For a file: what restarts must not forget."""
        instance = self.instance.encode()
        parts = [_HEAD.pack(_MAGIC, len(instance), len(self.groups)), instance]
        for seconds, ledgers in self.groups:
            parts += [_GROUP.pack(seconds, len(ledgers)), struct.pack(f">{len(ledgers)}q", *ledgers)]
        parts += [_AHEAD.pack(ledger, creation) for ledger, creation in self.ahead.items()]
        data = b"".join(parts)
        return data + crc32c(data).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        """Raises CorruptRecord. Whoever cannot read it begins to wait anew."""
        if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            raise CorruptRecord("the file of ledgers that wait for their deletion is damaged", bytes=len(data))
        magic, size, count = _HEAD.unpack_from(data)
        if magic not in (_MAGIC, _MAGIC_1):
            raise CorruptRecord("this is no file of ledgers that wait for their deletion")
        position, groups = _HEAD.size + size, []
        for _ in range(count):
            seconds, ledgers = _GROUP.unpack_from(data, position)
            position += _GROUP.size
            groups.append((seconds, array("q", struct.unpack_from(f">{ledgers}q", data, position))))
            position += 8 * ledgers
        return cls(data[_HEAD.size : _HEAD.size + size].decode(), groups, dict(_AHEAD.iter_unpack(data[position:-4])))


class GarbageCore:
    """See the module. One run at a time: ``begin``, then what the actions say, up to Finish."""

    def __init__(
        self, rules: GarbageRules, instance: str, is_missed: Callable[[LedgerId], bool],
        was_made: Callable[[LedgerId], bool], waiting: Waiting | None = None,
    ) -> None:  # fmt: skip
        """``instance``: of the bookie's cookie; ``is_missed``: entries of the ledger are stored, and somebody may have
        made it; ``was_made``: somebody has, its metadata was seen; ``waiting``: of an earlier process."""
        self._rules, self._instance, self._is_missed, self._was_made = rules, instance, is_missed, was_made
        known = waiting is not None and waiting.instance == instance
        self.waiting = waiting if waiting is not None and known else Waiting(instance)
        self._proven_at: float | None = None  # when a run of this process last ended with a proof
        self._stored: array[int] = array("q")  # ascending; when the run began
        self._restarts, self._override = 0, False

    def begin(self, stored: Sequence[LedgerId], *, override: bool = False) -> list[Action]:
        """A run over the ledgers that are stored now; ``override``: however many they are."""
        self._stored, self._restarts, self._override = array("q", sorted(stored)), 0, override
        return self._start()

    def compare(
        self, moment: Moment, creations: Iterable[tuple[LedgerId, Creation]], lost: Container[Creation] = ()
    ) -> list[LedgerId]:
        """Those of the ledgers that are stored now which are ahead and were not known as that; ``lost``: creations that
        the metadata never made, though it has made later ones since."""
        if moment.instance != self._instance:
            return []
        newest, known = moment.newest, self.waiting.ahead
        found = {
            ledger: creation
            for ledger, creation in creations
            if (creation > newest or creation in lost) and ledger not in known
        }
        known.update(found)
        return list(found)

    def _start(self) -> list[Action]:
        self._first_proof_at: float | None = None
        return self._list(self._stored)

    def _list(self, candidates: array[int]) -> list[Action]:
        self._candidates, self._missing, self._position = candidates, array("q"), 0
        self._taken: set[LedgerId] = set()  # ids of ledgers that are ahead, and that other ledgers have
        return [List()]

    def listed(self, page: Sequence[LedgerId]) -> None:
        """A part of the listing; ids ascend, within a page and from page to page."""
        if page:
            end = bisect_right(self._candidates, page[-1], self._position)
            present = set(page)
            self._missing.extend(ledger for ledger in self._candidates[self._position : end] if ledger not in present)
            self._position = end

    def listing_ended(self, began: Moment, ended: Moment, now: float) -> list[Action]:
        """The pages were all, between these moments."""
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
        """The records of the last Look, read between these moments. One that cannot be read is there."""
        if refused := self._doubt(began, ended):
            return refused
        batch = self._candidates[self._position : self._position + LOOK_LEDGERS]
        self._missing.extend(ledger for ledger in batch if ledger in records and records[ledger] is None)
        for ledger in batch:
            if ledger in self.waiting.ahead and (record := records.get(ledger)) is not None:
                self._met(ledger, record)
        self._position += len(batch)
        return self._look(now)

    def _met(self, ledger: LedgerId, record: Record) -> None:
        """The id of a ledger that is ahead is in the metadata."""
        if record.creation == self.waiting.ahead[ledger]:
            del self.waiting.ahead[ledger]  # the right metadata is back
        else:
            self._taken.add(ledger)

    def waited(self, now: float) -> list[Action]:
        assert self._first_proof_at is not None, "nothing was to wait for"
        left = self._first_proof_at + self._rules.gap_s - now
        return [Wait(left)] if left > 0 else self._list(self._missing)

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
            gone = array("q", sorted({*self._missing, *self._taken}))
        else:
            gone = array("q", [ledger for ledger in self._missing if ledger not in ahead])
        elapsed_s = 0.0 if self._proven_at is None else now - self._proven_at
        self._proven_at = now
        held = [] if self._override else self._held(gone)
        if not held:
            self.waiting.groups = []
            if self._override:
                self.waiting.ahead = {}
            return Finish(tuple(gone), ahead=len(self.waiting.ahead))
        self.waiting.proven(held, elapsed_s)
        bare = set(gone).difference(held)
        delete = tuple(sorted(bare.union(self.waiting.due(self._rules.patience_s))))
        waits_s = max(0.0, self._rules.patience_s - self.waiting.longest_s) if self.waiting.groups else 0.0
        return Finish(delete, self.waiting.count, waits_s, ahead=len(ahead))

    def _held(self, gone: Iterable[LedgerId]) -> list[LedgerId]:
        """Those that are too many to be deleted at once."""
        missed = list(filter(self._is_missed, gone))
        if not self._large(len(missed), self._stored):
            return []
        made = sum(map(self._was_made, missed))
        if self._large(made, filter(self._was_made, self._stored)):
            return missed
        return [ledger for ledger in missed if not self._was_made(ledger)]

    def _large(self, count: int, stored: Iterable[LedgerId]) -> bool:
        """Whether so many of these, that are missed, are too many to be deleted at once."""
        return count > self._rules.large_count and count > self._rules.large_share * sum(map(self._is_missed, stored))
