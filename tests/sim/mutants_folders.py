"""Planted bugs in a bookie with several journals and ledger folders, each with the promise that it must break."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant


def _planted(name: str, module: str, old: str, new: str, promise: str, likely: tuple[int, ...] = ()) -> Mutant:
    killer, schedules = "sim storage folders", 250
    return Mutant(name, BOOKIE + module, old, new, killer=killer, schedules=schedules, promise=promise, likely=likely)


FOLDER_MUTANTS = (
    _planted(
        "the ledgers of a failed folder are not in limbo (Q15)",
        "checkpoints.py",
        "            self._ledgers.limbo.enter((ledger,))\n"
        "            places.put(ledger, places.of(ledger).left(folder))\n"
        "            if not count % STEP_LEDGERS:\n"
        "                yield\n"
        "        logs = {log for log in self._logs.logs if self.folders.folder_of(log) == folder}\n"
        "        for ledger in ledgers:\n"
        "            # Who looked at its entries until now has seen what is gone.\n"
        "            self._ledgers.limbo.enter([ledger])\n",
        "            places.put(ledger, places.of(ledger).left(folder))\n"
        "            if not count % STEP_LEDGERS:\n"
        "                yield\n"
        "        logs = {log for log in self._logs.logs if self.folders.folder_of(log) == folder}\n"
        "        for ledger in ledgers:\n"
        "            # Who looked at its entries until now has seen what is gone.\n",
        "denied",
    ),
    Mutant(
        "a ledger leaves limbo again by what the journal says of before (Q15)",
        BOOKIE + "records.py",
        "if self.era == ledgers.limbo_era:",
        "if True:",
        killer="tests/unit/bookkeeper/bookie/test_ledger_folders.py",
    ),
    _planted(
        "the ledgers of a lost journal are not in limbo (Q15)",
        "ledgers.py",
        "        for journal in journals:\n",
        "        for journal in ():\n",
        "lost",
    ),
    _planted(
        "the ledgers of an empty folder are not in limbo (Q15)",
        "ledgers.py",
        "                self.limbo.enter((ledger,))\n                self.places.put",
        "                self.places.put",
        "lost",
    ),
    _planted(
        "a new ledger of a lost journal is denied (Q15)",
        "storage.py",
        "return ledger in self.limbo or (bool(self.lost_journals) and ledger not in self._ledgers.alive)",
        "return ledger in self.limbo",
        "lost",
    ),
    _planted(
        "the older copy of the state holds",
        "restart.py",
        "state.layout.number > stored.layout.number",
        "state.layout.number < stored.layout.number",
        "lost",
    ),
    _planted(
        "a start answers by a state that only one folder has",
        "restart.py",
        "    if start.lags:\n",
        "    if False:\n",
        "lost",
        likely=(128,),
    ),
    _planted(
        "a journal is freed by the mark of another",
        "journals.py",
        "            journal.release(number)\n",
        "            journal.release(max(mark.journals))\n",
        "refused",
    ),
    _planted(
        "one journal is synced for all (P1)",
        "journals.py",
        "                self._journals[number].sync()\n",
        "                self._journals[0].sync()\n",
        "lost",
    ),
    _planted(
        "a part that was written is written again",
        "journals.py",
        "if part.number > self._written[journal]:",
        "if True:",
        "refused",
    ),
)
