"""Bugs planted in streams, which whole owners, readers and consumers must show."""

from __future__ import annotations

from sim.mutants import Mutant

STREAM = "bookkeeper/stream/"


def _planted(name: str, module: str, old: str, new: str, promise: str, *seeds: int) -> Mutant:
    """One that breaks ``promise`` ("": any) in one of these schedules."""
    return Mutant(
        name,
        STREAM + module,
        old,
        new,
        killer="sim streams",
        schedules=len(seeds),
        wanted=lambda seed: seed in seeds,
        promise=promise,
    )


STREAM_MUTANTS = (
    _planted(
        "a new owner fences nobody (S4)",
        "opening.py",
        "async with context.ledgers.open_ledger(ledger, recover=True) as reader:",
        "async with context.ledgers.open_ledger(ledger) as reader:",
        "",
        0,
        1,
        2,
        3,
    ),
    _planted(
        "a new owner drops a ledger of one entry (S7)",
        "opening.py",
        "ledgers = (*[each for each in kept if each.entries], StreamLedger",
        "ledgers = (*[each for each in kept if each.entries > 1], StreamLedger",
        "",
        0,
        1,
        2,
    ),
    _planted(
        "what a new owner drops is noted nowhere (S8)",
        "opening.py",
        "return ListChange(replace(info, ledgers=ledgers), dropped, (ledger,))",
        "return ListChange(replace(info, ledgers=ledgers), (), (ledger,))",
        "S8",
        0,
        1,
        2,
    ),
    _planted(
        "a ledger that cannot be closed counts as closed (S4)",
        "ledger_steps.py",
        "            return self._core.not_ended(self._failed(error), self._now())\n",
        "            pass\n",
        "",
        1,
        4,
        11,
    ),
    _planted(
        "a ledger takes one entry more than it should (S4)",
        "rollover.py",
        "return self._limits.max_entries - self.entries",
        "return self._limits.max_entries + 1 - self.entries",
        "S4",
        0,
        1,
        2,
    ),
)
