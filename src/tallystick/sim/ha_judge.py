"""The promises of replication, checked at each answer, each copy and at the end of a life.

What a send was told decides what must be true: with the master's disk, it survives anything that happens to the master;
with the slaves, enough distinct ones had it when the sender was told, and for good if they acknowledge what they
synced. And a slave that follows has the master's bytes, all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.codec.checksum import crc32c
from tallystick.rocketmq.ha.follow import Stage
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.sim.ha_master import SimMaster
from tallystick.sim.ha_slave import SimSlave
from tallystick.sim.invariants import Violation
from tallystick.sim.world import World


@dataclass(frozen=True)
class _Promise:
    """The bytes of a log up to ``end`` must stay."""

    where: str
    end: int
    crc: int


class HaJudge:
    """Sees what really is, which no node does."""

    master: SimMaster

    def __init__(self, world: World) -> None:
        self.world = world
        self.slaves: list[SimSlave] = []
        self.promised = 0
        self._promises: list[_Promise] = []
        self._reach: dict[str, int] = {}  # how far a slave ever had the bytes that the master has now

    def settled(self, end: int, flush: bool, replicas: bool, since: float, status: PutStatus) -> None:
        """A sender was told what became of its send at ``since``."""
        self.world.note("told", end, status.name)
        late = self.world.now >= since + self.master.settings.sync_flush_timeout_ms / 1000
        if flush and self.master.log.flushed < end and not late:
            self._fail("flush", f"{status.name} was told before the disk had the send up to {end}")
        if status is not PutStatus.PUT_OK:
            if status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT) and not replicas:
                self._fail("H9", f"{status.name} for a send that wanted no slave")
            return
        self.promised += flush or replicas
        if flush:
            if self.master.log.flushed < end:
                self._fail("flush", f"the send up to {end} is not on the master's disk")
            self._promises.append(_Promise("master", end, crc32c(bytes(self.master.log.data[:end]))))
        if replicas:
            self._replicated(end)

    def _replicated(self, end: int) -> None:
        holders = [slave for slave in self.slaves if self._has(slave, end)]
        if len(holders) < self.master.settings.slaves_needed:
            self._fail("H9", f"the send up to {end} is on {len(holders)} slaves")
        for slave in holders:
            if slave.settings.sync_flush:
                self._promises.append(_Promise(slave.name, end, crc32c(bytes(slave.log.data[:end]))))

    def _has(self, slave: SimSlave, end: int) -> bool:
        if not slave.settings.sync_flush:
            return self._reach.get(slave.name, 0) >= end
        return slave.log.flushed >= end and self.same(slave, end)

    def copied(self, slave: SimSlave, offset: int, size: int) -> None:
        """A slave appended something."""
        end = offset + size
        if slave.log.data[offset:end] != self.master.log.data[offset:end]:
            self._fail("H8", f"{slave.name} copied bytes to {offset} that the master does not have there")
        self._reach[slave.name] = max(self._reach.get(slave.name, 0), end)

    def follows(self, slave: SimSlave) -> None:
        """A slave begins to copy."""
        if not self.same(slave, slave.log.end):
            self._fail("R3", f"{slave.name} follows a master whose log is another")
        self._reach[slave.name] = max(self._reach.get(slave.name, 0), slave.log.end)

    def master_died(self) -> None:
        """What it lost is no longer what a slave can be said to have of it."""
        for name in self._reach:
            self._reach[name] = min(self._reach[name], self.master.log.end)
        self._check_promises()

    def same(self, slave: SimSlave, end: int) -> bool:
        """Whether the slave has the bytes that the master has up to there, or had before they were deleted."""
        if slave.log.empty:
            return True
        first = slave.log.first
        mine, theirs = self.master.log.data[first:end], slave.log.data[first:end]
        return end <= self.master.log.end and end <= slave.log.end and mine == theirs

    def at_the_end(self) -> None:
        """Everything is calm: who can follow follows and has everything (``copied`` saw to those who cannot)."""
        self._check_promises()
        if self.master.waiting:
            self._fail("H9", f"nobody was told about {list(self.master.waiting.values())}")
        for slave in self.slaves:
            following = slave.link is not None and slave.link.core.stage is Stage.FOLLOWING
            if self.compatible(slave) and not (following and slave.log.end == self.master.log.end):
                self._fail("H6", f"{slave.name} has {slave.log.end} of {self.master.log.end}: {slave.refused}")

    def compatible(self, slave: SimSlave) -> bool:
        """Whether the master can go on where the slave's log ends."""
        end = slave.log.end
        return slave.log.empty or (self.master.log.first < end and self.same(slave, end))

    def _check_promises(self) -> None:
        logs = {slave.name: slave.log for slave in self.slaves} | {"master": self.master.log}
        for promise in self._promises:
            log = logs[promise.where]
            if log.end < promise.end or crc32c(bytes(log.data[: promise.end])) != promise.crc:
                self._fail("acked", f"{promise.where} lost what it had up to {promise.end}")

    def _fail(self, promise: str, what: str) -> None:
        self.world.note("VIOLATION", promise, what)
        raise Violation(f"{promise}: {what}")
