"""Planted bugs of replication; as in ``mutants.py``."""

from __future__ import annotations

from sim.mutants import Mutant

HA = "rocketmq/ha/"
UNIT = "tests/unit/rocketmq/ha/"

HA_MUTANTS = (
    Mutant(
        "an ack above what was sent is believed (R1)",
        HA + "feed.py",
        "if not 0 <= offset <= self.position:",
        "if offset < 0:",
        "sim ha", 300,
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
        "sim ha", 300,
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
        "sim ha", 300,
    ),
    Mutant(
        "the proof is not looked at (R3)",
        HA + "proof.py",
        "_crc(log, span) != span.crc",
        "False",
        "sim ha", 300,
    ),
    Mutant(
        "a slave of ours that waits too long is fed without a proof (R3)",
        HA + "feed.py",
        "        if self._stage is _Stage.GREETED:\n",
        "        if self._stage is _Stage.GREETED and self._unit(0) == TELL:\n",
        "sim ha", 300,
    ),
    Mutant(
        "one slave fewer is enough (H9)",
        HA + "acks.py",
        "return acked[needed - 1] if len(acked) >= needed else -1",
        "return acked[0] if acked else -1",
        "sim ha", 300,
    ),
    Mutant(
        "nobody waits for the disk",
        HA + "acks.py",
        "disk = flush and end > self._flushed",
        "disk = False",
        "sim ha", 300,
    ),
    Mutant(
        "waits for slaves never end (H9)",
        HA + "acks.py",
        "            *self._end(self._replicas.expired(now), PutStatus.FLUSH_SLAVE_TIMEOUT),\n",
        "",
        "sim ha", 300,
    ),
    Mutant(
        "a silent master is never given up (H6)",
        HA + "follow.py",
        "if now >= self._silence_at():",
        "if False:",
        "sim ha", 300,
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
)  # fmt: skip
