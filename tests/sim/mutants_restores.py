"""Planted bugs in what holds after metadata was restored, and in how a damaged index of an entry log is made anew."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

METADATA = "bookkeeper/metadata/"
_HOLD = "tests/unit/bookkeeper/bookie/test_restore_hold.py"
_RECONCILE = "tests/unit/admin/test_reconcile.py"
_SURPLUS = "tests/unit/bookkeeper/repair/test_surplus.py"
_INDEX = "tests/unit/bookkeeper/bookie/test_index_rebuild.py"


def _planted(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


RESTORE_MUTANTS = (
    _planted(
        "a collection over restored metadata deletes what that lacks",
        BOOKIE + "collection.py",
        "                await self._say(action, restored, tree)\n                return 0\n",
        "                await self._say(action, restored, tree)\n",
        _HOLD,
    ),
    _planted(
        "metadata that is restored while it is looked through is believed",
        BOOKIE + "collection.py",
        "            if await self._hold.look(tree) is not None:\n                raise",
        "            if restored is not None:\n                raise",
        _HOLD,
    ),
    _planted(
        "an order deletes what restored metadata lacks",
        BOOKIE + "collection.py",
        "            if restored is not None:\n                await self._say",
        "            if restored is not None and not override:\n                await self._say",
        _HOLD,
    ),
    _planted(
        "a restore that cannot be read is none",
        METADATA + "restored.py",
        "        return None if node is None else Versioned(decode(node.data, self._path), node.version)\n",
        "        try:\n"
        "            return None if node is None else Versioned(decode(node.data, self._path), node.version)\n"
        "        except MetadataError:\n"
        "            return None\n",
        _HOLD,
    ),
    _planted(
        "a restore ends with the first look at it",
        METADATA + "restored.py",
        "restored.value.confirmed_ms is not None else restored.value",
        "restored.value.epoch else restored.value",
        _HOLD,
    ),
    _planted(
        "a server that lags says whether the metadata was restored",
        METADATA + "restored.py",
        "        await self._store.sync()\n",
        "",
        _HOLD,
    ),
    _planted(
        "copies that are surplus go when the metadata was restored meanwhile",
        "bookkeeper/repair/surplus.py",
        "        if await restored.held() is not None:\n            return ()\n        return await own.drop",
        "        return await own.drop",
        _SURPLUS,
    ),
    _planted(
        "what bookies said of the restore before counts",
        "admin/reconcile.py",
        "if survey.epoch == restored.value.epoch",
        "if survey.epoch",
        _RECONCILE,
    ),
    _planted(
        "deletions go on though a bookie has not said what it has",
        "admin/reconcile.py",
        "if missing := [name for name in unheard if name not in without]:",
        "if missing := [name for name in unheard if without and name not in without]:",
        _RECONCILE,
    ),
    _planted(
        "who looked before another restore confirms that one",
        METADATA + "restored.py",
        "Update(self._path, encode(confirmed), version)",
        "Update(self._path, encode(confirmed), (await self._store.get(self._path)).version)",
        _RECONCILE,
    ),
    _planted(
        "a ledger that one bookie would delete counts as kept",
        "admin/reconcile.py",
        "all(is_kept for _, is_kept in present)",
        "any(is_kept for _, is_kept in present)",
        _RECONCILE,
    ),
    _planted(
        "a survey hides ledgers that are newer than the metadata among those that lack",
        BOOKIE + "restore_hold.py",
        "        if ledger in without:\n            continue\n",
        "",
        _HOLD,
    ),
)

INDEX_MUTANTS = (
    _planted(
        "a rebuilt index leaves nobody in doubt (Q15)",
        BOOKIE + "restart.py",
        "if ledger in ledgers.alive and rebuilt.may_lack(ledger)",
        "if False and rebuilt.may_lack(ledger)",
        _INDEX,
    ),
    _planted(
        "doubts are entered before the journal is replayed (Q15)",
        BOOKIE + "restart.py",
        "    numbers, replay_stats = _replay(journals, start.marks, ledgers, tables)\n"
        "    ledgers.lose(start.lost_folders, start.lost_journals)\n"
        "    for rebuilt in logs.rebuilt:  # only now: the journal may say that some left limbo, before this damage\n"
        "        ledgers.limbo.enter(ledger for ledger in state.ledgers "
        "if ledger in ledgers.alive and rebuilt.may_lack(ledger))\n",
        "    for rebuilt in logs.rebuilt:\n"
        "        ledgers.limbo.enter(ledger for ledger in state.ledgers "
        "if ledger in ledgers.alive and rebuilt.may_lack(ledger))\n"
        "    numbers, replay_stats = _replay(journals, start.marks, ledgers, tables)\n"
        "    ledgers.lose(start.lost_folders, start.lost_journals)\n",
        _INDEX,
    ),
    _planted(
        "of a span in doubt the first ledger is not (Q15)",
        BOOKIE + "index_rebuild.py",
        "any(first <= ledger <= last for",
        "any(first < ledger <= last for",
        _INDEX,
    ),
    _planted(
        "of a span in doubt the last ledger is not (Q15)",
        BOOKIE + "index_rebuild.py",
        "any(first <= ledger <= last for",
        "any(first <= ledger < last for",
        _INDEX,
    ),
    _planted(
        "the end of a log that nothing proves leaves nobody in doubt (Q15)",
        BOOKIE + "index_rebuild.py",
        "            doubts.append((self._last[0], _MOST[0]))\n",
        "",
        _INDEX,
    ),
    _planted(
        "a chunk of a damaged index counts without its checksum",
        BOOKIE + "index_rebuild.py",
        "if crc32c(data) == checksum and (first",
        "if (first",
        _INDEX,
    ),
    _planted(
        "frames of a later place count before it",
        BOOKIE + "index_rebuild.py",
        "is not None and last < key < before:",
        "is not None and last < key:",
        _INDEX,
    ),
    _planted(
        "what makes no sense is left out of the log's checksums",
        BOOKIE + "index_rebuild.py",
        "            self._seal(end, data)\n            end += len(data)\n",
        "            end += len(data)\n",
        _INDEX,
    ),
    _planted(
        "a rebuilt index is in its place before its doubts are durable (Q15)",
        BOOKIE + "entry_log.py",
        "            self.rebuilt.append(made)\n",
        "            self.rebuilt.append(made)\n"
        "            self.write_rebuilt()\n"
        "            self.rebuilt.append(made)\n",
        _INDEX,
    ),
    _planted(
        "a checkpoint without a table writes rebuilt indexes (Q15)",
        BOOKIE + "checkpoints.py",
        "        if plan.table is not None:  # else a replay",
        "        if plan is not None:  # else a replay",
        _INDEX,
    ),
    _planted(
        "a log that is not this one is taken for it",
        BOOKIE + "index_rebuild.py",
        "        if (magic, stored_id) != (LOG_MAGIC, self._id) and not self._proven:\n",
        "        if magic != LOG_MAGIC and not self._proven:\n",
        _INDEX,
    ),
    _planted(
        "a stop leaves a damaged index as it is",
        BOOKIE + "checkpoints.py",
        "return self._newest_commit() == self._mark.number and not self._logs.rebuilt",
        "return self._newest_commit() == self._mark.number",
        _INDEX,
    ),
)
