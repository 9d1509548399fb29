"""Bugs planted in the shells of brokers: whole name servers, masters, slaves and clients must show them."""

from __future__ import annotations

from sim.mutants import Mutant

ROCKETMQ = "rocketmq/"


def _planted(name: str, module: str, old: str, new: str, killer: str = "sim brokers", schedules: int = 60) -> Mutant:
    return Mutant(name, ROCKETMQ + module, old, new, killer=killer, schedules=schedules)


BROKER_MUTANTS = (
    _planted(
        "a flush is told that has not come to its end (B1)",
        "store/flusher.py",
        "        self._flushed(offset)\n",
        "        self._flushed(self._store.end)\n",
    ),
    _planted(
        "a send does not wait for the disk (B1)",
        "broker/log.py",
        "flush=self._sync_flush, replicas=replicas",
        "flush=False, replicas=replicas",
    ),
    _planted(
        "a send does not wait for a slave (B2)",
        "broker/log.py",
        "flush=self._sync_flush, replicas=replicas",
        "flush=self._sync_flush, replicas=False",
    ),
    _planted(
        "slaves are waited for that began behind what is deleted",
        "broker/log.py",
        "first_end = max(first_end, self.store.first + 1)",
        "pass",
        "tests/unit/rocketmq/broker/test_sink_checks.py",
    ),
    _planted(
        "a sink's batch that is repeated waits for the end of it alone (H9)",
        "broker/send.py",
        "first_end = existing.first_end if isinstance(existing, RepeatedSend) else existing.end",
        "first_end = existing.end",
        "tests/unit/rocketmq/broker/test_sink_checks.py",
    ),
    _planted(
        "the rest of a sink's batch does not wait for what is stored of it (H9)",
        "broker/send.py",
        "first_end = min(first_end, sink.first_end)",
        "pass",
        "tests/unit/rocketmq/broker/test_sink_checks.py",
    ),
    _planted(
        "who asks again for a deletion does not wait for the disk (H12)",
        "broker/config_table.py",
        "if configs or self._unsaved_removal is not None:",
        "if configs:",
        "tests/unit/rocketmq/broker/test_config_table.py",
    ),
    _planted(
        "who asks again for the deletion of a user does not wait for the disk (N14)",
        "broker/access/table.py",
        "        self._step(revokes=user is not None)\n",
        "            self._step(revokes=True)\n",
        "tests/unit/rocketmq/broker/access/test_gate.py",
    ),
    _planted(
        "a master answers before it waits (B1)",
        "broker/send.py",
        "            if may_wait and checked_send.wait and put.status is _OK:",
        "            if False and put.status is _OK:",
    ),
    _planted(
        "whatever became of a wait, the message is stored (B2)",
        "broker/send.py",
        "            code = settle.status.response_code\n",
        "            code = ResponseCode.SUCCESS\n",
    ),
    _planted(
        "what was sent to a slave counts as acknowledged (B2)",
        "ha/master.py",
        "master.acked(self, offset, took=offset > start)",
        "master.acked(self, self._feed.position, took=True)",
        schedules=100,
    ),
    _planted(
        "of bytes in several parts a slave stores the first (B9)",
        "ha/slave.py",
        'parts[0] if len(parts) == 1 else b"".join(parts)',
        "parts[0]",
        schedules=100,
    ),
    _planted(
        "a slave that lost its master does not try again (B9)",
        "ha/slave.py",
        "        return (await link.closed).retry_s\n",
        "        await link.closed\n        return 10_000.0\n",
    ),
    _planted(
        "a slave does not carry out its master's deletions (B8)",
        "broker/metadata_sync.py",
        "            await worker.run(deletion.run)\n",
        "            pass\n",
        "tests/unit/rocketmq/broker/test_queue_pages.py",
    ),
    _planted(
        "a slave that takes over while it runs keeps a part of a record",
        "store/takeover.py",
        "            parts.log.cut(parts.reput.offset)\n",
        "            pass\n",
        "tests/unit/rocketmq/store/test_takeover.py",
    ),
    _planted(
        "a slave that takes over while it runs does not note what it was told",
        "store/takeover.py",
        "            queues.mark(queue)\n",
        "            pass\n",
        "tests/unit/rocketmq/store/test_takeover.py",
    ),
    _planted(
        "a slave takes sends before its log is a master's",
        "broker/role_taking.py",
        "        else:\n            await self.sync.take_role(slave=False)\n",
        "        else:\n            self.standing.become(role)\n            await self.sync.take_role(slave=False)\n",
        "tests/unit/rocketmq/broker/test_role_change.py",
    ),
    _planted(
        "who waits for a slave is told yes when its master is none any more (H9)",
        "ha/acks.py",
        "*self._end(self._replicas.leave(), PutStatus.FLUSH_SLAVE_TIMEOUT)",
        "*self._end(self._replicas.leave(), PutStatus.PUT_OK)",
        "tests/unit/rocketmq/broker/test_role_change.py",
    ),
    _planted(
        "a table counts as saved that was not written (B1)",
        "broker/saver.py",
        "            await run(partial(files.save, name, *pieces))\n",
        "            pass\n",
    ),
    _planted(
        "a deletion is not noted on the disk (B8)",
        "store/upkeep.py",
        "            if self._closed or state is None:\n                return\n            # A checkpoint",
        "            if self._closed or state is not None:\n                return\n            # A checkpoint",
    ),
    _planted(
        "reput does not hear of deletions (B9)",
        "store/replicated_queues.py",
        "        deleted_topics.add(deletions)\n",
        "",
    ),
    _planted(
        "a topic without a route is looked for where it was (B9)",
        "client/routes.py",
        "                await self._relocate(name)\n",
        "                pass\n",
        "tests/unit/rocketmq/client/test_producer.py",
    ),
    _planted(
        "a message that may be stored twice is told as stored once (B7)",
        "client/sending.py",
        "        twice = self.failure is not None and self.failure.ambiguous\n",
        "        twice = False\n",
    ),
)
