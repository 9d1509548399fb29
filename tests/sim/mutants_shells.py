"""Bugs planted in shells, which whole clients and bookies must show."""

from __future__ import annotations

from sim.mutants import BOOKIE, LEDGER, Mutant


def _planted(name: str, module: str, old: str, new: str, schedules: int = 100) -> Mutant:
    return Mutant(name, module, old, new, killer="sim cluster", schedules=schedules)


SHELL_MUTANTS = (
    _planted(
        "what a rival closed is closed again (P3)",
        LEDGER + "changes.py",
        (
            "        if metadata.is_closed:\n"
            "            return None\n"
            "        if metadata.state is not LedgerState.IN_RECOVERY or "
        ),
        "        if ",
    ),
    _planted(
        "a change whose answer was lost is taken for made (P3)",
        LEDGER + "changes.py",
        "if doubtful_writes and is_made(new_metadata, newest.value):",
        "if doubtful_writes:",
        schedules=300,
    ),
    Mutant(
        "the fragments of a recovery are not stored (P7)",
        LEDGER + "changes.py",
        "        for fragment in fragments:\n            metadata =",
        "        for fragment in ():\n            metadata =",
        killer="tests/unit/bookkeeper/ledger/test_recover.py",
    ),
    _planted(
        "a new fragment begins one entry late (P8)",
        LEDGER + "changes.py",
        "return metadata.with_fragment(first, await",
        "return metadata.with_fragment(first + 1, await",
    ),
    _planted(
        "a new bookie in a place gets no channel of its own (P1)",
        LEDGER + "replicas.py",
        "*self._ensemble[slot + 1 :])\n                self.resume(slot)",
        "*self._ensemble[slot + 1 :])",
    ),
    _planted(
        "only what was sent last is sent again (P9)",
        LEDGER + "replicas.py",
        "        for run in self._sent_runs:\n            low, high",
        "        for run in list(self._sent_runs)[-1:]:\n            low, high",
    ),
    _planted(
        "frames are dropped with the first of them confirmed (P9)",
        LEDGER + "replicas.py",
        "            if last <= lac:\n",
        "            if run.first <= lac:\n",
    ),
    _planted(
        "what a connection owes when it ends is nobody's (P9)",
        LEDGER + "link.py",
        "        unanswered_entries = [*self._outstanding.take_all(), *unreported]\n",
        "        unanswered_entries = unreported\n",
    ),
    _planted(
        "the beginning of a frame is lost between two reads (P9)",
        LEDGER + "link.py",
        "        self._filled = rest\n",
        "        self._filled = 0\n",
    ),
    _planted(
        "a bookie that does not answer a recovery says no (Q15, P2)",
        LEDGER + "recover.py",
        "return ReplicaResponse.UNKNOWN, str(error), None, nothing",
        "return ReplicaResponse.NO, str(error), None, nothing",
    ),
    _planted(
        "a recovery counts what it writes back twice (P3)",
        LEDGER + "recover.py",
        "header.length - len(payload),",
        "header.length,",
    ),
    Mutant(
        "a bookie that failed a write-back is taken again (P9)",
        LEDGER + "recover.py",
        ", never=self._avoided_bookies",
        "",
        killer="tests/unit/bookkeeper/ledger/test_recover.py",  # two bookies must fail one recovery
    ),
    _planted(
        "answers do not wait for their commit (P1)",
        BOOKIE + "committer.py",
        "            commit = self._storage.take()\n",
        (
            "            self._synced = self._storage.newest_commit\n            self._deliver()\n"
            "            commit = self._storage.take()\n"
        ),
    ),
    _planted(
        "a session answers what is not durable (P1)",
        BOOKIE + "session.py",
        "            self._around.committer.hold(self, result.when_durable, result.commit)\n",
        "            self._write(result.when_durable, result.durable_size)\n",
    ),
    Mutant(
        "a commit without space is taken for written (P1)",
        BOOKIE + "committer.py",
        "                self._retry = self._loop.call_later(RETRY_S, self._write, commit)\n",
        "                self._finish(commit.number)\n",
        killer="tests/unit/bookkeeper/bookie/test_committer.py",  # none of 400 schedules met it
    ),
    Mutant(
        "what came during a commit is never committed (P9)",
        BOOKIE + "committer.py",
        ("        if self._storage.staged or self._wanted > self._synced:\n            self._start()\n"),
        "",
        killer="tests/unit/bookkeeper/bookie/test_committer.py",  # the LAC of an idle writer begins a commit, too
    ),
    _planted(
        "collection deletes what is stored, whatever was proven (P8)",
        BOOKIE + "upkeep.py",
        "collecting(candidates(), again)",
        "collecting(self._storage.ledger_ids(), again)",
    ),
    Mutant(
        "a listing that may have been changed is taken for unchanged (P9)",
        BOOKIE + "listing.py",
        "            self._shown = None\n",
        "",
        killer="tests/unit/bookkeeper/bookie/test_listing.py",  # one of hundreds of schedules meets it
    ),
    _planted(
        "a reader goes as far as bookies have entries (Q6, P5)",
        LEDGER + "lac.py",
        "lacs.append(digest.decode(ledger, None, last_entry)[0].lac)",
        "lacs.append(digest.decode(ledger, None, last_entry)[0].entry)",
    ),
    Mutant(
        "a ledger that is closed while it is opened stays open for its reader (P9)",
        LEDGER + "reader.py",
        "        reader._changed.set()  # the watch",
        "        # the watch",
        killer="tests/unit/bookkeeper/ledger/test_reader.py",  # the close must come between two calls of the open
    ),
    _planted(
        "an entry is acknowledged with the one before it (P4)",
        LEDGER + "pending.py",
        "while appends and appends[0][0] <= lac:",
        "while appends and appends[0][0] <= lac + 1:",
    ),
    _planted(
        "a close waits for nothing that is under way (P2)",
        LEDGER + "writer.py",
        "                await session.confirmed()\n",
        "                pass\n",
    ),
    _planted(
        "an entry says that the one before it was confirmed (P5)",
        LEDGER + "add_session.py",
        "run.first, lac, before, payloads, compute",
        "run.first, run.first - 1, before, payloads, compute",
    ),
    # A bookie writes no later commit before the sync of a force: schedules hardly meet it.
    Mutant(
        "a force covers what is acknowledged while it is under way (Q5)",
        LEDGER + "forces.py",
        "        return last, length\n",
        "        return self._acked, self._acked_length\n",
        killer="tests/unit/bookkeeper/ledger/test_forces.py -k comes_during_a_force",
    ),
    Mutant(
        "a force does not look whether the ledger is open (P2)",
        LEDGER + "forces.py",
        "await _all((require_open(self._driver, self._ledger), *(self._force_slot(slot) for slot in slots)))",
        "await _all(self._force_slot(slot) for slot in slots)",
        killer="tests/unit/bookkeeper/ledger/test_force_proofs.py -k wrote_back",
    ),
    Mutant(
        "what is confirmed in part has the length of all that was sent with it (P3)",
        LEDGER + "replicas.py",
        "run.frames.length(lac - run.first)",
        "run.frames.length(len(run.frames) - 1)",
        killer="tests/unit/bookkeeper/ledger/test_closing.py -k batch",
    ),
)
