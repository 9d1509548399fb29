"""Looks of a bookie, without the bookie."""

from __future__ import annotations

from support.watched import Watched
from tallystick.bookkeeper.bookie.looks import Looks
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.state import LedgerIdentity
from tallystick.codec.steps import Steps
from tallystick.runtime.events import Event, Events


class NoLedgers:
    def identity(self, ledger: int) -> LedgerIdentity | None:
        return None

    def given_up(self, ledger: int) -> tuple[int, ...]:
        return ()

    def looked(self, ledger: int, creation: int, *, written: bool) -> None: ...

    def missed_looks(self) -> None: ...

    def look_again(self) -> None: ...

    def anchored(self, anchor: int) -> Steps[bool]:
        return True
        yield


def looks_at(driver: Watched, heard: list[Event], failures: list[Exception] | None = None) -> Looks:
    failed = list[Exception]() if failures is None else failures

    async def renew(ledgers: object) -> None: ...

    return Looks(
        driver,
        bookie="b0",
        instance="ours",
        ledgers=NoLedgers(),
        renew=renew,
        reserve=lambda size: None,
        flush=lambda: None,
        counts=Counts(),
        events=Events(heard.append),
        failed=failed.append,
    )
