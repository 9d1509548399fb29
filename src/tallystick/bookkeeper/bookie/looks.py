"""May this writer still write, and is this the ledger of that id? Once a process life the bookie looks at the metadata.

An empty bookie at an old address, or one that has forgotten a deletion, knows no fence: it would acknowledge a writer
whose ledger was recovered, closed or deleted meanwhile (bookkeeper#4812). Entry 0 of a ledger that is new here does not
wait for the look, which is made behind it; every other first ordinary add waits, with those that follow it. Gone,
IN_RECOVERY or CLOSED: refused as fenced.

The look also tells which of the ledgers with this id it is: the first one's creation is kept with the ledger. Where it
is kept and was not compared in this life, fences, adds of recovery and reads of how far the ledger goes wait, too::

    the metadata's creation    is kept          none is kept    is newer                           is older
    what is stored here        is this ledger   is taken for it is another's: deleted, durably,    is newer than the
                                                                then as if nothing had been here   metadata: all refused
    what was deleted here      came back without its entries: all refused

Of a ledger that was newer than the metadata, which an operator gave up, the creation is compared alone: who has the id
next in metadata that was restored may have an older one. Of all that were given up of an id it is compared, whatever is
stored now or was deleted since: one that is in the metadata again came back without its entries (``given_up.py``).

So a bookie that was not running when a ledger was deleted never takes its entries for those of a new one. One that ran,
but was out of reach and has not collected yet, knows nothing of it: who gives the id to a new ledger keeps that bookie
out of all its ensembles. An id that is remembered as deleted is looked at in the same way.

A look is a synced read, of many ledgers at once; who waits for very many keeps nobody else waiting for his own: hosts
and their connections have their turns, and where very many requests wait for the ledgers of one read, those that were
not answered in time are looked at again, beside those of the hosts that came meanwhile. What
cannot be read decides nothing: the add is taken as if nobody had looked, and is counted; for a while then nobody looks.
Ledgers that came then get their creation with the next collection, whether or not anything is added to them again.
Only first adds beyond the bound of ledgers without metadata (``ledgers.py``) wait for a look also then, or are refused.
But of a ledger whose creation is kept and was never compared in this life, and of an id that is remembered as deleted,
nothing is taken, fenced or said until it is (101, which every client takes for "unknown"): what is stored may be
another ledger's, and go with the next look, the new entries too; and "no such ledger", which recovery takes for a fence
(Q11), is none once the deletion is forgotten. Metadata that is there and is not what it was, as its file was replaced
or it is another cluster's, ends all comparisons: whoever writes by it may have an id of a ledger that is here.

Reads that name an entry, alone or in a batch, wait for no look and get what is stored: whoever knows that the entry is
there has opened, recovered or written the ledger. Until one of these has brought the look, that may be an older
ledger's entry, where a client that is not ours gave its id to a new one and this bookie a place in it.
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
    """REFUSE and GONE refuse ordinary adds as fenced. All other requests, and all with ADMIT, go on as if nobody had
    looked; so do those with UNKNOWN, unless the ledger is in doubt. AMISS: nothing about this id can be answered."""

    ADMIT = "admit"
    REFUSE = "refuse"  # the ledger is there, but is not open
    GONE = "gone"  # no ledger has the id
    UNKNOWN = "unknown"
    AMISS = "amiss"


NOT_WRITTEN = frozenset((Verdict.REFUSE, Verdict.GONE))


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    creation: Creation = UNKNOWN  # of the ledger that now has the id
    renew: LedgerIdentity | None = None  # first forget, durably, what is kept of another ledger: this


def judge(record: Record | None, identity: LedgerIdentity | None, given_up: Container[Creation] = ()) -> Judgement:
    """What the metadata says of a ledger of which this is kept; ``given_up``: creations of others with its id."""
    if record is None:
        return Judgement(Verdict.GONE)
    said = Verdict.UNKNOWN if record.state is None else Verdict.REFUSE
    if record.state is LedgerState.OPEN:
        said = Verdict.ADMIT
    if record.creation in given_up:
        return Judgement(Verdict.AMISS, record.creation)
    if identity is None:
        return Judgement(said, record.creation)
    if identity.creation == record.creation:
        # A deleted one came back: its entries did not, so a "no" says nothing.
        return Judgement(Verdict.AMISS if identity.deleted else said, record.creation)
    if (identity.ahead or identity.creation > record.creation) and not identity.was_given_up:
        return Judgement(Verdict.AMISS, record.creation)
    if identity.deleted or identity.creation != UNKNOWN:
        return Judgement(said, record.creation, renew=identity)
    return Judgement(said, record.creation)


class LookCore:
    """Which ledgers are looked at next, and what became of them."""

    def __init__(
        self, instance: str, identity: Callable[[LedgerId], LedgerIdentity | None],
        given_up: Callable[[LedgerId], Container[Creation]],
    ) -> None:  # fmt: skip
        """``instance``: of the bookie's cookie; metadata of another cluster says nothing."""
        self._instance, self._identity, self._given_up = instance, identity, given_up
        # By host and who asked, whose turn is next first.
        self._wanted: OrderedDict[str, OrderedDict[Hashable, OrderedDict[LedgerId, None]]] = OrderedDict()
        self._batch: dict[LedgerId, None] = {}
        self._askers: dict[LedgerId, tuple[str, Hashable]] = {}  # of the last batch
        self._most = BATCH_LEDGERS  # of the next one
        self._tries = 0

    def wanted(self, ledger: LedgerId, who: Hashable = None, host: str = "") -> None:
        if ledger not in self._batch:
            self._wanted.setdefault(host, OrderedDict()).setdefault(who, OrderedDict())[ledger] = None

    def another_waits(self, ledgers: Sequence[LedgerId]) -> bool:
        """Whether a host asks that did not ask for any of these, which are of the last batch."""
        hosts = {self._askers[ledger][0] for ledger in ledgers if ledger in self._askers}
        return any(host not in hosts for host in self._wanted)

    def answered(self, count: int, put_off: Sequence[LedgerId]) -> None:
        """So many of the last batch are done with; the others come before all else that their askers want."""
        self._most = max(LEAST_LEDGERS, min(2 * count, self._most)) if put_off else min(BATCH_LEDGERS, 2 * self._most)
        for ledger in reversed(put_off):
            host, who = self._askers.get(ledger, ("", None))
            self.wanted(ledger, who, host)
            self._wanted[host][who].move_to_end(ledger, last=False)

    def next_batch(self) -> tuple[LedgerId, ...]:
        """What to read now, of all who asked in turn; the same again after a connection that broke. Empty: nothing."""
        if not self._batch:
            self._tries = 0
            self._askers = {}
            while self._wanted and len(self._batch) < self._most:
                host, asking = self._wanted.popitem(last=False)
                who, ledgers = asking.popitem(last=False)
                ledger, _ = ledgers.popitem(last=False)
                self._batch[ledger], self._askers[ledger] = None, (host, who)
                if ledgers:
                    asking[who] = ledgers
                if asking:
                    self._wanted[host] = asking
        return tuple(self._batch)

    def read(
        self, began: Moment, ended: Moment, records: Mapping[LedgerId, Record | None]
    ) -> dict[LedgerId, Judgement]:
        """The batch was read between these moments. Nothing is decided when it must be read again."""
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
