"""What the judge of a restore takes for the metadata afterwards."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallystick.admin.backup import Restoration
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState
from tallystick.sim.invariants import Violation
from tallystick.sim.restores_judge import RestoreJudge
from tallystick.sim.virtual.trace import Trace

LEDGER, END = 0, 3
SAVED = LedgerMetadata(2, 2, 1, (Fragment(0, ("b0", "b1")), Fragment(2, ("b0", "b2"))))
CHANGED = replace(SAVED, fragments=(SAVED.fragments[0], Fragment(2, ("b0", "b3"))))
MOVED = replace(SAVED, fragments=(Fragment(0, ("b4", "b1")), SAVED.fragments[1]))
RESTORED = Restoration("instance", 1, 1, {}, {}, True, (LEDGER,), (), (), (), ())


def restored(has: Collection[EntryId]) -> RestoreJudge:
    """Return the judge of a restore. The ledger was changed, closed and deleted since the backup; its bookies dropped
    all of it; one that is not among them, b4, has these entries."""
    judge = RestoreJudge(0, Trace(lambda: 0.0))
    judge.made(LEDGER, SAVED, 1)
    book = judge.books[LEDGER]
    book.plan, book.appended = cast(Any, SimpleNamespace(largest=20, defers=False)), END + 1

    def start(bookie: str) -> Any:
        def read(ledger: LedgerId, entry: EntryId) -> tuple[int, bytes]:
            return (Code.OK, book.content(entry)) if bookie == "b4" and entry in has else (Code.NO_ENTRY, b"")

        return SimpleNamespace(read=read)

    judge.durability.start = start
    judge.saved()
    judge.stored(LEDGER, CHANGED)
    judge.stored(LEDGER, replace(CHANGED, state=LedgerState.CLOSED, last_entry=END, length=book.length(END)))
    judge.stored(LEDGER, None)
    judge.put_back(RESTORED)
    return judge


def test_a_ledger_that_was_deleted_since_is_as_the_backup_has_it() -> None:
    """It is open, and its last fragment names another bookie than before the deletion: no place of that one moved."""
    restored(has=(0, 1)).stored(LEDGER, MOVED)


def test_who_gets_a_place_of_it_must_have_its_entries() -> None:
    with pytest.raises(Violation, match="R1: b4 has a place of ledger 0, and not its entry 1"):
        restored(has=(0,)).stored(LEDGER, MOVED)
