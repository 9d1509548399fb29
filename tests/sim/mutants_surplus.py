"""Bugs planted where a bookie drops copies that others have: what would drop one that nobody else has."""

from __future__ import annotations

from sim.mutants import Mutant

BOOKIE, REPAIR = "bookkeeper/bookie/", "bookkeeper/repair/"
CORE = "tests/unit/bookkeeper/bookie/test_surplus.py"
WHOLE = "tests/unit/bookkeeper/repair/test_surplus.py"


def _planted(name: str, module: str, old: str, new: str, killer: str = WHOLE) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


def _met(name: str, module: str, old: str, new: str, *, schedules: int, promise: str) -> Mutant:
    return Mutant(name, module, old, new, killer="sim repairs", schedules=schedules, promise=promise)


SURPLUS_MUTANTS = (
    _met(
        "a bookie drops what the metadata places there",
        BOOKIE + "surplus.py",
        "is_surplus = metadata.is_closed and not is_named and",
        "is_surplus = metadata.is_closed and",
        schedules=12,
        promise="R5",
    ),
    _met(
        "a copy that others have is never dropped",
        REPAIR + "surplus.py",
        "return not faults and self._check.unknown == unknown",
        "return bool(faults)",
        schedules=24,
        promise="R4",
    ),
    _met(
        "who dropped a copy lets the old writer in",
        BOOKIE + "ledgers.py",
        "        held_ledger.born, held_ledger.last, held_ledger.pages = self.next_log, NO_ENTRY, index.Pages()\n",
        (
            "        held_ledger.born, held_ledger.last, held_ledger.pages = self.next_log, NO_ENTRY, index.Pages()\n"
            "        held_ledger.fenced = False\n"
        ),
        schedules=24,
        promise="R5",
    ),
    _planted(
        "copies of an open ledger are dropped",
        BOOKIE + "surplus.py",
        "is_surplus = metadata.is_closed and not is_named and",
        "is_surplus = not is_named and",
        CORE,
    ),
    _planted(
        "copies of another ledger with its id are dropped",
        BOOKIE + "surplus.py",
        " and identity.creation == node.creation\n",
        "\n",
        CORE,
    ),
    _planted(
        "the last copies of a ledger with lost entries are dropped",
        BOOKIE + "surplus.py",
        "return metadata if is_surplus and not has_lost else None",
        "return metadata if is_surplus else None",
        CORE,
    ),
    _planted(
        "very much is dropped at once",
        BOOKIE + "surplus.py",
        "or len(surplus) <= rules.large_share * stored:",
        "or stored:",
        CORE,
    ),
    _planted(
        "silence is a copy (Q15)",
        REPAIR + "surplus.py",
        "return not faults and self._check.unknown == unknown",
        "return not faults",
    ),
    _planted(
        "who is away or in limbo has its copies",
        REPAIR + "surplus.py",
        "return info is None or may_lack(info)",
        "return False",
    ),
    _planted(
        "copies are dropped though the lock was lost",
        REPAIR + "surplus.py",
        "creations = {ledger: creation for ledger, creation in whole.items() if await tree.holds(ledger)}",
        "creations = whole",
    ),
    _planted(
        "copies of a ledger with a mark or a finding are dropped",
        REPAIR + "surplus.py",
        "if await self._tree.read_mark(ledger) is not None or await",
        "if await self._tree.read_mark(ledger) is not None and await",
    ),
    _planted(
        "a copy that came meanwhile is dropped, in memory",
        BOOKIE + "checkpoints.py",
        "held_ledger.fenced and self._tables.last(ledger) == NO_ENTRY:",
        "held_ledger.fenced:",
    ),
    _planted(
        "a copy that came meanwhile is dropped, in a log",
        BOOKIE + "surplus.py",
        "                if self.counts.checkpoints == checkpoints:\n",
        "                if checkpoints >= 0:\n",
    ),
    _planted(
        "dropped entries come back with the next start",
        BOOKIE + "ledgers.py",
        "        held_ledger.born, held_ledger.last, held_ledger.pages = self.next_log, NO_ENTRY, index.Pages()\n",
        "        held_ledger.last, held_ledger.pages = NO_ENTRY, index.Pages()\n",
    ),
)
