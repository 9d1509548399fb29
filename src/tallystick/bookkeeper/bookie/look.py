"""May this writer still write, and is this the ledger of that id? The bookie looks at the metadata, once a start.

An empty bookie at an old address, or one that has forgotten a deletion, knows no fence: it would acknowledge a writer
whose ledger was recovered, closed or deleted meanwhile (bookkeeper#4812). Entry 0 of a ledger that is new here does not
wait for the look, which is made behind it; every other first ordinary add waits, with those that follow it. Gone,
IN_RECOVERY or CLOSED: refused as fenced.

The look also tells which of the ledgers with this id it is: the creation that the first look finds is kept with the
ledger. Where one is kept and was not compared since the start, fences, adds of recovery and reads of how far the ledger
goes wait, too::

    the metadata's creation    is kept          none is kept    is newer                           is older
    what is stored here        is this ledger   is taken for it is another's: deleted, durably,    is newer than the
                                                                then as if nothing had been here   metadata: all refused
    what was deleted here      came back without its entries: all refused

Of a ledger that was newer than the metadata and that an operator gave up, only an equal creation says something: the
next ledger of that id may have an older one, where the metadata was restored. All given-up creations of an id are
compared, whatever is stored now or was deleted since: a ledger that is in the metadata again came back without its
entries (``given_up.py``).

So a bookie that was not running when a ledger was deleted never takes its entries for those of a new one. One that ran,
but was out of reach and has not collected yet, knows nothing of it: who gives the id to a new ledger keeps that bookie
out of all its ensembles. An id that is remembered as deleted is looked at in the same way.

A look is a synced read of many ledgers at once. A connection that waits for very many keeps no other waiting: hosts and
their connections have their turns, and where very many requests wait for the ledgers of one read, or for one ledger,
those that did not get their response in time are looked at again, beside those of the hosts that came meanwhile; so is
what comes for a ledger while others of it get theirs. What a connection's turn has no time for after a look, or what
its peer takes no response to, is served as if it came then. What cannot be read
decides nothing: the add is stored as if nobody had looked, and is counted; for a while then nobody looks. Ledgers that
came then get their creation with the next collection, whether or not anything is added to them again. Only first adds
beyond the bound of ledgers without metadata (``ledgers.py``) wait for a look also then, or are refused. But a ledger
whose creation is kept and was never compared since the start, and an id that is remembered as deleted, are not added
to, fenced or read until that was done (101, which every client takes for "unknown"): what is stored may be another
ledger's, and the next look would delete it with the new entries; and "no such ledger", which recovery takes for a
fence (Q11), is none once the deletion is forgotten. Metadata that is there and is not what it was, as its file was
replaced or it is another cluster's, ends all comparisons: whoever writes by it may have an id of a ledger that is here.

Reads that name an entry, alone or in a batch, wait for that comparison, too, and are refused without it, if the ledger
is stored here: its id may have been given to a new ledger, with this bookie in its ensemble, before the disk was put
back from an older copy. Nobody adds or fences any more then, and a digest without a password does not tell the two
apart. That is one look for each ledger that is read after a start, and collections compare all others. Once a ledger
was compared a read costs the test of a flag, and waits for nothing in the life of the process: the entry 0 of a new
ledger of that id is looked at. What comes back without any creation is taken for the ledger of that id, as above.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId, LedgerState

BATCH_LEDGERS = 512
LEAST_LEDGERS = 32  # of a batch, where what waits for the ledgers of one takes long to answer
MAX_TRIES = 3  # of one batch, when the connection breaks in it


class Verdict(enum.Enum):
    """What a look says of the requests that wait for it.

    REFUSE and GONE refuse ordinary adds as fenced. All other requests, and all with ADMIT, go on as if nobody had
    looked; so do those with UNKNOWN, unless the ledger is in doubt. With AMISS no request of this id has an answer.
    """

    ADMIT = "admit"
    REFUSE = "refuse"  # the ledger is there, but is not open
    GONE = "gone"  # no ledger has the id
    UNKNOWN = "unknown"
    AMISS = "amiss"


NOT_WRITTEN = frozenset((Verdict.REFUSE, Verdict.GONE))


@dataclass(frozen=True)
class Judgement:
    """A verdict, and what the look found of the ledger."""

    verdict: Verdict
    creation: Creation = UNKNOWN  # of the ledger that now has the id
    renew: LedgerIdentity | None = None  # what is stored of another ledger, to be forgotten durably first


def judge(record: Record | None, identity: LedgerIdentity | None, given_up: Container[Creation] = ()) -> Judgement:
    """Judge a ledger by its record in the metadata and its stored identity; ``given_up`` are the creations of others
    with its id."""
    if record is None:
        return Judgement(Verdict.GONE)
    verdict = Verdict.UNKNOWN if record.state is None else Verdict.REFUSE
    if record.state is LedgerState.OPEN:
        verdict = Verdict.ADMIT
    if record.creation in given_up:
        return Judgement(Verdict.AMISS, record.creation)
    if identity is None:
        return Judgement(verdict, record.creation)
    if identity.creation == record.creation:
        # A deleted one came back: its entries did not, so a "no" says nothing.
        return Judgement(Verdict.AMISS if identity.deleted else verdict, record.creation)
    if (identity.ahead or identity.creation > record.creation) and not identity.was_given_up:
        return Judgement(Verdict.AMISS, record.creation)
    if identity.deleted or identity.creation != UNKNOWN:
        return Judgement(verdict, record.creation, renew=identity)
    return Judgement(verdict, record.creation)


class LookCore:
    """Decide which ledgers are looked at next, and judge them by what was read."""

    def __init__(
        self,
        instance: str,
        identity: Callable[[LedgerId], LedgerIdentity | None],
        given_up: Callable[[LedgerId], Container[Creation]],
    ) -> None:
        """``instance`` is that of the bookie's cookie: metadata of another cluster says nothing."""
        self._instance, self._identity, self._given_up = instance, identity, given_up
        # By host and connection; the one whose turn is next comes first.
        self._waiting: OrderedDict[str, OrderedDict[Hashable, OrderedDict[LedgerId, None]]] = OrderedDict()
        self._batch: dict[LedgerId, None] = {}
        self._askers: dict[LedgerId, tuple[str, Hashable]] = {}  # of the last batch
        self._most = BATCH_LEDGERS  # of the next one
        self._tries = 0

    def requested(self, ledger: LedgerId, who: Hashable = None, host: str = "") -> None:
        if ledger not in self._batch:
            self._waiting.setdefault(host, OrderedDict()).setdefault(who, OrderedDict())[ledger] = None

    def another_waits(self, ledgers: Sequence[LedgerId]) -> bool:
        """Return whether a host waits that asked for none of these ledgers of the last batch."""
        hosts = {self._askers[ledger][0] for ledger in ledgers if ledger in self._askers}
        return any(host not in hosts for host in self._waiting)

    def answered(self, count: int, put_off: Sequence[LedgerId]) -> None:
        """So many of the last batch are settled; the hosts of those put off are next, before what was settled once."""
        self._most = max(LEAST_LEDGERS, min(2 * count, self._most)) if put_off else min(BATCH_LEDGERS, 2 * self._most)
        for ledger in reversed(put_off):
            self._waiting.move_to_end(self.put_off(ledger), last=False)

    def put_off(self, ledger: LedgerId) -> str:
        """Something still waits for a ledger of the last batch: it comes before all else that its asker waits for.
        Returns the asker's host, whose turn comes as if it had asked now."""
        host, who = self._askers.get(ledger, ("", None))
        self.requested(ledger, who, host)
        self._waiting[host][who].move_to_end(ledger, last=False)
        return host

    def next_batch(self) -> tuple[LedgerId, ...]:
        """Return the ledgers to read now, in turn of those who asked; the same again after a connection that broke. It
        is empty if nobody waits."""
        if not self._batch:
            self._tries = 0
            self._askers = {}
            while self._waiting and len(self._batch) < self._most:
                host, asking = self._waiting.popitem(last=False)
                who, ledgers = asking.popitem(last=False)
                ledger, _ = ledgers.popitem(last=False)
                self._batch[ledger], self._askers[ledger] = None, (host, who)
                if ledgers:
                    asking[who] = ledgers
                if asking:
                    self._waiting[host] = asking
        return tuple(self._batch)

    def read(
        self, began: Moment, ended: Moment, records: Mapping[LedgerId, Record | None]
    ) -> dict[LedgerId, Judgement]:
        """The batch was read between these moments. Returns {} when it must be read again."""
        if self._instance not in (began.instance, ended.instance) or began.instance != ended.instance:
            return self.unreadable()
        if began != ended:
            self._tries += 1
            return self.unreadable() if self._tries >= MAX_TRIES else {}
        return self._end({ledger: self._judge(ledger, records.get(ledger)) for ledger in self._batch})

    def _judge(self, ledger: LedgerId, record: Record | None) -> Judgement:
        return judge(record, self._identity(ledger), self._given_up(ledger))

    def unreadable(self) -> dict[LedgerId, Judgement]:
        return self._end(dict.fromkeys(self._batch, Judgement(Verdict.UNKNOWN)))

    def _end(self, judgements: dict[LedgerId, Judgement]) -> dict[LedgerId, Judgement]:
        self._batch = {}
        return judgements
