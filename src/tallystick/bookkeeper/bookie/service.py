"""The requests of clients, in whatever protocol, are done here (``BookieRequestProcessor``, ``…EntryProcessor``).

A wire gives values, or runs of stored frames by columns, and gets codes back with the moment from which they are true::

    commit NOW         they are already
    commit n           when this commit of the journal is on the disk, or with the operating system if it is *deferred*
    AfterLook(ledger)  there is no code yet: ask again with what a look at the ledger's metadata has said
    Later(begin)       nor here: ``begin`` it, and the response comes when something happens

No add overtakes an earlier request of its ledger and connection that waits for a look: it waits ``behind`` it. A client
of version 2 takes responses to requests for the same entry in the order of the requests, so that a recovery would take
the refusal of an ordinary add for that of the entry which it wrote back.

Adds that were stored wait for their commit, and so does every response to a read that fenced, "no such entry" included,
since a "no" may end a recovery and must outlive a crash (Q11, Q15). The original sends that "no" before its fence is
synced. A deferred add is acknowledged when its commit is written, so that a bookie that is killed has it after its
restart, and durable with the commit that a force waits for: nothing else takes it for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, assert_never

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.long_polls import LongPolls, Requester
from tallystick.bookkeeper.bookie.look import NOT_WRITTEN, Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import AddRun
from tallystick.errors import StorageError

_EXISTS = (Verdict.ADMIT, Verdict.REFUSE)  # the look has found the ledger in the metadata


@dataclass(slots=True)
class AddEntryRequest:
    """One entry, ``body`` with its header and digest. ``recovery``: it passes a fence (Q14). ``deferred``: whoever adds
    it forces the ledger later, and needs it durable only then."""

    ledger: LedgerId
    entry: EntryId
    master_key: bytes = field(repr=False)
    body: bytes | bytearray | memoryview = field(repr=False)
    recovery: bool = False
    high_priority: bool = False
    deferred: bool = False


@dataclass(slots=True)
class ReadEntryRequest:
    """One entry, -1 for the highest stored; with a master key the ledger is fenced before it is looked for."""

    ledger: LedgerId
    entry: EntryId
    master_key: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class ReadBatchRequest:
    """Entries from ``entry`` on, as ``Storage.batch`` limits them; the key is as that of ``ReadEntryRequest``."""

    ledger: LedgerId
    entry: EntryId
    max_count: int
    max_bytes: int
    master_key: bytes | None = field(default=None, repr=False)


ServiceRequest = AddEntryRequest | ReadEntryRequest | ReadBatchRequest


NOW: Final = 0  # commits are counted from 1


@dataclass(slots=True)
class AfterLook:
    """The request is to be made again after a look at the metadata of this ledger."""

    ledger: LedgerId


Response = TypeVar("Response")


@dataclass(slots=True)
class Later(Generic[Response]):
    """The response comes later, on the loop: ``begin(owner, done)`` gives it to ``done``, once, unless the connection
    that owns the request has ended."""

    begin: Callable[[Requester, Callable[[Response], None]], None]


@dataclass(slots=True)
class ServiceResponse:
    """The response to a request that is not a run; true with ``commit``, if ``deferred`` before that is synced."""

    code: Code
    entries: Sequence[bytes] = ()
    commit: int = NOW
    deferred: bool = False


@dataclass(slots=True)
class AddRunResponse:
    """The response to a run. ``codes`` are by place, and true with ``commit``, or now where they are not OK."""

    codes: list[Code]
    commit: int
    is_ok: bool  # all of it
    waiting_places: Sequence[int] = ()  # places without a code: their ledgers are looked at first


class Service:
    """Do adds and reads. ``looks()`` says whether first adds wait for a look at their ledger's metadata; ``look_at``
    orders a look that nobody waits for."""

    def __init__(
        self,
        storage: Storage,
        guard: DiskGuard,
        fences: Fences,
        counts: Counts,
        recent: RecentAdds,
        *,
        looks: Callable[[], bool],
        look_at: Callable[[LedgerId], None],
    ) -> None:
        self._storage, self._guard, self._fences, self._counts, self._recent = storage, guard, fences, counts, recent
        self._identities, self._limbo = storage.identities, storage.limbo
        self.polls = LongPolls(storage.known_lac, counts)
        self.looks, self._look_at = looks, look_at

    # Runs of plain adds.

    def add_run(
        self, data: bytes, run: AddRun, verdict: Verdict | None = None, *, behind: AbstractSet[LedgerId] = frozenset()
    ) -> AddRunResponse:
        """Store a run, but for the adds that must wait for a look; ``verdict`` is that of the look they waited for.

        Adds of the ledgers in ``behind``, for which something of the connection waits already, are among those. The
        storage keeps the bytes of the run and no others.
        """
        if verdict is not None:
            codes_by_ledger = {ledger: self._refusal_of_add(ledger, verdict) for ledger in set(run.ledgers)}
            refusals = {place: code for place, ledger in enumerate(run.ledgers) if (code := codes_by_ledger[ledger])}
            return self._store_others(data, run, refusals, ()) if refusals else self._store_run(data, run)
        ledgers = set(run.ledgers)
        if 0 in run.entries or not (self._identities.were_looked_at(ledgers) and behind.isdisjoint(ledgers)):
            return self._add_some(data, run, behind)
        return self._store_run(data, run)

    def _add_some(self, data: bytes, run: AddRun, behind: AbstractSet[LedgerId]) -> AddRunResponse:
        """Store a run with ledgers that nobody has looked at, or for which something waits. Entry 0 of a new one does
        not wait, unless something waits before it."""
        identities, looks = self._identities, self.looks()
        adds = enumerate(zip(run.ledgers, run.entries, run.keys, strict=True))
        places = [place for place, (ledger, entry, key) in adds if identities.needs_look(ledger, entry, key)]
        waiting_places, refusals = places, dict[int, Code]()
        if not looks:
            self._counts.adds_not_looked_at += len(places)
            waiting_places = [place for place in places if identities.is_one_too_many(run.ledgers[place])]
            refusals = {place: Code.IO_ERROR for place in places if identities.is_in_doubt(run.ledgers[place])}
        if self._limbo.has_any(run.ledgers):
            refusals |= {place: Code.IO_ERROR for place, ledger in enumerate(run.ledgers) if ledger in self._limbo}
        if waiting_places or behind:
            waiting_places = _with_later(waiting_places, run.ledgers, behind)
            for place in waiting_places:
                refusals.pop(place, None)
        response = (
            self._store_others(data, run, refusals, waiting_places)
            if waiting_places or refusals
            else self._store_run(data, run)
        )
        for ledger in dict.fromkeys(run.ledgers):
            self._look_behind(ledger)
        return response

    def _store_others(
        self, data: bytes, run: AddRun, refusals: Mapping[int, Code], waiting_places: Sequence[int]
    ) -> AddRunResponse:
        """Store the adds that are neither refused nor wait."""
        left_out = refusals.keys() | set(waiting_places)
        places = [place for place in range(len(run)) if place not in left_out]
        response = self._store_run(*records.picked(data, run, places))
        codes = {**refusals, **dict(zip(places, response.codes, strict=True))}
        self._counts.adds += len(refusals)
        self._counts.adds_failed += len(refusals)
        return AddRunResponse(
            [codes.get(place, Code.OK) for place in range(len(run))], response.commit, False, waiting_places
        )

    def _store_run(self, data: bytes, run: AddRun) -> AddRunResponse:
        start, stop = run.bounds[0], run.bounds[-1]
        self._counts.adds += len(run)
        if not self._guard.accepts(high_priority=False):
            codes = [Code.READ_ONLY] * len(run)
        else:
            if (stop - start) * 2 < len(data):  # do not make the storage keep other requests' bytes
                data = data[start:stop]
                run = AddRun(run.keys, run.ledgers, run.entries, [bound - start for bound in run.bounds])
            if self._recent.watched:
                for ledger, entry in zip(run.ledgers, run.entries, strict=True):
                    self._recent.adding(ledger, entry, self._storage.last_entry(ledger))
            codes = self._storage.add_run(data, run)
            if self.polls.watched:
                self.polls.added(run.ledgers)
        if is_ok := not any(codes):
            self._counts.add_bytes += stop - start
        else:
            sizes = (run.bounds[at + 1] - run.bounds[at] for at, code in enumerate(codes) if code == Code.OK)
            self._counts.add_bytes += sum(sizes)
            self._counts.adds_failed += len(codes) - codes.count(Code.OK)
        return AddRunResponse(codes, self._storage.newest_commit, is_ok)

    def _look_behind(self, ledger: LedgerId) -> None:
        """Order a look at a ledger without a creation: the bookie must have it before another ledger has the id."""
        if self._identities.needs_note(ledger) and self.looks():
            self._look_at(ledger)

    # One request each. ``verdict`` is that of the look that it waited for; a request with one waits no more.

    def add(
        self, add: AddEntryRequest, verdict: Verdict | None = None, *, behind: AbstractSet[LedgerId] = frozenset()
    ) -> ServiceResponse | AfterLook:
        if verdict is None and (self._add_must_wait(add) or add.ledger in behind):
            return AfterLook(add.ledger)
        code = self._refusal_of_add(add.ledger, verdict, ordinary=not add.recovery)
        if code is not None:
            return self.refuse(add, code)
        code = self._store(add)
        if verdict is None:
            self._look_behind(add.ledger)
        if code != Code.OK:
            return self.refuse(add, code)
        self._counts.adds += 1
        self._counts.add_bytes += len(add.body)
        # One of recovery is never deferred: what it writes back may be all that is left of the entry (Q14).
        is_deferred = add.deferred and not add.recovery
        return ServiceResponse(code, commit=self._storage.newest_commit, deferred=is_deferred)

    def read(
        self, read: ReadEntryRequest | ReadBatchRequest, verdict: Verdict | None = None, *, waiting: int = 0
    ) -> ServiceResponse | AfterLook:
        """Fence if there is a key, then read the entries. ``waiting`` others of the same call wait for a look."""
        # More than entries: it fences, or asks how far the ledger goes.
        is_more = read.entry == NO_ENTRY or read.master_key is not None
        is_doubtful = self._identities.is_in_doubt if is_more else self._identities.may_hold_anothers
        if verdict is None and (
            self._read_must_wait(read, waiting) if is_more else is_doubtful(read.ledger) and self.looks()
        ):
            return AfterLook(read.ledger)
        if verdict is Verdict.AMISS or (verdict in (None, Verdict.UNKNOWN) and is_doubtful(read.ledger)):
            return self.refuse(read, Code.IO_ERROR)
        code, entries = self._open(read, exists=verdict in _EXISTS), list[bytes]()
        if code == Code.OK:
            # That no entry is higher is a "no", too.
            is_unknown = read.entry == NO_ENTRY and read.ledger in self._limbo
            code, entries = (Code.UNKNOWN_LEDGER_STATE, []) if is_unknown else self._entries(read)
        code = self._limbo.code(read.ledger, code)
        if code == Code.OK:
            self._counts.reads += isinstance(read, ReadEntryRequest)
            self._counts.batch_reads += isinstance(read, ReadBatchRequest)
            self._counts.read_bytes += sum(map(len, entries))
        else:
            self.refuse(read, code)
        return ServiceResponse(code, entries, NOW if read.master_key is None else self._storage.newest_commit)

    def read_run(self, ledger: LedgerId, entries: Sequence[EntryId], max_bytes: int) -> tuple[bytes, int]:
        """Read as ``Storage.read_frames`` does, without a fence. After (b"", 0) ``read`` decides."""
        if self._identities.may_hold_anothers(ledger):
            return b"", 0
        try:
            frames, count_read = self._storage.read_frames(ledger, entries, max_bytes)
        except StorageError:
            return b"", 0  # the entry's own read says what is wrong with it
        self._counts.reads += count_read
        self._counts.read_bytes += len(frames)
        return frames, count_read

    def refuse(self, request: ServiceRequest, code: Code) -> ServiceResponse:
        """Count a request that is not done, and return the response to it."""
        counts = self._counts
        match request:
            case AddEntryRequest():
                counts.adds, counts.adds_failed = counts.adds + 1, counts.adds_failed + 1
            case ReadEntryRequest():
                counts.reads, counts.reads_failed = counts.reads + 1, counts.reads_failed + 1
            case ReadBatchRequest():
                counts.batch_reads, counts.batch_reads_failed = counts.batch_reads + 1, counts.batch_reads_failed + 1
            case _:
                assert_never(request)
        return ServiceResponse(code)

    # Who waits, and who is refused.

    def _add_must_wait(self, add: AddEntryRequest) -> bool:
        identities, ledger = self._identities, add.ledger
        if add.recovery:  # while nobody looks, too, if there are too many: who could make its ledger can be looked at
            return identities.is_one_too_many(ledger) or (
                identities.needs_comparison(ledger, add.master_key) and self.looks()
            )
        if not identities.needs_look(ledger, add.entry, add.master_key):
            return False
        self._counts.adds_not_looked_at += not self.looks()
        return self.looks() or identities.is_one_too_many(ledger)

    def _read_must_wait(self, read: ReadEntryRequest | ReadBatchRequest, waiting: int) -> bool:
        if read.master_key is not None and self._fences.must_look(read.ledger, waiting):
            return True
        return self._identities.needs_comparison(read.ledger, read.master_key) and self.looks()

    def _refusal_of_add(self, ledger: LedgerId, verdict: Verdict | None, *, ordinary: bool = True) -> Code | None:
        """Return the code of an add that is not to be stored, None if it is."""
        is_unread = verdict in (None, Verdict.UNKNOWN)
        if verdict is Verdict.AMISS or (is_unread and self._identities.is_in_doubt(ledger)):
            return Code.IO_ERROR
        if ordinary and ledger in self._limbo:  # fenced, but its fence may not be the one that a writer must hear of
            return Code.IO_ERROR
        if verdict in NOT_WRITTEN and ordinary:  # as if it were fenced here
            return Code.FENCED
        if verdict in (Verdict.UNKNOWN, Verdict.GONE) and self._identities.is_one_too_many(ledger):
            return Code.TOO_MANY_REQUESTS
        return None

    # The storage.

    def _store(self, add: AddEntryRequest) -> Code:
        if not self._guard.accepts(high_priority=add.high_priority):
            return Code.READ_ONLY
        if self._recent.watched:
            self._recent.adding(add.ledger, add.entry, self._storage.last_entry(add.ledger))
        code = self._storage.add(add.ledger, add.entry, add.master_key, add.body, recovery=add.recovery)
        if self.polls.watched:
            self.polls.added((add.ledger,))
        return code

    def _open(self, read: ReadEntryRequest | ReadBatchRequest, *, exists: bool) -> Code:
        """Judge a read, and fence if it has a key: before the entry is searched, so that a "no" stays true."""
        if read.ledger < 0 or read.entry < NO_ENTRY:
            return Code.BAD_REQUEST
        if read.master_key is None:
            return Code.OK
        code = self._fences.fence(read.ledger, read.master_key, exists=exists)
        if code == Code.OK:
            self.polls.fenced(read.ledger)
        return code

    def _entries(self, read: ReadEntryRequest | ReadBatchRequest) -> tuple[Code, list[bytes]]:
        try:
            if isinstance(read, ReadBatchRequest):
                return self._storage.batch(read.ledger, read.entry, read.max_count, read.max_bytes)
            code, entry = self._storage.read(read.ledger, read.entry)
        except StorageError:
            return Code.IO_ERROR, []  # never a "no": the entry may be there (Q15)
        return code, [entry] if code == Code.OK else []


def _with_later(waiting_places: Sequence[int], ledgers: Sequence[LedgerId], behind: AbstractSet[LedgerId]) -> list[int]:
    """Return the places that wait, and those of the later adds of their ledgers and of all adds of these others."""
    waiting, waiting_ledgers, places = set(waiting_places), set(behind), list[int]()
    for place, ledger in enumerate(ledgers):
        if place in waiting or ledger in waiting_ledgers:
            waiting_ledgers.add(ledger)
            places.append(place)
    return places
