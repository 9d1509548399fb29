"""Planted bugs at edges: a boundary, an order or a state that is left, each with the unit tests that find it."""

from __future__ import annotations

from sim.mutants import BOOKIE, LEDGER, Mutant

BROKER = "rocketmq/broker/"
REGISTRATION = "bookkeeper/metadata/registration.py"
_BOOKIE_TESTS, _LEDGER_TESTS = "tests/unit/bookkeeper/bookie/", "tests/unit/bookkeeper/ledger/"
_REGISTRATION_TESTS = "tests/unit/bookkeeper/metadata/test_registration.py --timeout 15"
_BROKER_TESTS = "tests/unit/rocketmq/broker/"
REMOTING, TURN_ORDER = "rocketmq/remoting/", "runtime/turn_order.py"
_TURN_ORDER_TESTS = "tests/unit/runtime/test_turn_order.py"


def _planted(name: str, module: str, old: str, new: str, killer: str) -> Mutant:
    return Mutant(name, module, old, new, killer=killer)


EDGE_MUTANTS = (
    _planted(
        "a start says that the log is durable before what a killed sync left in memory is (H11)",
        "rocketmq/store/recovery.py",
        "        _write_again(files, sync_record.synced if sync_record else end, end)\n",
        "        sidecar.write(now)\n        _write_again(files, sync_record.synced if sync_record else end, end)\n",
        "tests/unit/rocketmq/store/test_recovery_synced.py",
    ),
    _planted(
        "the last commit alone may lack, though the state says that it was synced (Q15)",
        BOOKIE + "journal.py",
        "segment.last < known_end.number:",
        "segment.last < known_end.number - 1:",
        _BOOKIE_TESTS + "test_journal.py",
    ),
    _planted(
        "a look from before a long poll waited answers it (Q15)",
        BOOKIE + "lac_service.py",
        "done(self._counted(self._polled(request, Verdict.UNKNOWN)))",
        "done(self._counted(self._polled(request, verdict)))",
        _BOOKIE_TESTS + "test_lac_service.py",
    ),
    _planted(
        "a long poll beyond the last id outlives a fence",
        BOOKIE + "long_polls.py",
        "self._pass(ledger, MAX_ID + 1)",
        "self._pass(ledger, MAX_ID)",
        _BOOKIE_TESTS + "test_long_polls.py",
    ),
    _planted(
        "a LAC that is told behind a fence takes that back",
        BOOKIE + "long_polls.py",
        " and lac > self._passed.get(ledger, NO_ENTRY)",
        "",
        _BOOKIE_TESTS + "test_long_polls.py",
    ),
    _planted(
        "a list of entries costs its host as little as a look",
        BOOKIE + "entry_lists.py",
        "self._turns.spent(owner, owner.peer, MOST_S)",
        "self._turns.spent(owner, owner.peer, 0.0)",
        _BOOKIE_TESTS + "test_entry_lists.py",
    ),
    _planted(
        "who waits for an older commit takes the sync from a newer one (P1)",
        BOOKIE + "committer.py",
        "self._wanted = max(self._wanted, commit)",
        "self._wanted = commit",
        _BOOKIE_TESTS + "test_committer.py",
    ),
    _planted(
        "what is to be flushed is written and not synced (P1)",
        BOOKIE + "committer.py",
        "            self._wanted = self._storage.newest_commit\n",
        "",
        _BOOKIE_TESTS + "test_committer.py",
    ),
    _planted(
        "strangers that have gone keep the places of their host (N3)",
        BOOKIE + "session.py",
        "            if self._handshake is not None:\n                self._handshake.end()\n"
        "            self._forget()",
        "            self._forget()",
        _BOOKIE_TESTS + "test_handshake.py",
    ),
    _planted(
        "a host is charged for no turn of a peer that is gone",
        TURN_ORDER,
        "        self._networks.spent(network, seconds)\n",
        "        if peer is not None:\n            self._networks.spent(network, seconds)\n",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "a look that fails is under way for ever",
        REMOTING + "memory.py",
        "        try:\n            yield from steps\n        finally:\n            self._is_dropping = False",
        "        yield from steps\n        self._is_dropping = False",
        "tests/unit/rocketmq/remoting/test_memory.py",
    ),
    _planted(
        "a change during a save waits for the next period",
        BROKER + "saver.py",
        "            self._due.clear()\n            is_all = self._clock.now() >= all_at\n"
        "            await self.save(urgent=not is_all)\n",
        "            is_all = self._clock.now() >= all_at\n"
        "            await self.save(urgent=not is_all)\n            self._due.clear()\n",
        _BROKER_TESTS + "test_saver.py",
    ),
    _planted(
        "what a peer does not take counts as its bytes",
        "runtime/unsent_writes.py",
        " + WRITE_BYTES * len(self._sizes)",
        "",
        "tests/unit/runtime/test_unsent_writes.py",
    ),
    _planted(
        "a debt is as large as all turns without a wait",
        TURN_ORDER,
        "most := level + MOST_S) > used:",
        "most := used + MOST_S) > used:",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "a turn is charged to the connection alone, and its host has turns for nothing",
        TURN_ORDER,
        "self._networks.spent(network, seconds)",
        "self._networks.spent(network, 0.0)",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "who comes has used nothing, whatever it used before",
        TURN_ORDER,
        "        if used is None:\n            self._know(key, used := least)",
        "        if used is None or key not in self._waiting:\n            self._know(key, used := least)",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "those that wait do so as long as newcomers come",
        TURN_ORDER,
        "+ cost / (2 * (1 + len(self._waiting)))",
        "+ 0.0",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "what a host had when nobody waited is never paid",
        TURN_ORDER,
        "self._know(key, level + cost)",
        "pass",
        _TURN_ORDER_TESTS,
    ),
    _planted(
        "a part of a turn has its time, whatever the turn took before it",
        "runtime/turn_time.py",
        "min(most_s, max(LEAST_S, self._ends_at - now))",
        "most_s",
        "tests/unit/runtime/test_turn_time.py",
    ),
    _planted(
        "all that rest read on in the next turn",
        "runtime/arena.py",
        "min(len(self._resting), READ_ON_EACH_TURN)",
        "len(self._resting)",
        "tests/unit/runtime/test_arena.py",
    ),
    _planted(
        "what is frozen is counted behind each long collection",
        "runtime/garbage.py",
        "self._last_count + self._freezes * FROZEN_AT_ONCE < enough",
        "enough < enough",
        "tests/unit/runtime/test_garbage.py",
    ),
    _planted(
        "requests that were put off are charged by their number",
        REMOTING + "backlog.py",
        "self._cpu - began + len(command.body) * BYTE_S",
        "0.0",
        "tests/unit/rocketmq/remoting/test_backlog.py",
    ),
    _planted(
        "a turn of the intake that was not enough for all is charged to nobody",
        REMOTING + "intake.py",
        "source.host, seconds)",
        "source.host, 0.0)",
        "tests/unit/rocketmq/remoting/test_intake.py",
    ),
    _planted(
        "a priority of 1 is none",
        BOOKIE + "wire_v3.py",
        "request.header.priority > 0",
        "request.header.priority > 1",
        _BOOKIE_TESTS + "test_wire_v3.py",
    ),
    _planted(
        "a rival's end in the same ensemble is taken for one whose answer was lost (P3)",
        LEDGER + "changes.py",
        "if doubtful_writes and is_made(new_metadata, newest.value):",
        "if doubtful_writes and newest.value.is_closed and newest.value.ensemble == new_metadata.ensemble:",
        _LEDGER_TESTS + "test_changes.py",
    ),
    _planted(
        "the wait for a quorum outlives its writer (Q9)",
        LEDGER + "shortage.py",
        "        self._restorer.leave(self)\n        self._wake_at(None)\n",
        "        self._restorer.leave(self)\n",
        _LEDGER_TESTS + "test_shortage.py",
    ),
    _planted(
        "the time of an older LAC counts for a newer one",
        LEDGER + "lac_schedule.py",
        "            if self._tellings.get(telling.writer) is telling:\n                due.append",
        "            if telling.writer in self._tellings:\n                due.append",
        _LEDGER_TESTS + "test_lac_schedule.py",
    ),
    _planted(
        "nobody wakes to poll a bookie that failed",
        LEDGER + "poll_plan.py",
        "if slot not in self._held and at > now]",
        "if slot in self._held and at > now]",
        _LEDGER_TESTS + "test_poll_plan.py",
    ),
    _planted(
        "a bookie that could not go read-only is kept up as such",
        REGISTRATION,
        "                self._read_only = previous\n",
        "",
        _REGISTRATION_TESTS,
    ),
    _planted(
        "a bookie in both lists leaves one of them",
        REGISTRATION,
        "            for read_only in (False, True):\n                await self._delete_own",
        "            for read_only in (self._read_only,):\n                await self._delete_own",
        _REGISTRATION_TESTS,
    ),
    _planted(
        "a bookie that moves between two reads is in neither list",
        "bookkeeper/metadata/cluster.py",
        "            nodes = {**nodes, **await self._synced(places)}\n",
        "            pass\n",
        "tests/unit/bookkeeper/metadata/test_cluster.py",
    ),
    _planted(
        "a lock that ended counts as saved already",
        BROKER + "locks.py",
        "lock if lock is not None and _lives(lock, now) else None",
        "lock if lock is not None and (_lives(lock, now) or lock.client_id == client_id) else None",
        _BROKER_TESTS + "test_locks.py",
    ),
    _planted(
        "a copied reset without an offset is a commit of its group",
        BROKER + "offset_merge.py",
        "                self.pull_keys.add(key)\n            if count",
        "                self.keys.add(key)\n            if count",
        _BROKER_TESTS + "test_offset_resets.py",
    ),
    _planted(
        "resets without an offset have no page behind pull offsets (H12)",
        BROKER + "offset_pages.py",
        "at = _RESET_PLACES if offsets.keys_of_resets else None",
        "at = _RESET_PLACES if offsets.keys_of_resets and not first else None",
        _BROKER_TESTS + "test_master_tables.py",
    ),
    _planted(
        "a queue that was made anew after one message is built of that one",
        "rocketmq/store/rebuild.py",
        "if queue_offset < self._next.get(key, 1):",
        "if queue_offset < self._next.get(key, 1) - 1:",
        "tests/unit/rocketmq/store/test_rebuild.py",
    ),
    _planted(
        "an earlier flush is told when the log may have been cut",
        "rocketmq/store/flusher.py",
        "            await self._flushing.idle()\n",
        "            pass\n",
        "tests/unit/rocketmq/store/test_flusher.py",
    ),
    _planted(
        "a registration without a body is not held to its checksum",
        "rocketmq/nameserver/registrations.py",
        "if header.body_crc32 and body_crc(body)",
        "if header.body_crc32 and body and body_crc(body)",
        "tests/unit/rocketmq/nameserver/test_registrations.py",
    ),
    _planted(
        "a gathered message is told the place of the first of its batch",
        "rocketmq/client/gathering.py",
        "enumerate(zip(members, offset_ids, strict=True), whole.queue_offset)",
        "((whole.queue_offset, each) for each in zip(members, offset_ids, strict=True))",
        "tests/unit/rocketmq/client/test_gathering.py",
    ),
    _planted(
        "a message that was given up within its turn is sent with the others",
        "rocketmq/client/gathering.py",
        "[member for member in batch.members if not member.future.done()]",
        "batch.members",
        "tests/unit/rocketmq/client/test_gathering.py",
    ),
    _planted(
        "who drains does not wait for what was gathered in this turn",
        "rocketmq/client/producer.py",
        "            self._gathering.send()\n",
        "            pass\n",
        "tests/unit/rocketmq/client/test_gathering.py",
    ),
)
