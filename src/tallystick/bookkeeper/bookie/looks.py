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

So a bookie that was not running when a ledger was deleted never takes its entries for those of a new one. One that ran,
but was out of reach and has not collected yet, knows nothing of it: who gives the id to a new ledger keeps that bookie
out of all its ensembles. An id that is remembered as deleted is looked at in the same way.

A look is a synced read, of many ledgers at once; who waits for very many keeps nobody else waiting for his own. What
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
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.ledgers import UNKNOWN, Kept
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId, LedgerState

BATCH_LEDGERS = 512
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
    renew: Kept | None = None  # first forget, durably, what is kept of another ledger: this


def judge(record: Record | None, kept: Kept | None) -> Judgement:
    """What the metadata says of a ledger of which this is kept."""
    if record is None:
        return Judgement(Verdict.GONE)
    said = Verdict.UNKNOWN if record.state is None else Verdict.REFUSE
    if record.state is LedgerState.OPEN:
        said = Verdict.ADMIT
    if kept is not None and (kept.creation > record.creation or (kept.ahead and kept.creation != record.creation)):
        return Judgement(Verdict.AMISS, record.creation)
    if kept is not None and kept.deleted and kept.creation == record.creation:
        return Judgement(Verdict.AMISS, record.creation)  # it came back: its entries did not, so a "no" says nothing
    if kept is not None and kept.creation != record.creation and (kept.deleted or kept.creation != UNKNOWN):
        return Judgement(said, record.creation, renew=kept)
    return Judgement(said, record.creation)


class LookCore:
    """Which ledgers are looked at next, and what became of them."""

    def __init__(self, instance: str, kept: Callable[[LedgerId], Kept | None]) -> None:
        """``instance``: of the bookie's cookie; metadata of another cluster says nothing."""
        self._instance, self._kept = instance, kept
        self._wanted: OrderedDict[Hashable, OrderedDict[LedgerId, None]] = OrderedDict()  # by who asked
        self._batch: dict[LedgerId, None] = {}
        self._tries = 0

    def wanted(self, ledger: LedgerId, who: Hashable = None) -> None:
        if ledger not in self._batch:
            self._wanted.setdefault(who, OrderedDict())[ledger] = None

    def next_batch(self) -> tuple[LedgerId, ...]:
        """What to read now, of all who asked in turn; the same again after a connection that broke. Empty: nothing."""
        if not self._batch:
            self._tries = 0
            while self._wanted and len(self._batch) < BATCH_LEDGERS:
                who, ledgers = self._wanted.popitem(last=False)
                ledger, _ = ledgers.popitem(last=False)
                self._batch[ledger] = None
                if ledgers:
                    self._wanted[who] = ledgers
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
        return self._end({ledger: judge(records.get(ledger), self._kept(ledger)) for ledger in self._batch})

    def unreadable(self) -> dict[LedgerId, Judgement]:
        return self._end(dict.fromkeys(self._batch, Judgement(Verdict.UNKNOWN)))

    def _end(self, judgements: dict[LedgerId, Judgement]) -> dict[LedgerId, Judgement]:
        self._batch = {}
        return judgements
