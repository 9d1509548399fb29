"""Planted bugs of replication; as in ``mutants.py``."""

from __future__ import annotations

from sim.mutants import Mutant

HA = "rocketmq/ha/"
STORE = "rocketmq/store/"
BROKER = "rocketmq/broker/"
UNIT = "tests/unit/rocketmq/ha/"

HA_MUTANTS = (
    Mutant(
        "an ack above what was sent is believed (R1)",
        HA + "feed.py",
        "if not 0 <= offset <= self.position:",
        "if offset < 0:",
        "sim ha", 150,
    ),
    Mutant(
        "a first report is an ack (R1)",
        HA + "acks.py",
        "self._slaves[slave] = _Slave(position)",
        "self._slaves[slave] = _Slave(position, position)",
        UNIT + "test_acks.py",
    ),
    Mutant(
        "a slave acknowledges what it has not synced (R1)",
        HA + "follow.py",
        "return self._log.flushed if self._settings.sync_flush else self._log.end",
        "return self._log.end",
        "sim ha", 150,
    ),
    Mutant(
        "two links of one slave are two copies (R2)",
        HA + "master.py",
        "link.name = start.slave_id or link.peer",
        "link.name = link.peer",
        UNIT + "test_replication.py",
    ),
    Mutant(
        "a slave with another log is fed (R3)",
        HA + "feed.py",
        "if objection is not None:",
        "if False:",
        "sim ha", 150,
    ),
    Mutant(
        "the proof is not looked at (R3)",
        HA + "proof.py",
        "_crc(log, span) != span.crc",
        "False",
        "sim ha", 150,
    ),
    Mutant(
        "a slave of ours that waits too long is fed without a proof (R3)",
        HA + "feed.py",
        "        if self._stage is _Stage.GREETED:\n",
        "        if self._stage is _Stage.GREETED and self._unit(0) == TELL:\n",
        "sim ha", 150,
    ),
    Mutant(
        "one slave fewer is enough (H9)",
        HA + "acks.py",
        "return acked[needed - 1] if len(acked) >= needed else -1",
        "return acked[0] if acked else -1",
        "sim ha", 150,
    ),
    Mutant(
        "nobody waits for the disk",
        HA + "acks.py",
        "disk = flush and end > self._flushed",
        "disk = False",
        "sim ha", 150,
    ),
    Mutant(
        "waits for slaves never end (H9)",
        HA + "acks.py",
        "            *self._end(self._replicas.expired(now), PutStatus.FLUSH_SLAVE_TIMEOUT),\n",
        "",
        "sim ha", 150,
    ),
    Mutant(
        "a silent master is never given up (H6)",
        HA + "follow.py",
        "if now >= self._silence_at():",
        "if False:",
        "sim ha", 150,
    ),
    Mutant(
        "an offset that is not the end is appended (H8)",
        HA + "follow.py",
        "if offset < 0 or (self._end and offset != self._end):",
        "if offset < 0:",
        UNIT + "test_follow.py",
    ),
    Mutant(
        "a slave that left is still waited for (H10)",
        HA + "acks.py",
        "        self._slaves.pop(slave, None)\n",
        "",
        UNIT + "test_acks.py",
    ),
    Mutant(
        "an empty slave begins at offset 0 (H4)",
        HA + "feed.py",
        "return log.end - log.end % self._file_bytes",
        "return 0",
        UNIT + "test_feed.py",
    ),
    Mutant(
        "a flush that syncs nothing (H11)",
        STORE + "commit_log.py",
        "                self.files.sync(self.flushed, end)\n",
        "                pass\n",
        "sim ha", 150,
    ),
    Mutant(
        "queues count as durable and are not synced (H8)",
        STORE + "store.py",
        "        self._queues.sync()\n",
        "",
        "sim ha", 150,
    ),
    Mutant(
        "what is not synced is readable under SYNC_FLUSH",
        STORE + "store.py",
        "held = self._settings.sync_flush and not self.slave",
        "held = False",
        "sim ha", 150,
    ),
    Mutant(
        "a slave's empty file is no place to begin (H4)",
        STORE + "recovery.py",
        "max(min(synced, end), files.first)",
        "min(synced, end)",
        "sim ha", 150,
    ),
    Mutant(
        "a queue offset is given twice",
        STORE + "store.py",
        "{(q.topic, q.queue_id): q.end for q in queues if q.end}",
        "{(q.topic, q.queue_id): q.end - 1 for q in queues if q.end}",
        "sim ha", 150,
    ),
    Mutant(
        "what a full disk kept from the index is never written",
        STORE + "index_file.py",
        "            for page, _ in pages:\n                self._dirty_pages[page] = 1\n",
        "",
        "tests/unit/rocketmq/store/test_store.py",
    ),
    Mutant(
        "a master that comes back sets offsets back (H13)",
        BROKER + "offsets.py",
        "own = self.lacking(table)",
        "own: list[Commit] = []",
        "tests/unit/rocketmq/broker/test_offsets.py",
    ),
    Mutant(
        "what was committed on a slave is not saved as its own (H13)",
        BROKER + "offsets.py",
        "own = _copy(self._own) or None",
        "own = None",
        "sim metadata", 150,
    ),
    Mutant(
        "a copy of topics has the version of another (H12)",
        BROKER + "metadata_sync.py",
        "topics.replace(TopicTable(table.version, table.topics))",
        "topics.replace(TopicTable(topics.version, table.topics))",
        "sim metadata", 150,
    ),
    Mutant(
        "a message of an unknown topic brings no copy (H12)",
        BROKER + "rounds.py",
        "        return bool(new)",
        "        return False",
        "sim metadata", 150,
    ),
    Mutant(
        "a slave tells of commits beyond its own log (H13)",
        BROKER + "offsets.py",
        "= min(offset, self._end_of(topic, queue_id))",
        "= offset",
        "tests/unit/rocketmq/broker/test_offsets.py",
    ),
    Mutant(
        "the folder of the tables is not durable (H12)",
        BROKER + "config_files.py",
        "        disk.sync_dir(store_directory)",
        "        ",
        "sim metadata", 150,
    ),
    Mutant(
        "nobody tells the master what was committed on its slave (H13)",
        BROKER + "metadata_sync.py",
        "lacking = offsets.lacking(table)",
        "lacking: list[Commit] = []",
        "sim metadata", 150,
    ),
)  # fmt: skip
