"""Bugs planted where idle writers replace a bookie that is gone."""

from __future__ import annotations

from sim.mutants import Mutant

LEDGER = "bookkeeper/ledger/"
WHOLE = "tests/unit/bookkeeper/ledger/test_absences.py"


def _planted(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, module, old, new, killer=WHOLE)


ABSENCE_MUTANTS = (
    Mutant(
        "an idle writer hears of no lost bookie",
        LEDGER + "absences.py",
        "        directory.on_change(self._changed.set)\n",
        "",
        killer="sim repairs",
        schedules=60,
        promise="R6",
    ),
    _planted(
        "a bookie that is back is replaced",
        LEDGER + "absences.py",
        "            self._due_at.pop(bookie, None)\n",
        "            pass\n",
    ),
    _planted(
        "all idle writers change at once",
        LEDGER + "absences.py",
        "CHANGED_AT_ONCE = 16",
        "CHANGED_AT_ONCE = 1 << 20",
    ),
    _planted(
        "the grace of the metadata is not heeded",
        LEDGER + "absences.py",
        "after_s = min(after_s, delay.value * SHARE_OF_GRACE)",
        "after_s = max(after_s, delay.value * SHARE_OF_GRACE)",
    ),
    _planted(
        "an idle writer with deferred sync is ended",
        LEDGER + "writer.py",
        "        if self._deferred_sync or self._closing is not None or self._aborted",
        "        if self._closing is not None or self._aborted",
    ),
    _planted(
        "a bookie that nothing replaced is never tried again",
        LEDGER + "absences.py",
        "        self._tried.clear()\n",
        "",
    ),
    _planted(
        "idle writers without another bookie are degraded",
        LEDGER + "writer.py",
        "goes on without them, and one that does not needs none\n            return\n",
        "goes on without them, and one that does not needs none\n            pass\n",
    ),
    _planted(
        "a bookie that is read-only is replaced",
        LEDGER + "absences.py",
        "dict.fromkeys((*bookies.writable, *bookies.read_only))",
        "dict.fromkeys(bookies.writable)",
    ),
    _planted(
        "what could not be asked counts as replaced",
        LEDGER + "absences.py",
        "                if isinstance(result, BaseException):\n                    raise result\n",
        "                pass\n",
    ),
    _planted(
        "a look at the registrations that failed is the last one",
        LEDGER + "absences.py",
        "                self._changed.set()\n\n    async def _wait",
        "\n    async def _wait",
    ),
)
