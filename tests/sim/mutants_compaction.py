"""Planted bugs in the rewriting of entry logs: what is live moves, and nothing is deleted before."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

_TEST = "tests/unit/bookkeeper/bookie/test_compaction.py"


def _planted(name: str, module: str, old: str, new: str, killer: str = "sim storage") -> Mutant:
    return Mutant(name, BOOKIE + module, old, new, killer=killer, wanted=lambda seed: seed % 7 in (0, 3))


COMPACTION_MUTANTS = (
    _planted(
        "the old logs are deleted while the state file still has them (P1)",
        "checkpoints.py",
        "        self._result = self._writer.write(plan)\n",
        "        for log in plan.rewritten:\n"
        "            remove_log(self._disk, self.folders.directory(log), log)\n"
        "        self._result = self._writer.write(plan)\n",
    ),
    _planted(
        "the old logs are deleted before the copies are synced (P1)",
        "compaction.py",
        "            for ledger in sorted(self._live):\n",
        "            for log in self._sources:\n"
        "                self._disk.unlink(log_path(self._directory, log))\n"
        "            for ledger in sorted(self._live):\n",
    ),
    _planted(
        "a new log counts before it is synced (P1)",
        "entry_log.py",
        "        self._file.sync()\n        self._file.close()\n",
        "        self._file.close()\n",
    ),
    _planted(
        "the index points at the old log (P6)",
        "checkpoints.py",
        "                    yield from self._ledgers.move(log.id, part, plan.rewritten)\n",
        "                    yield from ()\n",
        _TEST,
    ),
    _planted(
        "what was copied hides a newer version (P6)",
        "ledgers.py",
        "location if index.get(pages, entry) >> index.OFFSET_BITS in sources else 0",
        "location",
        _TEST,
    ),
    _planted(
        "the new log has the id of a checkpoint that is older than what it holds (P6)",
        "checkpoints.py",
        "        log = self._ledgers.next_log\n        self._ledgers.next_log += 1\n        there",
        "        log = self._ledgers.next_log + 2\n        self._ledgers.next_log += 1\n        there",
        _TEST,
    ),
    _planted(
        "a live entry is dropped (Q15)",
        "compaction.py",
        "        if location and index.get(pages, entry) == location\n",
        "        if location and index.get(pages, entry) == location and entry != first\n",
        _TEST,
    ),
    _planted(
        "the last slice of a ledger is dropped (Q15)",
        "compaction.py",
        " or at == len(locations):\n",
        ":\n",
        _TEST,
    ),
    _planted(
        "a log that cannot be read goes with those that were rewritten (Q15)",
        "upkeep.py",
        "                victims = [log for log in victims if log != error.log]\n                continue\n",
        "                compaction.victims, compaction.new_log = tuple(victims), None\n",
        "tests/unit/bookkeeper/bookie/test_upkeep.py",
    ),
    _planted(
        "room is looked for when the disk is full",
        "checkpoints.py",
        'return "" if free >= needed else',
        'return "" if free else',
        _TEST,
    ),
)
