"""Metadata as a ``GarbageCore`` sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tallystick.bookkeeper.bookie.garbage import Finish, GarbageCore, GarbageRules, List, Look, Wait
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingDeletions
from tallystick.bookkeeper.metadata.driver import Moment, Record
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.codec.steps import Steps, finished

T = TypeVar("T")

HERE = Moment("ours", 1)
OPEN = Record(LedgerState.OPEN, 1)
DAY_S = 24 * 3600.0


class Service:
    """Metadata as a core sees it; ``listing`` and ``records`` may differ, as at a follower that lags."""

    def __init__(self, *ledgers: int) -> None:
        self.have(*ledgers)
        self.now, self.moment = 0.0, HERE
        self.other: dict[int, Record] = {}  # than OPEN
        self.breaks = 0  # connections that are still to break, one a sync
        self.seen: list[type] = []

    def sync(self) -> Moment:
        if self.breaks:
            self.breaks -= 1
            self.moment = Moment(self.moment.instance, self.moment.generation + 1)
        return self.moment

    def have(self, *ledgers: int) -> None:
        self.listing, self.records = set(ledgers), set(ledgers)

    def do(self, steps: Steps[T]) -> T:
        return finished(steps)

    def run(
        self, core: GarbageCore, stored: list[int], between: Callable[[], object] = lambda: None, **options: bool
    ) -> Finish:
        actions = self.do(core.begin(stored, **options))
        while not isinstance(action := actions[0], Finish):
            self.seen.append(type(action))
            if isinstance(action, Wait):
                self.now += action.seconds
                between()
                actions = core.waited(self.now)
                continue
            began = self.moment
            if isinstance(action, List):
                ids = sorted(self.listing)
                for at in range(0, len(ids), 3):
                    self.do(core.listed(ids[at : at + 3]))
                actions = self.do(core.listing_ended(began, self.sync(), self.now))
            else:
                assert isinstance(action, Look)
                records = {
                    ledger: self.other.get(ledger, OPEN) if ledger in self.records else None
                    for ledger in action.ledgers
                }
                actions = self.do(core.looked(began, self.sync(), records, self.now))
        return action


SEEN = 5_000  # up to this id the metadata of ledgers was seen
BARE = 10_000  # from this id on ledgers are fenced here and have no entry


def core_of(waiting: WaitingDeletions | None = None) -> GarbageCore:
    return GarbageCore(GarbageRules(), "ours", lambda ledger: ledger < BARE, lambda ledger: ledger < SEEN, waiting)
