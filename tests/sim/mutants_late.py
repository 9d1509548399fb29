"""Bugs planted in what comes late: a change of metadata behind a lost lock or answer, and the answer of a process whose
bookie is registered elsewhere by then.
"""

from __future__ import annotations

from sim.mutants import Mutant

REPAIR, LEDGER = "bookkeeper/repair/", "bookkeeper/ledger/"
GIVE_UP = "tests/unit/bookkeeper/repair/test_give_up_late.py"
IDENTITY = "tests/unit/bookkeeper/ledger/test_identity.py"
LOCKS = "tests/unit/bookkeeper/repair/test_lost_locks.py"


def _planted(name: str, module: str, old: str, new: str, killer: str = GIVE_UP) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


LATE_MUTANTS = (
    _planted(
        "a bookie may be back when its entries are given up",
        REPAIR + "give_up.py",
        "        requirement = Requirement(check, shown.absent)\n",
        "        requirement = Requirement(check)\n",
    ),
    _planted(
        "a bookie may be back when a ledger is closed without it",
        LEDGER + "recover.py",
        "changes.ALWAYS if self._forfeit is None else self._forfeit.requirement\n",
        "changes.ALWAYS\n",
    ),
    _planted(
        "a change of an older fragment, or of what is lost, is taken for made when its answer was lost",
        LEDGER + "changes.py",
        "change, is_made=operator.eq, requirement=requirement)\n",
        "change, requirement=requirement)\n",
    ),
    _planted(
        "a change is sent again without a look at the lock",
        LEDGER + "changes.py",
        "            await requirement.check()\n",
        "            if not doubtful_writes:\n                await requirement.check()\n",
        killer=LOCKS,
    ),
    _planted(
        "who lost its lock gives entries up that another made good",
        REPAIR + "give_up.py",
        "            if not await tree.holds(self._ledger):\n",
        "            if False:\n",
    ),
    _planted(
        "entries are given up of a ledger that changed since the look",
        REPAIR + "give_up.py",
        "            if newest != versioned.value:\n",
        "            if False:\n",
    ),
    _planted(
        "a process that hung is believed though its bookie rejoined elsewhere (Q15)",
        LEDGER + "identity.py",
        "        self._identity, self._is_stale = None, True\n",
        "        pass\n",
        killer=IDENTITY,
    ),
    _planted(
        "what was read of a bookie before the registrations changed counts behind that",
        LEDGER + "identity.py",
        "                while self._is_stale:\n",
        "                if self._is_stale:\n",
        killer=IDENTITY,
    ),
    _planted(
        "a connection to a process whose bookie is registered elsewhere stays",
        LEDGER + "bookie_peer.py",
        "self._address not in (None, address):\n",
        "False:\n",
        killer=IDENTITY,
    ),
)
