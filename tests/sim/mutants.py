"""Planted bugs, each with what must find it. ``old`` stands exactly once in its module; a survivor fails CI."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

LEDGER = "bookkeeper/ledger/"
BOOKIE = "bookkeeper/bookie/"


@dataclass(frozen=True)
class Mutant:
    """``killer`` is a tier of the simulator with so many ``schedules``, or a pytest selection.

    The schedules are those of the ``likely`` seeds, which a change may make others of, and of the first ones that are
    ``wanted``. ``promise`` begins the violation that one of them must come to; of "" any one counts.
    """

    name: str
    module: str
    old: str
    new: str
    killer: str = "sim cluster"
    schedules: int = 200
    wanted: Callable[[int], bool] = lambda seed: True
    promise: str = ""
    likely: tuple[int, ...] = ()

    def seeds(self) -> list[int]:
        return [*self.likely, *itertools.islice(filter(self.wanted, itertools.count()), self.schedules)]


MUTANTS = (
    Mutant(
        "unknown counts as no (Q15)",
        LEDGER + "recovery.py",
        "if responses.count(ReplicaResponse.NO) >= self._no_needed:",
        "if len(responses) - responses.count(ReplicaResponse.YES) >= self.striping.no_quorum:",
    ),
    Mutant(
        "one no ends recovery (Q15)",
        LEDGER + "recovery.py",
        "if responses.count(ReplicaResponse.NO) >= self._no_needed:",
        "if responses.count(ReplicaResponse.NO) >= 1:",
    ),
    Mutant(
        "fence coverage of one bookie (Q12)",
        LEDGER + "recovery.py",
        "if self.striping.covered(certain_slots):",
        "if certain_slots:",
    ),
    Mutant(
        "coverage one short (Q12)",
        LEDGER + "striping.py",
        "for first in range(len(silent)))",
        "for first in range(1))",
    ),
    Mutant(
        "recovery starts from the LAC responses alone (Q13)",
        LEDGER + "recovery.py",
        "self.start: EntryId = max(metadata.last_entry, metadata.fragments[-1].first - 1)",
        "self.start: EntryId = metadata.last_entry",
        schedules=300,
    ),
    Mutant(
        "two changes of one recovery merge into one fragment (Q14)",
        LEDGER + "recovery.py",
        "if self._fragments and last.first == first:",
        "if self._fragments:",
        killer="tests/unit/bookkeeper/ledger/test_recovery.py",
    ),
    Mutant(
        "closing before the write-backs are confirmed (Q14)",
        LEDGER + "recovery.py",
        "        if self._writes.lac < end:\n            return []\n",
        "",
        schedules=400,
    ),
    Mutant(
        "write-backs spread the recovery's own LAC (P7)",
        LEDGER + "recovery.py",
        "        return self.start\n",
        "        return self._writes.lac\n",
        killer="tests/unit/bookkeeper/ledger/test_recovery.py",
    ),
    Mutant(
        "a gap does not end recovery",
        LEDGER + "recovery.py",
        "            return [*actions, *self._end()]\n",
        "            self._head += 1\n            return [*actions, *self._decide()]\n",
    ),
    Mutant(
        "acks at one less than the quorum (Q5)",
        LEDGER + "add.py",
        "first_unacked = max(marks[self.striping.ack_quorum - 1], self.lac + 1)",
        "first_unacked = max(marks[max(0, self.striping.ack_quorum - 2)], self.lac + 1)",
    ),
    Mutant(
        "entries are confirmed during an ensemble change (Q8)",
        LEDGER + "add.py",
        "if self._changing or not self._has_quorum(self.lac + 1):",
        "if not self._has_quorum(self.lac + 1):",
        killer="tests/unit/bookkeeper/ledger/test_add.py",
    ),
    Mutant(
        "acks of a replaced bookie still count (Q8)",
        LEDGER + "add.py",
        "            self._acked[slot] = self.lac + 1\n            self._early.pop(slot, None)\n",
        "            pass\n",
        killer="tests/unit/bookkeeper/ledger/test_add.py",
    ),
    Mutant(
        "a new bookie does not get the unconfirmed entries (Q8)",
        LEDGER + "add.py",
        "return [*resends, *self._replace(), *self._confirm()]",
        "return [*self._replace(), *self._confirm()]",
    ),
    Mutant(
        "the ensemble changes though another client recovers the ledger (P2)",
        LEDGER + "changes.py",
        "        _require_open(ledger, metadata)\n        if not any(",
        "        if not any(",
        killer="tests/unit/bookkeeper/ledger/test_changes.py",
    ),
    Mutant(
        "a writer closes a ledger that another client recovers (P3)",
        LEDGER + "changes.py",
        "        _require_open(ledger, metadata)\n        return metadata.closed(last_entry, length)",
        "        return metadata.closed(last_entry, length)",
        killer="tests/unit/bookkeeper/ledger/test_changes.py",
    ),
    Mutant(
        "recovery stores an end that it found in another ensemble (Q16)",
        LEDGER + "changes.py",
        "if metadata.state is not LedgerState.IN_RECOVERY or metadata.fragments[-1] != base.value.fragments[-1]:",
        "if metadata.state is not LedgerState.IN_RECOVERY:",
        killer="tests/unit/bookkeeper/ledger/test_changes.py",
    ),
    Mutant(
        "a missing bookie counts as an ack (P1)",
        LEDGER + "add.py",
        "acked = [self._watermark(slot) for slot in range(size)]",
        "lost, mark = self._missing_bookies, self._watermark\n"
        "        acked = [self._next if b in lost else mark(s) for s, b in enumerate(self.ensemble)]",
    ),
    Mutant(
        "a bookie that is back does not get the unconfirmed entries (P9)",
        LEDGER + "add.py",
        "return [Resume(slot), *resend]",
        "return [Resume(slot)]",
        schedules=300,
    ),
    Mutant(
        "a writer goes on after a change that may be stored (P8)",
        LEDGER + "shortage.py",
        "and not error.ambiguous",
        "",
        killer="tests/unit/bookkeeper/ledger/test_shortage.py",
    ),
    Mutant(
        "a fenced writer goes on elsewhere (Q11)",
        LEDGER + "add.py",
        "if code in UNRECOVERABLE:",
        "if False:",
        killer="tests/unit/bookkeeper/ledger/test_add.py",
    ),
    Mutant(
        "the stripe is one bookie off (Q4)",
        LEDGER + "striping.py",
        "return tuple((first + i) % ensemble_size for i in range(write_quorum))",
        "return tuple((first + i + 1) % ensemble_size for i in range(write_quorum))",
        killer="tests/unit/bookkeeper/ledger/test_striping.py",
    ),
    Mutant(
        "a lost journal commit goes unnoticed",
        BOOKIE + "journal.py",
        "            if commit.number != last + 1:\n",
        "            if commit.number <= last:\n",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a commit's checksum does not know its place",
        BOOKIE + "segment.py",
        "return crc32c(_SEED.pack(self.salt, offset))",
        "return 0",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a new use of a segment goes over its only whole header first",
        BOOKIE + "segment.py",
        "key=lambda copy: copy == self.header",
        "key=lambda copy: copy != self.header",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a commit is acknowledged and never written",
        BOOKIE + "journal.py",
        "                    newest_file.write([commit.data, padding(len(commit.data))], commit.start)\n",
        "                    pass\n",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "of several commits that no sync had reached a start makes the last one durable",
        BOOKIE + "journal.py",
        "if commit.number >= newest[-1].first_unsynced:",
        "if commit.number >= newest[-1].number:",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a commit does not say what was not synced before it",
        BOOKIE + "journal.py",
        "buffers, size = (record, *buffers), size + len(record)",
        "pass",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a start leaves commits behind that it has cut",
        BOOKIE + "journal.py",
        "                lost_file.write([_ZEROS[:BLOCK_BYTES]], commit.start)\n",
        "                pass\n",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a missing commit that had been synced is cut with those that had not (Q15)",
        BOOKIE + "journal.py",
        "if any(commit.number <= last or commit.first_unsynced > last + 1 for commit in lost):",
        "if any(commit.number <= last for commit in lost):",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "the journal goes to another segment and leaves one behind that is not synced",
        BOOKIE + "journal.py",
        "        self.sync()\n        with self._lock:\n",
        "        with self._lock:\n",
        killer="tests/unit/bookkeeper/bookie/test_journal.py",
    ),
    Mutant(
        "a journal record that only a newer version knows is skipped (Q15)",
        BOOKIE + "records.py",
        'raise of_a_newer_version("a record in the journal", path, offset + position, kind=kind, version=version)',
        "return CreationRecord(-1, UNKNOWN), stop",
        killer="tests/unit/bookkeeper/bookie/test_restart.py",
    ),
    Mutant(
        "a section of the state that only a newer version knows is passed over (Q15)",
        BOOKIE + "state.py",
        "if section is None or version >= len(section.readers):",
        "if section is None:\n            return\n        if version >= len(section.readers):",
        killer="tests/unit/bookkeeper/bookie/test_state.py",
    ),
    Mutant(
        "damage is answered with no such entry (Q15)",
        BOOKIE + "reads.py",
        'return Code.IO_ERROR, b""',
        'return Code.NO_ENTRY, b""',
        killer="tests/unit/bookkeeper/bookie/test_storage.py",
    ),
    Mutant(
        "a fence is not journalled (Q11)",
        BOOKIE + "storage.py",
        "                self._stage(ledger, records.Fence(ledger, master_key).encode())\n",
        "",
        killer="tests/unit/bookkeeper/bookie/test_storage.py",
    ),
    Mutant(
        "a fence does not survive a checkpoint (Q11)",
        BOOKIE + "state.py",
        "_FENCED * self.fenced | _UNMADE",
        "_UNMADE",
        killer="tests/unit/bookkeeper/bookie/test_state.py",
    ),
    Mutant(
        "deleting ledgers moves the mark past entries that are in memory alone",
        BOOKIE + "checkpoints.py",
        "self._state(self._mark, remembered)",
        "self._state(self._taken_commit(), remembered)",
        killer="sim storage",
        schedules=300,
    ),
    Mutant(
        "the id of a deleted ledger is free while the journal still has its entries",
        BOOKIE + "ledgers.py",
        "            return False\n        self._last_commits[ledger] = commit\n",
        "            return False\n",
        killer="sim storage",
        schedules=1_000,
    ),
    Mutant(
        "no room is kept for the state that frees a full disk",
        BOOKIE + "state_file.py",
        "            if file.size() < room:\n",
        "            if False:\n",
        killer="tests/unit/bookkeeper/bookie/test_state_file.py",
    ),
)
