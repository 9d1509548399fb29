"""Planted bugs that a simulated restore of metadata finds: in the restore, in reconcile, in the hold of bookies, and in
who repairs by older ensembles."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

METADATA, REPAIR = "bookkeeper/metadata/", "bookkeeper/repair/"
SCHEDULES = 24


def _met(name: str, module: str, old: str, new: str, promise: str, *likely: int) -> Mutant:
    return Mutant(name, module, old, new, killer="sim restores", schedules=SCHEDULES, promise=promise, likely=likely)


RESTORED_MUTANTS = (
    _met(
        "a restore gives ids from the backup's next one on",
        METADATA + "sqlite_copies.py",
        "            _raise_counter(connection, what.next_ledger)\n",
        "",
        "M1",
        11,
        18,
        6,
    ),
    _met(
        "a restore believes the backup's ids where the newer file is gone",
        "admin/backup.py",
        "        *(ledger + 1 for ledger in _drawn([*highest.values()], kept, present)),\n",
        "",
        "M1",
        4004,
    ),
    _met(
        "the highest id that a bookie has is given out again",
        "admin/backup.py",
        "*(ledger + 1 for ledger in _drawn",
        "*(ledger for ledger in _drawn",
        "M1",
        4004,
    ),
    _met(
        "of a stopped bookie the journal is not asked for ids",
        BOOKIE + "highest.py",
        '            if name.endswith(".segment"):\n',
        '            if name.endswith(".segments"):\n',
        "M1",
        4004,
    ),
    _met(
        "a bookie that cannot be asked has no ledgers",
        "admin/backup.py",
        "    if unknown and next_ledger is None and do:\n",
        "    if unknown is None and do:\n",
        "M1",
        4,
        5,
    ),
    _met(
        "a restore leaves nothing of itself",
        METADATA + "sqlite_copies.py",
        "            _say_restored(connection, what)\n",
        "",
        "M2",
        1,
        0,
        2,
    ),
    _met(
        "a collection over restored metadata deletes",
        BOOKIE + "collection.py",
        "                await self._say(action, restored, tree)\n                return 0\n",
        "                await self._say(action, restored, tree)\n"
        "                actions = await in_turns(self._core.begin(stored, override=override))\n"
        "                while not isinstance(action := actions[0], Finish):\n"
        "                    actions = await self._perform(action)\n"
        "                return await self._finish(action)\n",
        "M2",
        18,
        15,
    ),
    _met(
        "no restore is held",
        METADATA + "restored.py",
        "        return None if restored is None or restored.value.confirmed_ms is not None else restored.value\n",
        "        return None\n",
        "M2",
        11,
        12,
        5,
    ),
    _met(
        "what is newer than the metadata is deleted as any other ledger",
        BOOKIE + "garbage.py",
        "            if ledger not in ahead:\n                deletable",
        "            if ledger >= 0:\n                deletable",
        "M3",
        1,
        3,
        0,
    ),
    _met(
        "later creations hide which ledgers are newer",
        BOOKIE + "garbage.py",
        "            if (creation > newest or creation in never_made) and ledger not in ahead:\n",
        "            if creation > newest and ledger not in ahead:\n",
        "M3",
        15,
    ),
    _met(
        "what is newer is not listed",
        "admin/reconcile.py",
        "        for runs, is_kept in ((survey.ahead, True), (survey.missing, False)):\n",
        "        for runs, is_kept in ((survey.missing, False),):\n",
        "M4",
        1,
        3,
        0,
    ),
    _met(
        "of a run the last ledger is not listed",
        "admin/reconcile.py",
        "                edges[last + 1].append((bookie, is_kept, -1))\n",
        "                edges[last].append((bookie, is_kept, -1))\n",
        "M4",
        1,
        3,
        0,
    ),
    _met(
        "a restore names no ledgers that are in recovery in the backup",
        "admin/backup.py",
        "if state is not LedgerState.CLOSED)),",
        "if state is LedgerState.OPEN)),",
        "M5",
        16,
        11,
        19,
    ),
    _met(
        "a ledger that was closed since the restore is open still",
        "admin/reconcile.py",
        "            if record is not None and record.state is not LedgerState.CLOSED\n",
        "            if record is not None\n",
        "M5",
        7,
        4,
        10,
    ),
    _met(
        "a restore names all ledgers of the newer file as lost",
        "admin/backup.py",
        "() if present is None else tuple(sorted(present.ledgers.keys() - kept.ledgers.keys())),",
        "() if present is None else tuple(sorted(present.ledgers.keys())),",
        "M5",
        1,
        3,
        0,
    ),
    _met(
        "what a bookie of an older ensemble lacks is not copied there",
        REPAIR + "ledger_repair.py",
        "                if good.frames:\n",
        "                if good.unknown:\n",
        "M8",
        29,
        30,
    ),
)
