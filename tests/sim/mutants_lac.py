"""Planted bugs of a bookie's explicit LACs, long polls, deferred adds and forces."""

from __future__ import annotations

from sim.mutants import BOOKIE, Mutant

UNIT = "tests/unit/bookkeeper/bookie/"

LAC_MUTANTS = (
    Mutant(
        "a checkpoint forgets explicit LACs",
        BOOKIE + "checkpoints.py",
        "explicit_lacs=ledgers.explicit_lacs.copy()",
        "explicit_lacs={}",
        killer="sim storage",
    ),
    Mutant(
        "a replay forgets explicit LACs",
        BOOKIE + "records.py",
        "ledgers.explicit_lacs.note(self.ledger, self.body)",
        "pass",
        killer="sim storage",
    ),
    Mutant(
        "a lower explicit LAC replaces a higher one",
        BOOKIE + "explicit_lacs.py",
        "_lac_of(body) <= self.lac(ledger)",
        "_lac_of(body) == self.lac(ledger)",
        killer="sim storage",
    ),
    Mutant(
        "the next ledger of an id has the LAC of the deleted one",
        BOOKIE + "ledgers.py",
        "        self.explicit_lacs.forget(ledger)\n        self.places",
        "        self.places",
        killer="sim storage",
    ),
    Mutant(
        "an explicit LAC is acknowledged before it is durable (P1)",
        BOOKIE + "lac_service.py",
        "commit=self._storage.newest_commit) if code",
        "commit=0) if code",
        killer=UNIT + "test_lac_service.py",
    ),
    Mutant(
        "who has another key sets the LAC",
        BOOKIE + "ledgers.py",
        "return Code.OK if hmac.compare_digest(held_ledger.key, key) else Code.UNAUTHORIZED",
        "return Code.OK",
        killer="sim storage",
    ),
    Mutant(
        "a long poll is answered by the LAC that it knows already",
        BOOKIE + "lac_watchers.py",
        "while items and items[0][0] < below and",
        "while items and items[0][0] <= below and",
        killer=UNIT + "test_lac_watchers.py",
    ),
    Mutant(
        "a long poll gets an entry that is not confirmed (Q6)",
        BOOKIE + "lac_service.py",
        "if lac < next_entry:",
        "if lac < next_entry - 1:",
        killer=UNIT + "test_lac_service.py",
    ),
    Mutant(
        "a fence leaves followers waiting",
        BOOKIE + "service.py",
        "            self.polls.fenced(read.ledger)\n",
        "            pass\n",
        killer=UNIT + "test_lac_service.py",
    ),
    Mutant(
        "the LAC of another ledger of the id is told",
        BOOKIE + "lac_service.py",
        "return None if self._identities.needs_comparison(ledger) else self._storage.known_lac(ledger)",
        "return self._storage.known_lac(ledger)",
        killer=UNIT + "test_lac_service.py",
    ),
    Mutant(
        "polls of connections that have ended stay",
        BOOKIE + "server.py",
        "        self._polls.forget(session)\n",
        "",
        killer=UNIT + "test_server_v3.py",
    ),
    Mutant(
        "recovery's adds are deferred (Q14)",
        BOOKIE + "service.py",
        "is_deferred = add.deferred and not add.recovery",
        "is_deferred = add.deferred",
        killer=UNIT + "test_wire_v3.py",
    ),
    Mutant(
        "a force is answered before the disk has what was acknowledged",
        BOOKIE + "holdings.py",
        "return ServiceResponse(Code.OK, commit=self._storage.newest_commit)",
        "return ServiceResponse(Code.OK)",
        killer=UNIT + "test_holdings.py",
    ),
    Mutant(
        "a deferred add is acknowledged when it is in memory alone",
        BOOKIE + "session.py",
        "            self._around.committer.hold_until_written(self, result.when_written, result.written_commit)\n",
        "            self._around.committer.flush()\n            self.deliver(result.when_written)\n",
        killer=UNIT + "test_server_v3.py",
    ),
    Mutant(
        "a force does not sync what was deferred",
        BOOKIE + "committer.py",
        "        self._wanted = max(self._wanted, commit)\n",
        "",
        killer=UNIT + "test_committer.py",
    ),
    Mutant(
        "what is acknowledged by the ids of the request is stored by others",
        BOOKIE + "wire_v3.py",
        "_IDS.unpack_from(request.body) != (request.ledger, request.entry)",
        "not request.body",
        killer=UNIT + "test_wire_v3.py",
    ),
)
